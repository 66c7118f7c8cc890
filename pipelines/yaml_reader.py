"""YAML as people mean it: YAML 1.2's core types, and no key that stands twice.

PyYAML alone follows YAML 1.1: ``1e-3`` is text there, ``no`` is false, ``1:30`` is ninety, a date is no text. And of a
key that stands twice it keeps the last one silently.
"""

import contextlib
import re
from collections.abc import Hashable, Iterator
from typing import Any

import yaml

_MERGE = "tag:yaml.org,2002:merge"


def parse_yaml(text: str) -> Any:
    """Returns what a YAML text says: mappings, lists, texts, numbers, booleans and None.

    Raises:
      ValueError: It is not YAML, nested too deeply, or a key stands twice or is no text or whole number.
    """
    with _errors():
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader underneath


def parse_documents(text: str) -> list[Any]:
    """Returns what each document of a YAML text says; see ``parse_yaml``."""
    with _errors():
        return list(yaml.load_all(text, Loader=_Loader))


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except RecursionError as e:
        raise ValueError("not valid YAML: nested too deeply") from e
    except (yaml.YAMLError, ValueError) as e:
        raise ValueError(f"not valid YAML: {e}") from e


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - as PyYAML declares it; filled below

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str | int) or isinstance(key, bool):
                self._refuse(node, key_node, f"the key {key!r} is no text; put it in quotes")
            if key in seen:
                self._refuse(node, key_node, f"the key {key!r} stands twice")
            seen.add(key)
        return super().construct_mapping(node, deep=deep)

    @staticmethod
    def _refuse(node: yaml.MappingNode, key_node: yaml.Node, problem: str) -> None:
        raise yaml.constructor.ConstructorError(
            "while reading a mapping", node.start_mark, problem, key_node.start_mark
        )


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", "~nN"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), list(_first))


def _construct_int(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    # PyYAML's own would read a leading zero as octal.
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)
