"""JSON lines as input."""

import bz2
import gzip
import json
import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockstep.components.errors import DataError
from lockstep.components.example_gen import line_ranges
from lockstep.components.example_gen.json_source import JsonSource
from lockstep.components.example_gen.options import DataOptions, Requirements
from tests.components.example_gen.conftest import Ingested

Ingest = Callable[..., Ingested]


@pytest.fixture
def ingest_lines(tmp_path: Path, ingest_path: Ingest) -> Ingest:
    """Ingests lines, each a text, or a value to write as JSON, of one file ``rows.jsonl``."""

    def run(*lines: object, requirements: Requirements = Requirements(), **options: Any) -> Ingested:  # noqa: B008
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
        return ingest_path(path, requirements, **options)

    return run


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1, 2, None], "int", [[1], [2], None]),
        ([1, 2.5], "float", [[1.0], [2.5]]),
        ([True, False], "bool", [[1], [0]]),
        (["a", "", None], "string", [[b"a"], [b""], None]),
        (["00501", "1"], "string", [[b"00501"], [b"1"]]),
        ([1, "a", 2.5, True], "string", [[b"1"], [b"a"], [b"2.5"], [b"true"]]),
        ([[1, 2], [], 3, None], "list<int>", [[1, 2], [], [3], None]),
        ([[1, 2.5], [None]], "list<float>", [[1.0, 2.5], [math.nan]]),
        ([["a", 1]], "list<string>", [[b"a", b"1"]]),
        ([2**63 - 1, -(2**63)], "int", [[2**63 - 1], [-(2**63)]]),
        ([2**53 + 1, 1], "int", [[2**53 + 1], [1]]),
        ([math.nan, 1.5], "float", [None, [1.5]]),
        (["\u65e5\u672c"], "string", [["\u65e5\u672c".encode()]]),
        ([None, None], "float", [None, None]),
    ],
)
def test_values_become_features_by_their_own_types(
    ingest_lines: Ingest, values: list[Any], kind: str, expected: list[Any]
) -> None:
    """Numbers keep all their digits, texts stay texts, lists are features of several values."""
    result = ingest_lines(*[{"x": value, "n": number} for number, value in enumerate(values)])
    rows = sorted(result.rows(), key=lambda row: row["n"])
    assert repr([row.get("x") for row in rows]) == repr(expected)
    assert result.manifest.types == {"x": kind, "n": "int"}


def test_keys_may_be_absent_and_in_any_order(ingest_lines: Ingest) -> None:
    """Columns are those of all lines."""
    result = ingest_lines({"a": 1}, {"b": 2, "a": 3}, "", "{}", {"c": None})
    assert sorted(sorted(row.items()) for row in result.rows()) == [[], [], [("a", [1])], [("a", [3]), ("b", [2])]]
    assert result.column("a") == [1, 3, None, None]
    assert result.manifest.types == {"a": "int", "b": "int", "c": "float"}


