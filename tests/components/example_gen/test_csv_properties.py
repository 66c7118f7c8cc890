"""What Python's csv module wrote is read back, value for value."""

import csv
import io
import math
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from lockstep.components.example_gen.csv_source import CsvSource
from lockstep.components.example_gen.options import CsvOptions, DataOptions

_TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=30)
_AWKWARD = st.text(st.sampled_from(list('",;\n\r\t x7é')), max_size=12)
_DELIMITERS = st.sampled_from([",", ";", "\t", "|"])


def _read(rows: list[list[str]], kinds: list[str], delimiter: str, quoting: int, line_end: str) -> list[list[object]]:
    names = [f"c{i}" for i in range(len(kinds))]
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, quoting=quoting, lineterminator=line_end)
    writer.writerows([names, *rows])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        path.write_bytes(text.getvalue().encode())
        options = CsvOptions(delimiter=delimiter, null_tokens=())
        types = dict(zip(names, kinds, strict=True))
        source = CsvSource([str(path)], DataOptions(path=str(path), types=types, options=options))
        kinds_found = source.resolve(map(source.infer, source.units()))
        batches = [batch.columns for unit in source.units() for batch in source.batches(unit, kinds_found)]
    columns = [[value for batch in batches for value in batch[name].to_pylist()] for name in names]
    return [list(row) for row in zip(*columns, strict=True)]


@given(
    st.integers(1, 6).flatmap(
        lambda width: st.lists(st.lists(_TEXT | _AWKWARD, min_size=width, max_size=width), min_size=1, max_size=8)
    ),
    _DELIMITERS,
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.sampled_from(["\n", "\r\n"]),
)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_strings_are_read_back(rows: list[list[str]], delimiter: str, quoting: int, line_end: str) -> None:
    """Quotes, newlines, delimiters, any unicode; an empty string is a missing value."""
    # Python 3.10 leaves a lone \r without quotes where lines end with \n, which no reader could tell from a line's end.
    assume(quoting == csv.QUOTE_ALL or line_end == "\r\n" or not any("\r" in cell for row in rows for cell in row))
    expected = [[cell.encode() if cell else None for cell in row] for row in rows]
    assert _read(rows, ["string"] * len(rows[0]), delimiter, quoting, line_end) == expected


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_integers_are_read_back(numbers: list[int]) -> None:
    """All of int64."""
    assert _read([[str(n)] for n in numbers], ["int"], ",", csv.QUOTE_MINIMAL, "\n") == [[n] for n in numbers]


@given(st.lists(st.floats(width=64), min_size=1, max_size=20))
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_floats_are_read_back_as_float32(numbers: list[float]) -> None:
    """Rounded as NumPy does; NaN is a missing value."""
    with np.errstate(over="ignore"):
        expected = [None if math.isnan(n) else float(np.float32(n)) for n in numbers]
    rows = _read([[repr(n)] for n in numbers], ["float"], ",", csv.QUOTE_MINIMAL, "\n")
    assert rows == [[n] for n in expected]


def test_many_columns_and_long_cells_are_read_back() -> None:
    """2,000 columns; a cell of a million characters with quotes and newlines."""
    wide = [[str(i * j) for j in range(2000)] for i in range(3)]
    assert _read(wide, ["int"] * 2000, ",", csv.QUOTE_MINIMAL, "\n") == [[i * j for j in range(2000)] for i in range(3)]
    long = 'a "quoted"\nline, ' * 60_000
    assert _read([[long, "x"]], ["string", "string"], ",", csv.QUOTE_MINIMAL, "\n") == [[long.encode(), b"x"]]
