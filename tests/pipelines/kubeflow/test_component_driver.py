"""Lockstep's own drivers as steps: what a key of Kubeflow Pipelines' cache learns from them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tfx.types import standard_artifacts

from lockstep.components import object_store
from lockstep.components.errors import DataError
from lockstep.components.evaluator.options import EvaluateOptions, EvaluateSpec
from lockstep.components.example_gen.component import ExampleGen
from lockstep.components.example_gen.executor import Executor
from lockstep.components.example_gen.options import DataOptions
from lockstep.components.example_gen.split_options import SplitBy
from lockstep.components.pusher.options import PushOptions
from lockstep.components.record_manifest import Manifest
from lockstep.pipelines.kubeflow.component_driver import apply_driver_output, run_driver
from tests.components.pusher.test_versions import make_model, push

EXAMPLE_GEN = "lockstep.components.example_gen.driver.ContentDriver"
EVALUATOR = "lockstep.components.evaluator.driver.Driver"
PUSHER = "lockstep.components.pusher.component.Driver"


@pytest.fixture
def store_dir(tmp_path: Path) -> Iterator[Path]:
    """An object store."""
    object_store.configure({"LOCKSTEP_STORE_DIR": str(tmp_path / "store")})
    yield tmp_path / "store"
    object_store.configure({})


def example_gen(path: str) -> dict[str, Any]:
    """ExampleGen's execution properties."""
    properties: dict[str, Any] = ExampleGen(data=DataOptions(path=path)).exec_properties
    return {name: value for name, value in properties.items() if value is not None}


def models(folder: Path, *, blessed: bool) -> dict[str, Any]:
    """A model and its blessing, at local paths."""
    model, blessing = standard_artifacts.Model(), standard_artifacts.ModelBlessing()
    model.uri = str(folder)
    blessing.set_int_custom_property("blessed", int(blessed))
    return {"model": [model], "model_blessing": [blessing]}


def test_data_in_an_object_store_are_in_the_key(store_dir: Path) -> None:
    """The same objects give the same answer; another content another one. The launcher has downloaded nothing."""
    rows = store_dir / "s3" / "bucket" / "rows.csv"
    rows.parent.mkdir(parents=True)
    rows.write_text("x\n1\n", encoding="utf-8")
    properties = example_gen("s3://bucket/rows.csv")
    first = run_driver(EXAMPLE_GEN, {}, properties)
    assert run_driver(EXAMPLE_GEN, {}, properties) == first
    document = json.loads(first)
    assert document["exec_properties"]["span"] == 0
    assert document["exec_properties"]["input_fingerprint"]
    rows.write_text("x\n1\n2\n", encoding="utf-8")
    assert run_driver(EXAMPLE_GEN, {}, properties) != first


def test_absent_data_are_told_by_the_driver(store_dir: Path) -> None:
    """Before a pod for the work itself is started."""
    (store_dir / "s3" / "bucket").mkdir(parents=True)
    with pytest.raises(DataError, match="s3://bucket"):
        run_driver(EXAMPLE_GEN, {}, example_gen("s3://bucket/rows.csv"))


def test_example_gen_s_output_says_what_the_driver_found(store_dir: Path) -> None:
    """As locally, where TFX's launcher takes the driver's outputs."""
    rows = store_dir / "minio" / "bucket" / "rows.csv"
    rows.parent.mkdir(parents=True)
    rows.write_text("x\n1\n", encoding="utf-8")
    properties = example_gen("minio://bucket/rows.csv")
    text = run_driver(EXAMPLE_GEN, {}, properties)
    examples = standard_artifacts.Examples()
    apply_driver_output(text, {"examples": [examples]}, properties)
    fingerprint = json.loads(text)["exec_properties"]["input_fingerprint"]
    assert examples.get_string_custom_property("input_fingerprint") == fingerprint
    assert examples.mlmd_artifact.custom_properties["span"].WhichOneof("value") == "int_value"
    assert properties["input_fingerprint"] == fingerprint


