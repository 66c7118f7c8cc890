"""The document that supervisor and workers share."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from lockstep.components.trainer.early_stopping import EarlyStopping
from lockstep.components.trainer.schedule_options import ScheduleOptions
from lockstep.components.trainer.spec import ModelOptions, RunFiles, TrainOptions, TrainSpec, worker_command
from lockstep.components.trainer.worker_range import WorkerRange

SPEC = TrainSpec(
    options=TrainOptions(workers=4, base_port=4000),
    model=ModelOptions(build="my.module:build", parameters={"hidden": [8, 4], "rate": 0.5}),
    label="tips",
    label_kind="binary",
    train_files=("a.gz", "b.gz"),
    eval_files=(),
    transform_graph_dir="/graph",
    run_dir="/run",
    checkpoint_dir="/checkpoints",
    export_dir="/model/Format-Serving",
    tensorboard_dir="/events",
    import_paths=("/project",),
)

DTENSOR = {"strategy": "dtensor", "workers": 1, "mesh": {"batch": 2, "model": 2}}


def test_a_specification_survives_its_json() -> None:
    """What is read is what was written, types included."""
    assert TrainSpec.from_json(SPEC.to_json()) == SPEC


def test_equal_specifications_give_equal_text() -> None:
    """The order in which parameters were given does not show."""
    turned = dataclasses.replace(
        SPEC, model=ModelOptions(build="my.module:build", parameters={"rate": 0.5, "hidden": [8, 4]})
    )
    assert turned.to_json() == SPEC.to_json()


def test_whole_numbers_are_taken_for_floats() -> None:
    """``learning_rate: 1`` in YAML is 1.0."""
    data = json.loads(SPEC.to_json())
    data["options"]["learning_rate"] = 1
    assert isinstance(TrainSpec.from_json(json.dumps(data)).options.learning_rate, float)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lable": "x"}, "spec: unknown key 'lable'; did you mean 'label'?"),
        ({"label": 3}, "spec.label: 3 is not allowed"),
        ({"label_kind": "ranking"}, "spec.label_kind: 'ranking' is not allowed"),
        ({"train_files": "a.gz"}, "spec.train_files: 'a.gz' is not allowed"),
        ({"train_files": []}, r"train_files: \[\] is not allowed; give at least one"),
        ({"options": {"workers": True}}, "spec.options.workers: True is not allowed"),
        ({"options": {"workers": 1.5}}, "spec.options.workers: 1.5 is not allowed"),
        ({"options": {"workers": {"min": 1}}}, "spec.options.workers: .*'max'"),
        ({"options": {"workers": {"min": 1, "most": 2}}}, "spec.options.workers: unknown key 'most'"),
        ({"options": {"base_port": "80"}}, "spec.options.base_port: '80' is not allowed"),
    ],
)
def test_a_wrong_document_is_refused_by_the_key_s_name(change: dict[str, Any], message: str) -> None:
    """Unknown keys, wrong types and forbidden values each name the key."""
    with pytest.raises(ValueError, match=message):
        TrainSpec.from_json(json.dumps(json.loads(SPEC.to_json()) | change))


def test_steps_are_known_unless_epochs_are_given() -> None:
    """1000 without either; asking for them before the epochs were turned into steps is a mistake of ours."""
    assert TrainOptions().num_steps == 1000
    assert TrainOptions(steps=7).num_steps == 7
    with pytest.raises(RuntimeError, match="epochs"):
        _ = TrainOptions(epochs=3).num_steps


def test_an_absent_key_is_refused() -> None:
    """A key without a default must be there."""
    data = json.loads(SPEC.to_json())
    del data["label"]
    with pytest.raises(ValueError, match="label"):
        TrainSpec.from_json(json.dumps(data))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "workers: 0 is not allowed; give 1 or more"),
        ({"steps": 0}, "steps: 0"),
        ({"batch_size": -8}, "batch_size: -8"),
        ({"steps_per_call": 0}, "steps_per_call: 0"),
        ({"checkpoint_every": 0}, "checkpoint_every: 0"),
        ({"num_virtual_shards": 0}, "num_virtual_shards: 0"),
        ({"max_restarts": -1}, "max_restarts: -1"),
        ({"shuffle_buffer": -1}, "shuffle_buffer: -1"),
        ({"seed": -1}, "seed: -1"),
        ({"seed": 2**31}, "seed: 2147483648"),
        ({"learning_rate": 0.0}, "learning_rate: 0.0"),
        ({"learning_rate": float("nan")}, "learning_rate: nan"),
        ({"start_timeout_s": 0.0}, "start_timeout_s: 0.0"),
        ({"heartbeat_timeout_s": float("inf")}, "heartbeat_timeout_s: inf"),
        ({"strategy": "one_device"}, "workers: 2 is not allowed; strategy one_device runs in one process"),
        ({"strategy": "mirrored"}, "workers: 2 is not allowed; strategy mirrored runs in one process"),
        (
            {"strategy": "one_device", "workers": 1, "devices_per_worker": 2},
            "devices_per_worker: 2 is not allowed; strategy one_device drives one a process",
        ),
        (
            {"devices_per_worker": 5},
            "workers: 2 with devices_per_worker: 5 is not allowed .* the two that divides 24, or batch_size: 250",
        ),
        ({"mesh": {"model": 2}}, "mesh: {'model': 2} is not allowed; strategy multi_worker_mirrored has none"),
        ({"layout": {"*": ("model",)}}, "layout: .* is not allowed; strategy multi_worker_mirrored has none"),
        ({**DTENSOR, "mesh": {}}, "mesh: {} is not allowed; give an axis or two"),
        ({**DTENSOR, "mesh": {"model": 0}}, "mesh.model: 0 is not allowed"),
        ({**DTENSOR, "mesh": {"batch": 7}}, "batch_size: 240 is not allowed; give a multiple of mesh.batch: 7"),
        ({**DTENSOR, "workers": 2}, "workers: 2 is not allowed; strategy dtensor runs in one process"),
        ({**DTENSOR, "devices_per_worker": 2}, "devices_per_worker: 2 is not allowed; mesh says how many"),
        (
            {**DTENSOR, "layout": {"a/kernel": ("modle", None)}},
            r"a/kernel: \['modle', None\] is not allowed; give for each dimension null or one of model, each once",
        ),
        ({**DTENSOR, "layout": {"*": ("model", "model")}}, "each once at most"),
        ({**DTENSOR, "layout": {"*": ("batch",)}}, "null or one of model"),
        ({"parameter_servers": 2}, "parameter_servers: 2 is not allowed; strategy multi_worker_mirrored has none"),
        ({"strategy": "parameter_server", "parameter_servers": 0}, "parameter_servers: 0 is not allowed"),
        ({"strategy": "parameter_server", "devices_per_worker": 2}, "devices_per_worker: 2 is not allowed"),
        ({"accumulate": 0}, "accumulate: 0 is not allowed; give 1 or more"),
        ({"accumulate": 7}, "accumulate: 7 is not allowed; each device has 120 records of a step; give a divisor"),
        ({"accumulate": 2, "strategy": "parameter_server"}, "accumulate: 2 .* strategy parameter_server cannot"),
        ({**DTENSOR, "accumulate": 2}, "accumulate: 2 is not allowed; strategy dtensor cannot; leave it out"),
        ({"clip_norm": 0.0}, "clip_norm: 0.0 is not allowed; give a number above 0"),
        ({"clip_value": float("inf")}, "clip_value: inf is not allowed; give a number above 0"),
        ({"clip_norm": 1.0, "clip_value": 1.0}, "clip_value: 1.0 is not allowed; clip_norm is given too; keep one"),
        ({**DTENSOR, "clip_norm": 1.0}, "clip_norm: 1.0 is not allowed; strategy dtensor cannot; leave it out"),
        ({"epochs": 0}, "epochs: 0 is not allowed; give 1 or more"),
        ({"epochs": 2, "steps": 5}, "epochs: 2 is not allowed; steps is given too; keep one of the two"),
        (
            {"schedule": ScheduleOptions(warmup_steps=9), "steps": 9},
            "schedule.warmup_steps: 9 is not allowed; the training has 9 steps in all; give fewer",
        ),
        (
            {"schedule": ScheduleOptions(kind="cosine"), "strategy": "parameter_server"},
            "schedule.kind: 'cosine' is not allowed; strategy parameter_server has a constant learning rate",
        ),
        (
            {"precision": "mixed_float16", "strategy": "parameter_server"},
            "precision: 'mixed_float16' is not allowed; strategy parameter_server cannot; leave it out",
        ),
        ({**DTENSOR, "precision": "mixed_bfloat16"}, "precision: .* strategy dtensor cannot; leave it out"),
        ({"class_weights": {"1": 0.0}}, "class_weights.1: 0.0 is not allowed; give a number above 0"),
        ({"weight_column": ""}, "weight_column: '' is not allowed; name a column"),
        ({"validate_every": 0}, "validate_every: 0 is not allowed; give 1 or more"),
        ({"early_stopping": EarlyStopping()}, "early_stopping: 'loss' is not allowed; it needs validate_every"),
        (
            {"early_stopping": EarlyStopping(), "validate_every": 9, "steps": 9},
            "validate_every: 9 is not allowed; early_stopping needs a validation before the last of 9 steps",
        ),
        ({"devices_per_worker": 0}, "devices_per_worker: 0 is not allowed; give 1 or more"),
        ({"workers": 5}, "workers: 5 is not allowed with batch_size: 240, .* divides 24, or batch_size: 250"),
        ({"batch_size": 250, "num_virtual_shards": 24}, "batch_size: 250 is not allowed; .* for example 240"),
        ({"base_port": 80}, "base_port: 80"),
        ({"base_port": 65535}, "base_port: 65535"),
    ],
)
def test_an_option_out_of_range_is_refused_by_its_name(options: dict[str, Any], message: str) -> None:
    """The message says what is allowed."""
    with pytest.raises(ValueError, match=message):
        TrainOptions(**options)


def test_the_command_keeps_the_working_directory_off_the_import_path(tmp_path: Path) -> None:
    """A worker's own folder cannot shadow a package."""
    command = worker_command(spec_path=tmp_path / "spec.json", attempt=2, python="python")
    assert command[:2] == ("python", "-c")
    assert command[3:] == (str(tmp_path / "spec.json"), "--attempt", "2", "--stop-at-eof")


