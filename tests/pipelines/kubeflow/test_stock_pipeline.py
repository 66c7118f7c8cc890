"""A pipeline of TFX's own components only, compiled by TFX's runner, mended, and run as Kubeflow Pipelines would."""

import io
import json
import random
from pathlib import Path
from typing import Any

import pytest
import tensorflow_model_analysis as tfma
from tfx.components.evaluator.component import Evaluator
from tfx.components.example_gen.csv_example_gen.component import CsvExampleGen
from tfx.components.example_gen.driver import FileBasedDriver
from tfx.components.example_validator.component import ExampleValidator
from tfx.components.pusher.component import Pusher
from tfx.components.schema_gen.component import SchemaGen
from tfx.components.statistics_gen.component import StatisticsGen
from tfx.components.trainer.component import Trainer
from tfx.components.transform.component import Transform
from tfx.orchestration import pipeline as tfx_pipeline
from tfx.orchestration.kubeflow.v2 import kubeflow_v2_dag_runner
from tfx.proto import pusher_pb2, trainer_pb2

from lockstep.pipelines.beam_engines import BeamOptions, beam_arguments
from lockstep.pipelines.console import Console
from lockstep.pipelines.kubeflow.emulator import run
from lockstep.pipelines.kubeflow.emulator.options import EmulateOptions
from lockstep.pipelines.kubeflow.mend import COMMAND, Node, mend
from lockstep.pipelines.kubeflow.options import KubeflowOptions
from lockstep.pipelines.kubeflow.package import Package

MODULES = "tests.pipelines.kubeflow.stock_modules"


def stock_pipeline(data_dir: Path, pushed_dir: Path) -> tfx_pipeline.Pipeline:
    """Eight stock components."""
    example_gen = CsvExampleGen(input_base=str(data_dir))
    examples = example_gen.outputs["examples"]
    statistics_gen = StatisticsGen(examples=examples)
    schema_gen = SchemaGen(statistics=statistics_gen.outputs["statistics"])
    schema = schema_gen.outputs["schema"]
    validator = ExampleValidator(statistics=statistics_gen.outputs["statistics"], schema=schema)
    transform = Transform(
        examples=examples,
        schema=schema,
        preprocessing_fn=f"{MODULES}.preprocessing_fn",
        disable_statistics=True,
        disable_analyzer_cache=True,
    )
    trainer = Trainer(
        run_fn=f"{MODULES}.run_fn",
        examples=transform.outputs["transformed_examples"],
        transform_graph=transform.outputs["transform_graph"],
        schema=schema,
        train_args=trainer_pb2.TrainArgs(num_steps=5),
        eval_args=trainer_pb2.EvalArgs(num_steps=1),
    )
    bound = tfma.MetricThreshold(value_threshold=tfma.GenericValueThreshold(lower_bound={"value": 0.0}))
    evaluator = Evaluator(
        examples=examples,
        model=trainer.outputs["model"],
        eval_config=tfma.EvalConfig(
            model_specs=[tfma.ModelSpec(signature_name="serving_default", label_key="y")],
            slicing_specs=[tfma.SlicingSpec()],
            metrics_specs=[tfma.MetricsSpec(metrics=[tfma.MetricConfig(class_name="BinaryAccuracy", threshold=bound)])],
        ),
    )
    filesystem = pusher_pb2.PushDestination.Filesystem(base_directory=str(pushed_dir))
    pusher = Pusher(
        model=trainer.outputs["model"],
        model_blessing=evaluator.outputs["blessing"],
        push_destination=pusher_pb2.PushDestination(filesystem=filesystem),
    )
    return tfx_pipeline.Pipeline(
        pipeline_name="stock",
        pipeline_root="gs://bucket/root",
        components=[
            *(example_gen, statistics_gen, schema_gen, validator),
            *(transform, trainer, evaluator, pusher),
        ],
        enable_cache=True,
        beam_pipeline_args=beam_arguments(BeamOptions()),
    )


def compiled(pipeline: tfx_pipeline.Pipeline) -> Package:
    """The package, with what Lockstep's compiler knows beside TFX's document."""
    runner = kubeflow_v2_dag_runner.KubeflowV2DagRunner(
        config=kubeflow_v2_dag_runner.KubeflowV2DagRunnerConfig(
            default_image="lockstep", default_commands=list(COMMAND), use_pipeline_spec_2_1=True
        )
    )
    spec: dict[str, Any] = runner.run(pipeline, write_out=False)["pipelineSpec"]
    driver = f"{FileBasedDriver.__module__}.{FileBasedDriver.__qualname__}"
    nodes = [
        Node(
            id=component.id,
            code_fingerprint="f00d",
            driver_class_path=driver if component.id == "CsvExampleGen" else None,
        )
        for component in pipeline.components
    ]
    return Package(spec=mend(spec, nodes, KubeflowOptions(), name="stock", defaults={}), platform=None)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_stock_components_run_unmodified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All eight; the model is blessed and pushed, and nothing that they say names a path of their containers."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]), prepend=":")
    (tmp_path / "data").mkdir()
    numbers = random.Random(1)
    rows = [f"{x},{int(x > 0.5)}" for x in (round(numbers.random(), 3) for _ in range(300))]
    (tmp_path / "data" / "rows.csv").write_text("\n".join(["x,y", *rows]) + "\n", encoding="utf-8")
    package = compiled(stock_pipeline(tmp_path / "data", tmp_path / "pushed"))
    output = io.StringIO()
    finished = run.emulate(
        package,
        EmulateOptions(root=tmp_path / "root", pipeline_root="s3://bucket/root"),
        Console(output),
    )
    assert finished.exit_code == 0, output.getvalue()
    [version] = (tmp_path / "pushed").iterdir()
    assert (version / "saved_model.pb").exists()
    [log] = (tmp_path / "root" / "runs").rglob("Evaluator-0.log")
    [said] = [line for line in log.read_text(encoding="utf-8").splitlines() if "outputs: {" in line]
    [blessing] = json.loads(said.partition("outputs: ")[2])["artifacts"]["blessing"]["artifacts"]
    assert blessing["metadata"]["blessed"] == 1
    assert blessing["metadata"]["current_model"].startswith("s3://bucket/root/")
