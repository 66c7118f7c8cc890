"""The Pusher as a step of a TFX pipeline."""

import json
import logging
import uuid
from pathlib import Path
from typing import Any, ClassVar

from tfx import types
from tfx.components.util import model_utils
from tfx.dsl.components.base import base_component, base_driver, base_executor, executor_spec
from tfx.orchestration import metadata
from tfx.orchestration.portable import base_driver as ir_base_driver
from tfx.orchestration.portable import data_types
from tfx.proto.orchestration import driver_output_pb2
from tfx.types import artifact_utils, component_spec, standard_artifacts

from lockstep.components import model_artifacts
from lockstep.components.artifact_uris import store_uri
from lockstep.components.errors import StepFailed
from lockstep.components.object_store import Folder, join, open_folder
from lockstep.components.pusher import publish, store_publish, versions
from lockstep.components.pusher.options import PushOptions

_progress = logging.getLogger("lockstep.progress")

_NOTHING_TO_PUSH = "not blessed"


def resolve_token(push_dir: Folder, model_dir: Path, blessed: bool) -> str:
    """Returns what makes a push's cache key true: equal as long as there is nothing to do, new when there is.

    A model that is served gives the token of the push that put it there; one that is not blessed always the same;
    any other, such as one whose version was deleted or rolled back, a fresh one, which the push writes down.
    """
    if not blessed:
        return _NOTHING_TO_PUSH
    served = versions.served_version(push_dir)
    if served is not None and served.manifest.model_sha256 == versions.content_sha256(model_dir):
        return served.manifest.token
    return uuid.uuid4().hex


class Driver(base_driver.BaseDriver, ir_base_driver.BaseDriver):
    """Adds the execution property ``token``, which so becomes part of the cache key (see ``resolve_token``)."""

    def __init__(self, metadata_handle: metadata.Metadata) -> None:
        # Two bases: components are checked for the old class, the launcher calls the new one.
        base_driver.BaseDriver.__init__(self, metadata_handle)
        ir_base_driver.BaseDriver.__init__(self, metadata_handle)

    def run(self, execution_info: data_types.ExecutionInfo) -> driver_output_pb2.DriverOutput:
        """Returns the property to add."""
        output = driver_output_pb2.DriverOutput()
        output.exec_properties["token"].string_value = _token(
            PushOptions.from_json(execution_info.exec_properties["spec"]), execution_info.input_dict
        )
        return output


