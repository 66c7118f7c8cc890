"""`lockstep schema`: inferred, compared with, and frozen beside the pipeline that it belongs to."""

import errno
import os
import pathlib

import pandas as pd
import pytest
import tensorflow_data_validation as tfdv

from lockstep.components.errors import ConfigurationError
from lockstep.pipelines import cli, reviewed_schema
from lockstep.pipelines.config import load_config

PIPELINE = """\
name: p
data: {path: data.csv}
label: {column: y}
features: {age: {kind: numeric}}
evaluate: {thresholds: {auc: {min: 0.5}}}   # the end, without a line break"""


def statistics(root: pathlib.Path, number: int, table: dict[str, list[object]]) -> None:
    """Writes the statistics of a run, as StatisticsGen does."""
    folder = root / "artifacts" / "StatisticsGen" / "statistics" / str(number) / "Split-train"
    folder.mkdir(parents=True)
    found = tfdv.generate_statistics_from_dataframe(pd.DataFrame(table))
    (folder / "FeatureStats.pb").write_bytes(found.SerializeToString())


@pytest.fixture
def pipeline(tmp_path: pathlib.Path) -> pathlib.Path:
    """A pipeline whose data were seen twice; the newer run's number has more digits."""
    (tmp_path / "p.yaml").write_text(PIPELINE)
    statistics(tmp_path / "runs", 9, {"age": [1, 2], "kind": ["a", "b"]})
    statistics(tmp_path / "runs", 10, {"age": [1, 2, 3, 4], "kind": ["a", "b", "a", "b"]})
    return tmp_path / "p.yaml"


def lockstep(action: str, pipeline: pathlib.Path) -> int:
    """Calls the command."""
    return cli.main(["schema", action, str(pipeline), "--root", str(pipeline.parent / "runs")])


def test_a_schema_is_frozen_beside_the_pipeline_and_compared_with_newer_data(
    pipeline: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file can be read as it is, and the pipeline names it."""
    assert lockstep("infer", pipeline) == 0
    inferred = capsys.readouterr().out
    assert lockstep("diff", pipeline) == 2
    assert "has no schema yet; make one by lockstep schema freeze" in capsys.readouterr().err
    assert lockstep("freeze", pipeline) == 0
    path = pipeline.with_name("p.schema.pbtxt")
    assert path.read_text() == inferred
    assert pipeline.read_text() == f"{PIPELINE}\nschema: p.schema.pbtxt\n"
    source, _ = load_config(str(pipeline))
    assert source.config.schema == str(path)
    assert lockstep("freeze", pipeline) == 0  # the same once more
    assert lockstep("diff", pipeline) == 0
    statistics(pipeline.parent / "runs", 11, {"age": ["x", "y"], "kind": ["a", "c"], "new": [0.5, 1.5]})
    capsys.readouterr()
    assert lockstep("diff", pipeline) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "~ age: whole numbers, in every row; the data: text, of 2 values: x, y, in every row",
        "~ kind: values -b, +c",
        "+ new: numbers, in every row; the schema has no such column",
    ]
    before = path.read_text()
    assert lockstep("freeze", pipeline) == 2
    assert "is there already" in capsys.readouterr().err
    assert path.read_text() == before


def test_a_column_that_is_gone_is_told(pipeline: pathlib.Path) -> None:
    """By its name and what it was."""
    path = pipeline.with_name("s.pbtxt")
    path.write_text('feature { name: "gone" type: INT }')
    (line, *_) = reviewed_schema.differences(
        reviewed_schema.parse(str(path)), reviewed_schema.infer(pipeline.parent / "runs")
    )
    assert line == "- gone: whole numbers; the data have no such column"


def test_what_holds_no_schema_is_named(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With what to do, by a run before it starts."""
    (tmp_path / "p.yaml").write_text(f"{PIPELINE}\nschema: s.pbtxt\n")
    (tmp_path / "data.csv").write_text("age,y\n1,1\n")
    assert cli.main(["run", str(tmp_path / "p.yaml"), "--root", str(tmp_path / "runs")]) == 2
    assert "s.pbtxt: No such file or directory; make one by lockstep schema freeze" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
    path = tmp_path / "s.pbtxt"
    for content, problem in ((None, "No such file"), ("feature {", "Expected"), ("", "names no column")):
        if content is not None:
            path.write_text(content)
        with pytest.raises(ConfigurationError, match=problem):
            reviewed_schema.read_schema(str(path))


def test_nothing_is_inferred_before_a_run(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """There are no statistics."""
    (tmp_path / "p.yaml").write_text(PIPELINE)
    assert lockstep("infer", tmp_path / "p.yaml") == 2
    assert "run the pipeline first" in capsys.readouterr().err


def test_an_examples_own_file_is_not_changed(capsys: pytest.CaptureFixture[str]) -> None:
    """It belongs to the package."""
    assert cli.main(["schema", "freeze", "taxi"]) == 2
    assert "copy it and give the copy" in capsys.readouterr().err


def test_a_pipeline_that_cannot_be_written_stays_as_it_is(
    pipeline: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A full disk costs nothing of the user's file, and leaves no part of another one."""
    write = pathlib.Path.write_text

    def full(path: pathlib.Path, text: str, **options: str) -> int:
        write(path, text[: len(text) // 2], **options)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pathlib.Path, "write_text", full)
    assert lockstep("freeze", pipeline) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert pipeline.read_text() == PIPELINE
    assert sorted(path.name for path in pipeline.parent.iterdir()) == ["p.yaml", "runs"]
