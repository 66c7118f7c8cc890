"""The command line without a pipeline behind it: usage, and what is told before anything heavy is loaded."""

import pathlib
import subprocess
import sys

import pytest

from lockstep.pipelines import cli

HEAVY = ("tensorflow", "tfx", "apache_beam", "pyarrow", "numpy", "keras", "kfp")


def test_help_imports_nothing_heavy() -> None:
    """`lockstep --help` must stay quick: none of the packages that take seconds is imported."""
    code = (
        "import sys\nfrom lockstep.pipelines import cli\n"
        "try:\n    cli.main(['--help'])\nexcept SystemExit as e:\n    assert e.code == 0\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.endswith("[]\n")
    assert "usage: lockstep" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "taxy"], "lockstep: taxy: no such file, and no example of that name; did you mean 'taxi'?"),
        (["run", "taxi", "--workers", "0"], "lockstep: taxi: train.workers: 0 is not allowed; give 1 or more"),
        (
            ["run", "taxi", "--set", "train.stepz=3"],
            "lockstep: taxi: train.stepz: no such key; did you mean train.steps?",
        ),
        (["run", "taxi", "--set", "data.path=/no/such.csv"], "lockstep: data.path: no such folder: /no"),
    ],
)
def test_a_mistake_is_one_short_message_and_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    """What, where, what to do; no traceback, nothing on standard output."""
    assert cli.main([*arguments, *(["--root", str(tmp_path)] if arguments[0] == "run" else [])]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert not captured.out


def test_no_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """The code of argparse for wrong usage is the design's."""
    with pytest.raises(SystemExit) as raised:
        cli.main([])
    assert raised.value.code == 2
    assert "COMMAND" in capsys.readouterr().err
