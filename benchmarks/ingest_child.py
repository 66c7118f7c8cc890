"""One side of ``benchmarks.ingest``, in a process of its own: ``python -m benchmarks.ingest_child KIND FILE OUTPUT``.

Prints seconds and records as JSON. ``bare`` is the shortest loop that does the work: pyarrow's CSV reader, tfx-bsl's
encoder, TensorFlow's TFRecordWriter with gzip level 1; one process, one file, no splits, no shuffle, no checks. ``cat``
reads all files of a folder and keeps nothing.
"""

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_TYPES_BYTES = 32 << 20  # of the file's beginning, where every column of the taxi trips has a value


def main(kind: str, path: str, output: Path) -> int:
    """Runs a side, and prints what it took."""
    seconds, rows = {"bare": _bare, "cat": _cat, "lockstep": _lockstep, "stock": _stock}[kind](path, output)
    print(json.dumps({"seconds": seconds, "rows": rows}))
    return 0


def _bare(path: str, output: Path) -> tuple[float, int]:
    import pyarrow as pa
    import pyarrow.csv
    import tensorflow as tf
    from tfx_bsl.coders.example_coder import RecordBatchToExamplesEncoder

    def lists(values: pa.Array) -> pa.Array:
        if pa.types.is_floating(values.type) or pa.types.is_null(values.type):
            values = values.cast(pa.float32())
        elif pa.types.is_string(values.type):
            values = values.cast(pa.large_binary())
        return pa.LargeListArray.from_arrays(pa.array(range(len(values) + 1), pa.int64()), values)

    with pyarrow.csv.open_csv(path, pyarrow.csv.ReadOptions(block_size=_TYPES_BYTES)) as reader:
        types = pyarrow.csv.ConvertOptions(column_types=reader.schema)  # a gift: it need not look for them
    begin = time.perf_counter()
    encoder, rows = RecordBatchToExamplesEncoder(), 0
    reading = pyarrow.csv.ReadOptions(use_threads=False, block_size=4 << 20)
    options = tf.io.TFRecordOptions(compression_type="GZIP", compression_level=1)
    with tf.io.TFRecordWriter(str(output / "records.gz"), options) as writer:
        for batch in pyarrow.csv.open_csv(path, reading, convert_options=types):
            encoded = encoder.encode(pa.record_batch([lists(column) for column in batch.columns], batch.schema.names))
            for record in encoded:
                writer.write(record)
            rows += len(encoded)
    return time.perf_counter() - begin, rows


def _cat(path: str, output: Path) -> tuple[float, int]:
    del output
    begin = time.perf_counter()
    subprocess.run(["find", path, "-type", "f", "-exec", "cat", "{}", "+"], stdout=subprocess.DEVNULL, check=True)
    seconds = time.perf_counter() - begin
    return seconds, sum(1 for _ in Path(path).rglob("*.png"))


def _lockstep(path: str, output: Path) -> tuple[float, int]:
    from lockstep.components.example_gen.ingest import ingest
    from lockstep.components.example_gen.options import DataOptions, Requirements
    from lockstep.components.example_gen.process_pool import ProcessPool, num_processors

    files = [str(file) for file in sorted(Path(path).rglob("*.png"))] if Path(path).is_dir() else [path]
    begin = time.perf_counter()
    with contextlib.closing(ProcessPool(num_processors())) as workers:
        manifest = ingest(files, DataOptions(path=path), output / "examples", Requirements(), workers=workers)
    return time.perf_counter() - begin, sum(manifest.rows.values())


def _stock(path: str, output: Path) -> tuple[float, int]:
    from tfx.components.example_gen.csv_example_gen import executor
    from tfx.dsl.components.base import base_beam_executor
    from tfx.proto import example_gen_pb2
    from tfx.types import standard_artifacts
    from tfx.utils import proto_utils

    from lockstep.components.tfrecord_files import count_records
    from lockstep.pipelines.beam_engines import beam_arguments
    from lockstep.pipelines.config import load_config

    arguments = beam_arguments(load_config("taxi")[0].config.beam)
    context = base_beam_executor.BaseBeamExecutor.Context(
        beam_pipeline_args=arguments, tmp_dir=str(output / "tmp"), unique_id="1"
    )
    split = example_gen_pb2.SplitConfig.Split
    examples: Any = standard_artifacts.Examples()
    examples.uri = str(output / "examples")
    properties = {
        "input_base": str(Path(path).parent),
        "input_config": proto_utils.proto_to_json(
            example_gen_pb2.Input(splits=[example_gen_pb2.Input.Split(name="all", pattern="*")])
        ),
        "output_config": proto_utils.proto_to_json(
            example_gen_pb2.Output(
                split_config=example_gen_pb2.SplitConfig(
                    splits=[split(name="train", hash_buckets=2), split(name="eval", hash_buckets=1)]
                )
            )
        ),
        "output_data_format": example_gen_pb2.FORMAT_TF_EXAMPLE,
        "output_file_format": example_gen_pb2.FORMAT_TFRECORDS_GZIP,
    }
    begin = time.perf_counter()
    executor.Executor(context).Do({}, {"examples": [examples]}, properties)
    seconds = time.perf_counter() - begin
    return seconds, sum(count_records(str(file)) for file in (output / "examples").rglob("*.gz"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
