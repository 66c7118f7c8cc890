"""Runs the real executor on real artifacts."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tfx.dsl.components.base import base_beam_executor
from tfx.types import artifact_utils, standard_artifacts

from lockstep.components.evaluator.executor import Executor
from lockstep.components.evaluator.options import EvaluateSpec
from tests.components.evaluator import tiny_model

BEAM_ARGUMENTS = ["--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner", "--sdk_container_image=unused"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What an evaluation left behind."""

    dir: Path
    blessing: standard_artifacts.ModelBlessing
    verdict: dict[str, Any]


def _artifact(cls: type, folder: Path) -> Any:
    artifact = cls()
    artifact.uri = str(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return artifact


def evaluate(
    root: Path,
    rows: Sequence[dict[str, object]],
    make_model: Callable[[Path], object],
    spec: EvaluateSpec,
    properties: dict[str, str] | None = None,
) -> Evaluation:
    """Evaluates a model on rows as the step does, with artifacts below ``root``."""
    tiny_model.write_examples(root / "examples", rows)
    make_model(root / "model" / "Format-Serving")
    (root / "schema").mkdir()
    (root / "schema" / "schema.pbtxt").write_text(tiny_model.SCHEMA)
    examples = _artifact(standard_artifacts.Examples, root / "examples")
    examples.split_names = artifact_utils.encode_split_names(["train", "eval"])
    evaluation = _artifact(standard_artifacts.ModelEvaluation, root / "evaluation")
    blessing = _artifact(standard_artifacts.ModelBlessing, root / "blessing")
    context = base_beam_executor.BaseBeamExecutor.Context(
        beam_pipeline_args=BEAM_ARGUMENTS, tmp_dir=str(root / "tmp"), unique_id="1"
    )
    Executor(context).Do(
        {
            "examples": [examples],
            "model": [_artifact(standard_artifacts.Model, root / "model")],
            "schema": [_artifact(standard_artifacts.Schema, root / "schema")],
        },
        {"evaluation": [evaluation], "blessing": [blessing]},
        {"spec": spec.to_json(), "code_fingerprint": "any", **(properties or {})},
    )
    verdict = json.loads((root / "evaluation" / "verdict.json").read_text())
    return Evaluation(dir=root / "evaluation", blessing=blessing, verdict=verdict)


@pytest.fixture(scope="session")
def rows() -> list[dict[str, object]]:
    """300 rows of the tiny model's."""
    return tiny_model.make_rows(300)
