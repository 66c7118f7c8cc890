"""The ``data`` block of a pipeline's configuration."""

import dataclasses
import difflib
import re
import zoneinfo
from collections.abc import Mapping
from typing import Literal, get_args

from lockstep.components.example_gen.split_options import SplitBy
from lockstep.components.example_gen.time_formats import UNIX_FORMATS, TimeOptions, pattern_of_format
from lockstep.components.object_store import check_uri

StoredType = Literal["int", "float", "string"]
"""What a feature of a tf.Example holds: int64, float32 or bytes."""

ColumnType = Literal["int", "float", "string", "bool", "timestamp", "date", "list<int>", "list<float>", "list<string>"]
"""What the values of a column mean; ``list<...>`` are any number of values a row, the others at most one."""

STORED: Mapping[ColumnType, StoredType] = {
    "int": "int",
    "float": "float",
    "string": "string",
    "bool": "int",
    "timestamp": "int",
    "date": "int",
    "list<int>": "int",
    "list<float>": "float",
    "list<string>": "string",
}
"""Of what type the values of a column are in the examples."""

Format = Literal["csv", "parquet", "json", "tfrecord", "images", "image_list"]
"""How files hold rows."""

FORMATS: tuple[Format, ...] = get_args(Format)

_SPLIT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CellOptions:
    """How times and lists are written in a cell.

    Args:
      times: Dates and times, as text or numbers.
      list_separator: What stands between the values of a column that is declared a list; empty where a cell is always
        one value.
    """

    times: TimeOptions = TimeOptions()
    list_separator: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CsvOptions:
    """How CSV text is read.

    Args:
      delimiter: One character of ASCII.
      quote: The character that encloses cells; empty where quotes are characters as others are.
      header: Whether the first line that is not empty names the columns.
      column_names: Names of all columns, in order, where there is no header; without them they are ``column_1`` and so
        on.
      encoding: A Python codec name; the text is decoded with it before parsing.
      null_tokens: Cells that mean "no value"; an empty cell always does.
    """

    delimiter: str = ","
    quote: str = '"'
    header: bool = True
    column_names: tuple[str, ...] = ()
    encoding: str = "utf-8"
    null_tokens: tuple[str, ...] = ("NA", "N/A", "null", "NULL", "None", "nan", "NaN", "-")

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in '"\r\n':
            raise ValueError(f"delimiter: {self.delimiter!r} is not allowed; give one character, such as ',' or ';'")
        if len(self.quote) > 1 or not self.quote.isascii() or self.quote in ("\r", "\n", self.delimiter):
            raise ValueError(f"quote: {self.quote!r} is not allowed; give one character, or '' for none")
        self._check_names()
        try:
            "".encode(self.encoding)  # codecs.lookup would take those that are not of text, such as rot13
        except LookupError as e:
            raise ValueError(
                f"encoding: {self.encoding!r} is not allowed; give a Python codec, such as 'utf-8' or 'latin-1'"
            ) from e

    def _check_names(self) -> None:
        if self.column_names and self.header:
            raise ValueError(
                "column_names: not allowed where the file has a header; give header: false, or leave it out"
            )
        for index, name in enumerate(self.column_names):
            if not name or name in self.column_names[:index]:
                raise ValueError(f"column_names: {name!r} is not allowed; give each column a name of its own")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """Which columns hold what of an image.

    Args:
      column: The encoded bytes, as they are in the file.
      label: ``format: images`` only: the name of the folder that the file is in; empty for no such column.
      path: The file's name: below the class folders' folder for ``format: images``, where empty is no such column; as
        the list has it for ``format: image_list``, which reads it.
      verify: Whether every value of a feature of kind ``image``, of any format, is decoded once as it is read, to find
        broken ones; without, a broken one stops Transform, which cannot name the file.
    """

    column: str = "image"
    label: str = "label"
    path: str = "path"
    verify: bool = True

    def __post_init__(self) -> None:
        if not self.column:
            raise ValueError("column: '' is not allowed; name the column of the encoded images")
        names = [name for name in (self.column, self.label, self.path) if name]
        if len(set(names)) < len(names):
            raise ValueError(f"column, label and path: {', '.join(names)} are not allowed; give three different names")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Where the rows come from and how they are dealt into splits and shards.

    Args:
      path: A file, a folder or a glob, here or in an object store (``s3://``, ``gs://``, ``minio://``), or
        ``package:NAME/PATH``, which an installed package brings. Relative paths are relative to the YAML file. Hidden
        files and files named ``_*`` in a folder or glob are left out. TFX's ``{SPAN}``, ``{VERSION}`` and date patterns
        are understood. CSV and JSON lines may be compressed: gzip, bzip2, zstd, or a zip archive of one file; TFRecords
        also by zlib.
      format: ``csv``, ``parquet``, ``json`` (one object a line), ``tfrecord`` (of tf.Examples), ``images`` (in folders
        named by their class) or ``image_list`` (a CSV file that names images); None picks by the files' names. A column
        of values that no feature can hold, such as lists of lists, is left out with a warning, and is an error where it
        is needed.
      splits: Name of split -> weight (integers of 1 or more). A row goes to a split by the hash of its values, so
        it stays there when rows are added; ``split_by`` has other ways.
      num_shards: Files per split, 1 or more.
      types: Column -> type, where the inferred one is not wanted.
      options: How CSV is read.
      time_zone: The zone of times that are written without one, such as ``Europe/Berlin``; in it, a time that occurs
        twice is the first one.
      time_formats: Column declared ``timestamp`` or ``date`` -> how it is written, where that is not ISO 8601:
        ``%d.%m.%Y %H:%M`` and its like, or ``unix``, ``unix_ms``, ``unix_us``, ``unix_ns`` for numbers.
      list_separator: What stands between the values of a text column that is declared a list; without it, a text is one
        value.
      images: The columns of images.
      on_error: What a row means that cannot be used, such as one with too few cells, or a value that has not its
        type: ``fail`` stops and names file and line; ``quarantine`` leaves it out, keeps it beside the examples and
        counts it.
      max_bad_rows: With ``quarantine``: more such rows are an error. A number of rows, or a share of all below 1; None
        allows any number.
      keep_origin: Whether a table beside the examples tells file and line of each record, so that later steps can name
        rows.
      split_by: What decides to which of ``splits`` a row goes, where that is not the hash of all its values.
      shuffle: Whether the rows of a split come in a random order, the same each time; otherwise in that of the files.
      target_shard_mb: Files of about this size, compressed, instead of ``num_shards`` of them.
    """

    path: str
    format: Format | None = None
    splits: Mapping[str, int] = dataclasses.field(default_factory=lambda: {"train": 2, "eval": 1})
    num_shards: int = 4
    types: Mapping[str, ColumnType] = dataclasses.field(default_factory=dict)
    options: CsvOptions = CsvOptions()
    time_zone: str = "UTC"
    time_formats: Mapping[str, str] = dataclasses.field(default_factory=dict)
    list_separator: str = ""
    images: ImageOptions = ImageOptions()
    on_error: Literal["fail", "quarantine"] = "fail"
    max_bad_rows: float | None = None
    keep_origin: bool = False
    split_by: SplitBy = SplitBy()
    shuffle: bool = True
    target_shard_mb: int | None = None

    @property
    def cells(self) -> CellOptions:
        """How times and lists are written."""
        times = TimeOptions(zone=self.time_zone, formats=self.time_formats)
        return CellOptions(times=times, list_separator=self.list_separator)

    def __post_init__(self) -> None:
        if not self.path:
            raise ValueError("path: '' is not allowed; give a file, folder or glob")
        try:
            check_uri(self.path)
        except ValueError as e:
            raise ValueError(f"path: {e}") from e
        if not self.splits:
            raise ValueError("splits: {} is not allowed; name at least one, such as {train: 2, eval: 1}")
        for name, weight in self.splits.items():
            if not _SPLIT_NAME.fullmatch(name):
                raise ValueError(f"splits: the name {name!r} is not allowed; use letters, digits, '_' and '-'")
            if weight < 1:
                raise ValueError(f"splits.{name}: {weight} is not allowed; give 1 or more")
        if not 1 <= self.num_shards <= 1000:
            raise ValueError(f"num_shards: {self.num_shards} is not allowed; give 1 to 1000")
        for column, kind in self.types.items():
            if kind not in STORED:
                raise ValueError(f"types.{column}: {kind!r} is not allowed; give one of {', '.join(STORED)}")
        self._check_times()
        self._check_rows()
        self.split_by.check(self.splits)

    def _check_rows(self) -> None:
        if self.max_bad_rows is not None:
            if self.on_error != "quarantine":
                raise ValueError("max_bad_rows: needs on_error: quarantine")
            if not 0 <= self.max_bad_rows < float("inf") or (self.max_bad_rows >= 1 and self.max_bad_rows % 1):
                raise ValueError(
                    f"max_bad_rows: {self.max_bad_rows} is not allowed; give a whole number of rows, or a share from 0"
                    " to 1"
                )
        if self.target_shard_mb is not None and self.target_shard_mb < 1:
            raise ValueError(f"target_shard_mb: {self.target_shard_mb} is not allowed; give 1 or more")

    def _check_times(self) -> None:
        try:
            if self.time_zone != "UTC":  # which needs no data base of zones
                zoneinfo.ZoneInfo(self.time_zone)
        except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError) as e:
            near = difflib.get_close_matches(self.time_zone, zoneinfo.available_timezones(), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "; give a name such as Europe/Berlin"
            raise ValueError(f"time_zone: {self.time_zone!r} is not known{hint}") from e
        for column, text in self.time_formats.items():
            if self.types.get(column) not in ("timestamp", "date"):
                raise ValueError(f"time_formats.{column}: needs types.{column}: timestamp (or date)")
            if text not in UNIX_FORMATS:
                try:
                    pattern_of_format(text)
                except ValueError as e:
                    raise ValueError(f"time_formats.{column}: {e}") from e


@dataclasses.dataclass(frozen=True, kw_only=True)
class Requirements:
    """What the rest of the pipeline needs of the rows.

    Args:
      columns: Must be there, with a value in some row of the split ``train`` (of all rows, without such a split).
      complete_columns: Must be there, and have a value in every row: the label's.
      complete_if_present: Need not be there, but must have a value in every row if they are: the label's where a
        function of the user's may make it of other columns.
      weight_column: Must be there, and hold a finite number of 0 or more in every row; None asks for none.
      images: Column -> channels. A value that is there must be an image that TensorFlow decodes with so many channels.
      on_missing: What a row without such a value means: ``error`` stops, ``drop`` leaves the row out and counts it.
    """

    columns: tuple[str, ...] = ()
    complete_columns: tuple[str, ...] = ()
    complete_if_present: tuple[str, ...] = ()
    weight_column: str | None = None
    images: Mapping[str, int] = dataclasses.field(default_factory=dict)
    on_missing: Literal["error", "drop"] = "error"

    def __post_init__(self) -> None:
        if self.on_missing not in ("error", "drop"):
            raise ValueError(f"on_missing: {self.on_missing!r} is not allowed; give error or drop")
