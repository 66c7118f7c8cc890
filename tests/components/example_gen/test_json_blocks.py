"""Blocks of JSON lines that Arrow parses: nothing comes out otherwise than line by line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.components.example_gen import json_source
from lockstep.components.example_gen.json_blocks import quick_block
from lockstep.components.example_gen.json_source import JsonSource
from lockstep.components.example_gen.options import DataOptions

_PLAIN = b'{"i": 1, "s": "x", "f": 1.5, "b": true, "n": null}\n' * 60


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where lines are written to."""
    return tmp_path / "rows.jsonl"


def _read(path: Path, **options: Any) -> dict[str, Any]:
    source = JsonSource([str(path)], DataOptions(path=str(path), on_error="quarantine", **options))
    types = source.resolve([source.infer(unit) for unit in source.units()])
    batches = [batch for unit in source.units() for batch in source.batches(unit, types)]
    return {
        "types": types,
        "columns": {name: [value for batch in batches for value in batch.columns[name].to_pylist()] for name in types},
        "positions": [int(position) for batch in batches for position in batch.positions],
        "texts": [text for batch in batches for text in batch.hashed["line"].to_pylist()],
        "rejected": [(each.position, each.reason, each.raw.strip()) for batch in batches for each in batch.rejected],
    }


def _both_ways(path: Path, **options: Any) -> Iterator[dict[str, Any]]:
    yield _read(path, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_source, "quick_block", lambda _: None)
        yield _read(path, **options)


def _assert_same(path: Path, **options: Any) -> None:
    quick, slow = _both_ways(path, **options)
    assert quick.keys() == slow.keys()
    for key, value in quick.items():
        np.testing.assert_equal(value, slow[key], key)


@pytest.mark.parametrize(
    "line",
    [
        b'{"i": 1, "i": 2, "s": "y"}',
        b'{"i": 1}{"i": 2}',
        b'{"i": 1} {"i": 2}',
        b'{"i": 1}\n{"i": {\n}}',
        b'{"i": 9223372036854775807}',
        b'{"i": 9223372036854775808}',
        b'{"i": -9223372036854775808}',
        b'{"i": 1.0}',
        b'{"i": "1"}',
        b'{"i": -0}',
        b'{"i": 1e2}',
        b'{"i": 01}',
        b'{"i": +1}',
        b'{"i": 1,}',
        b'{"i": 1 /* one */}',
        b'{"i":\r1}',
        b'{"i": 1}\r',
        b'{"f": 1}',
        b'{"f": NaN}',
        b'{"f": -Infinity}',
        b'{"f": 1e400}',
        b'{"f": 1E5}',
        b'{"f": 9007199254740993}',
        b'{"f": 123456789.123456789012345678901234567890}',
        b'{"f": 1.}',
        b'{"s": 1}',
        b'{"s": "2024-01-01T00:00:00Z"}',
        b'{"s": "\\n\\"q\\\\ \\u00e9 \\u0000"}',
        b'{"s": "\\ud83d\\ude00"}',
        b'{"s": "\\ud800"}',
        b'{"s": "caf\xe9"}',
        b'{"s": "caf\xc3\xa9"}',
        b'{"s": "a\tb"}',
        b'{"s": "a\x00b"}',
        b'{"s": "}{"}',
        b'{"s": ["x"]}',
        b'{"s": {"t": 1}}',
        b'{"b": 1}',
        b'{"b": "true"}',
        b'{"n": 1}',
        b'{"n": "x"}',
        b'{"new": 1}',
        b'{"new": null}',
        b'{"": 1}',
        b"{}",
        b"",
        b"  ",
        b' {"i": 1} ',
        b"[1]",
        b"null",
        b"{'i': 1}",
    ],
)
@pytest.mark.parametrize("place", ["first", "last", "without its end"])
def test_a_line_among_plain_ones_is_read_as_alone(path: Path, line: bytes, place: str) -> None:
    """What Arrow would take for something else is left to the exact parser: values, faults, places and texts."""
    lines = {"first": line + b"\n" + _PLAIN, "last": _PLAIN + line + b"\n", "without its end": _PLAIN + line}
    path.write_bytes(lines[place])
    _assert_same(path)


def test_plain_lines_go_the_quick_way() -> None:
    """Also where lines end as on Windows; otherwise the tests here would show nothing."""
    for data in (_PLAIN, _PLAIN.replace(b"\n", b"\r\n")):
        block = quick_block(data)
        assert block is not None
        assert {name: block.kind(name) for name in block.columns} == {
            "i": "int",
            "s": "string",
            "f": "float",
            "b": "bool",
            "n": "empty",
        }
        assert block.texts.to_pylist() == _PLAIN.splitlines()


def test_declared_types_hold_for_both_ways(path: Path) -> None:
    """Numbers as text are as they are written; times are read from text."""
    path.write_bytes(_PLAIN.replace(b'"x"', b'"2024-01-01"') + b'{"i": 2, "s": "soon"}\n{"s": null}\n')
    types = {"i": "string", "f": "string", "s": "date", "b": "string", "n": "int"}
    _assert_same(path, types=types)
    assert _read(path, types=types)["columns"]["f"][0] == b"1.5"


_VALUES = {
    "i": st.integers(-(2**63), 2**63 - 1),
    "f": st.floats(),
    "s": st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    "b": st.booleans(),
    "a key, \u00e9": st.integers(0, 9) | st.floats(0, 9),
}


@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(
        st.fixed_dictionaries({}, optional={name: st.none() | each for name, each in _VALUES.items()}), min_size=1
    ),
    ensure_ascii=st.booleans(),
)
def test_any_rows_are_read_as_line_by_line(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], ensure_ascii: bool
) -> None:
    """Of columns of one type, and of one with two."""
    path = tmp_path_factory.mktemp("json") / "rows.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=ensure_ascii) + "\n" for row in rows), "utf-8")
    _assert_same(path)
