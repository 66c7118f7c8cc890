"""The classes of a multiclass label: their names from the transform graph, and the check that each label is one."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from lockstep.components.class_labels import ClassOptions
from lockstep.components.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    import tensorflow as tf
    from tensorflow_transform.output_wrapper import TFTransformOutput

_MARK = "label.column: a training record is of no class"


def class_names(transform_output: "TFTransformOutput", label: str, options: ClassOptions | None) -> tuple[str, ...]:
    """Returns the classes in the order of their indices; empty where the label has none.

    Args:
      transform_output: Of the Transform component.
      label: Name of the transformed label.
      options: None for a label of another kind.

    Raises:
      ConfigurationError: The transformed label is no index, or nothing says how many classes there are.
      DataError: The training split has fewer than two classes.
    """
    if options is None:
        return ()
    spec = transform_output.transformed_feature_spec().get(label)
    of_boxes = len(spec.shape) == 2 if spec is not None and hasattr(spec, "shape") else False
    if spec is not None and not spec.dtype.is_integer and not of_boxes:
        raise ConfigurationError(
            f"label.column: the transformed label {label!r} is {spec.dtype.name}; a multiclass label is the index of "
            "the class, int64"
        )
    if transform_output.vocabulary_file_by_name(options.vocabulary):
        lines = transform_output.vocabulary_by_name(options.vocabulary)
        names = tuple(line.decode("utf-8", "backslashreplace") for line in lines)
    else:
        domain = transform_output.transformed_domains().get(label)
        if domain is None or not getattr(domain, "is_categorical", False) or domain.max < 0:
            raise ConfigurationError(
                f"label.column: nothing says how many classes {label!r} has; let the preprocessing function write them "
                f"to a vocabulary called {options.vocabulary!r}, as lockstep.transforms.labels.label_output does"
            )
        names = tuple(map(str, range(domain.max + 1)))
    if len(names) < 2 and not of_boxes:
        raise DataError(f"label.column: {label!r} has less than two classes in the training split; give rows of others")
    return names


def weight_table(class_weights: Mapping[str, float], classes: Sequence[str]) -> list[float]:
    """Returns the weight of each class, 1 where none is given.

    Raises:
      ConfigurationError: A weight is of no class.
    """
    for name in class_weights:
        if name not in classes:
            raise ConfigurationError(f"train.class_weights.{name}: {unknown_class(name, classes)}")
    return [float(class_weights.get(name, 1.0)) for name in classes]


def unknown_class(name: str, classes: Iterable[str]) -> str:
    """Returns that a name is none of the classes, with the nearest and the first of them."""
    known = list(classes)
    nearest = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"there are {', '.join(map(repr, known[:20]))}"
    return f"the label has no such class; {hint}"


def checked(labels: "tf.Tensor", num_classes: int) -> "tf.Tensor":
    """Returns labels as int64, and fails within the graph where one is no index of a class; see ``as_data_error``."""
    import tensorflow as tf

    index = tf.cast(labels, tf.int64)
    allowed = tf.reduce_all((index >= 0) & (index < num_classes))
    with tf.control_dependencies([tf.debugging.Assert(allowed, [_MARK])]):
        return tf.identity(index)


def as_data_error(error: Exception) -> DataError | None:
    """Returns what ``checked`` found, if that is what an error of TensorFlow's is about."""
    if _MARK not in str(error):
        return None
    return DataError(
        f"{_MARK}: its label is empty, or holds a line break, or the preprocessing function gave an index that is none "
        "of a class; mend the rows, or leave them out"
    )
