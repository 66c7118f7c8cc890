"""Vocabularies of all columns in one pass of Beam.

tf.Transform's own analyzer makes about a dozen Beam stages for each vocabulary, whose fixed time is most of a Transform
on up to some 100,000 rows. Here one combine counts the tokens of all columns, in the memory of one worker.
"""

import collections
import contextlib
import dataclasses
import functools
import logging
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import tensorflow as tf
import tensorflow_transform as tft
import tensorflow_transform.beam as tft_beam

__all__ = [
    "NO_TOKENS",
    "VocabularyOptions",
    "analyze_tokens",
    "broken_tokens",
    "oov_table",
    "top_tokens",
    "vocabulary_table",
]

# The only line of a vocabulary of a column without values: tables cannot be made from an empty file.
NO_TOKENS = b"lockstep: no value in training"

_log = logging.getLogger(__name__)

_Counts = collections.Counter[bytes]
# A vocabulary is a text file with a token on each line.
_LINE_BREAK = re.compile(rb"[\r\n]")


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularyOptions:
    """One vocabulary.

    Args:
      name: Name of its file in the transform graph, for `tft.TFTransformOutput.vocabulary_by_name`.
      top_k: How many of the most frequent tokens to keep, 1 or more.
      min_frequency: In how many rows a token has to be, 1 or more.
    """

    name: str
    top_k: int
    min_frequency: int = 1


def analyze_tokens(tokens: tf.Tensor | Sequence[tf.Tensor], options: Sequence[VocabularyOptions]) -> list[tf.Tensor]:
    """Makes a vocabulary of each column over the whole data set.

    Args:
      tokens: string [batch, columns]; the empty string where a value is missing. Or, for each column, string [values
        of the batch], of columns with any number of values in a row.
      options: For each column.

    Returns:
      For each column the path of a text file, as `tft.apply_vocabulary` takes it: a token a line, most frequent first.
    """
    return list(
        tft.experimental.ptransform_analyzer(
            inputs=list(tokens) if isinstance(tokens, Sequence) else [tokens],
            ptransform=_MakeVocabularies(tuple(options)),
            output_dtypes=[tf.string] * len(options),
            output_shapes=[[]] * len(options),
            output_asset_default_values=[NO_TOKENS] * len(options),
            name="tokens",
        )
    )


def top_tokens(counts: Mapping[bytes, int], top_k: int, min_frequency: int = 1) -> list[bytes]:
    """Returns the most frequent tokens, equally frequent ones by their bytes; only `NO_TOKENS` if there is none.

    Tokens that cannot stand in a line of text, empty ones and those with a line break, are left out.
    """
    usable = [
        (-count, token)
        for token, count in counts.items()
        if count >= min_frequency and token and not _LINE_BREAK.search(token)
    ]
    return [token for _, token in sorted(usable)[:top_k]] or [NO_TOKENS]


def broken_tokens(counts: Mapping[bytes, int]) -> tuple[int, int]:
    """Returns how many tokens have a line break, so that no vocabulary can hold them, and in how many rows they are."""
    rows = [count for token, count in counts.items() if _LINE_BREAK.search(token)]
    return len(rows), sum(rows)


def vocabulary_table(vocabulary_file: Any, make: Callable[[Any], Any]) -> tuple[Any, tf.Tensor]:
    """Returns a table over a vocabulary, for a ``lookup_fn`` of `tft.apply_vocabulary`, and its size (int64).

    Args:
      vocabulary_file: What the ``lookup_fn`` is given.
      make: Makes the table from the initializer of tokens and their places.
    """
    # Outside of a function's graph, or the table would be made again at every call of the exported one.
    known = isinstance(vocabulary_file, str) or hasattr(vocabulary_file, "numpy")
    with tf.init_scope() if known and tf.inside_function() else contextlib.nullcontext():
        whole_line, line_number = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
        table = make(tf.lookup.TextFileInitializer(vocabulary_file, tf.string, whole_line, tf.int64, line_number))
        return table, table.size()


def oov_table(vocabulary_file: Any, num_oov: int) -> tuple[tf.lookup.StaticVocabularyTable, tf.Tensor]:
    """Returns `vocabulary_table` with ``num_oov`` indices behind the tokens' for all others."""
    return vocabulary_table(vocabulary_file, lambda lines: tf.lookup.StaticVocabularyTable(lines, num_oov))


class _MakeVocabularies(tft_beam.experimental.PTransformAnalyzer):
    """From batches of tokens to the path of each vocabulary."""

    def __init__(self, options: Sequence[VocabularyOptions]) -> None:
        super().__init__()
        self._options = options

    def expand(self, batches: Any) -> Any:
        write = beam.ParDo(_WriteVocabularies(self._options, self.base_temp_dir))
        tags = [options.name for options in self._options]
        counts = batches | "Count" >> beam.CombineGlobally(_CountTokens(len(self._options)))
        paths = counts | "Write" >> write.with_outputs(*tags)
        return tuple(paths[tag] for tag in tags)


class _CountTokens(beam.CombineFn):
    """From batches of tokens, [rows, columns] or [values] for each column, to one counter a column."""

    def __init__(self, num_columns: int) -> None:
        super().__init__()
        self._num_columns = num_columns

    def create_accumulator(self) -> list[_Counts]:
        return [collections.Counter() for _ in range(self._num_columns)]

    def add_input(self, accumulator: list[_Counts], batch: Sequence[np.ndarray[Any, Any]]) -> list[_Counts]:
        columns = batch[0].T if batch[0].ndim == 2 else batch
        for tokens, counts in zip(columns, accumulator, strict=True):
            unique = pa.array(tokens, pa.large_binary()).value_counts()
            for token, count in zip(unique.field(0).to_pylist(), unique.field(1).to_pylist(), strict=True):
                counts[token] += count
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[list[_Counts]]) -> list[_Counts]:
        return functools.reduce(_add_counts, accumulators)

    def extract_output(self, accumulator: list[_Counts]) -> list[_Counts]:
        return accumulator


def _add_counts(one: list[_Counts], other: list[_Counts]) -> list[_Counts]:
    for counts, more in zip(one, other, strict=True):
        counts.update(more)
    return one


class _WriteVocabularies(beam.DoFn):
    """Writes a file a column, and outputs its path under the tag of the vocabulary's name."""

    def __init__(self, options: Sequence[VocabularyOptions], output_dir: str) -> None:
        super().__init__()
        self._options = options
        self._output_dir = output_dir

    def process(self, columns: list[_Counts]) -> Iterator[Any]:
        tf.io.gfile.makedirs(self._output_dir)
        for options, counts in zip(self._options, columns, strict=True):
            num_broken, num_rows = broken_tokens(counts)
            if num_broken:
                _log.warning(
                    "%s: %d values with a line break, in %d rows, cannot stand in a vocabulary and count as not in it",
                    options.name,
                    num_broken,
                    num_rows,
                )
            path = posixpath.join(self._output_dir, options.name)
            with tf.io.gfile.GFile(path, "wb") as file:
                file.write(b"\n".join(top_tokens(counts, options.top_k, options.min_frequency)) + b"\n")
            yield beam.pvalue.TaggedOutput(options.name, np.array(path.encode(), object))
