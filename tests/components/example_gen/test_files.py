"""Which files a path means, and their fingerprint."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstep.components.errors import DataError
from lockstep.components.example_gen.files import fingerprint, format_of, matched_files, split_path
from lockstep.components.example_gen.options import DataOptions
from lockstep.components.example_gen.sources import open_source


def _names(path: Path) -> list[str]:
    return [Path(file).name for file in matched_files(*split_path(str(path)))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of which two files hold rows."""
    for name in ("b.csv", "a.csv", "_SUCCESS", ".part.csv.crc"):
        (tmp_path / name).write_text("x\n1\n")
    (tmp_path / "sub").mkdir()
    return tmp_path


def test_a_folder_means_its_files_without_hidden_ones(folder: Path) -> None:
    """Neither markers, checksums nor folders are data."""
    assert _names(folder) == ["a.csv", "b.csv"]


def test_a_glob_means_what_it_matches(folder: Path) -> None:
    """Sorted by name."""
    assert _names(folder / "*.csv") == ["a.csv", "b.csv"]
    (folder / "sub" / "c.csv").write_text("x\n1\n")
    assert _names(folder / "s*" / "c.csv") == ["c.csv"]


def test_a_file_means_itself_whatever_its_name_is(folder: Path) -> None:
    """Characters of globs in a name are literal, and a file that is named is not hidden."""
    for name in ("_rows.csv", ".rows.csv", "rows[1]*.csv"):
        (folder / name).write_text("x\n1\n")
        assert _names(folder / name) == [name]


def test_a_folder_may_have_the_characters_of_globs(folder: Path) -> None:
    """Only the pattern is a glob."""
    (folder / "data [1]").mkdir()
    (folder / "data [1]" / "x.csv").write_text("x\n1\n")
    assert _names(folder / "data [1]") == ["x.csv"]
    assert _names(folder / "data [1]" / "x.csv") == ["x.csv"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("c.csv", "no such file: {}/c.csv; did you mean"),
        ("nowhere/c.csv", "no such folder: {}/nowhere"),
        ("*.parquet", "no file in {} matches '*.parquet'"),
        ("sub", "no file in {}/sub matches '*'"),
    ],
)
def test_a_path_without_files_is_named(folder: Path, path: str, message: str) -> None:
    """The message names what was looked for, and a similar name."""
    with pytest.raises(DataError) as failure:
        _names(folder / path)
    assert message.format(folder) in str(failure.value)


def test_a_touched_or_moved_folder_keeps_its_fingerprint(folder: Path, tmp_path: Path) -> None:
    """Only names under the folder and bytes count."""
    before = fingerprint(str(folder), matched_files(str(folder), "*"))
    os.utime(folder / "a.csv", (1, 1))
    assert fingerprint(str(folder), matched_files(str(folder), "*")) == before


def test_an_edit_of_equal_size_and_time_changes_the_fingerprint(folder: Path) -> None:
    """Sizes and times alone would miss it."""
    before = fingerprint(str(folder), matched_files(str(folder), "*"))
    status = (folder / "a.csv").stat()
    (folder / "a.csv").write_text("x\n2\n")
    os.utime(folder / "a.csv", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert fingerprint(str(folder), matched_files(str(folder), "*")) != before


def test_a_renamed_file_changes_the_fingerprint(folder: Path) -> None:
    """Rows are read in the order of names."""
    before = fingerprint(str(folder), matched_files(str(folder), "*"))
    (folder / "a.csv").rename(folder / "c.csv")
    assert fingerprint(str(folder), matched_files(str(folder), "*")) != before


def test_the_format_is_told_by_the_names() -> None:
    """One format for all; a name that says nothing is named."""
    assert format_of(["a.csv", "b.TXT", "c.csv.gz", "d.csv.zip"]) == "csv"
    assert format_of(["a.parquet"]) == "parquet"
    with pytest.raises(DataError, match=r"README\.md: the name does not tell the format"):
        format_of(["a.csv", "README.md"])
    with pytest.raises(DataError, match="differ in format"):
        format_of(["a.csv", "b.parquet"])


def test_what_is_no_regular_file_is_said_to_be_none(tmp_path: Path) -> None:
    """A device, or a pipe, can be read only once; the name is not misspelt."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(DataError) as failure:
            _names(path)
        assert str(failure.value) == f"data.path: not a regular file: {path}; give a file, a folder or a glob"


def test_a_link_back_to_a_folder_above_gives_no_file_twice(folder: Path) -> None:
    """A glob of any depth follows links, but not in circles, of which two would never end."""
    (folder / "sub" / "c.csv").write_text("x\n1\n")
    for name in ("up", "again"):
        (folder / "sub" / name).symlink_to("..")
    (folder / "other").symlink_to("sub")
    assert _names(folder / "**" / "*.csv") == ["a.csv", "b.csv", "c.csv", "c.csv"]
    assert _names(folder / "**") == ["a.csv", "b.csv", "c.csv", "c.csv"]
    assert _names(folder / "s*" / "**" / "c.csv") == ["c.csv"]
    assert _names(folder / "**" / "sub" / "**" / "*.csv") == ["c.csv"]


def test_names_may_hold_any_character(folder: Path) -> None:
    """Blanks, line breaks, other scripts."""
    names = [" a b.csv", "häuser.csv", "line\nbreak.csv", "数.csv"]
    for name in names:
        (folder / "sub" / name).write_text("x\n1\n")
    assert _names(folder / "sub") == sorted(names)
    assert _names(folder / "**" / "line*.csv") == ["line\nbreak.csv"]


@pytest.mark.parametrize(
    "options", [{"format": "csv"}, {"format": "parquet"}, {"format": "images", "keep_origin": True}]
)
def test_a_name_that_is_no_text_is_refused_where_arrow_needs_one(folder: Path, options: dict[str, Any]) -> None:
    """Images alone are read by any name."""
    path = folder / os.fsdecode(b"caf\xe9.csv")
    path.write_text("x\n1\n")
    with pytest.raises(DataError, match=r"caf\\xe9\.csv': the file's name is not UTF-8; rename it"):
        open_source([str(path)], DataOptions(path=str(folder), **options))


@pytest.fixture
def nobody() -> Iterator[Path]:
    """Gives a folder that everybody may read, and takes root's rights from the test."""
    euid = os.geteuid()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / "sub").mkdir()
        for name in ("a.csv", "sub/b.csv"):
            (Path(folder) / name).write_text("x\n1\n")
        try:
            yield Path(folder)
        finally:
            os.seteuid(euid)


def test_what_may_not_be_read_is_told_before_the_run(nobody: Path) -> None:
    """A file, and a folder on the way to files, which would else be left out silently."""
    (nobody / "a.csv").chmod(0)
    (nobody / "sub").chmod(0)
    if os.geteuid() == 0:
        os.seteuid(65534)
    with pytest.raises(DataError, match=r"a\.csv: may not be read"):
        _names(nobody)
    with pytest.raises(DataError, match="sub: cannot be read: Permission denied"):
        _names(nobody / "**" / "*.csv")
