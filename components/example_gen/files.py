"""Which files a path means, the fingerprint of what is in them, and whether it stays the same while they are read."""

import difflib
import glob
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from lockstep.components.errors import DataError, StepFailed
from lockstep.components.example_gen.file_search import find_paths, is_file, is_visible, walk_files
from lockstep.components.example_gen.options import Format
from lockstep.components.object_store import is_object_uri
from lockstep.components.package_files import is_package_path, resolve_package_path

_SINGLE_SPLIT = "single_split"
_CHUNK_BYTES = 1 << 20
_FORMATS: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".tfrecord": "tfrecord",
    ".tfrecords": "tfrecord",
    ".jpg": "images",
    ".jpeg": "images",
    ".png": "images",
    ".gif": "images",
    ".bmp": "images",
}
_TFRECORD_SHARD = re.compile(r"tfrecords?(-\d+-of-\d+)?(\.gz|\.zz?)?$")
_MAX_NAMED = 3
_COMPRESSED = (".gz", ".bz2", ".zst", ".zip")


def split_path(path: str) -> tuple[str, str]:
    """Returns ``(folder, pattern)`` of a file, a folder or a glob; together they mean what ``path`` means.

    The folder is taken literally: it is absolute, the URI of one in an object store, or ``package:NAME`` with a folder
    of that package. The pattern is a glob, and may hold TFX's ``{SPAN}`` and its like. Of an object or package nothing
    is looked up here: whether a name is a file or a folder is found out when it is read.
    """
    if is_object_uri(path) or is_package_path(path):
        return _split_text(path)
    absolute = Path(os.path.abspath(path))  # noqa: PTH100 - Path.resolve follows links, and so would rename the data
    if absolute.is_dir():
        return str(absolute), "*"
    if absolute.is_file():
        return str(absolute.parent), glob.escape(absolute.name)
    parts = absolute.parts
    literal = next((i for i, part in enumerate(parts) if glob.has_magic(part) or "{" in part), len(parts) - 1)
    return str(Path(*parts[:literal])), str(Path(*parts[literal:]))


