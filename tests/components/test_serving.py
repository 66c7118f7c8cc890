"""Finding, loading and asking a pushed model."""

import json
from pathlib import Path

import numpy as np
import pytest

from lockstep.components import serving
from lockstep.components.errors import ConfigurationError, DataError
from lockstep.components.pusher import publish
from tests.components.evaluator import tiny_model


def _push(model_dir: Path, push_dir: Path) -> Path:
    return publish.push(model_dir, push_dir, 5, publish.Origin(source_uri=str(model_dir))).version.dir


def test_a_push_folder_means_its_newest_version(tmp_path: Path) -> None:
    """Predictions come from what is served, or from the very folder that is given."""
    first_dir = _push(tiny_model.save_model(tmp_path / "a", weight=1.0), tmp_path / "push")
    second_dir = _push(tiny_model.save_model(tmp_path / "b", weight=2.0), tmp_path / "push")
    assert serving.find_model(tmp_path / "push") == second_dir
    assert serving.find_model(first_dir) == first_dir
    assert serving.find_model(tmp_path / "a") == tmp_path / "a"


def test_predictions_are_those_of_the_serving_signature_in_order(tmp_path: Path) -> None:
    """Batch by batch, also an empty one and one without the only column the model uses."""
    model_dir = tiny_model.save_model(tmp_path / "model", weight=2.0, bias=-1.0)
    batches = [[{"x": 0.5}, {"x": -1.0, "kind": "a"}], [], [{"kind": "b"}]]
    predictions = list(serving.predict(model_dir, ([tiny_model.serialize(row) for row in batch] for batch in batches)))
    assert [array.dtype for array in predictions] == [np.float32] * 3
    assert [len(array) for array in predictions] == [2, 0, 1]
    expected = 1 / (1 + np.exp(-(2.0 * np.array([0.5, -1.0, 0.0]) - 1.0)))
    np.testing.assert_allclose(np.concatenate(predictions), expected, rtol=1e-6)


def test_rows_of_another_type_are_refused_with_the_batch(tmp_path: Path) -> None:
    """A column of whole numbers where the model was trained on floats."""
    model_dir = tiny_model.save_model(tmp_path / "model")
    with pytest.raises(
        DataError, match=r"refuses the rows of batch 0: .*Key: x, .* Expected type: float, Actual type: int64$"
    ):
        list(serving.predict(model_dir, [[tiny_model.serialize({"x": 1})]]))


def test_the_contract_tells_features_label_and_what_a_table_lacks(tmp_path: Path) -> None:
    """The label is no feature; columns that the model does not know lack nothing."""
    contract = serving.read_contract(tiny_model.save_model(tmp_path / "model"))
    assert contract is not None
    assert (contract.label, contract.label_kind) == ("y", "binary")
    assert contract.missing_columns(["kind", "other"]) == ("size", "x")


def test_a_model_without_a_contract_has_none(tmp_path: Path) -> None:
    """Stock trainers write none; their models serve all the same."""
    assert serving.read_contract(tmp_path) is None


def test_a_broken_contract_is_refused(tmp_path: Path) -> None:
    """Half a contract would give wrong types to the raw columns."""
    (tmp_path / "assets.extra").mkdir()
    (tmp_path / "assets.extra" / "lockstep.json").write_text(json.dumps({"label": "y"}))
    with pytest.raises(ConfigurationError, match="not a contract"):
        serving.read_contract(tmp_path)


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    """A wrong path on the command line."""
    with pytest.raises(ConfigurationError, match="absent: no such folder"):
        serving.find_model(tmp_path / "absent")


def test_a_folder_without_a_model_says_what_was_looked_for(tmp_path: Path) -> None:
    """An empty folder, and one with versions that no Lockstep pushed whole."""
    with pytest.raises(ConfigurationError, match=r"neither saved_model\.pb nor versions"):
        serving.find_model(tmp_path)
    (tmp_path / "17").mkdir()
    with pytest.raises(ConfigurationError, match=r"holds 1 versions .* none that Lockstep pushed whole"):
        serving.find_model(tmp_path)


def test_a_file_that_is_no_saved_model_is_refused(tmp_path: Path) -> None:
    """TensorFlow's own message follows ours."""
    (tmp_path / "saved_model.pb").write_bytes(b"not a model")
    with pytest.raises(ConfigurationError, match="cannot be loaded as a SavedModel"):
        serving.ServingModel(tmp_path)
