"""Runs Transform's work inside a TFX pipeline."""

import contextlib
import errno
import itertools
import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
from tfx import types
from tfx.components.transform import executor, executor_utils, labels
from tfx.components.util import udf_utils
from tfx.proto import example_gen_pb2, transform_pb2
from tfx.types import artifact_utils
from tfx.types import standard_component_specs as keys
from tfx.utils import io_utils

from lockstep.components.errors import ConfigurationError, DataError, StepFailed
from lockstep.components.examples_source.artifacts import check_formats, data_error
from lockstep.components.examples_source.source import joined_patterns, matched_files
from lockstep.components.record_manifest import (
    MANIFEST_NAME,
    Manifest,
    Shard,
    no_space_left,
    published_folder,
    write_raw_columns,
)
from lockstep.components.transform.config_resolution import FEATURES_NAME, resolve_config
from lockstep.components.transform.options import TransformOptions
from lockstep.components.transform.processor import Processor
from lockstep.components.transform.writer import join_parts

ROWS_PROPERTY = "rows"

_log = logging.getLogger(__name__)

_PREFIX = "transformed_examples"  # of a file's name, as TFX has it
_PARTS = ".parts"
_TEMP = ".temp_path"
_GZIP_TFRECORDS = "tfrecords_gzip"
_NO_SPACE = tuple(os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


class Executor(executor.Executor):
    """Executor of ``component.Transform``."""

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Fills the output artifacts as TFX's executor does; the transformed examples appear whole or not at all.

        Custom property of each artifact of transformed examples: the JSON text ``rows`` (split -> rows).

        Args:
          input_dict: ``examples`` (one artifact or several), ``schema``, ``analyzer_cache`` where there is one.
          output_dict: ``transform_graph``, and what of the others the component declares.
          exec_properties: TFX's own, and ``spec``.

        Raises:
          ConfigurationError: The examples are of a kind that this component does not read.
          DataError: A file is damaged, or a split empty.
          StepFailed: There is no space left.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        options = TransformOptions.from_json(exec_properties["spec"])
        graph_dir = artifact_utils.get_single_uri(output_dict[keys.TRANSFORM_GRAPH_KEY])
        examples = input_dict[keys.EXAMPLES_KEY]
        check_formats(examples, "Transform")
        exec_properties = _resolved(exec_properties, input_dict, Path(graph_dir))
        executor_utils.MatchNumberOfTransformedExamplesArtifacts(input_dict, output_dict)
        splits = _splits(exec_properties.get(keys.SPLITS_CONFIG_KEY), examples)
        _check_records(examples, [*splits.analyze, *splits.transform])
        outputs = output_dict.get(keys.TRANSFORMED_EXAMPLES_KEY) or []
        try:
            with _published([artifact.uri for artifact in outputs]) as folders:
                parts = folders[0] / _PARTS if folders else None
                self._transform(input_dict, output_dict, exec_properties, splits, parts, options)
                write_raw_columns([artifact.uri for artifact in examples], Path(graph_dir))
                patterns = _patterns(examples, splits.transform)
                written = _write_shards(folders, splits.transform, patterns, options.num_shards)
        except StepFailed:
            raise
        except Exception as e:
            raise _explained(e, Path(graph_dir)) from e
        for artifact, manifest in zip(outputs, written, strict=True):
            artifact.split_names = artifact_utils.encode_split_names(list(splits.transform))
            artifact.set_string_custom_property(ROWS_PROPERTY, json.dumps(manifest.rows))
        io_utils.delete_dir(f"{graph_dir}/{_TEMP}")

    def _transform(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: Mapping[str, Any],
        splits: transform_pb2.SplitsConfig,
        parts: Path | None,
        options: TransformOptions,
    ) -> None:
        """Does what TFX's ``Do`` does, with our processor, whose class is fixed there."""
        schema_path = io_utils.get_only_uri_in_dir(artifact_utils.get_single_uri(input_dict[keys.SCHEMA_KEY]))
        graph_dir = artifact_utils.get_single_uri(output_dict[keys.TRANSFORM_GRAPH_KEY])
        module = exec_properties.get(keys.MODULE_PATH_KEY)
        _, packages = udf_utils.decode_user_module_key(module)
        local_packages = [io_utils.ensure_local(package) for package in packages]
        # Beam's workers get the user's module as a package.
        self._beam_pipeline_args.extend(f"--extra_package={package}" for package in local_packages)
        functions = {
            labels.MODULE_FILE: exec_properties.get(keys.MODULE_FILE_KEY),
            labels.MODULE_PATH: module,
            labels.PREPROCESSING_FN: exec_properties.get(keys.PREPROCESSING_FN_KEY),
            labels.STATS_OPTIONS_UPDATER_FN: exec_properties.get(keys.STATS_OPTIONS_UPDATER_FN_KEY),
            labels.CUSTOM_CONFIG: exec_properties.get(keys.CUSTOM_CONFIG_KEY),
        }
        without_statistics = bool(exec_properties.get(keys.DISABLE_STATISTICS_KEY, 0))
        analyzed = _patterns(input_dict[keys.EXAMPLES_KEY], splits.analyze)
        # As one data set: TFX loads the graph for each.
        transformed = [joined_patterns(_patterns(input_dict[keys.EXAMPLES_KEY], splits.transform))]
        materialized = []
        if parts is not None:
            parts.mkdir()
            materialized.append(str(parts))
        inputs = {
            labels.DISABLE_STATISTICS_LABEL: without_statistics,
            labels.SCHEMA_PATH_LABEL: schema_path,
            labels.EXAMPLES_DATA_FORMAT_LABEL: example_gen_pb2.FORMAT_TF_EXAMPLE,
            labels.DATA_VIEW_LABEL: None,
            labels.ANALYZE_DATA_PATHS_LABEL: analyzed,
            labels.ANALYZE_PATHS_FILE_FORMATS_LABEL: [_GZIP_TFRECORDS] * len(analyzed),
            labels.TRANSFORM_DATA_PATHS_LABEL: transformed,
            labels.TRANSFORM_PATHS_FILE_FORMATS_LABEL: [_GZIP_TFRECORDS] * len(transformed),
            labels.PREPROCESSING_FN: self._GetPreprocessingFn(functions, {}),
            labels.STATS_OPTIONS_UPDATER_FN: self._GetStatsOptionsUpdaterFn(functions),
            labels.MAKE_BEAM_PIPELINE_FN: self._make_beam_pipeline,
            labels.FORCE_TF_COMPAT_V1_LABEL: bool(exec_properties.get(keys.FORCE_TF_COMPAT_V1_KEY, 0)),
            labels.SAVE_OPTIONS_LABEL: exec_properties.get(keys.SAVE_OPTIONS_KEY),
            **executor_utils.GetCachePathEntry(keys.ANALYZER_CACHE_KEY, input_dict),
        }
        outputs = {
            labels.TRANSFORM_METADATA_OUTPUT_PATH_LABEL: graph_dir,
            labels.TRANSFORM_MATERIALIZE_OUTPUT_PATHS_LABEL: materialized,
            labels.TEMP_OUTPUT_LABEL: f"{graph_dir}/{_TEMP}",
            **executor_utils.GetStatsOutputPathEntries(without_statistics, output_dict),
            **executor_utils.GetCachePathEntry(keys.UPDATED_ANALYZER_CACHE_KEY, output_dict),
        }
        with udf_utils.TempPipInstallContext(local_packages):
            Processor(options.num_shards).Transform(inputs, outputs)


def _resolved(
    exec_properties: dict[str, Any], input_dict: Mapping[str, list[types.Artifact]], graph_dir: Path
) -> dict[str, Any]:
    """Returns properties with the ``custom_config`` that ``config_resolver`` makes of it, where there is one."""
    resolver = exec_properties.get("config_resolver")
    if not resolver:
        return exec_properties
    config, text = resolve_config(
        resolver, exec_properties[keys.CUSTOM_CONFIG_KEY], input_dict["statistics"], input_dict[keys.EXAMPLES_KEY]
    )
    # At the start, so that it can be read where what it holds makes the rest fail.
    graph_dir.mkdir(parents=True, exist_ok=True)
    (graph_dir / FEATURES_NAME).write_text(text, encoding="utf-8")
    _log.info("%s:\n%s", graph_dir / FEATURES_NAME, text)
    return {**exec_properties, keys.CUSTOM_CONFIG_KEY: config}


def _splits(config: str | None, examples: Sequence[types.Artifact]) -> transform_pb2.SplitsConfig:
    splits = executor_utils.ResolveSplitsConfig(config, list(examples))
    if not config:
        # TFX takes them from a set, whose order differs from run to run.
        names = artifact_utils.decode_split_names(examples[0].split_names)
        splits = transform_pb2.SplitsConfig(analyze=splits.analyze, transform=names)
    return splits


def _patterns(examples: Sequence[types.Artifact], splits: Sequence[str]) -> list[str]:
    uris = [uri for split in splits for uri in artifact_utils.get_split_uris(list(examples), split)]
    return [io_utils.all_files_pattern(uri) for uri in uris]


def _check_records(examples: Sequence[types.Artifact], splits: Sequence[str]) -> None:
    """Raises DataError for a split without a record, which tf.Transform would analyse to nonsense."""
    for split in dict.fromkeys(splits):
        uris = artifact_utils.get_split_uris(list(examples), split)
        files = matched_files(io_utils.all_files_pattern(uri) for uri in uris)
        try:
            first = next(tf.data.TFRecordDataset(files, compression_type="GZIP").take(1).as_numpy_iterator(), None)
        except tf.errors.OpError:
            continue  # the reading tells which file is damaged
        if first is None:
            raise DataError(
                f"examples: split {split!r} has no records in {', '.join(uris)}; give it some, or leave it out of the "
                "splits"
            )


@contextlib.contextmanager
def _published(targets: Sequence[str]) -> Iterator[list[Path]]:
    """Gives a folder for each artifact; all are published together."""
    for target in targets:
        if "://" in str(target) or ":/" in str(target):
            raise ConfigurationError(
                f"transformed_examples: {target} is not a local folder, which this Transform needs"
            )
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(published_folder(Path(target))) for target in targets]