def test_an_object_within_a_row_is_flattened(ingest_lines: Ingest) -> None:
    """To ``outer.inner``."""
    result = ingest_lines({"user": {"id": 7, "geo": {"city": "x"}}, "tags": ["a"], "none": {}})
    assert result.rows() == [{"user.id": [7], "user.geo.city": [b"x"], "tags": [b"a"]}]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{'a': 1}", "rows.jsonl:2: not JSON: Expecting property name enclosed in double quotes at character 2"),
        ('{"a": 1', "rows.jsonl:2: not JSON: Expecting ',' delimiter at character"),
        ('{"a": 1},', "rows.jsonl:2: not JSON: Extra data at character 9"),
        ('{"a": 1}{"a": 2}', "rows.jsonl:2: not JSON: Extra data at character 9"),
        ("[1, 2]", "rows.jsonl:2: [1, 2] is no object, and each line must be one"),
        ('"a"', 'rows.jsonl:2: "a" is no object'),
        ('{"a": 1, "a": 2}', "rows.jsonl:2: the key 'a' stands twice"),
        ('{"b": {"c": 1}, "b.c": 2}', "rows.jsonl:2: the key 'b.c' stands twice"),
        ('{"": 1}', "rows.jsonl:2: a key is empty"),
        ('{"a": 9223372036854775808}', "rows.jsonl:2: column 'a': 9223372036854775808 is over int64"),
        ('{"a": "\\ud800"}', "rows.jsonl:2: column 'a': half of a surrogate pair is no text"),
        ('{"b": [1, null]}', "rows.jsonl:2: column 'b': a value of the list is missing"),
        ("[" * 100_000, "rows.jsonl:2: not JSON that can be read"),
        ('{"a": ' + "9" * 5000 + "}", "rows.jsonl:2: "),
    ],
)
def test_a_line_that_is_no_row_is_named_or_left_out(ingest_lines: Ingest, line: str, message: str) -> None:
    """With ``on_error: quarantine`` the others are read."""
    with pytest.raises(DataError) as failure:
        ingest_lines('{"a": 1, "b": [1]}', line, '{"a": 3}')
    assert message in str(failure.value)
    result = ingest_lines('{"a": 1, "b": [1]}', line, '{"a": 3}', on_error="quarantine")
    assert sorted(row["a"] for row in result.rows()) in ([[1], [3]], [[b"1"], [b"3"]])


def test_a_line_that_is_not_utf_8_is_named(tmp_path: Path, ingest_path: Ingest) -> None:
    """And UTF-16 is recognised."""
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": "x"}\n{"a": "caf\xe9"}\n')
    with pytest.raises(DataError, match=r"rows\.jsonl:2: byte 0xe9 is not utf-8"):
        ingest_path(path)
    path.write_bytes('{"a": 1}\n'.encode("utf-16"))
    with pytest.raises(DataError, match=r"rows\.jsonl: is UTF-16"):
        ingest_path(path)
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n{"a": 2}')
    assert ingest_path(path).column("a") == [1, 2]


def test_a_column_of_lists_of_objects_is_left_out(ingest_lines: Ingest, caplog: pytest.LogCaptureFixture) -> None:
    """With a warning, where nothing needs it; one such value among others is a fault of its line."""
    with caplog.at_level(logging.WARNING):
        result = ingest_lines({"a": 1, "x": [{"b": 1}]}, {"a": 2, "x": [[1]]})
    assert result.manifest.types == {"a": "int"}
    assert "rows.jsonl:1: column 'x' holds lists of objects or of lists; no feature can; it is left out" in caplog.text
    with pytest.raises(DataError, match="column 'x' holds lists of objects"):
        ingest_lines({"a": 1, "x": [{"b": 1}]}, requirements=Requirements(columns=("x",)))
    with pytest.raises(DataError, match=r"rows\.jsonl:2: column 'x': a list of objects or lists cannot be a feature"):
        ingest_lines({"x": 1}, {"x": [[1]]})


def test_declared_types_convert_and_name_the_line(ingest_lines: Ingest) -> None:
    """Texts to numbers and times, numbers to text."""
    result = ingest_lines({"i": "7", "t": "2023-01-31", "s": 5}, types={"i": "int", "t": "date", "s": "string"})
    assert result.rows() == [{"i": [7], "t": [1675123200], "s": [b"5"]}]
    with pytest.raises(DataError, match=r"rows\.jsonl:2: column 't': '2023-02-30' is no date"):
        ingest_lines({"t": "2023-01-31"}, {"t": "2023-02-30"}, types={"t": "date"})
    with pytest.raises(DataError, match=r"data\.types\.z: .*has no column 'z'"):
        ingest_lines({"t": 1}, types={"z": "int"})
    with pytest.raises(DataError, match=r"rows\.jsonl:2: column 'x': a list of 2 values is not an int"):
        ingest_lines({"x": [1]}, {"x": [1, 2]}, types={"x": "int"})


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress])
def test_compressed_lines_are_found_by_content(
    tmp_path: Path, ingest_path: Ingest, compress: Callable[[bytes], bytes]
) -> None:
    """Whatever the file's name."""
    (tmp_path / "rows.jsonl").write_bytes(compress(b'{"a": 1}\n{"a": 2}\n'))
    assert ingest_path(tmp_path / "rows.jsonl").column("a") == [1, 2]


