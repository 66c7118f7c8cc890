"""Compressed files that were cut or damaged: what can be had of them, and what is said of the rest."""

import bz2
import functools
import gzip
import io
import json
import random
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.components.errors import DataError
from lockstep.components.example_gen.compression import open_bytes, read_pieces
from lockstep.components.example_gen.decompression import DamagedFile
from lockstep.components.example_gen.options import CsvOptions, DataOptions
from lockstep.components.example_gen.record_stream import masked_crc
from lockstep.components.example_gen.source import Rejected
from lockstep.components.example_gen.sources import open_source
from tests.components.example_gen.conftest import Ingested
from tests.components.example_gen.test_quarantine import quarantined

Ingest = Callable[..., Ingested]
Compress = Callable[[bytes], bytes]


def _zip(content: bytes, method: int, *, streamed: bool = False) -> bytes:
    """Returns an archive; a streamed one tells sizes and checksum behind the content, as `zip -` writes it."""
    buffer = io.BytesIO()
    target = _Unseekable(buffer) if streamed else buffer
    with zipfile.ZipFile(target, "w", method) as archive:  # type: ignore[arg-type]
        if not streamed:
            archive.writestr("_folder/", b"")
        archive.writestr("rows.csv", content)
    return buffer.getvalue()


class _Unseekable:
    def __init__(self, file: io.BytesIO) -> None:
        self._file = file
        self.write, self.flush = file.write, file.flush


