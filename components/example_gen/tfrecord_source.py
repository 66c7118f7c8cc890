"""Records of TFRecord files of tf.Examples, checked and kept byte for byte where no type is declared."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lockstep.components.errors import DataError
from lockstep.components.example_gen.cells import RawRows, RowConverter
from lockstep.components.example_gen.columns import Kind, TypeInference
from lockstep.components.example_gen.options import ColumnType, DataOptions
from lockstep.components.example_gen.record_stream import RecordRange, parts, read_records, record_ranges
from lockstep.components.example_gen.source import FaultList, RowBatch, merge_inferred, missing_column, resolve_inferred

_PARSED_RECORDS = 1000  # at once: the decoder is quickest so
_PARSED_BYTES = 16 << 20
_Group = tuple[list[int], pa.RecordBatch]


class TfRecordSource:
    """Reads TFRecord files of tf.Examples twice: first every feature's type, then the records.

    Their checksums are checked, and that each is a tf.Example whose features have one type in all files. A feature with
    several values in some record is a list.

    Args:
      files: Paths; how they are compressed is told by their content.
      data: Declared types, into which values are converted, and what becomes of records that are none.
    """

    def __init__(self, files: Sequence[str], data: DataOptions) -> None:
        self._files = tuple(files)
        self._declared = data.types
        self._cells = data.cells
        self._on_error = data.on_error
        self.columns: tuple[str, ...] = ()
        self.unreadable: Mapping[str, str] = {}

    def units(self) -> Sequence[RecordRange]:
        """Returns the records of all files in ranges of bytes; a compressed file is one."""
        return [unit for path in self._files for unit in record_ranges(path)]

    def infer(self, unit: RecordRange) -> Mapping[str, TypeInference]:
        """Returns the types of the features of a range.

        Raises:
          DataError: A record is damaged or no tf.Example, with ``on_error: fail``.
        """
        inferences: dict[str, TypeInference] = {}
        faults = FaultList(self._on_error, self.place)
        for offsets, contents in _parts(unit, faults):
            for rows, batch in _groups(unit.path, offsets, contents, faults):
                for name, values in zip(batch.schema.names, batch.columns, strict=True):
                    inference = inferences.setdefault(name, TypeInference())
                    kind = _kind(values.type)
                    counts = pc.list_value_length(values) if kind != "empty" else None
                    with_value = pc.greater(counts, 0).to_numpy(zero_copy_only=False) if counts is not None else []
                    found = np.flatnonzero(np.equal(with_value, True))
                    if counts is None or not len(found):
                        continue
                    inference.see(kind, in_list=(pc.max(counts).as_py() or 0) > 1)
                    inference.places.setdefault(kind, (unit.path, offsets[rows[int(found[0])]]))
            faults.taken()  # they are told by ``batches``
        return inferences

    def resolve(self, found: Iterable[Mapping[str, TypeInference]]) -> dict[str, ColumnType]:
        """Returns the type of each feature, declared or seen in all files, and knows the features from then on.

        Raises:
          DataError: A feature has different types and none is declared, or a declared one is not there.
        """
        merged = merge_inferred(found)
        self.columns = tuple(sorted(merged))
        for name in self._declared:
            if name not in merged:
                raise DataError(f"data.types.{name}: {missing_column(name, self._files[0], self.columns)}")
        for name, inference in merged.items():
            if len(inference.places) > 1 and name not in self._declared:
                places = ", ".join(
                    f"{kind} in {self.place(*place)}" for kind, place in sorted(inference.places.items())
                )
                remedy = "float" if set(inference.places) == {"int", "float"} else "string"
                raise DataError(f"feature {name!r} is {places}; declare data.types.{name}: {remedy}")
        return resolve_inferred(self, self._declared, [merged], self._on_error)

    def batches(self, unit: RecordRange, types: Mapping[str, ColumnType]) -> Iterator[RowBatch]:
        """Gives the records of a range, as they are where no type is declared.

        Args:
          unit: One of ``units()``.
          types: Of the features wanted.

        Raises:
          DataError: A record is damaged or no tf.Example, or a value does not have its type, with ``on_error: fail``.
        """
        faults = FaultList(self._on_error, self.place)
        converter = RowConverter(types, self._cells, faults, self.place, lambda name: f"declare data.types.{name}")
        for offsets, contents in _parts(unit, faults):
            for rows, batch in _groups(unit.path, offsets, contents, faults):
                known = dict(zip(batch.schema.names, batch.columns, strict=True))
                records = pa.array([contents[row] for row in rows], pa.binary())
                yield converter.convert(
                    RawRows(
                        path=unit.path,
                        positions=np.array([offsets[row] for row in rows], np.int64),
                        columns={name: known.get(name, pa.nulls(len(rows))) for name in types},
                        hashed={"record": records},
                        raw=lambda row, records=records: records[row].as_py(),  # type: ignore[misc]
                        records=None if self._declared else records,
                    )
                )
        rest = converter.rest(unit.path, {"record": pa.binary()})
        if rest is not None:
            yield rest

    def place(self, path: str, position: int) -> str:
        """Returns ``file, byte n``."""
        return f"{path}, byte {position}"


def _parts(unit: RecordRange, faults: FaultList) -> Iterator[tuple[list[int], list[bytes]]]:
    for records in read_records(unit):
        for offset, content in records.damaged:
            faults.add(
                unit.path, offset, "the record is damaged (its checksum is another); copy the file again", content
            )
        yield from parts(records, _PARSED_RECORDS, _PARSED_BYTES)
        if records.problem is not None:
            offset, problem = records.problem
            faults.add(unit.path, offset, f"{problem}; copy the file again", b"")


def _groups(path: str, offsets: Sequence[int], contents: list[bytes], faults: FaultList) -> list[_Group]:
    """Returns the records parsed: all at once, or those at once that agree in the types of their features."""
    decoder = _decoder()
    try:
        return [(list(range(len(contents))), decoder.DecodeBatch(contents))]
    except RuntimeError:
        pass
    kinds: dict[str, set[pa.DataType]] = {}
    schemas: dict[int, pa.Schema] = {}
    for row, content in enumerate(contents):
        try:
            schemas[row] = decoder.DecodeBatch([content]).schema
        except RuntimeError as e:
            reason = f"the record is not a tf.Example ({str(e).partition(': ')[2] or e})"
            faults.add(path, offsets[row], reason, content, e)
            continue
        for field in schemas[row]:
            kinds.setdefault(field.name, set()).add(field.type)
    mixed = [name for name, found in kinds.items() if len(found - {pa.null()}) > 1]
    rows_by_kinds: dict[tuple[Any, ...], list[int]] = {}
    for row, schema in schemas.items():
        names = set(schema.names)
        key = tuple(str(schema.field(name).type) if name in names else "" for name in mixed)
        rows_by_kinds.setdefault(key, []).append(row)
    return [(rows, decoder.DecodeBatch([contents[row] for row in rows])) for rows in rows_by_kinds.values()]


def _decoder() -> Any:
    from tfx_bsl.cc.tfx_bsl_extension.coders import ExamplesToRecordBatchDecoder  # takes half a second

    return ExamplesToRecordBatchDecoder(None)


def _kind(kind: pa.DataType) -> Kind:
    if pa.types.is_null(kind):
        return "empty"
    if pa.types.is_integer(kind.value_type):
        return "int"
    return "float" if pa.types.is_floating(kind.value_type) else "string"
