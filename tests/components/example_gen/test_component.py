"""ExampleGen in TFX: driver, executor, and TFX's own components on its output."""

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tfx.components.statistics_gen import executor as statistics_executor
from tfx.types import artifact_utils, standard_artifacts
from tfx.utils import json_utils

from lockstep.components.errors import DataError, StepFailed
from lockstep.components.example_gen.component import ExampleGen
from lockstep.components.example_gen.driver import ContentDriver
from lockstep.components.example_gen.executor import Executor
from lockstep.components.example_gen.options import CsvOptions, DataOptions, Requirements
from lockstep.components.example_gen.spec import ExampleGenSpec


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A folder of one file with 100 rows."""
    folder = tmp_path / "data"
    folder.mkdir()
    text = "fare,company\n" + "".join(f"{i / 4},{'' if i % 10 == 0 else 'cab'}\n" for i in range(100))
    (folder / "rows.csv").write_text(text)
    return folder


def _resolved(component: ExampleGen) -> dict[str, Any]:
    properties: dict[str, Any] = ContentDriver(None).resolve_exec_properties(
        dict(component.exec_properties), None, None
    )
    return properties


def _examples(component: ExampleGen, folder: Path) -> standard_artifacts.Examples:
    examples = standard_artifacts.Examples()
    examples.uri = str(folder)
    properties = {**_resolved(component), "code_fingerprint": "unknown to TFX"}
    Executor().Do({}, {"examples": [examples]}, properties)
    return examples


def test_the_artifact_tells_splits_format_and_rows(tmp_path: Path, data_dir: Path) -> None:
    """What stock components ask for, and what the console shows."""
    component = ExampleGen(DataOptions(path=str(data_dir), splits={"train": 3, "eval": 1}))
    examples = _examples(component, tmp_path / "out")
    rows = json.loads(examples.get_string_custom_property("rows"))
    assert artifact_utils.decode_split_names(examples.split_names) == ["train", "eval"]
    assert sum(rows.values()) == 100
    assert examples.get_string_custom_property("payload_format") == "FORMAT_TF_EXAMPLE"
    assert examples.get_string_custom_property("file_format") == "tfrecords_gzip"


@pytest.mark.slow
def test_stock_statistics_are_those_of_the_rows(tmp_path: Path, data_dir: Path) -> None:
    """TFX's StatisticsGen reads every record of every split."""
    from tensorflow_data_validation import load_stats_binary

    examples = _examples(ExampleGen(DataOptions(path=str(data_dir), num_shards=2)), tmp_path / "out")
    statistics = standard_artifacts.ExampleStatistics()
    statistics.uri = str(tmp_path / "statistics")
    statistics_executor.Executor().Do(
        {"examples": [examples]}, {"statistics": [statistics]}, {"exclude_splits": json_utils.dumps([])}
    )
    found: dict[str, list[int]] = {"fare": [], "company": []}
    total = 0.0
    for split in ("train", "eval"):
        (data,) = load_stats_binary(f"{statistics.uri}/Split-{split}/FeatureStats.pb").datasets
        for feature in data.features:
            name = feature.path.step[0]
            common = feature.num_stats.common_stats if name == "fare" else feature.string_stats.common_stats
            found[name].append(common.num_non_missing)
            total += feature.num_stats.mean * common.num_non_missing if name == "fare" else 0
    assert {name: sum(counts) for name, counts in found.items()} == {"fare": 100, "company": 90}
    assert total == pytest.approx(sum(i / 4 for i in range(100)))


