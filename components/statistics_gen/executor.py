"""What StatisticsGen does: TFX's properties, Lockstep's source, TensorFlow Data Validation on Beam."""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import apache_beam as beam
import pyarrow as pa
import tensorflow_data_validation as tfdv
from tensorflow_data_validation.statistics import stats_impl
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2
from tfx import types
from tfx.components.statistics_gen import executor
from tfx.components.util import examples_utils
from tfx.types import artifact_utils
from tfx.types import standard_component_specs as keys
from tfx.utils import io_utils, json_utils, stats_utils
from tfx_bsl.tfxio import tf_example_record

from lockstep.components.errors import ConfigurationError
from lockstep.components.examples_source.arrow_examples import ExampleParser
from lockstep.components.examples_source.artifacts import check_formats, plain_data_errors
from lockstep.components.examples_source.source import matched_files, read_parsed
from lockstep.components.examples_source.untyped import known_columns, read_untyped

_log = logging.getLogger(__name__)

# TensorFlow Data Validation samples whole batches: of large ones a sample would be a coarse one.
_SAMPLED_BATCH_ROWS = 1000


class Executor(executor.Executor):
    """Executor of ``component.StatisticsGen``."""

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Writes ``FeatureStats.pb`` for each split, as TFX's executor does, and the same properties.

        Args:
          input_dict: ``examples``, and ``schema`` where there is one.
          output_dict: ``statistics``.
          exec_properties: TFX's own: ``stats_options_json``, ``exclude_splits``, ``sample_rate_by_split``.

        Raises:
          ConfigurationError: The examples are of a kind that this component does not read.
          DataError: A file is damaged or cut.
          ValueError: The options are not allowed.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        examples = artifact_utils.get_single_instance(input_dict[keys.EXAMPLES_KEY])
        statistics = artifact_utils.get_single_instance(output_dict[keys.STATISTICS_KEY])
        check_formats([examples], "StatisticsGen")
        if exec_properties.get(keys.SHARDED_STATS_OUTPUT_KEY):
            raise ConfigurationError(
                f"{keys.SHARDED_STATS_OUTPUT_KEY}: this StatisticsGen writes one file a split; take TFX's own for more"
            )
        splits = _splits(examples, exec_properties)
        options = _options(input_dict, exec_properties)
        rates = _decoded(exec_properties, keys.SAMPLE_RATE_BY_SPLIT_KEY, {})
        _describe(statistics, examples, splits, options, rates)
        files = {split: matched_files(examples_utils.get_split_file_patterns([examples], split)) for split in splits}
        outputs = {
            split: f"{artifact_utils.get_split_uri([statistics], split)}/{executor.DEFAULT_FILE_NAME}"
            for split in splits
        }
        with plain_data_errors(), self._make_beam_pipeline() as pipeline:
            if exec_properties.get(keys.STATS_OPTIONS_JSON_KEY) or options.schema or rates:
                _add_each(pipeline, files, outputs, options, rates, _reader(examples.uri, options, rates))
            else:
                _add_all(pipeline, files, outputs, _reader(examples.uri, options, rates))
        for split, output in outputs.items():
            _log.info("%s: the statistics of the split %r", output, split)


def _decoded(exec_properties: Mapping[str, Any], key: str, default: Any) -> Any:
    return json_utils.loads(exec_properties.get(key) or "null") or default


def _splits(examples: types.Artifact, exec_properties: Mapping[str, Any]) -> list[str]:
    excluded = _decoded(exec_properties, keys.EXCLUDE_SPLITS_KEY, [])
    if not isinstance(excluded, list):
        raise ValueError(f"{keys.EXCLUDE_SPLITS_KEY}: {excluded!r} is not allowed; give a list of names")
    pattern = examples_utils.CUSTOM_SPLIT_PATTERN_PROPERTY_NAME
    if examples.has_custom_property(pattern):
        names = list(json_utils.loads(examples.get_string_custom_property(pattern)))
    else:
        names = artifact_utils.decode_split_names(examples.split_names)
    splits = [name for name in names if name not in excluded]
    if not splits:
        raise ValueError(f"{keys.EXCLUDE_SPLITS_KEY}: {excluded} leaves none of the splits {names}; name fewer")
    return splits


def _options(input_dict: Mapping[str, list[types.Artifact]], exec_properties: Mapping[str, Any]) -> tfdv.StatsOptions:
    text = exec_properties.get(keys.STATS_OPTIONS_JSON_KEY)
    options = tfdv.StatsOptions.from_json(text) if text else tfdv.StatsOptions()
    if input_dict.get(keys.SCHEMA_KEY):
        if options.schema:
            raise ValueError("schema: stats_options has one too; give one of them")
        uri = artifact_utils.get_single_uri(input_dict[keys.SCHEMA_KEY])
        options.schema = io_utils.SchemaReader().read(io_utils.get_only_uri_in_dir(uri))
    return options


