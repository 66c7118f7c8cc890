"""Whether the model that a candidate is judged against is still there and can be compared with it."""

import dataclasses
from pathlib import Path

from lockstep.components import serving
from lockstep.components.errors import ConfigurationError, StepFailed
from lockstep.components.evaluator import inference
from lockstep.components.evaluator.options import EvaluateSpec
from lockstep.components.evaluator.verdict import BaselineOutcome
from lockstep.components.object_store import fetch_tree, open_folder
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


def open_baseline(
    spec: EvaluateSpec, baseline: str, first_file: str, scratch: Path, classes: tuple[str, ...] = ()
) -> UsableBaseline | BaselineOutcome:
    """Returns the baseline's model, or why there is none to compare with.

    Args:
      spec: What is evaluated.
      baseline: ``versions.resolve_baseline``'s answer.
      first_file: A file of the examples; the baseline must accept its rows.
      scratch: An empty folder, where a model from an object store is put for as long as it is used.
      classes: The candidate's, of a multiclass label; a baseline that knows others cannot be compared with.

    Raises:
      ConfigurationError: The object store denies access.
      StepFailed: The object store does not answer, or the disk is full.
    """
    wanted = versions.Baseline.from_json(baseline)
    if wanted is None or spec.push_dir is None:
        return BaselineOutcome(state="none")
    version = versions.read_version(open_folder(spec.push_dir) / str(wanted.version))
    known: tuple[str, ...] = ()
    note, model_dir = "", scratch
    if version is None:
        note = f"version {wanted.version} is not in {spec.push_dir} any more"
    elif version.manifest.model_sha256 != wanted.model_sha256:
        note = f"version {wanted.version} is another model now"
    else:
        model_dir = _at_hand(version, scratch)
        note, known = _obstacle(spec, version.number, model_dir, classes)
    if version is not None and not note:
        model = inference.ScoredModel(
            name=BASELINE, dir=str(model_dir), classes=known, of_boxes=spec.label_kind == "boxes"
        )
        try:
            scorer = inference.load_checked(model, spec.label, first_file)
        except (ConfigurationError, StepFailed) as e:
            note = f"version {wanted.version} cannot be run on these rows: {e}"
        else:
            return UsableBaseline(version=version.number, model=model, scorer=scorer)
    return BaselineOutcome(state="unusable", version=wanted.version, note=note)


def _at_hand(version: versions.Version, scratch: Path) -> Path:
    """Returns a local folder of the version's model."""
    if isinstance(version.dir, Path):
        return version.dir
    fetch_tree(str(version.dir), scratch)
    return scratch


def _obstacle(
    spec: EvaluateSpec, number: int, model_dir: Path, classes: tuple[str, ...]
) -> tuple[str, tuple[str, ...]]:
    """Returns why a version need not even be loaded, or nothing; and its classes."""
    name = f"version {number}"
    try:
        contract = serving.read_contract(model_dir)
    except ConfigurationError as e:
        return str(e), ()
    if contract is not None and (contract.label, contract.label_kind) != (spec.label, spec.label_kind):
        return (
            f"{name} predicts {contract.label!r} ({contract.label_kind}), "
            f"the candidate {spec.label!r} ({spec.label_kind})"
        ), ()
    known = () if contract is None else contract.classes
    if set(known) != set(classes):
        differing = sorted(set(known) ^ set(classes))
        return f"{name} knows other classes than the candidate: {', '.join(map(repr, differing[:5]))}", ()
    return "", known
