"""What pyarrow wrote as Parquet is read back, value for value."""

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockstep.components.example_gen.options import DataOptions
from lockstep.components.example_gen.parquet_source import ParquetSource

_INT64 = st.integers(-(2**63), 2**63 - 1)
_FLOAT = st.floats(width=64)
_TEXT = st.text(st.characters(blacklist_categories=["Cs"]), max_size=20)
_KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int64": (pa.int64(), _INT64),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "uint32": (pa.uint32(), st.integers(0, 2**32 - 1)),
    "float32": (pa.float32(), st.floats(width=32)),
    "float64": (pa.float64(), _FLOAT),
    "bool": (pa.bool_(), st.booleans()),
    "string": (pa.string(), _TEXT),
    "large_string": (pa.large_string(), _TEXT),
    "binary": (pa.binary(), st.binary(max_size=20)),
    "dictionary of strings": (pa.dictionary(pa.int32(), pa.string()), _TEXT),
    "list of int64": (pa.list_(pa.int64()), st.lists(_INT64, max_size=4)),
    "list of float64": (pa.list_(pa.float64()), st.lists(_FLOAT, max_size=4)),
    "large list of strings": (pa.large_list(pa.string()), st.lists(_TEXT, max_size=4)),
    "list of binary": (pa.list_(pa.binary()), st.lists(st.binary(max_size=5), max_size=4)),
    "list of three int32": (
        pa.list_(pa.int32(), 3),
        st.lists(st.integers(-(2**31), 2**31 - 1), min_size=3, max_size=3),
    ),
}


@st.composite
def _columns(draw: st.DrawFn) -> dict[str, list[Any]]:
    names = draw(st.lists(st.sampled_from(sorted(_KINDS)), min_size=1, max_size=3, unique=True))
    num_rows = draw(st.integers(1, 10))
    columns = {}
    for name in names:
        kind, values = _KINDS[name]
        if not pa.types.is_fixed_size_list(kind):  # of which pyarrow cannot write missing ones
            values = st.none() | values
        columns[name] = draw(st.lists(values, min_size=num_rows, max_size=num_rows))
    return columns


def _expected(value: Any) -> Any:
    """Returns what a feature holds: float32, 0 or 1, bytes; NaN is missing, and stays NaN in a list."""
    if isinstance(value, list):
        return [math.nan if type(item) is float and math.isnan(item) else _expected(item) for item in value]
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        with np.errstate(over="ignore"):
            return None if math.isnan(value) else float(np.float32(value))
    return value.encode() if isinstance(value, str) else value


@given(
    columns=_columns(),
    row_group_size=st.integers(1, 11),
    use_dictionary=st.booleans(),
    data_page_version=st.sampled_from(["1.0", "2.0"]),
    compression=st.sampled_from(["none", "snappy", "gzip", "zstd"]),
    num_files=st.integers(1, 2),
)
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_values_are_read_back(
    columns: dict[str, list[Any]],
    row_group_size: int,
    use_dictionary: bool,
    data_page_version: Any,
    compression: str,
    num_files: int,
) -> None:
    """Numbers, texts, bytes, lists and missing values, however they are encoded and cut into row groups and files."""
    table = pa.table({name: pa.array(values, _KINDS[name][0]) for name, values in columns.items()})
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / f"{number}.parquet") for number in range(num_files)]
        for path in paths:
            pq.write_table(
                table,
                path,
                row_group_size=row_group_size,
                use_dictionary=use_dictionary,
                data_page_version=data_page_version,
                compression=compression,
            )
        source = ParquetSource(paths, DataOptions(path=folder), folder)
        units = source.units()
        types = source.resolve([source.infer(unit) for unit in units])
        batches = [batch for unit in units for batch in source.batches(unit, types)]
    assert set(types) == set(columns)
    assert not any(batch.rejected for batch in batches)
    for name, values in columns.items():
        found = [value for batch in batches for value in batch.columns[name].to_pylist()]
        np.testing.assert_equal(found, [_expected(value) for value in values] * num_files)  # NaN is NaN's equal here
    positions = [position for batch in batches for position in batch.positions.tolist()]
    assert positions == list(range(1, table.num_rows + 1)) * num_files
