"""One entry of the ``features`` block: which kind of feature, and the options that this kind has."""

import dataclasses
from typing import Any, Literal

from lockstep.transforms.feature_checks import check_feature
from lockstep.transforms.feature_kinds import DEFAULT_NUM_BUCKETS, OPTIONS_OF_KIND, SCALES_OF_KIND, Kind, Missing, Part
from lockstep.transforms.time_options import YEAR

__all__ = ["Feature"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Feature:
    """How one raw column becomes model inputs, each dense, of shape [batch, 1] where nothing else is said.

    A value is missing where the column is absent or empty in the row, and where a number is NaN or infinite.

    Args:
      kind: ``numeric``: the number, scaled (float32). ``buckets``: index (int64) of the bucket that a number falls
        into. ``vocabulary``: index (int64) into the values seen in training, most frequent first, then ``num_oov``
        indices, chosen by hash, for values not seen. ``hash``: index (int64) chosen by hash, without any analysis.
        ``integer``: a whole number from 0 to under ``num_values`` as it is (int64), one more index for all others.
        ``timestamp``: a time, int64 seconds since 1970 in UTC as ExampleGen writes times and dates, becomes the outputs
        that ``parts`` and ``since`` name. ``cross``: index (int64) chosen by hash of what ``columns`` hold together;
        its key is a name of its own, not a column. ``text``: the words of a text. ``list``: any number of values a row.
        ``auto``: one of these, picked by the statistics of the training split.
        ``pass_through``: the value as it is (float32, int64 or text). ``image``: the bytes of a JPEG, PNG, GIF or BMP
        file, decoded and brought to one size (float32 [batch, height, width, channels]). Vocabulary, hash and list take
        text or whole numbers; in a vocabulary empty text, and text with a line break, counts as not seen.
      missing: What a missing value becomes. ``indicator``: for an index one of its own, the last; for a number the
        mean (``pass_through``: 0 or empty text; sine and cosine: 0; ``image``: black) and an output
        ``<column>_missing`` (float32, 0 or 1). ``mean`` and ``median``: that of the values present in training, after
        ``clip`` and ``log``. ``zero``: 0, ``pass_through`` of text: empty text. ``constant``: what ``default`` says.
        ``error``: the step fails, as does a request to the served model. ``mean`` and ``median`` are of numeric and
        buckets only, ``zero`` of these, of pass_through, text, list and image.
      default: ``missing: constant`` only, and required there: the raw value, a number or text (of a timestamp: a time
        in ISO 8601, or its seconds), that stands for a missing one, in training as at serving.
      scale: ``numeric`` and ``image``, and year and days of ``timestamp``. ``z_score``: minus the mean, by the
        standard deviation. ``min_max``: 0 at the least value of training, 1 at the greatest; values beyond them come
        out beyond 0 and 1. ``robust``: minus the median, by the distance of the quartiles. ``none``: as it is. Computed
        in float64, then rounded to float32. ``image``: ``zero_one`` (0 to 1), ``minus_one_one`` (-1 to 1), ``none`` (0
        to 255). None is ``z_score``, of an image ``zero_one``.
      clip: ``numeric`` and ``buckets``: [least, greatest], a smaller number becomes the least, a greater one the
        greatest; null for no bound. Before everything else.
      log: ``numeric`` and ``buckets`` by quantiles: takes sign(x) * log(1 + abs(x)), which is defined for every
        number, before statistics and scaling.
      constant: ``numeric`` only. What becomes of a column with the same value in all rows of training: ``zero``: 0
        whatever is served (not for ``scale: none``), with a warning; ``error``: the step fails.
      inexact: ``numeric`` and ``buckets``. What becomes of whole numbers that float64 cannot tell apart, of 2^53 and
        more (``scale: none``: float32, over 2^24), in training: ``error``: the step fails; ``round``: they are
        rounded.
      num_buckets: ``buckets``: how many, by quantiles, 2 or more; None is 10. A column with fewer different values
        leaves some of them empty. ``hash`` and ``cross``: how many indices, required. ``list``: the values are hashed
        to so many indices, instead of a vocabulary of ``top_k``, ``min_frequency`` and ``num_oov``.
      edges: ``buckets`` only, instead of ``num_buckets``: ascending; a number falls into the bucket after all edges
        that it reaches.
      top_k: ``vocabulary``, ``text`` and ``list``: 1 or more; rarer values count as not seen.
      min_frequency: ``vocabulary``, ``text`` and ``list``: values in fewer rows of training (that occur fewer times in
        texts and lists) count as not seen; 1 or more.
      num_oov: ``vocabulary``, ``text`` and ``list``: 1 or more.
      num_values: ``integer`` only, and required there: 1 or more.
      parts: ``timestamp`` only: what the model is given of the time, each as ``<column>_<part>``. All but ``year`` are
        indices (int64) from 0 on: Monday, January, and the first day of month and year are 0; ``hour_of_week`` begins
        on Monday at midnight. ``year`` is a number, scaled (float32).
      cyclic: ``timestamp`` only: each part but ``year`` becomes its place on a circle, so that 23 is next to 0: sine
        and cosine (float32), ``<column>_<part>_sin`` and ``<column>_<part>_cos``, instead of an index.
      since: ``timestamp`` only: a date or time in ISO 8601, in UTC where it says no other; gives the days that have
        passed since then (negative before), with their fraction, scaled (float32), as ``<column>_days``.
      utc_offset: ``timestamp`` only: how far the local time of the ``parts`` is ahead of UTC, as +HH:MM or -HH:MM; the
        same all the year.
      columns: ``cross`` only, and required there: two or more. The index of a declared feature of kind ``buckets``, or
        of a part of a ``timestamp`` (``<column>_<part>``); of any other name the raw column, text or whole numbers.
      output: ``text`` and ``list``. ``indices``: int64 [batch, ``max_tokens`` or ``max_values``], 0 for padding, then
        the vocabulary from 1 on, then ``num_oov``; how many of a row are no padding is ``<column>_count`` (float32).
        ``counts``: how often a text has each token, float32 [batch, ``top_k`` + ``num_oov``]; for a list
        ``multi_hot``: 1 where the row has the value, or the sum of its ``weights``. ``tf_idf``: counts by the number of
        tokens in the text, times 1 + log((texts + 1) / (texts with the token + 1)).
      max_tokens: ``text`` with ``output: indices``, and required there: the first so many are kept, 1 to 10,000.
      max_values: ``list`` with ``output: indices``, and required there: the first so many are kept, 1 to 10,000.
      split: ``text`` only. ``words``: by blanks, controls, punctuation and symbols of Unicode; ``whitespace``: by the
        first two.
      lower: ``text`` only: whether letters become small ones, in all scripts.
      ngrams: ``text`` only: [least, most] words of a token, joined by a blank; 1 to 5.
      weights: ``list`` with ``output: multi_hot`` only: a raw column of as many numbers in each row.
      height: ``image`` only, and required there: pixels.
      width: Likewise.
      channels: ``image`` only: 1 (grey), 3 (colours) or 4 (with transparency; not of JPEG).
      fit: ``image`` only. How an image of other proportions becomes one of this size: ``crop``: the largest window in
        its middle that has them; ``pad``: whole, with black beside it; ``stretch``: out of proportion.
      decode: ``image`` only. ``transform``: once, in Transform, whose records hold the pixels. ``train``: records hold
        the files' bytes, and each batch is decoded as it is trained on. The model and its service are the same.

    Raises:
      ValueError: A value out of range, or one that this kind of feature would ignore.
    """

    kind: Kind
    missing: Missing = "indicator"
    default: int | float | str | None = None
    scale: Literal["z_score", "min_max", "robust", "none", "zero_one", "minus_one_one"] | None = None
    clip: tuple[float | None, float | None] | None = None
    log: bool = False
    constant: Literal["zero", "error"] = "zero"
    inexact: Literal["error", "round"] = "error"
    num_buckets: int | None = None
    edges: tuple[float, ...] = ()
    top_k: int = 1000
    min_frequency: int = 1
    num_oov: int = 1
    num_values: int | None = None
    parts: tuple[Part, ...] = ()
    cyclic: bool = False
    since: str | None = None
    utc_offset: str = "+00:00"
    columns: tuple[str, ...] = ()
    output: Literal["indices", "counts", "tf_idf", "multi_hot"] = "indices"
    max_tokens: int | None = None
    max_values: int | None = None
    split: Literal["words", "whitespace"] = "words"
    lower: bool = True
    ngrams: tuple[int, int] = (1, 1)
    weights: str | None = None
    height: int | None = None
    width: int | None = None
    channels: int = 3
    fit: Literal["crop", "pad", "stretch"] = "crop"
    decode: Literal["transform", "train"] = "transform"

    def __post_init__(self) -> None:
        # From JSON they are lists.
        for name in ("edges", "parts", "columns", "ngrams"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "clip", None if self.clip is None else tuple(self.clip))
        if self.scale is None and self.kind in SCALES_OF_KIND:
            object.__setattr__(self, "scale", SCALES_OF_KIND[self.kind][0])
        check_feature(self)
        if self.kind == "buckets" and not self.edges and self.num_buckets is None:
            object.__setattr__(self, "num_buckets", DEFAULT_NUM_BUCKETS)

    def to_json(self) -> dict[str, Any]:
        """Returns the kind and all options that it has."""
        return {"kind": self.kind, **{name: getattr(self, name) for name in OPTIONS_OF_KIND[self.kind]}}

    @property
    def num_indices(self) -> int | None:
        """How many different values an index has; None for a quantity, and a vocabulary, known after the analysis."""
        own = int(self.missing == "indicator")
        if self.kind == "buckets":
            return (len(self.edges) + 1 if self.edges else self.num_buckets or 0) + own
        if self.kind in ("hash", "cross"):
            return (self.num_buckets or 0) + own
        if self.kind == "list" and self.output == "indices" and self.num_buckets is not None:
            return self.num_buckets + 1 + own
        return (self.num_values or 0) + 1 + own if self.kind == "integer" else None

    @property
    def dense_width(self) -> int:
        """Numbers of a row of a text's counts, or of a list's values."""
        return self.top_k + self.num_oov if self.num_buckets is None else self.num_buckets

    @property
    def has_indicator(self) -> bool:
        """Whether there is an output of its own that tells missing values."""
        has_numbers = self.cyclic or YEAR in self.parts or self.since is not None
        is_told = self.kind in ("numeric", "pass_through", "image") or (self.kind == "timestamp" and has_numbers)
        is_told |= self.kind in ("text", "list") and self.output != "indices"
        return self.missing == "indicator" and is_told