def _describe(
    statistics: types.Artifact,
    examples: types.Artifact,
    splits: list[str],
    options: tfdv.StatsOptions,
    rates: Mapping[str, float],
) -> None:
    """Sets the properties that TFX's executor sets."""
    unknown = [split for split in rates if split not in splits]
    if unknown:
        raise ValueError(f"{keys.SAMPLE_RATE_BY_SPLIT_KEY}: no split {unknown[0]!r} among {splits}")
    statistics.split_names = artifact_utils.encode_split_names(splits)
    statistics.span = examples.span
    statistics.set_string_custom_property(
        executor.STATS_DASHBOARD_LINK, stats_utils.generate_stats_dashboard_link(statistics)
    )
    all_rates = {split: rates.get(split, options.sample_rate or 1.0) for split in splits}
    statistics.set_json_value_custom_property(executor.SAMPLE_RATE_BY_SPLIT_PROPERTY_NAME, json_utils.dumps(all_rates))


class _Reader:
    """Reads the batches of a file; can be sent to workers."""

    def __init__(self, known: pa.Schema | None, wanted: pa.Schema | None, batch_size: int | None) -> None:
        self._known, self._wanted, self._batch_size = known, wanted, batch_size

    def __call__(self, path: str) -> Iterator[pa.RecordBatch]:
        if self._wanted is None:
            return read_untyped(path, self._known, self._batch_size)
        parser, schema = ExampleParser(self._wanted), self._wanted
        return read_parsed(
            path,
            lambda records: pa.RecordBatch.from_arrays(parser.parse(records), schema=schema),
            self._batch_size,
        )


def _reader(uri: str, options: tfdv.StatsOptions, rates: Mapping[str, float]) -> _Reader:
    """Returns what reads a file: all features, or with ``experimental_filter_read_paths`` those of the schema."""
    is_sample = bool(options.sample_rate or rates or options.enable_semantic_domain_stats)
    schema = _read_schema(options)
    wanted = None if schema is None else tf_example_record.TFExampleRecord("none", schema=schema).ArrowSchema()
    return _Reader(known_columns(uri), wanted, _SAMPLED_BATCH_ROWS if is_sample else None)


def _read_schema(options: tfdv.StatsOptions) -> schema_pb2.Schema | None:
    if not options.experimental_filter_read_paths:
        return None
    if options.feature_allowlist:
        if any(isinstance(path, str) for path in options.feature_allowlist):
            raise ValueError("feature_allowlist: experimental_filter_read_paths needs paths, not names")
        return tfdv.generate_dummy_schema_with_paths(options.feature_allowlist)
    if options.schema is None:
        raise ValueError("experimental_filter_read_paths: needs feature_allowlist, or a schema")
    return options.schema


def _add_each(
    pipeline: beam.Pipeline,
    files: Mapping[str, list[str]],
    outputs: Mapping[str, str],
    options: tfdv.StatsOptions,
    rates: Mapping[str, float],
    read: _Reader,
) -> None:
    """Adds TensorFlow Data Validation's whole graph for each split, as TFX does."""
    text = options.to_json()
    for split, paths in files.items():
        of_split = tfdv.StatsOptions.from_json(text)
        of_split.sample_rate = rates.get(split, of_split.sample_rate)
        _ = (
            pipeline
            | f"Files[{split}]" >> beam.Create(paths)
            | f"ReadAndParse[{split}]" >> beam.FlatMap(read).with_output_types(pa.RecordBatch)
            | f"GenerateStatistics[{split}]" >> tfdv.GenerateStatistics(of_split)
            | f"WriteStatistics[{split}]" >> tfdv.WriteStatisticsToBinaryFile(outputs[split])
        )


def _add_all(
    pipeline: beam.Pipeline, files: Mapping[str, list[str]], outputs: Mapping[str, str], read: _Reader
) -> None:
    """Adds one graph for all splits, which are its slices, since each graph takes Beam a second and more.

    Only for statistics without options: with them TensorFlow Data Validation does more than its slices.
    """
    _ = (
        pipeline
        | "Files" >> beam.Create([(split, path) for split, paths in files.items() for path in paths])
        | "ReadAndParse" >> beam.FlatMap(_read_keyed, read).with_output_types(beam.typehints.Tuple[str, pa.RecordBatch])
        | "GenerateStatistics" >> stats_impl.GenerateSlicedStatisticsImpl(tfdv.StatsOptions(), is_slicing_enabled=True)
        | "WriteStatistics" >> beam.Map(_write, dict(outputs))
    )


def _read_keyed(element: tuple[str, str], read: _Reader) -> Iterator[tuple[str, pa.RecordBatch]]:
    split, path = element
    for batch in read(path):
        yield split, batch


def _write(found: statistics_pb2.DatasetFeatureStatisticsList, outputs: dict[str, str]) -> None:
    """Writes the statistics of each split; a split without a record has those of no records, as with TFX."""
    of_split = {dataset.name: dataset for dataset in found.datasets}
    for split, output in outputs.items():
        written = statistics_pb2.DatasetFeatureStatisticsList()
        dataset = written.datasets.add()
        if split in of_split:
            dataset.CopyFrom(of_split[split])
            dataset.ClearField("name")
        io_utils.write_bytes_file(output, written.SerializeToString())
