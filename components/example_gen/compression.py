"""The bytes of a file, decompressed while they are read; what it is compressed with is found by content."""

import stat
import zipfile
import zlib
from pathlib import Path
from typing import IO

import pyarrow as pa

from lockstep.components.errors import DataError
from lockstep.components.example_gen.gzip_stream import GzipStream

READ_ERRORS = (OSError, EOFError, pa.ArrowInvalid, zipfile.BadZipFile, zlib.error)
"""What reading a stream of ``open_bytes`` raises where the file is cut or damaged."""

_GZIP = b"\x1f\x8b"
_STREAMS = {b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd"}
_ZIPS = (b"PK\x03\x04", b"PK\x05\x06")  # the first entry; the directory, where there is no entry
_ENCRYPTED = 0x1  # bit of an entry's general purpose flags: section 4.4.4 of PKWARE's APPNOTE.TXT
_MAX_NAMED = 3


def open_bytes(path: str) -> pa.NativeFile:
    """Returns the content of a file: plain, gzip, bzip2, zstd, or the only file in a zip archive.

    Nothing is unpacked to disk or held in memory as a whole. In an archive, folders do not count, nor do hidden files,
    files named ``_*`` and what is in a folder named so, such as the ``__MACOSX`` that macOS adds.

    Raises:
      DataError: An archive is cut, encrypted, compressed in an unknown way, or does not hold exactly one file.
      OSError: The file cannot be opened.
    """
    with Path(path).open("rb") as file:
        start = file.read(4)
    if start in _ZIPS:
        return pa.PythonFile(_open_member(path), mode="r")
    if start.startswith(_GZIP):
        return pa.PythonFile(GzipStream(path), mode="r")
    for magic, compression in _STREAMS.items():
        if start.startswith(magic):
            return pa.CompressedInputStream(pa.OSFile(path), compression)
    return pa.OSFile(path)


def is_compressed(path: str) -> bool:
    """Tells whether ``open_bytes`` decompresses a file."""
    with Path(path).open("rb") as file:
        return file.read(4).startswith((_GZIP, *_STREAMS, *_ZIPS))


def _open_member(path: str) -> IO[bytes]:
    try:
        archive = zipfile.ZipFile(path)
    except zipfile.BadZipFile as e:
        # The directory of an archive stands at its end.
        raise DataError(f"{path}: a zip archive without its end ({e}): it was cut or damaged; copy it again") from e
    with archive:  # a member that is open keeps the file open
        member = _only_member(path, archive.infolist())
        try:
            return archive.open(member)
        except NotImplementedError as e:
            raise DataError(
                f"{path}: {member.filename} cannot be unpacked ({e}); pack it as usual (deflate), or unpack it"
            ) from e
        except zipfile.BadZipFile as e:
            raise DataError(f"{path}: {member.filename} is damaged ({e}); copy the archive again") from e


def _only_member(path: str, members: list[zipfile.ZipInfo]) -> zipfile.ZipInfo:
    files = [member for member in members if _is_file(member)]
    if len(files) != 1:
        names = ", ".join(member.filename for member in files[:_MAX_NAMED])
        held = f"{len(files)} files ({names}{', ...' if len(files) > _MAX_NAMED else ''})" if files else "no file"
        raise DataError(
            f"{path}: the zip archive holds {held}, and one is read from an archive; "
            "give an archive to each file, or unpack them into a folder"
        )
    if files[0].flag_bits & _ENCRYPTED:
        raise DataError(f"{path}: {files[0].filename} is encrypted; unpack it, and give the file")
    return files[0]


def _is_file(member: zipfile.ZipInfo) -> bool:
    is_link = stat.S_ISLNK(member.external_attr >> 16)
    return not (member.is_dir() or is_link or any(part.startswith((".", "_")) for part in Path(member.filename).parts))
