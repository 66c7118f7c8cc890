"""A pushed model, found, loaded and asked: what serving a Lockstep model needs."""

import contextlib
import dataclasses
import json
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.components.errors import ConfigurationError, DataError
from lockstep.components.example_gen.options import ColumnType
from lockstep.components.object_store import fetch_tree, open_folder
from lockstep.components.pusher import versions
from lockstep.components.record_manifest import RawColumns

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

SERVING_SIGNATURE = "serving_default"
TRANSFORM_SIGNATURE = "transform_features"

_CONTRACT_PATH = Path("assets.extra") / "lockstep.json"
_SAVED_MODEL_NAME = "saved_model.pb"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServingContract:
    """What a model takes and gives, as its trainer wrote it beside the model.

    Args:
      raw_features: Column -> ``int``, ``float`` or ``string``; the label is not among them.
      label: Name of the label.
      label_kind: ``binary``, ``regression``, ``multiclass`` or ``boxes``.
      classes: Of a label that has some, in the order of the predictions.
      raw_columns: Which of the columns are times, truths or lists, and how those are written.
    """

    raw_features: Mapping[str, ColumnType]
    label: str
    label_kind: str
    classes: tuple[str, ...] = ()
    raw_columns: RawColumns = RawColumns()

    def missing_columns(self, columns: Collection[str]) -> tuple[str, ...]:
        """Returns the features that a table with these columns lacks; the model takes them as missing values."""
        return tuple(sorted(set(self.raw_features) - set(columns)))


