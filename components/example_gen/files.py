"""Which files a path means, and the fingerprint of what is in them."""

import difflib
import glob
import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from lockstep.components.errors import DataError

Format = Literal["csv", "parquet"]

_CHUNK_BYTES = 1 << 20
_FORMATS: dict[str, Format] = {".csv": "csv", ".tsv": "csv", ".txt": "csv", ".parquet": "parquet", ".pq": "parquet"}
_COMPRESSED = (".gz", ".bz2", ".zst", ".zip")


def split_path(path: str) -> tuple[str, str]:
    """Returns ``(folder, pattern)`` of a file, a folder or a glob; together they mean what ``path`` means.

    The folder is absolute and taken literally; the pattern is a glob, and may hold TFX's ``{SPAN}`` and its like.
    """
    absolute = Path(os.path.abspath(path))  # noqa: PTH100 - Path.resolve follows links, and so would rename the data
    if absolute.is_dir():
        return str(absolute), "*"
    if absolute.is_file():
        return str(absolute.parent), glob.escape(absolute.name)
    parts = absolute.parts
    literal = next((i for i, part in enumerate(parts) if glob.has_magic(part) or "{" in part), len(parts) - 1)
    return str(Path(*parts[:literal])), str(Path(*parts[literal:]))


def matched_files(folder: str, pattern: str) -> tuple[str, ...]:
    """Returns the files under ``folder`` that ``pattern`` matches, sorted by name.

    Hidden files and files named ``_*`` are left out, unless the pattern is one file's own name.

    Raises:
      DataError: No file matches.
    """
    found = glob.glob(os.path.join(glob.escape(folder), pattern), recursive=True)  # noqa: PTH118, PTH207 - text, a glob
    files = sorted(path for path in found if Path(path).is_file())
    if _literal(pattern) is None:
        files = [path for path in files if not Path(path).name.startswith((".", "_"))]
    if not files:
        raise DataError(_nothing_found(Path(folder), pattern))
    return tuple(files)


def fingerprint(folder: str, files: Sequence[str]) -> str:
    """Returns a hash of the files' names, relative to ``folder``, and bytes; times and owners do not matter."""
    whole = hashlib.blake2b(digest_size=16)
    for path in files:
        content = hashlib.blake2b(digest_size=16)
        with Path(path).open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                content.update(chunk)
        whole.update(os.fsencode(os.path.relpath(path, folder)) + b"\0" + content.digest())
    return whole.hexdigest()


def format_of(files: Sequence[str]) -> Format:
    """Returns the one format that the names of all files say.

    Raises:
      DataError: A name says nothing, or two say different formats.
    """
    by_format: dict[Format, str] = {}
    for path in files:
        suffixes = [suffix for suffix in Path(path.lower()).suffixes if suffix not in _COMPRESSED]
        kind = _FORMATS.get(suffixes[-1] if suffixes else "")
        if kind is None:
            raise DataError(
                f"{path}: the name does not tell the format (known: {', '.join(_FORMATS)}); "
                "give data.format (csv or parquet), or a glob that leaves the file out"
            )
        by_format.setdefault(kind, path)
    if len(by_format) > 1:
        raise DataError(f"{by_format['csv']} and {by_format['parquet']} differ in format; give a glob for one format")
    return next(iter(by_format))


def _literal(pattern: str) -> str | None:
    """Returns the one name that the pattern means, or None where it is a real glob."""
    name = re.sub(r"\[([*?[])\]", r"\1", pattern)
    return name if glob.escape(name) == pattern else None


def _nothing_found(folder: Path, pattern: str) -> str:
    if not folder.is_dir():
        return f"data.path: no such folder: {folder}"
    name = _literal(pattern)
    if name is None:
        return f"data.path: no file in {folder} matches {pattern!r} (hidden files and files named _* do not count)"
    near = difflib.get_close_matches(name, os.listdir(folder), n=1)  # noqa: PTH208 - names are wanted, not paths
    return f"data.path: no such file: {folder / name}" + (f"; did you mean {near[0]!r}?" if near else "")
