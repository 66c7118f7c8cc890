"""Whether the model that a candidate is judged against is still there and can be compared with it."""

import dataclasses
from pathlib import Path

from lockstep.components import serving
from lockstep.components.errors import ConfigurationError, StepFailed
from lockstep.components.evaluator import inference
from lockstep.components.evaluator.options import EvaluateSpec
from lockstep.components.evaluator.verdict import BaselineOutcome
from lockstep.components.pusher import versions

BASELINE = "baseline"


@dataclasses.dataclass(frozen=True, kw_only=True)
class UsableBaseline:
    """A served model to compare with.

    Args:
      version: Its number.
      model: The model.
      scorer: The same, loaded; held so that Beam in this process need not load it again.
    """

    version: int
    model: inference.ScoredModel
    scorer: inference.Scorer


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
    note = _obstacle(spec, wanted, version)
    if version is not None and not note:
        model = inference.ScoredModel(name=BASELINE, dir=str(version.dir))
        try:
            scorer = inference.load_checked(model, spec.label, first_file)
        except (ConfigurationError, StepFailed) as e:
            note = f"version {wanted.version} cannot be run on these rows: {e}"
        else:
            return UsableBaseline(version=version.number, model=model, scorer=scorer)
    return BaselineOutcome(state="unusable", version=wanted.version, note=note)


def _obstacle(spec: EvaluateSpec, wanted: versions.Baseline, version: versions.Version | None) -> str:
    """Returns why a version need not even be loaded, or nothing."""
    name = f"version {wanted.version}"
    if version is None:
        return f"{name} is not in {spec.push_dir} any more"
    if version.manifest.model_sha256 != wanted.model_sha256:
        return f"{name} is another model now"
    try:
        contract = serving.read_contract(version.dir)
    except ConfigurationError as e:
        return str(e)
    if contract is not None and (contract.label, contract.label_kind) != (spec.label, spec.label_kind):
        return (
            f"{name} predicts {contract.label!r} ({contract.label_kind}), "
            f"the candidate {spec.label!r} ({spec.label_kind})"
        )
    return ""