def read_contract(model_dir: Path) -> ServingContract | None:
    """Returns a SavedModel's contract, or None if it carries none: not every trainer writes one.

    Raises:
      ConfigurationError: The file is there, but is not a contract.
    """
    path = model_dir / _CONTRACT_PATH
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return ServingContract(
            raw_features=dict(document["raw_features"]),
            label=document["label"],
            label_kind=document["label_kind"],
            classes=tuple(document.get("classes", ())),
            raw_columns=RawColumns.from_document(document.get("raw_columns", {})),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise ConfigurationError(f"{path}: not a contract of Lockstep's trainer ({e!r}); export the model again") from e


def find_model(path: Path) -> Path:
    """Returns the SavedModel that a path means: itself, or the newest version if it is a push folder.

    Args:
      path: A SavedModel's folder (a version's is one), or a push folder.

    Raises:
      ConfigurationError: No such folder, or no whole model in it.
    """
    if not path.is_dir():
        raise ConfigurationError(f"{path}: no such folder; give a push folder, a version in it, or a SavedModel")
    if (path / _SAVED_MODEL_NAME).is_file():
        return path
    served = versions.served_version(path)
    if served is not None:
        return path / str(served.number)
    numbers = versions.version_numbers(path)
    if numbers:
        raise ConfigurationError(
            f"{path}: holds {len(numbers)} versions (newest {numbers[-1]}), but none that Lockstep pushed whole; "
            "give the folder of one version"
        )
    raise ConfigurationError(f"{path}: holds no model, neither {_SAVED_MODEL_NAME} nor versions; push one first")


@contextlib.contextmanager
def model_at_hand(location: str) -> Iterator[Path]:
    """Gives a local folder of the SavedModel that a path or URI means, for as long as the block runs.

    Args:
      location: As ``find_model``'s, here or in an object store, from which it is fetched.

    Raises:
      ConfigurationError: No such folder, no whole model in it, or the store denies access.
      StepFailed: The store does not answer, or the disk is full.
    """
    folder = open_folder(location)
    if isinstance(folder, Path):
        yield find_model(folder)
        return
    if _SAVED_MODEL_NAME not in folder.objects():
        served = versions.served_version(folder)
        if served is None:
            raise ConfigurationError(
                f"{location}: holds no model, neither {_SAVED_MODEL_NAME} nor a version that Lockstep pushed whole"
            )
        folder = folder / str(served.number)
    with tempfile.TemporaryDirectory(prefix="lockstep-model-") as scratch:
        fetch_tree(str(folder), Path(scratch))
        yield Path(scratch)


class ServingModel:
    """A loaded SavedModel with the signatures of Lockstep's export; its methods also work inside a ``tf.function``.

    Args:
      model_dir: The SavedModel.

    Raises:
      ConfigurationError: It cannot be loaded, or lacks a usable ``serving_default``.
    """

    def __init__(self, model_dir: Path) -> None:
        # TensorFlow takes seconds to import; finding a model needs none of it.
        import tensorflow as tf

        try:
            # The loaded object owns the variables, so it must live as long as its signatures.
            self._loaded = tf.saved_model.load(str(model_dir))
        except (OSError, ValueError, KeyError, AttributeError, tf.errors.OpError) as e:
            raise ConfigurationError(f"{model_dir}: cannot be loaded as a SavedModel: {e}") from e
        self._model_dir = model_dir
        self._serving = self._signature(SERVING_SIGNATURE)
        outputs = self._serving.structured_outputs
        if "predictions" not in outputs and len(outputs) != 1:
            raise ConfigurationError(
                f"{model_dir}: {SERVING_SIGNATURE} gives {sorted(outputs)}; it must give 'predictions' or one output"
            )
        self._output = "predictions" if "predictions" in outputs else next(iter(outputs))

    def predictions(self, serialized: Any) -> Any:
        """Returns float predictions for serialised raw tf.Examples, string [batch].

        They are [batch, 1], of classes [batch, classes], of boxes [batch, n, 6].
        """
        return self._call(self._serving, serialized)[self._output]

    def transformed_feature(self, serialized: Any, name: str) -> Any:
        """Returns one transformed feature [batch] or [batch, 1] of serialised raw tf.Examples.

        Raises:
          ConfigurationError: The model has no ``transform_features``, or that has no such output.
        """
        signature = self._signature(TRANSFORM_SIGNATURE)
        outputs = signature.structured_outputs
        if name not in outputs:
            raise ConfigurationError(
                f"{self._model_dir}: {TRANSFORM_SIGNATURE} gives no {name!r}, only {sorted(outputs)}"
            )
        return self._call(signature, serialized)[name]

    def _signature(self, name: str) -> Any:
        signatures = self._loaded.signatures
        if name not in signatures:
            raise ConfigurationError(f"{self._model_dir}: has no signature {name!r}, only {sorted(signatures)}")
        signature = signatures[name]
        if len(signature.structured_input_signature[1]) != 1:
            raise ConfigurationError(
                f"{self._model_dir}: {name} takes {sorted(signature.structured_input_signature[1])}; "
                "it must take serialised tf.Examples and nothing else"
            )
        return signature

    @staticmethod
    def _call(signature: Any, serialized: Any) -> Any:
        return signature(**{next(iter(signature.structured_input_signature[1])): serialized})


def refusal(message: str) -> str:
    """Returns the line of a TensorFlow error that says what is wrong with the rows, without its graph's whereabouts."""
    noise = ("Graph execution error", "Detected at node", "<stack traces", "[[{{", "File ", "(")
    lines = (line.strip() for line in message.splitlines())
    said = next((line for line in lines if line and not line.startswith(noise)), message)
    return said.split(" [Op:")[0]


def predict(
    model_dir: Path, serialized_batches: Iterable["npt.NDArray[np.object_] | list[bytes]"]
) -> Iterator["npt.NDArray[np.float32]"]:
    """Yields the predictions of a model for batches of rows; one batch is in memory at a time.

    Args:
      model_dir: A SavedModel, as ``find_model`` returns it.
      serialized_batches: Serialised raw tf.Examples, batch by batch; an empty batch gives an empty array.

    Yields:
      float32 [rows of the batch]: probabilities of 1 for a binary label, the value for a regression; [rows, classes]
      for a multiclass label; [rows, n, 6] for boxes: x_min, y_min, x_max, y_max, the score (0 for no box), and the
      index of the class.

    Raises:
      ConfigurationError: The model cannot be loaded or has other signatures.
      DataError: The model refuses a batch, for example since a column has another type than in training.
    """
    import tensorflow as tf

    model = ServingModel(model_dir)
    for number, batch in enumerate(serialized_batches):
        try:
            predictions = model.predictions(tf.constant(batch, dtype=tf.string, shape=(len(batch),)))
        except tf.errors.InvalidArgumentError as e:
            raise DataError(f"{model_dir}: refuses the rows of batch {number}: {refusal(e.message)}") from e
        predictions = tf.cast(predictions, tf.float32)
        is_single = predictions.shape.rank == 1 or predictions.shape[-1] == 1
        yield (tf.reshape(predictions, [len(batch)]) if is_single else predictions).numpy()