class Executor(base_executor.BaseExecutor):
    """Executor of ``Pusher``."""

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Pushes a blessed model; the custom properties of ``pushed_model`` tell what was done.

        ``pushed``: 1 if the model is served, else 0. ``pushed_destination`` and ``pushed_version``: where.
        ``created``: 1 if this push made the version. ``summary``: the same in words.

        Args:
          input_dict: ``model``, ``model_blessing``.
          output_dict: ``pushed_model``.
          exec_properties: ``spec``, and ``token`` where a driver ran.

        Raises:
          StepFailed: The push did not succeed; what was served is served still, or the message says what is.
          ConfigurationError: The object store denies access, or there is no such bucket.
        """
        options = PushOptions.from_json(exec_properties["spec"])
        pushed = artifact_utils.get_single_instance(output_dict["pushed_model"])
        blessing = artifact_utils.get_single_instance(input_dict["model_blessing"])
        # Before the push: when the model is served, the step must not fail any more.
        _write_output(Path(pushed.uri), options)
        if not model_utils.is_model_blessed(blessing):
            summary = "not blessed, nothing pushed"
            pushed.set_int_custom_property("pushed", 0)
            pushed.set_int_custom_property("created", 0)
        else:
            # Where no driver runs (Kubeflow), nobody has named this push yet.
            token = exec_properties.get("token") or _token(options, input_dict)
            result = _push(
                model_artifacts.saved_model_dir(input_dict["model"]),
                options,
                _origin(artifact_utils.get_single_instance(input_dict["model"]), blessing, token),
            )
            summary = _summary(result, options)
            pushed.set_int_custom_property("pushed", 1)
            pushed.set_string_custom_property("pushed_destination", join(options.dir, str(result.version.number)))
            pushed.set_string_custom_property("pushed_version", str(result.version.number))
            pushed.set_int_custom_property("created", int(result.created))
        pushed.set_string_custom_property("summary", summary)
        _progress.info("%s", summary)


def _write_output(output_dir: Path, options: PushOptions) -> None:
    """Writes a file, since object stores drop empty folders, and with them an output that has none."""
    path = output_dir / "push.txt"
    try:
        path.write_text(f"push folder: {options.dir}\n", encoding="utf-8")
    except OSError as e:
        raise StepFailed(
            f"push: {path} could not be written: {e.strerror}; nothing was pushed. Make room or mend the folder, then"
            " run again"
        ) from e


def _token(options: PushOptions, input_dict: dict[str, list[types.Artifact]]) -> str:
    return resolve_token(
        open_folder(options.dir),
        model_artifacts.saved_model_dir(input_dict["model"]),
        model_utils.is_model_blessed(artifact_utils.get_single_instance(input_dict["model_blessing"])),
    )


def _origin(model: types.Artifact, blessing: types.Artifact, token: str) -> publish.Origin:
    """Takes what Lockstep's Evaluator wrote into the blessing; a stock one says less, and then so does the manifest."""
    baseline = blessing.get_string_custom_property("baseline")
    judged_against = versions.Baseline.from_json(baseline) if baseline else None
    return publish.Origin(
        source_uri=store_uri(model),
        blessing_uri=store_uri(blessing),
        evaluation_uri=blessing.get_string_custom_property("evaluation"),
        metrics=json.loads(blessing.get_string_custom_property("metrics") or "{}"),
        verdict=blessing.get_string_custom_property("reason"),
        baseline=baseline or versions.NO_BASELINE,
        token=token,
        replaces=None if not baseline else judged_against.model_sha256 if judged_against else "",
    )


def _push(model_dir: Path, options: PushOptions, origin: publish.Origin) -> publish.PushResult:
    folder = open_folder(options.dir)
    if isinstance(folder, Path):
        return publish.push(model_dir, folder, options.keep, origin)
    return store_publish.push(model_dir, folder, options.keep, origin)


def _summary(result: publish.PushResult, options: PushOptions) -> str:
    if not result.created:
        text = f"version {result.version.number} serves this model already"
    else:
        text = f"version {result.version.number} in {options.dir}"
    if result.removed:
        text += f"; removed {', '.join(map(str, result.removed))}"
    return "; ".join((text, *result.not_removed))


class PusherSpec(types.ComponentSpec):
    """Channels and properties of ``Pusher``."""

    PARAMETERS: ClassVar = {"spec": component_spec.ExecutionParameter(type=str)}
    INPUTS: ClassVar = {
        "model": component_spec.ChannelParameter(type=standard_artifacts.Model),
        "model_blessing": component_spec.ChannelParameter(type=standard_artifacts.ModelBlessing),
    }
    OUTPUTS: ClassVar = {"pushed_model": component_spec.ChannelParameter(type=standard_artifacts.PushedModel)}


class Pusher(base_component.BaseComponent):
    """Puts a blessed model into a folder of versions, whole or not at all.

    Its output ``pushed_model`` tells by its custom properties what was done; the model itself is in the folder only.

    Args:
      model: The candidate.
      model_blessing: Lockstep's Evaluator's ``blessing``; a stock Evaluator's works too.
      spec: ``PushOptions`` as JSON.
    """

    SPEC_CLASS = PusherSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)
    DRIVER_CLASS = Driver

    def __init__(self, model: types.BaseChannel, model_blessing: types.BaseChannel, spec: str) -> None:
        super().__init__(
            PusherSpec(
                model=model,
                model_blessing=model_blessing,
                spec=spec,
                pushed_model=types.Channel(type=standard_artifacts.PushedModel),
            )
        )