def test_the_served_model_is_in_the_evaluator_s_key(tmp_path: Path) -> None:
    """Another one to compare with is another question."""
    model_dir = make_model(tmp_path / "model" / "Format-Serving")
    spec = EvaluateSpec(
        options=EvaluateOptions(ungated=True), label="y", label_kind="binary", push_dir=str(tmp_path / "push")
    ).to_json()
    inputs = models(model_dir.parent, blessed=True)
    before = run_driver(EVALUATOR, inputs, {"spec": spec})
    assert set(json.loads(before)["exec_properties"]) == {"baseline"}
    push(make_model(tmp_path / "served", "another graph"), tmp_path / "push")
    assert run_driver(EVALUATOR, inputs, {"spec": spec}) != before


def test_the_pusher_s_key_is_new_while_there_is_something_to_push(tmp_path: Path) -> None:
    """And the same where there is not, so that the cache serves it."""
    model_dir = make_model(tmp_path / "model" / "Format-Serving").parent
    spec = PushOptions(dir=str(tmp_path / "push")).to_json()
    refused, passed = models(model_dir, blessed=False), models(model_dir, blessed=True)
    assert run_driver(PUSHER, refused, {"spec": spec}) == run_driver(PUSHER, refused, {"spec": spec})
    assert run_driver(PUSHER, passed, {"spec": spec}) != run_driver(PUSHER, passed, {"spec": spec})


@pytest.mark.parametrize(
    ("path", "by", "rows"),
    [
        ("b/all.csv", SplitBy(columns=("c",)), None),
        ("b/all.csv", SplitBy(time="t", until={"train": "2"}), {"train": 2, "eval": 2}),
        (
            "b",
            SplitBy(paths={"train": "train/span-{SPAN}/v{VERSION}/*", "eval": "eval/span-{SPAN}/v{VERSION}"}),
            {"train": 2, "eval": 1},
        ),
        ("b/days/{YYYY}-{MM}-{DD}", SplitBy(paths={"train": "train.csv", "eval": "eval.csv"}), {"train": 3, "eval": 1}),
    ],
)
def test_splits_are_made_as_the_driver_s_task_resolved_them(
    store_dir: Path, tmp_path: Path, path: str, by: SplitBy, rows: dict[str, int] | None
) -> None:
    """By key, time and paths, with spans and versions: what the component's own task is told is all that it needs."""
    texts = {
        "all.csv": "c,t\na,0\nb,1\na,2\nc,3\n",
        **{f"{split}/span-1/v9/r.csv": "c,t\nz,9\n" * 3 for split in ("train", "eval")},
        "train/span-2/v3/r.csv": "c,t\na,0\nb,1\n",
        "eval/span-2/v3/r.csv": "c,t\na,5\n",
        "days/2026-01-01/train.csv": "c,t\nz,9\n",
        "days/2026-01-01/eval.csv": "c,t\nz,9\n",
        "days/2026-01-02/train.csv": "c,t\na,0\nb,1\nc,2\n",
        "days/2026-01-02/eval.csv": "c,t\na,5\n",
    }
    for name, text in texts.items():
        file = store_dir / "minio" / "b" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    data = DataOptions(path=f"minio://{path}", splits={"train": 1, "eval": 1}, split_by=by)
    component = ExampleGen(data=data).exec_properties
    properties = {name: value for name, value in component.items() if value is not None}
    text = run_driver(EXAMPLE_GEN, {}, properties)
    assert run_driver(EXAMPLE_GEN, {}, properties) == text
    examples = standard_artifacts.Examples()
    examples.uri = str(tmp_path / "out")
    apply_driver_output(text, {"examples": [examples]}, properties)
    Executor().Do({}, {"examples": [examples]}, properties)
    found = Manifest.load(examples.uri).rows
    if rows is None:
        assert sum(found.values()) == 4
    else:
        assert found == rows
