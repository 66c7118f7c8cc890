"""ExampleGen on objects: what is read, what makes it read again, and what is left behind."""

import json
from pathlib import Path
from typing import Any

import pytest
from tfx.orchestration.portable import data_types
from tfx.types import standard_artifacts

from lockstep.components import object_store
from lockstep.components.errors import ConfigurationError, DataError, StepFailed
from lockstep.components.example_gen import inputs
from lockstep.components.example_gen.component import ExampleGen
from lockstep.components.example_gen.driver import ContentDriver
from lockstep.components.example_gen.executor import Executor
from lockstep.components.example_gen.files import split_path
from lockstep.components.example_gen.options import DataOptions
from lockstep.components.example_gen.rows import read_examples
from tests.conftest import Bucket

pytestmark = pytest.mark.usefixtures("scratch_dir")

_ROWS = "fare,company\n" + "".join(f"{i / 4},cab\n" for i in range(100))


def _resolved(component: ExampleGen) -> dict[str, Any]:
    properties = ContentDriver(None).resolve_exec_properties(dict(component.exec_properties), None, None)
    return dict(properties)


def _ingest(properties: dict[str, Any], folder: Path) -> dict[str, int]:
    """Runs the step; returns split -> rows."""
    examples = standard_artifacts.Examples()
    examples.uri = str(folder)
    Executor().Do({}, {"examples": [examples]}, properties)
    return dict(json.loads(examples.get_string_custom_property("rows")))


def _component(path: str, **options: Any) -> ExampleGen:
    return ExampleGen(DataOptions(path=path, splits={"all": 1}), **options)


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("s3://b/d/x.csv", ("s3://b/d", "x.csv")),
        ("s3://b/x.csv", ("s3://b", "x.csv")),
        ("minio://b", ("minio://b", "*")),
        ("gs://b/", ("gs://b", "*")),
        ("s3://b/d/*/x-??.csv", ("s3://b/d", "*/x-??.csv")),
        ("s3://b/d/span-{SPAN}/v{VERSION}/*", ("s3://b/d", "span-{SPAN}/v{VERSION}/*")),
        ("package:p.q/d/x.csv", ("package:p.q/d", "x.csv")),
        ("package:p", ("package:p", "*")),
    ],
)
def test_a_uri_is_split_as_text(path: str, parts: tuple[str, str]) -> None:
    """Where a pipeline is compiled, the store and the package of the container are not there."""
    assert split_path(path) == parts


@pytest.mark.parametrize("path", ["data/rows.csv", "data", "data/", "data/*.csv", "**/rows.csv"])
@pytest.mark.parametrize("scheme", ["s3", "minio"])
def test_a_file_a_folder_and_a_glob_are_read(
    bucket: Bucket, tmp_path: Path, scratch_dir: Path, path: str, scheme: str
) -> None:
    """As from the disk, and no copy is left."""
    bucket.put("data/rows.csv", _ROWS)
    bucket.put("data/_SUCCESS", "")
    properties = _resolved(_component(bucket.uri(path, scheme)))
    assert _ingest(properties, tmp_path / "out") == {"all": 100}
    assert list(scratch_dir.iterdir()) == []


def test_the_same_objects_give_the_same_examples_as_files(bucket: Bucket, tmp_path: Path) -> None:
    """Byte for byte."""
    (tmp_path / "local").mkdir()
    for name, text in {"a.csv": _ROWS, "b.csv": _ROWS.replace("cab", "taxi")}.items():
        bucket.put(f"data/{name}", text)
        (tmp_path / "local" / name).write_text(text)
    _ingest(_resolved(_component(bucket.uri("data"))), tmp_path / "of objects")
    _ingest(_resolved(_component(str(tmp_path / "local"))), tmp_path / "of files")
    shards = sorted(path.name for path in (tmp_path / "of files" / "Split-all").iterdir())
    for name in shards:
        assert (tmp_path / "of objects" / "Split-all" / name).read_bytes() == (
            tmp_path / "of files" / "Split-all" / name
        ).read_bytes()


