"""`lockstep emulate` as a user calls it."""

import pathlib

import pytest

from lockstep.pipelines import cli
from tests.pipelines.kubeflow.emulator.conftest import package, step


@pytest.fixture
def package_path(tmp_path: pathlib.Path) -> pathlib.Path:
    """Returns a package of one step, which fails where the parameter is 0."""
    path = tmp_path / "tiny.yaml"
    parts = step(
        "print('the reason'); sys.exit(not given['inputs']['parameterValues']['n'])",
        inputs={"parameters": {"n": {"componentInputParameter": "n"}}},
        input_types={"n": {"parameterType": "NUMBER_INTEGER"}},
    )
    package({"it": parts}, {"n": {"parameterType": "NUMBER_INTEGER", "defaultValue": 1}}).write(path)
    return path


def test_a_run_ends_with_0_and_names_its_log(package_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line a step, then the summary."""
    root = package_path.parent / "root"
    assert cli.main(["emulate", str(package_path), "--root", str(root)]) == 0
    captured = capsys.readouterr()
    assert "tiny: run as Kubeflow Pipelines would" in captured.out
    assert "  it  done" in captured.out
    assert "1 tasks, all of them successful" in captured.out
    assert "emulator.log" in captured.out
    assert not captured.err


def test_a_failed_step_ends_with_1_and_shows_the_end_of_its_log(
    package_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On standard error, with the log's path."""
    root = package_path.parent / "root"
    assert cli.main(["emulate", str(package_path), "--root", str(root), "--set", "n=0"]) == 1
    captured = capsys.readouterr()
    assert "it  FAILED" in captured.out
    assert "lockstep: it: exit code 1" in captured.err
    assert "| the reason" in captured.err
    assert "it-0.log" in captured.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "m=1"], "lockstep: --set m: the package has no such parameter; its parameters: n"),
        (["--set", "n=one"], "lockstep: --set n=one: not of type NUMBER_INTEGER"),
        (["--set", "n"], "lockstep: --set n: give KEY=VALUE"),
        (["--kfp-version", "1.8"], "lockstep: --kfp-version: '1.8' is not allowed; give 2.5 to 2.16"),
        (["--store", "minio"], "lockstep: --store: 'minio' is not allowed"),
        (
            ["--store", "http://me:PW@host"],
            "lockstep: --store: '@', '?' and '#' are not allowed; give http://HOST:PORT",
        ),
        (["--store", "me:PW@host"], "lockstep: --store: '@', '?' and '#' are not allowed"),
        (["--store", "http://host?key=PW"], "lockstep: --store: '@', '?' and '#' are not allowed"),
        (["--set", "n=" + "9" * 5000], "lockstep: --set n=999999"),
        (["--set", "n=\udcff"], "lockstep: --set n=\\udcff: not of type NUMBER_INTEGER: holds what is no text"),
        (["--set", "x" * 5000], "lockstep: --set xxxx"),
        (["--pipeline-root", "/x"], "lockstep: pipeline root '/x' is not allowed"),
        (["--working-dir", "/no/such"], "lockstep: --working-dir /no/such: no such folder"),
    ],
)
def test_wrong_usage_ends_with_2_before_anything_starts(
    package_path: pathlib.Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    """One short message that says what is allowed."""
    root = package_path.parent / "root"
    assert cli.main(["emulate", str(package_path), "--root", str(root), *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(message)
    assert "PW" not in captured.err
    assert len(captured.err) < 400
    assert "Traceback" not in captured.err
    assert not root.exists()


def test_findings_name_the_packages_file(package_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a compiler names the file that is wrong."""
    text = package_path.read_text(encoding="utf-8").replace("'busybox'", "''").replace("busybox", "''")
    package_path.write_text(text, encoding="utf-8")
    assert cli.main(["emulate", str(package_path), "--root", str(package_path.parent / "root")]) == 2
    assert capsys.readouterr().err.startswith(f"lockstep: {package_path}: deploymentSpec.executors.exec-it")


def test_what_is_no_package_is_told(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An absent file, and one that holds something else."""
    assert cli.main(["emulate", str(tmp_path / "absent.yaml")]) == 2
    (tmp_path / "other.yaml").write_text("data: {path: x}\nlabel: {column: y}\n", encoding="utf-8")
    assert cli.main(["emulate", str(tmp_path / "other.yaml")]) == 2
    err = capsys.readouterr().err
    assert "absent.yaml: No such file" in err
    assert "compile it first" in err


def test_a_root_that_cannot_be_written_is_told(package_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file where a folder is needed."""
    assert cli.main(["emulate", str(package_path), "--root", str(package_path)]) == 2
    assert f"--root {package_path}" in capsys.readouterr().err