def _in_two(compress: Compress, content: bytes) -> bytes:
    return compress(content[: len(content) // 2]) + compress(content[len(content) // 2 :])


def _zstd(content: bytes) -> bytes:
    return bytes(pa.compress(content, "zstd", asbytes=True))


COMPRESSIONS: dict[str, Compress] = {
    "gzip": gzip.compress,
    "gzip of two members": functools.partial(_in_two, gzip.compress),
    "bzip2": bz2.compress,
    "bzip2 of two streams": functools.partial(_in_two, bz2.compress),
    "zstd": _zstd,
    "zstd of two frames": functools.partial(_in_two, _zstd),
    "zstd as pzstd writes it": lambda content: b"\x50\x2a\x4d\x18" + struct.pack("<I", 4) + b"size" + _zstd(content),
    "zip, stored": lambda content: _zip(content, zipfile.ZIP_STORED),
    "zip, deflated": lambda content: _zip(content, zipfile.ZIP_DEFLATED),
    "zip, deflated into a pipe": lambda content: _zip(content, zipfile.ZIP_DEFLATED, streamed=True),
    "zip, bzip2": lambda content: _zip(content, zipfile.ZIP_BZIP2),
    "zip, lzma": lambda content: _zip(content, zipfile.ZIP_LZMA),
}
_BLOCK_BYTES = {"bzip2": 900_000, "zstd": 128 << 10}  # of what is compressed; less is lost than one of them


def _lost_at_most(name: str) -> int:
    """Returns how many bytes before a cut cannot be had, by the way in which a format compresses."""
    return next((size for kind, size in _BLOCK_BYTES.items() if kind in name), 4096)


@functools.cache
def _rows(num_bytes: int) -> bytes:
    numbers = random.Random(7)
    text = b"x,y\n" + b"".join(b"%d,%d\n" % (i, numbers.getrandbits(60)) for i in range(num_bytes // 20))
    return text[:num_bytes]


def _had(path: Path) -> tuple[bytes, str]:
    """Returns what can be had of a file, and the error that ends it."""
    pieces: list[bytes] = []
    try:
        for piece in read_pieces(str(path)):
            pieces.append(piece)  # noqa: PERF402 - kept when the next one fails
    except DamagedFile as e:
        return b"".join(pieces), str(e)
    return b"".join(pieces), ""


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_all_before_a_cut_is_had(tmp_path: Path, name: str) -> None:
    """But for a block that is not whole, of formats that compress in blocks; the place of the cut is told."""
    content = _rows(2_500_000)
    whole = COMPRESSIONS[name](content)
    path = tmp_path / "rows"
    path.write_bytes(whole)
    assert _had(path) == (content, "")
    for share in (0.4, 0.9):
        end = int(len(whole) * share)
        path.write_bytes(whole[:end])
        had, problem = _had(path)
        assert content.startswith(had)
        # How far a share of the compressed bytes reaches, about: the content is as random everywhere.
        assert len(had) > share * len(content) - _lost_at_most(name) - 0.05 * len(content)
        assert f"is cut: it ends at byte {end}" in problem


@pytest.mark.parametrize("name", [name for name in COMPRESSIONS if "zstd" not in name])
def test_a_changed_byte_is_found_by_its_checksum(tmp_path: Path, name: str) -> None:
    """With a place; what is before the damaged block of bzip2 is as it was."""
    content = _rows(2_500_000)
    damaged = bytearray(COMPRESSIONS[name](content))
    at = len(damaged) * 3 // 4
    damaged[at] ^= 0x10
    path = tmp_path / "rows"
    path.write_bytes(damaged)
    had, problem = _had(path)
    assert "is damaged" in problem
    assert " byte " in problem
    if "bzip2" in name:
        assert content.startswith(had)
        assert len(had) > len(content) // 2 - _BLOCK_BYTES["bzip2"]


def test_a_hole_in_a_zstd_file_is_found(tmp_path: Path) -> None:
    """Other changes only where the file has checksums, which Arrow does not write; what is before is as it was."""
    content = _rows(2_500_000)
    whole = _zstd(content)
    path = tmp_path / "rows"
    path.write_bytes(whole[: len(whole) // 2] + whole[len(whole) // 2 + 4096 :])
    had, problem = _had(path)
    assert "is damaged at byte" in problem
    assert content.startswith(had)
    assert len(had) > len(content) // 2 - 3 * _BLOCK_BYTES["zstd"]


def _kept(path: Path, column: str = "x") -> tuple[list[int], list[Rejected]]:
    """Returns the values of a column, and what is left out, with quarantine."""
    source = open_source([str(path)], DataOptions(path=str(path), on_error="quarantine"))
    units = source.units()
    types = source.resolve([source.infer(unit) for unit in units])
    batches = [batch for unit in units for batch in source.batches(unit, types)]
    values = [number for batch in batches for number in batch.columns[column].to_pylist()]
    return values, [rejected for batch in batches for rejected in batch.rejected]


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_whole_rows_before_a_cut_are_kept(tmp_path: Path, name: str) -> None:
    """And one entry tells the rest, with line and offset."""
    whole = COMPRESSIONS[name](_rows(2_000_000))
    path = tmp_path / "rows.csv"
    path.write_bytes(whole[: len(whole) * 3 // 4])
    kept, [rest] = _kept(path)
    assert kept == list(range(len(kept)))
    assert len(kept) > 30_000
    assert rest.position == len(kept) + 2
    assert f"it ends at byte {len(whole) * 3 // 4}" in rest.reason


def test_a_cut_is_an_error_or_an_entry_in_quarantine(tmp_path: Path, ingest_path: Ingest) -> None:
    """With line and offset, and with the rows before it in the examples."""
    whole = bz2.compress(_rows(1_000_000))
    end = len(whole) - 100
    path = tmp_path / "rows.csv"
    path.write_bytes(whole[:end])
    with pytest.raises(
        DataError, match=rf"rows\.csv:\d+: cannot be read to its end: the file is cut: it ends at byte {end}"
    ):
        ingest_path(path)
    result = ingest_path(path, on_error="quarantine")
    [rest] = quarantined(result)
    assert result.manifest.rows["all"] > 30_000
    assert rest["place"] == f"rows.csv:{result.manifest.rows['all'] + 2}"
    assert f"it ends at byte {end}" in rest["reason"]


def _records(num_bytes: int) -> bytes:
    from lockstep.components.example_gen.rows import _example

    framed = []
    for number in range(num_bytes // 60):
        content = _example({"x": number, "y": str(random.Random(number).getrandbits(60))})
        length = struct.pack("<Q", len(content))
        framed += [length, struct.pack("<I", masked_crc(length)), content, struct.pack("<I", masked_crc(content))]
    return b"".join(framed)


def _begin_of(framed: bytes, number: int) -> int:
    begin = 0
    for _ in range(number):
        begin += 16 + int.from_bytes(framed[begin : begin + 8], "little")
    return begin


@pytest.mark.parametrize("name", ["gzip of two members", "bzip2", "zstd", "zip, deflated"])
@pytest.mark.parametrize("suffix", ["jsonl", "tfrecord"])
def test_rows_of_other_formats_are_kept_too(tmp_path: Path, name: str, suffix: str) -> None:
    """JSON lines with the line, TFRecords with the offset of what is decompressed."""
    lines = (json.dumps({"x": i, "y": str(random.Random(i).getrandbits(60))}) for i in range(40_000))
    content = "".join(line + "\n" for line in lines).encode() if suffix == "jsonl" else _records(2_000_000)
    whole = COMPRESSIONS[name](content)
    path = tmp_path / f"rows.{suffix}"
    path.write_bytes(whole[: len(whole) * 3 // 4])
    kept, [rest] = _kept(path)
    assert kept == list(range(len(kept)))
    assert len(kept) > 10_000
    assert f"it ends at byte {len(whole) * 3 // 4}" in rest.reason
    assert rest.position == (len(kept) + 1 if suffix == "jsonl" else _begin_of(content, len(kept)))


def test_a_cut_right_behind_the_header_is_a_fault_of_the_rows(tmp_path: Path, ingest_path: Ingest) -> None:
    """One such file among others does not stop an ingestion with quarantine."""
    flushed = zlib.compressobj(wbits=31)
    header = flushed.compress(b"x,y\n") + flushed.flush(zlib.Z_SYNC_FLUSH)
    (tmp_path / "a.csv").write_bytes(header)
    (tmp_path / "b.csv").write_text("x,y\n1,2\n")
    result = ingest_path(tmp_path / "*.csv", on_error="quarantine")
    assert result.column("x") == [1]
    assert [row["place"] for row in quarantined(result)] == ["a.csv:2"]


def test_rows_before_a_fault_of_the_encoding_are_kept(tmp_path: Path, ingest_path: Ingest) -> None:
    """Of text that is decoded as a whole, UTF-16 here, also where it is compressed and cut."""
    text = "x,t\n" + "".join(f"{i},käse\n" for i in range(50_000))
    encoded = text.encode("utf-16-le")
    bad = len("".join(text.splitlines(keepends=True)[:40_001]).encode("utf-16-le"))
    path = tmp_path / "rows.csv"
    options = CsvOptions(encoding="utf-16-le")
    path.write_bytes(encoded[:bad] + b"\x00\xdc" + encoded[bad:])  # half of a pair of surrogates
    with pytest.raises(DataError, match=r"rows\.csv:40002: byte 0x00 is not utf-16-le; give data\.options\.encoding"):
        ingest_path(path, options=options)
    result = ingest_path(path, options=options, on_error="quarantine")
    assert result.column("x") == list(range(40_000))
    path.write_bytes(gzip.compress(encoded)[:-5000])
    kept = ingest_path(path, options=options, on_error="quarantine").column("x")
    assert kept == list(range(len(kept)))
    assert len(kept) > 10_000


@settings(deadline=None, max_examples=30)
@given(content=st.binary(max_size=5000), cut=st.floats(0, 1), name=st.sampled_from(sorted(COMPRESSIONS)))
def test_what_is_had_of_any_file_is_its_beginning(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, cut: float, name: str
) -> None:
    """Wherever it is cut; a whole one gives all, in reads of any size."""
    whole = COMPRESSIONS[name](content)
    path = tmp_path_factory.mktemp("in") / "rows"
    path.write_bytes(whole)
    with open_bytes(str(path)) as stream:
        assert b"".join(iter(lambda: stream.read(7), b"")) == content
    path.write_bytes(whole[: int(len(whole) * cut)])
    try:
        had, _ = _had(path)
    except DataError:  # an archive of which not even its first entry is left
        return
    if len(whole) * cut > 4:  # by the first bytes it is told what it is
        assert content.startswith(had)


@pytest.mark.parametrize("program", ["bzip2", "zstd", "gzip", "xz"])
def test_files_of_the_usual_programs_are_read(tmp_path: Path, program: str) -> None:
    """Where they are installed; xz is none of the formats, and plain bytes to us."""
    try:
        compressed = subprocess.run([program, "-c"], input=_rows(100_000), capture_output=True, check=True).stdout
    except FileNotFoundError:
        pytest.skip(f"no {program} on {sys.platform}")
    (tmp_path / "rows").write_bytes(compressed)
    assert _had(tmp_path / "rows") == (compressed if program == "xz" else _rows(100_000), "")