def test_the_fingerprint_follows_the_etags(bucket: Bucket) -> None:
    """An object that is written again with the same content has the same; a new name or content, another."""
    bucket.put("data/rows.csv", _ROWS)
    component = _component(bucket.uri("data"))
    first = _resolved(component)["input_fingerprint"]
    bucket.put("data/rows.csv", _ROWS)
    assert _resolved(component)["input_fingerprint"] == first
    bucket.put("data/rows.csv", _ROWS.replace("0.25", "0.26"))
    second = _resolved(component)["input_fingerprint"]
    bucket.put("data/more.csv", _ROWS)
    third = _resolved(component)["input_fingerprint"]
    assert len({first, second, third}) == 3


def test_a_store_without_etags_is_fingerprinted_by_size_and_time(tmp_path: Path) -> None:
    """A folder that stands for a store has none."""
    (tmp_path / "minio" / "b").mkdir(parents=True)
    path = tmp_path / "minio" / "b" / "x.csv"
    path.write_text("x\n1\n")
    object_store.configure({"LOCKSTEP_STORE_DIR": str(tmp_path)})
    try:
        before = inputs.fingerprint("minio://b", {"s": "x.csv"})
        assert inputs.fingerprint("minio://b", {"s": "x.csv"}) == before
        path.write_text("x\n12\n")
        assert inputs.fingerprint("minio://b", {"s": "x.csv"}) != before
    finally:
        object_store.configure({})


def test_the_newest_span_and_version_are_taken(bucket: Bucket, tmp_path: Path) -> None:
    """By TFX's own rules, on names of objects."""
    for span, version, value in ((9, 1, 10), (10, 1, 20), (10, 2, 30)):
        bucket.put(f"d/span-{span}/v{version}/rows.csv", f"x\n{value}\n")
    properties = _resolved(_component(bucket.uri("d/span-{SPAN}/v{VERSION}/*")))
    assert (properties["span"], properties["version"]) == (10, 2)
    assert _ingest(properties, tmp_path / "out") == {"all": 1}
    with pytest.raises(DataError, match=r"data\.path: Cannot find matching .*s3://"):
        _resolved(_component(bucket.uri("d/day-{SPAN}/*")))


def test_the_newest_date_is_taken(bucket: Bucket) -> None:
    """Days since 1970 are the span."""
    for day in ("2026-01-01", "2026-01-02"):
        bucket.put(f"d/{day}/rows.csv", "x\n1\n")
    assert _resolved(_component(bucket.uri("d/{YYYY}-{MM}-{DD}/*")))["span"] == 20455


def test_the_run_time_property_replaces_the_path(bucket: Bucket, tmp_path: Path) -> None:
    """With spans and all; an empty one does not."""
    local = tmp_path / "local.csv"
    local.write_text("x\n1\n")
    bucket.put("d/span-1/rows.csv", _ROWS)
    component = _component(str(local), data_path=bucket.uri("d/span-{SPAN}/*"))
    properties = _resolved(component)
    assert properties["span"] == 1
    assert _ingest(properties, tmp_path / "a") == {"all": 100}
    assert _ingest(_resolved(_component(str(local), data_path="")), tmp_path / "b") == {"all": 1}
    assert _ingest(dict(_component(str(local), data_path=bucket.uri("d/*/*")).exec_properties), tmp_path / "c") == {
        "all": 100
    }  # without a driver


