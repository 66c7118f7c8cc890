"""Writes the reference of the configuration from the dataclasses themselves: ``make docs``."""

import dataclasses
import inspect
import re
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from lockstep.components.evaluator.metrics import DEFAULTS, METRICS
from lockstep.pipelines.config import PipelineConfig

_INTRODUCTION = """# Configuration

One YAML file a pipeline. An unknown key is an error that names the nearest known one; a value of another type is an
error, and so is a key that stands twice. Paths are relative to the file; `package:NAME/PATH` names a file that an
installed Python package brings. `lockstep run` overrides any key with `--set key.key=value`, the value in YAML. User
code is named by import path (`module:function`), looked for on the import path and then in the file's folder.

A step is taken from the cache only if its inputs (data files by content), its configuration, the packages that decide
results, Lockstep itself, and the user's modules with all local modules that they import are unchanged. Modules
imported by a computed name, and data files that user code opens itself, are not seen: change `model.parameters`, or a
line of the module, after such a change.
"""


def configuration_reference() -> str:
    """Returns the reference as Markdown: every block with each key's type, default and meaning."""
    return _INTRODUCTION + "".join(_section("", PipelineConfig, {})) + _metrics() + _SIGNATURES


def _metrics() -> str:
    kinds = {kind: [name for name, metric in METRICS.items() if kind in metric.kinds] for kind in DEFAULTS}
    lines = (
        f"- {kind} label: {', '.join(f'`{name}`' for name in names)}; without `metrics`:"
        f" {', '.join(f'`{name}`' for name in DEFAULTS[kind])}\n"
        for kind, names in kinds.items()
    )
    return "\n## Metrics\n\n" + "".join(lines)


_SIGNATURES = """
## Functions of your own

- `model.build: module:function` takes one argument, `inputs`: `inputs.features` maps each transformed feature to its
  `shape`, `dtype` and, for indices, `num_values`; `inputs.label_kind` and `inputs.parameters` are from the
  configuration. It returns a `keras.Model` that takes a dict of tensors by feature name and gives float32 [batch, 1]:
  a probability for a binary label, else the value; for a multiclass label [batch, `inputs.num_classes`], the
  probabilities of the classes (softmax). If the model is compiled, its optimizer and loss are used.
- `preprocessing: module:function` without `features` is a tf.Transform `preprocessing_fn(inputs)`, or
  `(inputs, custom_config)`. Its inputs are sparse tensors by column; its outputs must be dense with a fixed shape, and
  hold the label under `label.column`.
- `preprocessing: module:function` beside `features` takes `(inputs, features)`: the raw columns, sparse, without that
  of the label, and the declared features, dense. It returns a dict of the features that it adds, dense [batch, ...] of
  float32, int64 or string; None under the name of a declared feature leaves that out.
"""


def _section(path: str, cls: Any, described: dict[Any, str]) -> Iterator[str]:
    """Yields a block's table and those of the blocks in it; one that was described at another place is only named."""
    descriptions = _descriptions(cls)
    hints = typing.get_type_hints(cls)
    yield f"\n## {f'`{path}`' if path else 'Top level'}\n\n| Key | Type | Default | |\n|---|---|---|---|\n"
    nested: list[tuple[str, Any]] = []
    for field in dataclasses.fields(cls):
        kind = hints[field.name]
        cells = (f"`{field.name}`", _type_name(kind), _default(field), descriptions[field.name])
        yield "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |\n"
        block, suffix = _block(kind)
        if block is not None:
            nested.append((".".join(filter(None, [path, field.name])) + suffix, block))
    for below, block in nested:
        first = described.setdefault(block, below)
        if first == below:
            yield from _section(below, block, described)
        else:
            yield f"\n## `{below}`\n\nLike `{first}`.\n"


def _descriptions(cls: Any) -> dict[str, str]:
    """Returns name -> text out of the ``Args`` of a docstring."""
    text = inspect.getdoc(cls) or ""
    arguments = re.split(r"\n(?=Raises:|Returns:)", text.partition("Args:\n")[2])[0]
    entries = re.findall(r"^  (\w+): (.*(?:\n    .*)*)", arguments, flags=re.MULTILINE)
    return {name: re.sub(r"\s+", " ", entry).replace("``", "`") for name, entry in entries}


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    elif field.default is dataclasses.MISSING:
        return "required"
    else:
        value = field.default
    if dataclasses.is_dataclass(value):
        return ""
    if isinstance(value, tuple):
        value = list(value)
    return f"`{value}`" if value is not None else "None"


def _type_name(kind: Any) -> str:
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        kinds = [argument for argument in typing.get_args(kind) if argument is not types.NoneType]
        return " or ".join(map(_type_name, kinds))
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return " or ".join(f"`{argument}`" for argument in arguments)
    if origin is tuple:
        return f"list of {_type_name(arguments[0])}"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"mapping to {_type_name(arguments[1])}"
    if dataclasses.is_dataclass(kind):
        return "block"
    return {str: "text", int: "integer", float: "number", bool: "true or false", Any: "anything"}[kind]


def _block(kind: Any) -> tuple[Any, str]:
    """Returns the dataclass that a key holds, and how a place in it is spelled below the key; None for plain values."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        kinds = [argument for argument in typing.get_args(kind) if argument is not types.NoneType]
        return next((found for found in map(_block, kinds) if found[0] is not None), _block(kinds[0]))
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return kind, ""
    if isinstance(origin, type) and issubclass(origin, Mapping) and dataclasses.is_dataclass(arguments[1]):
        return arguments[1], ".NAME"
    if origin is tuple and dataclasses.is_dataclass(arguments[0]):
        return arguments[0], "[]"
    return None, ""


if __name__ == "__main__":
    sys.stdout.write(configuration_reference())
