"""Tests of `benchmarks.data_set`."""

import hypothesis
import pytest
from hypothesis import strategies as st

from benchmarks.data_set import repeated, taxi_csv


@hypothesis.given(
    rows=st.lists(st.integers(0, 99).map(lambda n: b"%d\n" % n), min_size=1, max_size=5),
    num_rows=st.integers(1, 20),
)
def test_rows_are_repeated_in_order_to_the_number_asked_for(rows: list[bytes], num_rows: int) -> None:
    """The header comes once, and row i is row i modulo the number of rows."""
    header, *found = repeated([b"x\n", *rows], num_rows)

    assert header == b"x\n"
    assert found == [rows[i % len(rows)] for i in range(num_rows)]


def test_a_last_row_without_a_line_break_gets_one() -> None:
    """Otherwise it would run together with the first repetition."""
    assert b"".join(repeated([b"x\n", b"1\n", b"2"], 3)) == b"x\n1\n2\n1\n"


@pytest.mark.parametrize(("lines", "num_rows"), [([b"x\n", b"1\n"], 0), ([b"x\n"], 1)])
def test_nothing_to_repeat_is_an_error(lines: list[bytes], num_rows: int) -> None:
    """Fewer than one row, or a file with only a header, is refused."""
    with pytest.raises(ValueError, match="row"):
        list(repeated(lines, num_rows))


def test_the_csv_is_alone_in_its_folder_and_written_once(tmp_path) -> None:
    """CsvExampleGen reads a whole folder; a second call leaves the file as it is."""
    path = taxi_csv(tmp_path, 15_010)
    written_ns = path.stat().st_mtime_ns

    assert taxi_csv(tmp_path, 15_010).stat().st_mtime_ns == written_ns
    assert list(path.parent.iterdir()) == [path]
    lines = path.read_bytes().splitlines()
    assert len(lines) == 15_011
    assert lines[0].startswith(b"pickup_community_area,fare,")
    assert lines[15_003:] == lines[1:9]
