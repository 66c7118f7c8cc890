"""What the steps are told."""

import json
import pathlib

from tfx.dsl.components.base import base_beam_executor, executor_spec

from lockstep.pipelines.config import load_config
from lockstep.pipelines.definition import Site, build_pipeline
from lockstep.pipelines.local import compile_pipeline
from lockstep.pipelines.run import STEPS
from lockstep.pipelines.run_files import RootFiles


def _requirements(tmp_path: pathlib.Path, *overrides: str) -> dict[str, object]:
    source, root = load_config("taxi", overrides=overrides, root=tmp_path)
    pipeline = build_pipeline(source.config, Site.local(source.config, RootFiles(root), None))
    example_gen = next(component for component in pipeline.components if component.id == "ExampleGen")
    requirements: dict[str, object] = json.loads(example_gen.exec_properties["spec"])["requirements"]
    return requirements


def test_the_steps_that_can_be_forced_are_those_of_the_pipeline(tmp_path: pathlib.Path) -> None:
    """Which are known before TFX is loaded."""
    source, root = load_config("taxi", root=tmp_path)
    pipeline = build_pipeline(source.config, Site.local(source.config, RootFiles(root), None))
    assert sorted(component.id for component in pipeline.components) == sorted(STEPS)


def test_labels_are_complete_whatever_makes_the_features(tmp_path: pathlib.Path) -> None:
    """Beside a function of the user's the label's columns may be absent, since it may make the label of others."""
    declared = _requirements(tmp_path)
    assert (declared["complete_columns"], declared["complete_if_present"]) == (["tips", "fare"], [])
    own = _requirements(tmp_path, "features={}", "preprocessing=my_module:preprocess", "label.missing=drop")
    assert (own["complete_columns"], own["complete_if_present"]) == ([], ["tips", "fare"])
    assert own["on_missing"] == "drop"


def test_a_stock_module_trains_and_is_evaluated_by_its_own_label(tmp_path: pathlib.Path) -> None:
    """The trainer is told the function, trainer and Evaluator what it calls the label."""
    overrides = ["run_fn=my_module:run_fn", "label.transformed=tips_xf", "model={parameters: {width: 8}}"]
    source, root = load_config("taxi", overrides=overrides, root=tmp_path)
    pipeline = build_pipeline(source.config, Site.local(source.config, RootFiles(root), None))
    specs = {c.id: json.loads(c.exec_properties["spec"]) for c in pipeline.components if "spec" in c.exec_properties}
    assert specs["DistributedTrainer"]["run_fn"] == "my_module:run_fn"
    assert specs["DistributedTrainer"]["model"]["parameters"] == {"width": 8}
    assert specs["DistributedTrainer"]["label"] == specs["Evaluator"]["label"] == "tips_xf"


def test_the_data_must_have_the_columns_that_features_are_made_of(tmp_path: pathlib.Path) -> None:
    """A cross has a name that is no column; its columns, and a list's weights, are."""
    features = (
        "features={time: {kind: timestamp, parts: [hour]},"
        " x: {kind: cross, columns: [time_hour, city], num_buckets: 9},"
        " tags: {kind: list, output: multi_hot, weights: shares}}"
    )
    requirements = _requirements(tmp_path, features, "evaluate.slices=[]")
    assert requirements["columns"] == ["time", "city", "tags", "shares"]


def test_transform_reads_statistics_where_it_has_to_pick_kinds(tmp_path: pathlib.Path) -> None:
    """And nowhere else, so that nothing changes for pipelines that declare all of them."""
    for kind, has_statistics in (("numeric", False), ("auto", True)):
        source, root = load_config("taxi", overrides=[f"features.fare={{kind: {kind}}}"], root=tmp_path)
        pipeline = build_pipeline(source.config, Site.local(source.config, RootFiles(root), None))
        transform = next(component for component in pipeline.components if component.id == "Transform")
        assert ("statistics" in transform.inputs) == has_statistics
        assert ("config_resolver" in transform.exec_properties) == has_statistics
        nodes = {node.pipeline_node.node_info.id: node.pipeline_node for node in compile_pipeline(pipeline).nodes}
        assert ("statistics" in nodes["Transform"].inputs.inputs) == has_statistics


def test_the_trainer_decodes_the_images_that_transform_does_not(tmp_path: pathlib.Path) -> None:
    """And is told nothing where Transform decodes all; ExampleGen looks for broken ones, unless told not to."""
    image = {"image": {"kind": "image", "height": 8, "width": 8, "channels": 1, "scale": "zero_one", "fit": "crop"}}
    for decode, verify in (("train", True), ("transform", False)):
        overrides = [f"features.image.decode={decode}", f"data.images.verify={verify}"]
        source, root = load_config("digits", overrides=overrides, root=tmp_path)
        pipeline = build_pipeline(source.config, Site.local(source.config, RootFiles(root), None))
        specs = {
            c.id: json.loads(c.exec_properties["spec"]) for c in pipeline.components if "spec" in c.exec_properties
        }
        assert specs["ExampleGen"]["requirements"]["images"] == ({"image": 1} if verify else {})
        found = specs["DistributedTrainer"]["decoder"]
        options = {"decode": "train", "missing": "error"}
        expected = {
            "build": "lockstep.transforms.images:ImageDecoder",
            "parameters": {"features": {"image": image["image"] | options}},
        }
        assert found == (expected if decode == "train" else None)


def test_no_step_builds_a_package_of_tfx_at_its_start(tmp_path: pathlib.Path) -> None:
    """TFX's executors do, each in a second and a half, when they are made with arguments that name no image."""
    source, root = load_config("taxi", root=tmp_path)
    pipeline = build_pipeline(source.config, Site.local(source.config, RootFiles(root), None))
    made = {
        component.id: component.executor_spec.executor_class(
            base_beam_executor.BaseBeamExecutor.Context(
                beam_pipeline_args=list(pipeline.beam_pipeline_args), tmp_dir=str(tmp_path), unique_id="1"
            )
        )
        for component in pipeline.components
        if isinstance(component.executor_spec, executor_spec.BeamExecutorSpec)
    }
    assert {"StatisticsGen", "Transform", "Evaluator"} <= made.keys()
    for executor in made.values():
        assert not [argument for argument in executor._beam_pipeline_args if "extra_package" in argument]