def input_patterns(path: str, paths: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Returns the folder, and the pattern of each of TFX's input splits, that ``data.path`` and its splits' paths mean.

    Args:
      path: ``data.path``; the folder that ``paths`` are within, if there are any.
      paths: ``data.split_by.paths``; without them there is one input split, of TFX's own name for it.
    """
    if not paths:
        folder, pattern = split_path(path)
        return folder, {_SINGLE_SPLIT: pattern}
    is_text = is_object_uri(path) or is_package_path(path)
    folder = path.rstrip("/") if is_text else os.path.abspath(path)  # noqa: PTH100 - Path.resolve follows links
    parts = folder.split("/")
    literal = next(
        (i for i, part in enumerate(parts) if "{" in part), len(parts)
    )  # spans are found out when it is read
    patterns = {split: "/".join((*parts[literal:], each.rstrip("/"))) for split, each in paths.items()}
    return "/".join(parts[:literal]) or "/", patterns


def _split_text(path: str) -> tuple[str, str]:
    scheme, separator, rest = path.partition("://") if is_object_uri(path) else path.partition(":")
    container, *parts = rest.split("/")
    while parts and not parts[-1]:
        parts.pop()
    if not parts:
        return scheme + separator + container, "*"
    literal = next((i for i, part in enumerate(parts) if glob.has_magic(part) or "{" in part), len(parts) - 1)
    folder = "/".join((container, *parts[:literal]))
    return scheme + separator + folder, "/".join(parts[literal:])


def local_folder(folder: str) -> str:
    """Returns the local folder that ``split_path``'s folder means in this environment.

    Raises:
      ConfigurationError: The package is not installed.
    """
    return resolve_package_path(folder)


def matched_files(folder: str, pattern: str) -> tuple[str, ...]:
    """Returns the files under ``folder`` that ``pattern`` matches, sorted by name.

    Hidden files and files named ``_*``, and those in folders named so, are left out, unless the pattern is one file's
    own name. A folder means the files directly in it, and if there are none, all below it; so does a pattern that
    matches folders and no file.

    Raises:
      DataError: No file matches, or one may not be read.
    """
    found = find_paths(folder, pattern)
    files = sorted(path for path in found if is_file(path))
    if not files and is_literal(pattern) and Path(folder, literal_name(pattern)).is_dir():
        return matched_files(str(Path(folder, literal_name(pattern))), "*")
    if not is_literal(pattern):
        files = [path for path in files if is_visible(path[len(folder) :])]
        if not files:
            folders = [path for path in found if is_visible(path[len(folder) :]) and Path(path).is_dir()]
            files = sorted(file for path in folders for file in walk_files(path))
    if not files:
        raise DataError(_nothing_found(Path(folder), pattern))
    for path in files:
        if not os.access(path, os.R_OK, effective_ids=True):
            raise DataError(f"{path}: may not be read; give its owner's leave (chmod +r), or take it out of data.path")
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


def input_fingerprint(folder: str, files_by_split: Mapping[str, Sequence[str]]) -> str:
    """Returns what TFX's metadata keep of the input; a step's output is used again only where it is the same."""
    return "\n".join(
        f"split:{name},num_files:{len(files)},blake2b:{fingerprint(folder, files)}"
        for name, files in files_by_split.items()
    )


class UnchangedInput:
    """Tells whether files hold to the end of the reading what the fingerprint says that they hold.

    Args:
      folder: What the files' names are relative to.
      files_by_split: TFX's input split -> its files.
      expected: Their ``input_fingerprint``; None takes it now.
    """

    def __init__(self, folder: str, files_by_split: Mapping[str, Sequence[str]], expected: str | None) -> None:
        self._folder = folder
        self._files_by_split = files_by_split
        self._seen = {path: _status(path) for files in files_by_split.values() for path in files}
        self._expected = input_fingerprint(folder, files_by_split) if expected is None else expected

    def check(self) -> None:
        """Reads all files once more, at some 1 GB/s: sizes and times miss an edit that keeps both.

        Raises:
          StepFailed: They hold something else now.
        """
        try:
            same = input_fingerprint(self._folder, self._files_by_split) == self._expected
        except OSError:  # one was removed
            same = False
        if not same:
            # The fingerprint does not tell which; where size and time do not either, it was before we began to read.
            changed = [path for path, status in self._seen.items() if _status(path) != status] or list(self._seen)
            raise StepFailed(f"{shown(changed)} changed while it was read; run again when nothing writes to it")


def format_of(files: Sequence[str]) -> Format:
    """Returns the one format that the names of all files say.

    Raises:
      DataError: A name says nothing, or two say different formats.
    """
    by_format: dict[Format, str] = {}
    for path in files:
        suffixes = [suffix for suffix in Path(path.lower()).suffixes if suffix not in _COMPRESSED]
        kind = _FORMATS.get(suffixes[-1] if suffixes else "")
        if kind is None and _TFRECORD_SHARD.search(path.lower()):
            kind = "tfrecord"
        if kind is None:
            raise DataError(
                f"{path}: the name does not tell the format (known: {', '.join(_FORMATS)}); "
                "give data.format (csv, parquet, json, tfrecord, images, image_list), or a glob without the file"
            )
        by_format.setdefault(kind, path)
    if len(by_format) > 1:
        [one, other] = list(by_format.values())[:2]
        raise DataError(f"{one} and {other} differ in format; give data.format, or a glob for one format")
    return next(iter(by_format))


def _status(path: str) -> tuple[int, int, int] | None:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def shown(paths: Sequence[str]) -> str:
    """Returns a few of many paths, for a message."""
    return " or ".join(paths[:_MAX_NAMED]) + (" or another file" if len(paths) > _MAX_NAMED else "")


def is_literal(pattern: str) -> bool:
    """Tells whether a pattern matches one name only."""
    return glob.escape(literal_name(pattern)) == pattern


def literal_name(pattern: str) -> str:
    """Returns the one name that a literal pattern means."""
    return re.sub(r"\[([*?[])\]", r"\1", pattern)


def _nothing_found(folder: Path, pattern: str) -> str:
    if not folder.is_dir():
        return f"data.path: no such folder: {folder}"
    name = literal_name(pattern)
    if not is_literal(pattern):
        return f"data.path: no file in {folder} matches {pattern!r} (hidden files and files named _* do not count)"
    if (folder / name).exists():
        return f"data.path: not a regular file: {folder / name}; give a file, a folder or a glob"
    near = difflib.get_close_matches(name, os.listdir(folder), n=1)  # noqa: PTH208 - names are wanted, not paths
    return f"data.path: no such file: {folder / name}" + (f"; did you mean {near[0]!r}?" if near else "")
