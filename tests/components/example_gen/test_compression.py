"""Compressed CSV: what it is compressed with is found by content, and what cannot be read is named."""

import bz2
import gzip
import tracemalloc
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from lockstep.components.errors import DataError
from lockstep.components.example_gen.compression import open_bytes
from lockstep.components.example_gen.options import CsvOptions
from tests.components.example_gen.conftest import Ingested

Ingest = Callable[..., Ingested]

NUM_ROWS = 20_000
TEXT = b"x,y\n" + b"".join(b"%d,a\n" % (i * i) for i in range(NUM_ROWS))
# Made by Info-ZIP's `zip --encrypt --password secret rows.zip rows.csv` of "x\n1\n": Python cannot encrypt.
ENCRYPTED = bytes.fromhex(
    "504b03040a000900000062777e5d153cd0a4100000000400000008001c00726f77732e6373765554090003388f0d6b388f0d6b75"
    "780b0001040000000004000000006891913e4c6737867bb1fa30c5398580504b0708153cd0a41000000004000000504b01021e03"
    "0a000900000062777e5d153cd0a41000000004000000080018000000000001000000a48100000000726f77732e63737655540500"
    "03388f0d6b75780b000104000000000400000000504b050600000000010001004e000000620000000000"
)


def _zip(path: Path, members: Mapping[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path.read_bytes()


@pytest.mark.parametrize(
    "compress",
    [gzip.compress, bz2.compress, lambda text: bytes(pa.compress(text, "zstd", asbytes=True))],
    ids=["gzip", "bzip2", "zstd"],
)
def test_compression_is_found_by_content(
    tmp_path: Path, ingest_path: Ingest, compress: Callable[[bytes], bytes]
) -> None:
    """A compressed file is read whatever its name is, and a cut one is named."""
    whole = compress(TEXT)
    (tmp_path / "rows.csv").write_bytes(whole)
    assert ingest_path(tmp_path / "rows.csv").manifest.rows == {"all": NUM_ROWS}
    (tmp_path / "rows.csv").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(
        DataError, match=r"rows\.csv(:\d+)?: cannot be read to its end: the file is cut: it ends at byte \d+"
    ):
        ingest_path(tmp_path / "rows.csv")


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_the_only_file_in_a_zip_archive_is_read(tmp_path: Path, ingest_path: Ingest, compression: int) -> None:
    """Whatever the archive is called; folders, hidden files and what macOS adds do not count."""
    others = {"data/": b"", "__MACOSX/data/._rows.csv": b"\0\5", "data/.DS_Store": b"\0"}
    _zip(tmp_path / "rows.csv", {"data/rows.csv": TEXT, **others}, compression)
    assert ingest_path(tmp_path / "rows.csv").manifest.rows == {"all": NUM_ROWS}


def test_a_zip_archive_gives_the_same_records_as_its_file(tmp_path: Path, ingest_path: Ingest) -> None:
    """Names of columns, blank lines, encodings and splits are those of the text within."""
    text = "\n\nx,t\n1,käse\n2,\n".encode("utf-16")
    (tmp_path / "rows.csv").write_bytes(text)
    _zip(tmp_path / "rows.csv.zip", {"rows.csv": text})
    plain, zipped = (
        ingest_path(tmp_path / name, options=CsvOptions(encoding="utf-16")) for name in ("rows.csv", "rows.csv.zip")
    )
    assert plain.rows() == zipped.rows() != []


def test_a_fault_in_a_zipped_file_is_named_with_its_line(tmp_path: Path, ingest_path: Ingest) -> None:
    """As in a plain file: the archive, and the line of the text within."""
    _zip(tmp_path / "rows.csv.zip", {"rows.csv": b"a,b\n1,2\n3\n"})
    with pytest.raises(DataError, match=r"rows\.csv\.zip:3: 1 cells, but the header has 2 columns"):
        ingest_path(tmp_path / "rows.csv.zip")


@pytest.mark.parametrize(
    ("members", "held"),
    [
        ({}, r"holds no file"),
        ({"data/": b"", "_SUCCESS": b""}, r"holds no file"),
        ({"a.csv": TEXT, "b.csv": TEXT}, r"holds 2 files \(a\.csv, b\.csv\)"),
        ({f"{i}.csv": TEXT for i in range(5)}, r"holds 5 files \(0\.csv, 1\.csv, 2\.csv, \.\.\.\)"),
    ],
)
def test_an_archive_of_none_or_several_files_is_refused(
    tmp_path: Path, ingest_path: Ingest, members: Mapping[str, bytes], held: str
) -> None:
    """Which of them is meant cannot be told; the message says what to do."""
    _zip(tmp_path / "rows.csv.zip", members)
    with pytest.raises(DataError, match=rf"rows\.csv\.zip: the zip archive {held}, .*unpack them into a folder"):
        ingest_path(tmp_path / "rows.csv.zip")


@pytest.mark.parametrize("share", [0.01, 0.5, 0.999])
def test_a_cut_zip_archive_is_named(tmp_path: Path, ingest_path: Ingest, share: float) -> None:
    """With the place of the cut; where nothing but the directory at its end is missing, too."""
    whole = _zip(tmp_path / "rows.csv.zip", {"rows.csv": TEXT})
    end = int(len(whole) * share)
    (tmp_path / "rows.csv.zip").write_bytes(whole[:end])
    cut = rf"the file is cut: it ends at byte {end}|a zip archive without its end .* cut at byte {end}, .*copy it again"
    with pytest.raises(DataError, match=rf"rows\.csv\.zip:\d+: cannot be read to its end: ({cut})"):
        ingest_path(tmp_path / "rows.csv.zip")


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_damaged_zip_archive_is_named(tmp_path: Path, ingest_path: Ingest, compression: int) -> None:
    """One changed byte in the middle does not pass for other values: a row does not fit, or else the checksum."""
    content = bytearray(_zip(tmp_path / "rows.csv.zip", {"rows.csv": TEXT}, compression))
    content[len(content) // 2] ^= 1
    (tmp_path / "rows.csv.zip").write_bytes(content)
    with pytest.raises(
        DataError,
        match=r"rows\.csv\.zip:\d+: (1 cells|cannot be read to its end: the archive is damaged before byte \d+)",
    ):
        ingest_path(tmp_path / "rows.csv.zip")


def test_an_encrypted_zip_archive_is_named(tmp_path: Path, ingest_path: Ingest) -> None:
    """There is no place for a password; the message names the file within."""
    (tmp_path / "rows.csv.zip").write_bytes(ENCRYPTED)
    with pytest.raises(DataError, match=r"rows\.csv\.zip: rows\.csv is encrypted; unpack it, and give the file"):
        ingest_path(tmp_path / "rows.csv.zip")


def test_a_zip_archive_compressed_in_an_unknown_way_is_named(tmp_path: Path, ingest_path: Ingest) -> None:
    """Windows packs files over 2 GB as Deflate64 (method 9), which Python does not know."""
    content = bytearray(_zip(tmp_path / "rows.csv.zip", {"rows.csv": TEXT}))
    # Where the method stands: behind the entry's own header, and behind its one in the directory.
    content[8] = content[content.rindex(b"PK\x01\x02") + 10] = 9
    (tmp_path / "rows.csv.zip").write_bytes(content)
    with pytest.raises(DataError, match=r"rows\.csv\.zip: rows\.csv cannot be unpacked \(.*deflate"):
        ingest_path(tmp_path / "rows.csv.zip")


def test_a_large_zip_archive_is_read_in_bounded_memory(tmp_path: Path) -> None:
    """64 MB pass through in blocks; a few of them are held at most."""
    block, num_blocks = b"1,2,3,4\n" * (1 << 17), 64
    with (
        zipfile.ZipFile(tmp_path / "rows.zip", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("rows.csv", "w") as member,
    ):
        for _ in range(num_blocks):
            member.write(block)
    tracemalloc.start()
    try:
        with open_bytes(str(tmp_path / "rows.zip")) as stream:
            total = 0
            while content := stream.read(len(block)):
                total += len(content)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert total == num_blocks * len(block)
    assert peak < 8 * len(block)