def test_run_files_lie_in_the_run_folder() -> None:
    """One place names them."""
    files = RunFiles(Path("/run"))
    assert (files.spec_path, files.training_path) == (Path("/run/spec.json"), Path("/run/training.json"))
    assert files.worker_dir(1) == Path("/run/worker-1")


@pytest.mark.parametrize(
    ("batch_size", "shards"), [(240, 24), (256, 16), (100, 20), (255, 15), (32, 16), (7, 7), (1, 1)]
)
def test_virtual_shards_follow_from_the_batch_and_never_from_the_workers(batch_size: int, shards: int) -> None:
    """Any batch size works with one worker; what most numbers of workers divide is taken."""
    assert TrainOptions(batch_size=batch_size, workers=1).virtual_shards == shards


def test_processes_of_each_strategy() -> None:
    """Workers alone; under ``parameter_server`` a coordinator before them and the servers of variables behind. A step's
    batch is one worker's there, so their number need not divide it.
    """
    assert TrainOptions(workers=3).processes == {"worker": 3}
    options = TrainOptions(strategy="parameter_server", workers=5, parameter_servers=2)
    assert options.processes == {"chief": 1, "worker": 5, "ps": 2}
    assert TrainOptions(strategy="parameter_server").processes == {"chief": 1, "worker": 2, "ps": 1}


