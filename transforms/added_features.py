"""What a function of the user's adds to the declared features: found by its import path, called, and checked."""

import importlib
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

__all__ = ["with_added_features"]

_DTYPES = (tf.float32, tf.int64, tf.string)


def with_added_features(
    function: str, inputs: Mapping[str, Any], features: Mapping[str, tf.Tensor], reserved: Mapping[str, str]
) -> dict[str, tf.Tensor]:
    """Returns the declared features together with what ``function(inputs, features)`` returns.

    Args:
      function: ``module:function``. It takes the raw columns and the declared features, both by name, and returns new
        features by name; None under the name of a declared one leaves that out, for one that is only an intermediate
        result. A declared feature that it returns as it got it changes nothing.
      inputs: Raw columns by name, without those that are not to be learned from.
      features: The declared features, dense [batch, ...].
      reserved: Names that no feature may have -> the key of the configuration that gives them.

    Returns:
      Dense tensors [batch, ...], of float32, int64 or string.

    Raises:
      ValueError: There is no such function, it fails, or it gives something else; the message names it.
    """
    key = f"preprocessing: {function}"
    given = _called(key, _function(key, function), inputs, features)
    added: dict[str, tf.Tensor] = {}
    for name, value in given.items():
        if name in features and (value is None or value is features[name]):
            continue
        if name in reserved:
            raise ValueError(f"{key} returns {name!r}, which is the name of {reserved[name]} too; give another name")
        if name in features:
            raise ValueError(
                f"{key} returns another {name!r} than the one that features declare; give it a name of its own, and"
                f" return {name!r}: None where the declared one shall not reach the model"
            )
        added[name] = _checked(key, name, value, next(iter(features.values())))
    kept = {name: tensor for name, tensor in features.items() if name not in given or given[name] is not None}
    if not kept and not added:
        raise ValueError(f"{key} leaves out every feature; return at least one")
    return kept | added


def _function(key: str, path: str) -> Any:
    module_name, _, name = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as e:
        # A module that exists and imports something absent is the user's code failing.
        if e.name is None or not (module_name == e.name or module_name.startswith(f"{e.name}.")):
            raise
        raise ValueError(f"{key}: there is no module {module_name!r} on the import path") from e
    function = getattr(module, name, None)
    if not callable(function):
        raise ValueError(f"{key}: module {module_name!r} has no function {name!r}")
    return function


def _called(
    key: str, function: Any, inputs: Mapping[str, Any], features: Mapping[str, tf.Tensor]
) -> Mapping[str, tf.Tensor | None]:
    try:
        given = function(dict(inputs), dict(features))
    except Exception as e:  # whatever it is, the user's own function is what to look at
        absent = isinstance(e, KeyError) and e.args and isinstance(e.args[0], str)
        hint = (
            f"; inputs are {', '.join(sorted(inputs)) or 'none'}; features are {', '.join(sorted(features))}"
            if absent
            else ""
        )
        raise ValueError(f"{key} fails with {type(e).__name__}: {e}{hint}") from e
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise ValueError(
            f"{key} returns {type(given).__name__}; it must return a dict of the features that it adds, by name"
        )
    return given


def _checked(key: str, name: str, value: Any, declared: tf.Tensor) -> tf.Tensor:
    where = f"{key} returns {name!r}"
    if not tf.is_tensor(value) or not isinstance(value, tf.Tensor):
        raise ValueError(f"{where} as {type(value).__name__}; it must be a dense tensor [batch, ...]")
    if value.dtype not in _DTYPES:
        raise ValueError(f"{where} as {value.dtype.name}; cast it to float32, int64 or string")
    if value.shape.rank is None or value.shape.rank < 2:
        raise ValueError(
            f"{where} with the shape {value.shape}; it must be [batch, 1], or [batch, ...] of a fixed size"
        )
    if None in value.shape[1:]:
        raise ValueError(f"{where} with the shape {value.shape}; fix the sizes after the batch, by tf.ensure_shape")
    if value.shape[0] != declared.shape[0]:
        raise ValueError(
            f"{where} with the shape {value.shape}; its first size must be that of the batch, a row for each row"
        )
    return value