def test_a_file_of_a_package_is_found_where_the_step_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is that of the container, and its place is not part of what is compiled."""
    (tmp_path / "a_package_of_data").mkdir()
    (tmp_path / "a_package_of_data" / "rows.csv").write_text(_ROWS)
    component = _component("package:a_package_of_data/rows.csv")
    with pytest.raises(ConfigurationError, match="no installed package 'a_package_of_data'"):
        _resolved(component)
    (tmp_path / "a_package_of_data" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    properties = _resolved(component)
    assert str(tmp_path) not in json.dumps(properties)
    assert _ingest(properties, tmp_path / "out") == {"all": 100}


def test_an_object_that_changes_after_the_driver_looked_is_told(bucket: Bucket, tmp_path: Path) -> None:
    """By its URI: the cache would keep its rows under the name of the old ones."""
    bucket.put("data/rows.csv", _ROWS)
    properties = _resolved(_component(bucket.uri("data")))
    bucket.put("data/rows.csv", _ROWS.replace("cab", "car"))
    with pytest.raises(StepFailed, match=rf"s3://{bucket.name}/data/rows\.csv changed while it was read"):
        _ingest(properties, tmp_path / "out")


def test_an_object_that_changes_while_it_is_read_is_told(bucket: Bucket) -> None:
    """And one that went."""
    folder, expected = bucket.uri("data"), ""
    for key in ("data/a.csv", "data/b.csv"):
        bucket.put(key, _ROWS)
    expected = inputs.fingerprint(folder, {"s": "*"})
    with inputs.opened_input(folder, "*", split="s", expected=expected) as found:
        found.check()
        bucket.client.delete_object(Bucket=bucket.name, Key="data/b.csv")
        with pytest.raises(StepFailed, match=r"data/b\.csv changed"):
            found.check()


def test_errors_name_the_uri_and_leave_no_copy(bucket: Bucket, tmp_path: Path, scratch_dir: Path) -> None:
    """Where the cell is, for a person who never saw the scratch folder."""
    uri = bucket.put("data/rows.csv", 'x\n1\n"a\n')
    with pytest.raises(DataError, match=uri) as caught:
        _ingest(_resolved(_component(uri)), tmp_path / "out")
    assert str(scratch_dir) not in str(caught.value)
    assert list(scratch_dir.iterdir()) == []
    with pytest.raises(DataError, match=rf"no such object, and no folder of that name: {bucket.uri('data/row.csv')}"):
        _resolved(_component(bucket.uri("data/row.csv")))
    with pytest.raises(DataError, match=r"no object in .* matches '\*\.parquet'"):
        _resolved(_component(bucket.uri("data/*.parquet")))


def test_a_scratch_folder_that_is_too_small_is_told_before_anything_is_fetched(
    bucket: Bucket, scratch_dir: Path
) -> None:
    """With the sizes, and how to give another folder."""
    huge = object_store.StoredObject(uri=bucket.uri("x.csv"), size=1 << 60, tag="", modified=0.0)
    with pytest.raises(StepFailed, match=r"MB are to be fetched, but \d+ MB are free in .*; make room, or set TMPDIR"):
        inputs._check_room(bucket.uri(), [huge], scratch_dir)


def test_rows_for_prediction_come_from_a_store_too(bucket: Bucket, scratch_dir: Path) -> None:
    """Every row, in order."""
    uri = bucket.put("rows.csv", _ROWS)
    batches = list(read_examples(DataOptions(path=uri), {"fare": "float"}))
    assert sum(len(batch) for batch in batches) == 100
    assert list(scratch_dir.iterdir()) == []


def test_the_driver_of_the_launcher_reads_the_property_too(bucket: Bucket) -> None:
    """By TFX's newer interface, as the entry point in a container calls it."""
    bucket.put("rows.csv", _ROWS)
    component = _component("package:none/x.csv", data_path=bucket.uri("*.csv"))
    examples = standard_artifacts.Examples()
    output = ContentDriver(None).run(
        data_types.ExecutionInfo(exec_properties=dict(component.exec_properties), output_dict={"examples": [examples]})
    )
    assert output.exec_properties["input_base"].string_value == f"s3://{bucket.name}"
    assert "tags:" in output.exec_properties["input_fingerprint"].string_value