def test_lines_before_the_end_of_a_cut_gzip_are_kept(tmp_path: Path, ingest_path: Ingest) -> None:
    """In quarantine; otherwise the file and the offset are named."""
    lines = "".join(f'{{"a": {number}, "b": "{number**9}"}}\n' for number in range(20_000))
    whole = gzip.compress(lines.encode())
    path = tmp_path / "rows.jsonl"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(
        DataError,
        match=rf"rows\.jsonl:\d+: cannot be read to its end: the file is cut: it ends at byte {len(whole) // 2}",
    ):
        ingest_path(path)
    kept = ingest_path(path, on_error="quarantine").column("a")
    assert kept == list(range(len(kept)))
    assert len(kept) > 5_000


def test_ranges_of_lines_do_not_depend_on_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each begins with a line and knows its number; together they are the file."""
    monkeypatch.setattr(line_ranges, "_UNIT_BYTES", 100)
    monkeypatch.setattr(line_ranges, "_PIECE_BYTES", 30)
    path = tmp_path / "rows.jsonl"
    path.write_text("\n" + "".join(f'{{"a": {number}}}\n\n' for number in range(100)) + '{"a": 100}')
    source = JsonSource([str(path)], DataOptions(path=str(path)))
    units = source.units()
    assert len(units) == 10
    types = source.resolve(source.infer(unit) for unit in units)
    batches = [batch for unit in reversed(units) for batch in source.batches(unit, types)]
    positions = [int(position) for batch in batches for position in batch.positions]
    values = [value for batch in batches for value in batch.columns["a"].to_pylist()]
    assert dict(zip(positions, values, strict=True)) == {2 + 2 * number: number for number in range(101)}


def test_a_line_longer_than_the_limit_is_a_fault_of_its_own(
    tmp_path: Path, ingest_path: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines around it are read."""
    monkeypatch.setattr(line_ranges, "_MAX_LINE_BYTES", 1000)
    monkeypatch.setattr(line_ranges, "_PIECE_BYTES", 300)
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n{"a": 2, "b": "' + "x" * 5000 + '"}\n{"a": 3}\n')
    assert ingest_path(path, on_error="quarantine").column("a") == [1, 3]
    with pytest.raises(DataError, match=r"rows\.jsonl:2: the line is longer than"):
        ingest_path(path)


_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, width=32)
    | st.text(st.characters(exclude_categories=["Cs"]))
)


def _text_of(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(
    rows=st.lists(
        st.dictionaries(st.text("abc.", min_size=1, max_size=2).filter(lambda k: k != "n"), _SCALARS, max_size=3),
        min_size=1,
    )
)
def test_what_python_wrote_is_read_back(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]) -> None:
    """Value for value, of a column's type."""
    path = tmp_path_factory.mktemp("json") / "rows.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=bool(i % 2)) + "\n" for i, row in enumerate(rows)), "utf-8")
    source = JsonSource([str(path)], DataOptions(path=str(path)))
    types = source.resolve([source.infer(unit) for unit in source.units()])
    assert set(types) == {name for row in rows for name in row}
    [batch] = [batch for unit in source.units() for batch in source.batches(unit, types)]
    for name, kind in types.items():
        for row, found in zip(rows, batch.columns[name].to_pylist(), strict=True):
            value = row.get(name)
            if value is None:
                assert found is None
            elif kind == "string":
                assert found == _text_of(value)
            else:
                assert found == pytest.approx(float(value), rel=1e-6)
