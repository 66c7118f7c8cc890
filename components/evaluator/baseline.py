"""Whether the model that a candidate is judged against is still there and can be compared with it."""

import dataclasses
from pathlib import Path

from lockstep.components import serving
from lockstep.components.errors import ConfigurationError, StepFailed
from lockstep.components.evaluator import inference
from lockstep.components.evaluator.options import EvaluateSpec
from lockstep.components.evaluator.verdict import BaselineOutcome
from lockstep.components.pusher import versions


@dataclasses.dataclass(frozen=True, kw_only=True)
class UsableBaseline:
    """A served model to compare with."""

    version: int
    dir: Path


def open_baseline(spec: EvaluateSpec, baseline: str, first_file: str) -> UsableBaseline | BaselineOutcome:
    """Returns the baseline's model, or why there is none to compare with.

    Args:
      spec: What is evaluated.
      baseline: ``versions.resolve_baseline``'s answer.
      first_file: A file of the examples; the baseline must accept its rows.
    """
    wanted = versions.Baseline.from_json(baseline)
    if wanted is None or spec.push_dir is None:
        return BaselineOutcome(state="none")
    version = versions.read_version(Path(spec.push_dir) / str(wanted.version))
    note = _obstacle(spec, wanted, version, first_file)
    if note:
        return BaselineOutcome(state="unusable", version=wanted.version, note=note)
    assert version is not None
    return UsableBaseline(version=version.number, dir=version.dir)


def _obstacle(spec: EvaluateSpec, wanted: versions.Baseline, version: versions.Version | None, first_file: str) -> str:
    """Returns why a version cannot be compared with, or nothing."""
    name = f"version {wanted.version}"
    if version is None:
        return f"{name} is not in {spec.push_dir} any more"
    if version.manifest.model_sha256 != wanted.model_sha256:
        return f"{name} is another model now"
    try:
        contract = serving.read_contract(version.dir)
        if contract is not None and (contract.label, contract.label_kind) != (spec.label, spec.label_kind):
            return (
                f"{name} predicts {contract.label!r} ({contract.label_kind}), "
                f"the candidate {spec.label!r} ({spec.label_kind})"
            )
        inference.check_runs(inference.ScoredModel(name="baseline", dir=str(version.dir)), spec.label, first_file)
    except (ConfigurationError, StepFailed) as e:
        return f"{name} cannot be run on these rows: {e}"
    return ""
