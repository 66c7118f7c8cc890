"""Properties of TFX's artifacts through Kubeflow Pipelines' metadata and back."""

import json
import math
from typing import Any

import pytest
from google.protobuf import struct_pb2
from hypothesis import given
from hypothesis import strategies as st
from tfx import types
from tfx.components.util import examples_utils, model_utils
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils, standard_artifacts, value_artifact

from lockstep.pipelines.kubeflow.artifact_metadata import TYPES_KEY, apply_metadata, artifact_of, is_file, metadata_of
from lockstep.pipelines.kubeflow.executor_input import RuntimeArtifact


class Picture(types.Artifact):
    """A user's own type, with a property of each kind."""

    TYPE_NAME = "Picture"
    PROPERTIES = {  # noqa: RUF012 - as TFX declares it
        "width": types.artifact.Property(types.artifact.PropertyType.INT),
        "scale": types.artifact.Property(types.artifact.PropertyType.FLOAT),
        "title": types.artifact.Property(types.artifact.PropertyType.STRING),
        "shape": types.artifact.Property(types.artifact.PropertyType.JSON_VALUE),
    }


def through_ml_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """What the next step is told: Go's protojson, then `StructValueToMLMDValue`, and back, then unwrapped."""
    text = json.dumps(metadata, allow_nan=False)
    read = {}
    for key, value in json.loads(text, parse_int=float).items():
        assert value is not None, "the launcher refuses null"
        read[key] = float(value) if isinstance(value, bool) else value
    return read


def through(artifact: Any, title: str = "") -> Any:
    """The artifact as the next step has it."""
    return artifact_of(
        RuntimeArtifact(
            name="17",
            uri="minio://b/x",
            local_path="/minio/b/x",
            type_title=title or f"tfx.{artifact.type_name}",
            metadata=through_ml_metadata(metadata_of(artifact)),
        )
    )


def same(artifact: Any, other: Any) -> bool:
    """Whether all properties are equal, kinds included."""
    one, two = artifact.mlmd_artifact, other.mlmd_artifact
    return bool(one.properties == two.properties and one.custom_properties == two.custom_properties)


def test_what_example_gen_says_reaches_the_next_step() -> None:
    """Splits, span and version, the format of the payload, and what Lockstep's adds."""
    examples = standard_artifacts.Examples()
    examples.split_names = artifact_utils.encode_split_names(["train", "eval"])
    examples.span = 3
    examples.version = 0
    examples_utils.set_payload_format(examples, example_gen_pb2.FORMAT_TF_EXAMPLE)
    examples.set_string_custom_property("rows", '{"train": 2}')
    examples.set_string_custom_property("input_fingerprint", "split:train,num_files:1")
    received = through(examples)
    assert isinstance(received, standard_artifacts.Examples)
    assert artifact_utils.decode_split_names(received.split_names) == ["train", "eval"]
    assert (received.span, received.version) == (3, 0)
    assert examples_utils.get_payload_format(received) == example_gen_pb2.FORMAT_TF_EXAMPLE
    assert received.get_string_custom_property("rows") == '{"train": 2}'
    assert received.uri == "/minio/b/x"
    assert received.id == 17
    assert same(examples, received)


def test_a_blessing_blesses_in_the_next_step() -> None:
    """Its integers are integers there, also for who reads them without TFX's getters."""
    blessing = standard_artifacts.ModelBlessing()
    blessing.set_int_custom_property("blessed", 1)
    blessing.set_int_custom_property("current_model_id", 17)
    received = through(blessing)
    assert model_utils.is_model_blessed(received)
    assert received.mlmd_artifact.custom_properties["current_model_id"].int_value == 17


def test_kinds_that_json_does_not_have_come_back() -> None:
    """Integers beyond a double, truth values, floats that are whole, and numbers that are none."""
    model = standard_artifacts.Model()
    model.set_int_custom_property("large", 2**62 + 1)
    model.set_int_custom_property("zero", 0)
    model.set_bool_custom_property("yes", True)
    model.set_bool_custom_property("no", False)
    model.set_float_custom_property("whole", 3.0)
    model.set_float_custom_property("lost", math.inf)
    model.set_string_custom_property("digits", "17")
    model.set_json_value_custom_property("json", {"a": [1.0, None, {"b": "c"}]})
    model.set_json_value_custom_property("list", [1.0, "x"])
    received = through(model)
    assert same(model, received)
    assert received.get_int_custom_property("large") == 2**62 + 1
    assert received.get_bool_custom_property("no") is False
    assert received.get_json_value_custom_property("json") == {"a": [1.0, None, {"b": "c"}]}


def test_nan_comes_back() -> None:
    """A training that diverged says so and does not fail its step for it."""
    run = standard_artifacts.ModelRun()
    run.set_float_custom_property("loss", math.nan)
    assert math.isnan(through(run).get_float_custom_property("loss"))


