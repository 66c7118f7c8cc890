"""Which Python, and so which dependency line, the set-up takes."""

import pathlib
import stat
import sys

import interpreters
import pytest
from interpreters import Interpreter


def make_interpreter(version: tuple[int, int, int], glibc: tuple[int, int] | None, **changes: object) -> Interpreter:
    """A complete interpreter (this process' headers stand for its own), except for `changes`."""
    headers = interpreters.probe(sys.executable)
    assert headers is not None
    complete = Interpreter(
        path="/opt/python{}.{}.{}".format(*version),
        version=version,
        glibc=glibc,
        has_venv=True,
        include_dir=headers.include_dir,
        compilers=("cc", "c++"),
    )
    return complete._replace(**changes)  # type: ignore[arg-type]


def make_script(path: pathlib.Path, text: str) -> pathlib.Path:
    """An executable script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_new_c_library_gets_line_b_on_the_newest_python() -> None:
    """Line B is the better one, and its newest Python the best."""
    found = [make_interpreter(version, (2, 41)) for version in ((3, 10, 13), (3, 11, 2), (3, 13, 5), (3, 12, 1))]
    choice = interpreters.choose(found)
    assert (choice.line.name, choice.interpreter.version) == ("B", (3, 13, 5))


def test_an_old_c_library_gets_line_a_and_the_reason() -> None:
    """What line B lacks is said with the versions."""
    found = [make_interpreter(version, (2, 36)) for version in ((3, 13, 0), (3, 10, 13))]
    choice = interpreters.choose(found)
    assert (choice.line.name, choice.interpreter.version) == ("A", (3, 10, 13))
    assert "glibc 2.36 is older than 2.39" in choice.reason


def test_a_new_c_library_with_python_3_10_alone_gets_line_a() -> None:
    """Line A serves any C library; the reason names the Pythons that line B needs."""
    choice = interpreters.choose([make_interpreter((3, 10, 13), (2, 41))])
    assert choice.line.name == "A"
    assert "no Python 3.11 to 3.13 was found" in choice.reason


def test_an_incomplete_python_is_passed_over_for_a_complete_one() -> None:
    """Debian's python3 without its venv package does not stop set-up if pyenv has another."""
    bare = make_interpreter((3, 11, 2), (2, 41), has_venv=False)
    complete = make_interpreter((3, 11, 7), (2, 41))
    assert interpreters.choose([bare, complete]).interpreter == complete


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"has_venv": False}, "python3.12-venv"),
        ({"include_dir": "/nowhere"}, "python3.12-dev"),
        ({"suitable": False}, "64-bit CPython"),
        ({"glibc": None}, "not glibc"),
        ({"glibc": (2, 36)}, "glibc 2.36 is older than 2.39"),
    ],
)
def test_where_nothing_is_suitable_the_message_says_what_is_missing(changes: dict[str, object], told: str) -> None:
    """Every Python found is named with its obstacle, in a few lines, and what to install follows."""
    with pytest.raises(interpreters.NothingSuitable) as raised:
        interpreters.choose([make_interpreter((3, 12, 1), (2, 41))._replace(**changes)])  # type: ignore[arg-type]
    message = str(raised.value)
    assert "Python 3.12.1 (/opt/python3.12.1)" in message
    assert told in message
    assert "Install" in message
    assert len(message.splitlines()) < 10


def test_without_any_python_the_message_says_so() -> None:
    """An empty search is told as such."""
    with pytest.raises(interpreters.NothingSuitable, match="no Python that runs"):
        interpreters.choose([])


def test_a_shim_that_fails_is_not_taken_for_a_python(tmp_path: pathlib.Path) -> None:
    """A shim of pyenv exists, is executable, and ends with 127; what prints something else is no Python either."""
    shim = make_script(
        tmp_path / "python3.12", "#!/bin/sh\necho 'pyenv: python3.12: command not found' >&2\nexit 127\n"
    )
    chatty = make_script(tmp_path / "python3.13", "#!/bin/sh\necho hello\n")
    assert interpreters.find([str(shim), str(chatty)]) == []


def test_a_shim_that_works_leads_to_the_python_behind_it(tmp_path: pathlib.Path) -> None:
    """A wrapper and the interpreter that it runs are one, under the interpreter's own path."""
    shim = make_script(tmp_path / "python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    found = interpreters.find([str(shim), sys.executable])
    assert len(found) == 1
    assert found[0].version == sys.version_info[:3]
    assert pathlib.Path(found[0].path).resolve() == pathlib.Path(sys.executable).resolve()


def test_candidates_come_from_the_path_from_pyenv_and_from_uv(tmp_path: pathlib.Path) -> None:
    """Versioned names on the path, pyenv's versions folder and uv's own Pythons count; other versions do not."""
    on_path = make_script(tmp_path / "bin" / "python3.11", "")
    in_pyenv = make_script(tmp_path / "pyenv" / "versions" / "3.10.13" / "bin" / "python3.10", "")
    too_old = make_script(tmp_path / "pyenv" / "versions" / "3.8.18" / "bin" / "python3.8", "")
    from_uv = make_script(tmp_path / ".local/share/uv/python/cpython-3.12.1-linux-x86_64-gnu/bin/python3.12", "")
    paths = interpreters.candidates(
        {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path), "PYENV_ROOT": str(tmp_path / "pyenv")}
    )
    assert set(paths) == {str(on_path), str(in_pyenv), str(from_uv)}
    assert str(too_old) not in paths


def test_a_missing_compiler_is_told_before_anything_is_installed() -> None:
    """The compiler that a build would call is named with what to install."""
    interpreter = make_interpreter((3, 10, 13), (2, 36))
    problem = interpreters.missing_compiler(interpreter, {"CC": "cc", "CXX": "no-such-compiler"})
    assert problem is not None
    assert "no-such-compiler" in problem
    assert "g++" in problem


def test_a_compiler_that_compiles_no_extension_is_told_with_its_own_words(tmp_path: pathlib.Path) -> None:
    """A compiler without its library, or without Python.h, fails at two lines of code, and its first line is shown."""
    interpreter = make_interpreter((3, 10, 13), (2, 36))
    assert interpreters.missing_compiler(interpreter, {}) is None
    without_headers = interpreter._replace(include_dir=str(tmp_path))
    problem = interpreters.missing_compiler(without_headers, {})
    assert problem is not None
    assert "Python.h" in problem
