"""What the steps are told."""

import json
import pathlib

from lockstep.pipelines.config import load_config
from lockstep.pipelines.definition import Site, build_pipeline
from lockstep.pipelines.run_files import RootFiles


def _requirements(tmp_path: pathlib.Path, *overrides: str) -> dict[str, object]:
    source, root = load_config("taxi", overrides=overrides, root=tmp_path)
    pipeline = build_pipeline(source.config, Site.local(source.config, RootFiles(root), None))
    example_gen = next(component for component in pipeline.components if component.id == "ExampleGen")
    requirements: dict[str, object] = json.loads(example_gen.exec_properties["spec"])["requirements"]
    return requirements


def test_labels_are_complete_whatever_makes_the_features(tmp_path: pathlib.Path) -> None:
    """Beside a function of the user's the label's columns may be absent, since it may make the label of others."""
    declared = _requirements(tmp_path)
    assert (declared["complete_columns"], declared["complete_if_present"]) == (["tips", "fare"], [])
    own = _requirements(tmp_path, "features={}", "preprocessing=my_module:preprocess", "label.missing=drop")
    assert (own["complete_columns"], own["complete_if_present"]) == ([], ["tips", "fare"])
    assert own["on_missing"] == "drop"