def test_nothing_is_null() -> None:
    """The launcher fails a step for a null (fact 13): a property that was never set is left out."""
    model = standard_artifacts.Model()
    model.set_json_value_custom_property("none", None)
    examples = standard_artifacts.Examples()
    assert set(metadata_of(model)) == {TYPES_KEY}
    assert None not in metadata_of(examples).values()


def test_a_property_of_the_type_and_a_custom_one_may_have_one_name() -> None:
    """Both come back where they were."""
    examples = standard_artifacts.Examples()
    examples.span = 3
    examples.set_string_custom_property("span", "three")
    received = through(examples)
    assert (received.span, received.get_string_custom_property("span")) == (3, "three")


def test_numbers_of_another_program_can_be_read_as_any_kind() -> None:
    """An importer's metadata say nothing of kinds; TFX's getters take JSON's number for what they are asked."""
    model = standard_artifacts.Model()
    apply_metadata(model, {"steps": 300.0, "name": "x", "sizes": [1.0], "nothing": None})
    assert model.get_int_custom_property("steps") == 300
    assert model.get_float_custom_property("steps") == 300.0
    assert model.get_string_custom_property("name") == "x"
    assert model.get_json_value_custom_property("sizes") == [1.0]
    assert not model.has_custom_property("nothing")


def test_a_user_s_type_is_found_by_its_name() -> None:
    """TFX's own entry point takes the name for an import path and fails."""
    picture = Picture()
    picture.width, picture.scale, picture.title = 640, 0.5, "cat"
    picture.shape = {"channels": 3.0}
    received = through(picture, "Picture")
    assert isinstance(received, Picture)
    assert (received.width, received.scale, received.title, received.shape) == (640, 0.5, "cat", {"channels": 3.0})
    assert same(picture, received)


def test_a_type_that_nobody_has_imported_is_anonymous() -> None:
    """It has its name, and its properties as custom ones."""
    picture = Picture()
    picture.title = "cat"
    received = through(picture, "NobodyKnows")
    assert received.type_name == "NobodyKnows"
    assert received.get_string_custom_property("title") == "cat"


def test_a_name_that_is_no_number_gives_a_number() -> None:
    """Kubeflow Pipelines gives up ML Metadata, and its numbers; TFX has no other ids."""
    names = ["17", "9a1f-uuid", "9a1f-uuid", "9" * 30, "²"]
    ids = [
        artifact_of(RuntimeArtifact(name=name, uri="", local_path="/minio/b/x", type_title="tfx.Model", metadata={})).id
        for name in names
    ]
    assert ids[0] == 17
    assert ids[1] == ids[2]
    assert len(set(ids)) == 4
    assert all(0 < number < 2**53 for number in ids)


def test_a_message_of_protobuf_is_refused() -> None:
    """It would be lost, and the next step read nothing."""
    model = standard_artifacts.Model()
    model.set_proto_custom_property("proto", struct_pb2.Struct())
    with pytest.raises(TypeError, match="property proto is a protobuf message"):
        metadata_of(model)


@pytest.mark.parametrize("title", ["tfx.String", "tfx.Integer", "tfx.Float", "tfx.Boolean", "tfx.JsonValue"])
def test_an_artifact_of_one_value_is_a_file(title: str) -> None:
    """So no folder is made in its place."""
    artifact = artifact_of(
        RuntimeArtifact(name="", uri="", local_path="/minio/b/x", type_title=title, metadata={"__is_null__": 0})
    )
    assert isinstance(artifact, value_artifact.ValueArtifact)
    assert is_file(artifact)
    assert not is_file(standard_artifacts.Model())


_JSON = st.recursive(
    st.text(max_size=5) | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=8).filter(lambda name: name not in ("state", "name", TYPES_KEY)),
        st.text(max_size=8)
        | st.integers(-(2**63), 2**63 - 1)
        | st.floats(allow_nan=False)
        | st.booleans()
        | st.lists(_JSON, max_size=3)
        | st.dictionaries(st.text(max_size=5), _JSON, max_size=3),
        max_size=4,
    )
)
def test_any_properties_come_back_as_they_were(properties: dict[str, Any]) -> None:
    """Names and values of every kind, and the kinds themselves."""
    artifact = standard_artifacts.Model()
    for name, value in properties.items():
        if isinstance(value, bool):
            artifact.set_bool_custom_property(name, value)
        elif isinstance(value, str):
            artifact.set_string_custom_property(name, value)
        elif isinstance(value, int):
            artifact.set_int_custom_property(name, value)
        elif isinstance(value, float):
            artifact.set_float_custom_property(name, value)
        else:
            artifact.set_json_value_custom_property(name, value)
    assert same(artifact, through(artifact))