def test_a_mesh_survives_the_document() -> None:
    """Axes, patterns and nulls are those that were given; the mesh says how many devices there are."""
    options = TrainOptions(**DTENSOR, layout={"hidden_*/kernel": (None, "model"), "*": ("model",)})
    spec = dataclasses.replace(SPEC, options=options)
    assert TrainSpec.from_json(spec.to_json()) == spec
    assert (options.num_devices, TrainOptions(devices_per_worker=3).num_devices) == (4, 3)


def test_a_range_of_workers_has_the_sizes_that_divide_the_shards() -> None:
    """24 shards of 240 records, 2 devices a worker: 5 and 7 to 11 are left out."""
    options = TrainOptions(workers=WorkerRange(min=1, max=12), batch_size=240, devices_per_worker=2)
    assert options.sizes == (1, 2, 3, 4, 6, 12)
    assert (options.most_workers, options.processes) == (12, {"worker": 12})
    assert options.with_workers(3).sizes == (3,)
    assert TrainOptions(workers=4).sizes == (4,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": (2, 5)}, "workers: 5 is not allowed with batch_size: 240"),
        ({"workers": (5, 6)}, "workers: 5 is not allowed with batch_size: 240"),
        (
            {"workers": (1, 4), "accumulate": 240, "batch_size": 480},
            "accumulate: 240 is not allowed; each device has 120",
        ),
        ({"workers": (1, 2), "strategy": "one_device"}, "workers: .* strategy one_device has a number of its own"),
        ({"workers": (1, 2), "strategy": "parameter_server"}, "workers: .* strategy parameter_server"),
        ({"workers": (1, 8), "base_port": 65529}, "base_port: 65529 is not allowed; give a port from 1024 to 65528"),
    ],
)
def test_a_range_of_workers_that_cannot_be_used_is_refused(options: dict[str, Any], message: str) -> None:
    """Its ends must be allowed as numbers are."""
    least, most = options.pop("workers")
    with pytest.raises(ValueError, match=message):
        TrainOptions(workers=WorkerRange(min=least, max=most), **options)


@pytest.mark.parametrize(("least", "most"), [(0, 1), (-1, 2), (3, 2)])
def test_a_range_has_a_lower_and_an_upper_end(least: int, most: int) -> None:
    """In this order."""
    with pytest.raises(ValueError, match=r"m(in|ax): -?\d is not allowed"):
        WorkerRange(min=least, max=most)
