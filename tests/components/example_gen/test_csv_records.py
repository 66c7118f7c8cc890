"""Where records begin and end, however the text is cut into pieces."""

import csv
import io

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockstep.components.example_gen import csv_records
from lockstep.components.example_gen.csv_records import RecordCutter

_CELLS = st.text(st.sampled_from(list('",;\n\r x7é')), max_size=8)


def cut(text: bytes, piece_bytes: int, line: int = 1) -> tuple[list[tuple[int, bytes]], list[tuple[int, bytes]]]:
    """Returns the records and the faulty lines, each with its line."""
    cutter = RecordCutter(",", line)
    pieces = [text[i : i + piece_bytes] for i in range(0, len(text), piece_bytes)] or [b""]
    records, faults = [], []
    for i, piece in enumerate(pieces):
        found = cutter.feed(piece, last=i + 1 == len(pieces))
        records += [
            (int(line), found.data[begin:end])
            for line, begin, end in zip(found.lines, found.starts, found.ends, strict=True)
        ]
        faults += [(fault.line, fault.raw) for fault in found.faults]
    assert cutter.consumed == len(text)
    return records, faults


@given(
    st.lists(st.lists(_CELLS, min_size=2, max_size=3), max_size=8),
    st.sampled_from(["\n", "\r\n"]),
    st.integers(1, 40),
)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_csv_wrote_is_cut_as_csv_reads_it(rows: list[list[str]], line_end: str, piece_bytes: int) -> None:
    """Record by record, with the line on which each begins."""
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator=line_end).writerows(rows)
    records, faults = cut(text.getvalue().encode(), piece_bytes)
    expected, line = [], 1
    for row in rows:
        one = io.StringIO(newline="")
        csv.writer(one, quoting=csv.QUOTE_ALL, lineterminator=line_end).writerow(row)
        raw = one.getvalue().encode()
        expected.append((line, raw))
        line += raw.count(b"\n") + raw.count(b"\r") - raw.count(b"\r\n")
    assert not faults
    assert records == expected


@given(
    st.binary(max_size=60).map(lambda raw: raw.translate(bytes(b'",\n\rx7 a'[i % 8] for i in range(256)))),
    st.integers(1, 20),
)
@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_any_bytes_are_cut_alike_in_pieces_of_any_size(text: bytes, piece_bytes: int) -> None:
    """Nothing is lost: records and faulty lines make up the text, but for empty lines."""
    whole = cut(text, max(1, len(text)))
    assert cut(text, piece_bytes) == whole
    pieces = sorted(whole[0] + whole[1])
    assert b"".join(raw for _, raw in pieces).translate(None, b"\r\n") == text.translate(None, b"\r\n")


def test_cutting_on_from_where_it_stopped_gives_the_rest() -> None:
    """That is how a file is read from its middle."""
    text = b'a,b\n"x\ny",1\n2,3\n\n4,"5"\n6,7'
    cutter = RecordCutter(",")
    cutter.feed(text[:14])
    records, _ = cut(text[cutter.consumed :], 5, cutter.line)
    assert records == [(4, b"2,3\n"), (6, b'4,"5"\n'), (7, b"6,7")]


def test_a_quote_that_is_not_closed_within_the_longest_record_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs one line; the limit bounds the memory."""
    monkeypatch.setattr(csv_records, "MAX_RECORD_BYTES", 100)
    text = b'1,"x\n' + b"2,y\n" * 100
    for piece_bytes in (7, 64, 1000):
        records, faults = cut(text, piece_bytes)
        assert faults == [(1, b'1,"x\n')]
        assert len(records) == 100
