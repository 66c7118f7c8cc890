"""Tests of `benchmarks.data_set`."""

import hypothesis
import pytest
from hypothesis import strategies as st

from benchmarks.data_set import repeated, taxi_csv


@hypothesis.given(
    numbers=st.lists(st.integers(0, 99), min_size=1, max_size=5), num_rows=st.integers(1, 20), shift=st.integers(0, 9)
)
def test_rows_are_repeated_in_order_to_the_number_asked_for(numbers: list[int], num_rows: int, shift: int) -> None:
    """The header comes once, and row i is row i modulo the number of rows, shifted once a repetition."""
    rows = [b'%d,%d,"a, b"' % (place, number) for place, number in enumerate(numbers)]
    header, *found = repeated([b"place,number,text", *rows], num_rows, b"number", shift)

    assert header == b"place,number,text"
    assert found == [
        b'%d,%d,"a, b"' % (i % len(rows), numbers[i % len(rows)] + i // len(rows) * shift) for i in range(num_rows)
    ]


@pytest.mark.parametrize(("lines", "num_rows"), [([b"x", b"1"], 0), ([b"x"], 1)])
def test_nothing_to_repeat_is_an_error(lines: list[bytes], num_rows: int) -> None:
    """Fewer than one row, or a file with only a header, is refused."""
    with pytest.raises(ValueError, match="row"):
        list(repeated(lines, num_rows, b"x", 1))


def test_the_csv_is_alone_in_its_folder_and_written_once(tmp_path) -> None:
    """CsvExampleGen reads a whole folder; a second call leaves the file as it is."""
    path = taxi_csv(tmp_path, 15_010)
    written_ns = path.stat().st_mtime_ns

    assert taxi_csv(tmp_path, 15_010).stat().st_mtime_ns == written_ns
    assert list(path.parent.iterdir()) == [path]
    header, *rows = path.read_bytes().splitlines()
    assert header.startswith(b"pickup_community_area,fare,")
    assert len(set(rows)) == len(rows) == 15_010
    assert [row.split(b",")[5] for row in (rows[0], rows[15_002])] == [b"1400269500", b"1400270400"]