def test_the_fingerprint_follows_content_not_time(data_dir: Path) -> None:
    """TFX reuses the step's output while the fingerprint is the same."""
    component = ExampleGen(DataOptions(path=str(data_dir)))
    before = _resolved(component)["input_fingerprint"]
    status = (data_dir / "rows.csv").stat()
    os.utime(data_dir / "rows.csv", (1, 1))
    assert _resolved(component)["input_fingerprint"] == before
    text = (data_dir / "rows.csv").read_text()
    (data_dir / "rows.csv").write_text(text.replace("0.25", "0.26"))
    os.utime(data_dir / "rows.csv", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert _resolved(component)["input_fingerprint"] != before


def test_the_newest_span_and_version_are_taken(tmp_path: Path) -> None:
    """TFX's patterns work, and the span is in the properties."""
    for span, version, value in ((1, 1, 10), (2, 1, 20), (2, 2, 30)):
        folder = tmp_path / f"span-{span}" / f"v{version}"
        folder.mkdir(parents=True)
        (folder / "rows.csv").write_text(f"x\n{value}\n")
    component = ExampleGen(DataOptions(path=f"{tmp_path}/span-{{SPAN}}/v{{VERSION}}/*", splits={"all": 1}))
    properties = _resolved(component)
    assert (properties["span"], properties["version"]) == (2, 2)
    examples = standard_artifacts.Examples()
    examples.uri = str(tmp_path / "out")
    Executor().Do({}, {"examples": [examples]}, properties)
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["types"] == {"x": "int"}
    (tmp_path / "span-2" / "v2" / "rows.csv").write_text("x\n31\n")
    assert _resolved(component)["input_fingerprint"] != properties["input_fingerprint"]


def test_an_absent_file_is_told_before_the_step_runs(tmp_path: Path) -> None:
    """By the driver, with the path."""
    with pytest.raises(DataError, match=r"no such file: .*nothing\.csv"):
        _resolved(ExampleGen(DataOptions(path=str(tmp_path / "nothing.csv"))))
    with pytest.raises(DataError, match="span-"):
        _resolved(ExampleGen(DataOptions(path=str(tmp_path / "span-{SPAN}" / "*"))))


def test_the_spec_is_read_back_as_written() -> None:
    """All but the path, which TFX carries."""
    spec = ExampleGenSpec(
        data=DataOptions(
            path="(input_base)",
            format="csv",
            splits={"z": 1, "a": 2},
            num_shards=7,
            types={"zip": "string"},
            options=CsvOptions(delimiter=";", null_tokens=("?",)),
        ),
        requirements=Requirements(
            columns=("a",), complete_columns=("b",), complete_if_present=("c",), on_missing="drop"
        ),
    )
    assert ExampleGenSpec.from_json(spec.to_json()) == spec
    assert list(ExampleGenSpec.from_json(spec.to_json()).data.splits) == ["z", "a"]
    with pytest.raises(ValueError, match=r"spec\.data: unknown key .unknown."):
        ExampleGenSpec.from_json('{"data": {"unknown": 1, "options": {}}, "requirements": {}}')


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": ""}, "path: '' is not allowed"),
        (
            {"path": "hdfs://bucket/x"},
            "path: 'hdfs://bucket/x' is not allowed; give a path, or a URI that begins with s3",
        ),
        ({"path": "gs:///x"}, "path: 'gs:///x' is not allowed; name the bucket"),
        ({"splits": {}}, "splits: {} is not allowed"),
        ({"splits": {"a/b": 1}}, "splits: the name 'a/b' is not allowed"),
        ({"splits": {"train": 0}}, r"splits\.train: 0 is not allowed; give 1 or more"),
        ({"num_shards": 0}, "num_shards: 0 is not allowed"),
        ({"types": {"x": "double"}}, r"types\.x: 'double' is not allowed"),
    ],
)
def test_an_option_that_is_not_allowed_is_named(options: dict[str, Any], message: str) -> None:
    """On construction, before anything runs."""
    with pytest.raises(ValueError, match=message):
        DataOptions(**{"path": "x", **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delimiter": ",,"}, "delimiter: ',,' is not allowed"),
        ({"encoding": "utf-9"}, "encoding: 'utf-9' is not"),
        ({"encoding": "rot13"}, "encoding: 'rot13' is not"),
    ],
)
def test_a_csv_option_that_is_not_allowed_is_named(options: dict[str, str], message: str) -> None:
    """On construction too."""
    with pytest.raises(ValueError, match=message):
        CsvOptions(**options)  # type: ignore[arg-type]


class _OnWarning(logging.Handler):
    """Does something once, at ExampleGen's first warning."""

    def __init__(self, action: Callable[[], object]) -> None:
        super().__init__(logging.WARNING)
        self._action: Callable[[], object] | None = action

    def emit(self, record: logging.LogRecord) -> None:
        if self._action is not None:
            self._action, action = None, self._action
            action()


def _assert_refused(properties: dict[str, Any], folder: Path, changed: Path) -> None:
    examples = standard_artifacts.Examples()
    examples.uri = str(folder)
    with pytest.raises(StepFailed, match=rf"{changed} changed while it was read; run again"):
        Executor().Do({}, {"examples": [examples]}, properties)
    assert not folder.exists() or not list(folder.iterdir())


def test_a_file_that_changed_after_it_was_fingerprinted_is_not_published(tmp_path: Path, data_dir: Path) -> None:
    """The cache would serve its rows under the fingerprint of others, even after the file is put back."""
    properties = _resolved(ExampleGen(DataOptions(path=str(data_dir))))
    path = data_dir / "rows.csv"
    text, status = path.read_text(), path.stat()
    path.write_text(text.replace("0.25", "0.26"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    _assert_refused(properties, tmp_path / "out", path)


@pytest.mark.parametrize("later", ["a,b,\n5,6,\n7,8,\n", "a,b,\nx,y,\n", "c,d\n1,2\n", "a,b,\n1\n", None])
@pytest.mark.parametrize("driven", [True, False])
def test_a_file_that_changes_while_it_is_read_is_not_published(tmp_path: Path, later: str | None, driven: bool) -> None:
    """Between types and rows: replaced by other rows, by rows of other types, columns or none, or removed."""
    path = tmp_path / "rows.csv"
    path.write_text("a,b,\n1,2,\n3,4,\n")

    def change() -> None:
        if later is None:
            path.unlink()
        else:
            (tmp_path / "new.csv").write_text(later)
            (tmp_path / "new.csv").replace(path)

    properties = _resolved(ExampleGen(DataOptions(path=str(path), splits={"all": 1})))
    if not driven:
        del properties["input_fingerprint"]
    # The column without a name is reported at the end of the first reading, which finds the types.
    handler = _OnWarning(change)
    logger = logging.getLogger("lockstep.components.example_gen")
    logger.addHandler(handler)
    try:
        _assert_refused(properties, tmp_path / "out", path)
    finally:
        logger.removeHandler(handler)


def test_a_fault_in_files_that_did_not_change_is_told_as_it_is(tmp_path: Path) -> None:
    """The second look at the files does not hide it."""
    (tmp_path / "rows.csv").write_text("a,b\n1\n")
    with pytest.raises(DataError, match=r"rows\.csv:2: 1 cells, but the header has 2 columns"):
        _examples(ExampleGen(DataOptions(path=str(tmp_path / "rows.csv"))), tmp_path / "out")