def _write_shards(
    folders: Sequence[Path], splits: Sequence[str], patterns: Sequence[str], num_shards: int
) -> list[Manifest]:
    """Makes the shards of each artifact, and its manifest; the patterns are of all artifacts for each split in turn."""
    shards: dict[Path, dict[str, tuple[Shard, ...]]] = {folder: {} for folder in folders}
    end = 0
    for pattern, (split, folder) in zip(patterns, itertools.product(splits, folders), strict=bool(folders)):
        begin, end = end, end + len(matched_files([pattern]))
        parts, target = folders[0] / _PARTS, folder / f"Split-{split}"
        shards[folder][split] = join_parts(parts, target, _PREFIX, num_shards, range(begin, end))
    if folders:
        shutil.rmtree(folders[0] / _PARTS)
    manifests = []
    for folder in folders:
        manifests.append(Manifest(shards=shards[folder]))
        (folder / MANIFEST_NAME).write_text(manifests[-1].to_json())
    return manifests


def _explained(error: Exception, folder: Path) -> Exception:
    """Returns what a person should read of an error that came through Beam; the error itself where that is nothing."""
    own = data_error(error)
    if own is not None:
        return own
    text = str(error)
    reason = next((reason for reason in _NO_SPACE if reason in text), None)
    return no_space_left(folder, reason) if reason else error
