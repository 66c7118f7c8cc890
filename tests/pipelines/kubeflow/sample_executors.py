"""Executors and drivers that the tests' tasks name, imported by the processes of the steps."""

import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tfx.dsl.component.experimental.annotations import (
    InputArtifact,
    OutputArtifact,
    OutputDict,
    Parameter,
)
from tfx.dsl.component.experimental.decorators import component
from tfx.dsl.components.base import base_beam_executor, base_driver, base_executor
from tfx.orchestration.portable import base_driver as ir_base_driver
from tfx.proto.orchestration import driver_output_pb2, execution_result_pb2
from tfx.types import artifact_utils, standard_artifacts

from lockstep.components.artifact_uris import store_uri
from lockstep.components.errors import DataError


class Recorder(base_executor.BaseExecutor):
    """Writes down what it was given, and describes its output with every kind of property."""

    def Do(self, input_dict: Any, output_dict: Any, exec_properties: Any) -> None:  # noqa: N802 - TFX's name
        """Fills `model`."""
        model = artifact_utils.get_single_instance(output_dict["model"])
        examples = artifact_utils.get_single_instance(input_dict["examples"])
        folder = Path(model.uri)
        assert folder.is_dir()
        assert not list(folder.iterdir())
        (folder / "assets").mkdir()
        seen = {
            "files": sorted(path.relative_to(examples.uri).as_posix() for path in Path(examples.uri).rglob("*")),
            "splits": artifact_utils.decode_split_names(examples.split_names) if examples.split_names else [],
            "examples_uri": examples.uri,
            "kept_at": store_uri(examples),
            "exec_properties": exec_properties,
            "temporary": self._get_tmp_dir(),
        }
        (folder / "seen.json").write_text(json.dumps(seen), encoding="utf-8")
        model.set_string_custom_property("trained_on", examples.uri)
        model.set_string_custom_property("note", f"see {model.uri}/seen.json")
        model.set_int_custom_property("steps", 300)
        model.set_float_custom_property("loss", 0.5)
        model.set_bool_custom_property("good", True)
        model.set_json_value_custom_property("sizes", [1.0, 2.0])
        logging.getLogger("lockstep.progress").info("step 300/300, loss 0.50")


class BeamPlaces(base_beam_executor.BaseBeamExecutor):
    """Writes down what `Recorder` does."""

    def Do(self, input_dict: Any, output_dict: Any, exec_properties: Any) -> None:  # noqa: N802 - TFX's name
        """Fills `model`."""
        Recorder.Do(self, input_dict, output_dict, exec_properties)  # type: ignore[arg-type]


class BeamArguments(base_beam_executor.BaseBeamExecutor):
    """Writes down Beam's arguments."""

    def Do(self, input_dict: Any, output_dict: Any, exec_properties: Any) -> None:  # noqa: N802 - TFX's name
        """Fills `model`."""
        folder = Path(artifact_utils.get_single_uri(output_dict["model"]))
        (folder / "beam.json").write_text(json.dumps(self._beam_pipeline_args), encoding="utf-8")


class Refusing(base_executor.BaseExecutor):
    """Fails as a user can mend it; Beam has wrapped the cause."""

    def Do(self, input_dict: Any, output_dict: Any, exec_properties: Any) -> None:  # noqa: N802 - TFX's name
        """Raises."""
        try:
            raise DataError("rows.csv:3: 'x' is no number; mend the row")
        except DataError as e:
            raise RuntimeError("a bundle failed") from e


class Leaving(base_executor.BaseExecutor):
    """Ends the process as if all were well."""

    def Do(self, input_dict: Any, output_dict: Any, exec_properties: Any) -> None:  # noqa: N802 - TFX's name
        """Exits."""
        sys.exit(0)


class Returning(base_executor.BaseExecutor):
    """Returns its failure, as TFX allows."""

    def Do(  # noqa: N802 - TFX's name
        self, input_dict: Any, output_dict: Any, exec_properties: Any
    ) -> execution_result_pb2.ExecutorOutput:
        """Returns."""
        output = execution_result_pb2.ExecutorOutput()
        output.execution_result.code = 3
        output.execution_result.result_message = "no quota"
        return output


class Moving(base_executor.BaseExecutor):
    """Says that its output is somewhere else."""

    def Do(self, input_dict: Any, output_dict: Any, exec_properties: Any) -> None:  # noqa: N802 - TFX's name
        """Changes the URI to the execution property ``to``."""
        model = artifact_utils.get_single_instance(output_dict["model"])
        (Path(model.uri) / "sub").mkdir()
        (Path(model.uri) / "sub" / "x").write_text("x", encoding="utf-8")
        model.uri = exec_properties["to"].replace("{uri}", model.uri)


class Waiting(base_executor.BaseExecutor):
    """Holds a process, says its id, and waits until something ends it."""

    def Do(self, input_dict: Any, output_dict: Any, exec_properties: Any) -> None:  # noqa: N802 - TFX's name
        """Waits."""
        worker = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
        try:
            sys.stdout.write(f"worker {worker.pid}\n")
            sys.stdout.flush()
            while True:
                time.sleep(0.05)
        finally:
            worker.terminate()
            worker.wait()


class Driver(base_driver.BaseDriver, ir_base_driver.BaseDriver):
    """Adds properties of every kind, and asks ML Metadata, as TFX's own do."""

    def __init__(self, metadata_handle: Any) -> None:
        base_driver.BaseDriver.__init__(self, metadata_handle)
        ir_base_driver.BaseDriver.__init__(self, metadata_handle)

    def run(self, execution_info: Any) -> driver_output_pb2.DriverOutput:
        """Says how many executions there were."""
        output = driver_output_pb2.DriverOutput()
        executions = self._metadata_handle.store.get_executions()
        output.exec_properties["executions"].int_value = len(executions)
        output.exec_properties["share"].double_value = 0.5
        output.exec_properties["same"].string_value = execution_info.exec_properties["same"]
        output.exec_properties["files"].string_value = ",".join(
            sorted(os.listdir(execution_info.input_dict["examples"][0].uri))  # noqa: PTH208 - names
        )
        return output


@component
def Count(  # noqa: N802 - a component is named as a class
    examples: InputArtifact[standard_artifacts.Examples],
    model: OutputArtifact[standard_artifacts.Model],
    factor: Parameter[int],
) -> OutputDict(total=int, name=str, share=float):  # type: ignore[valid-type]
    """Counts the files of its input."""
    total = factor * len(list(Path(examples.uri).iterdir()))
    (Path(model.uri) / "total").write_text(str(total), encoding="utf-8")
    return {"total": total, "name": "files", "share": 0.5}


@component
def Double(  # noqa: N802 - a component is named as a class
    total: int,
) -> OutputDict(twice=int):  # type: ignore[valid-type]
    """Doubles the value of an artifact."""
    return {"twice": 2 * total}
