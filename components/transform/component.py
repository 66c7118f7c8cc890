"""The component Transform: TFX's, with a source and a writer of Lockstep's."""

from collections.abc import Mapping
from typing import Any

from tfx import types
from tfx.components.transform import component
from tfx.dsl.components.base import executor_spec
from tfx.proto import transform_pb2
from tfx.types import component_spec, standard_artifacts

from lockstep.components.transform.executor import Executor
from lockstep.components.transform.options import TransformOptions


class Transform(component.Transform):
    """Transforms examples as TFX's Transform does: same graph, records, statistics and cache; quicker, and in shards.

    Takes what TFX's takes, which is documented there, of tf.Examples in gzip TFRecords. ``transformed_examples`` hold
    ``num_shards`` files a split, dealt in turn and the same bytes for the same input, and ``manifest.json`` with the
    records of each.

    Args:
      examples: One channel of Examples; of several artifacts, each becomes one of its own below the output.
      schema: A channel of one Schema.
      options: The ``transform`` block; None takes its defaults.
      statistics: A channel of one ExampleStatistics, for ``config_resolver``.
      config_resolver: Import path of a function that is called before ``preprocessing_fn`` with ``custom_config``, the
        statistics of ``train`` (a serialised DatasetFeatureStatisticsList) and raw columns' types as ExampleGen knows
        them; it returns the ``custom_config`` to take, and a text, which is kept in ``features.yaml`` beside the
        transform graph. None takes ``custom_config`` as it is.
      module_file: As TFX's; this, or ``preprocessing_fn``.
      preprocessing_fn: As TFX's: import path, ``package.module.function``.
      splits_config: As TFX's; None analyses ``train`` and transforms all splits.
      analyzer_cache: As TFX's: the cache of an earlier run.
      materialize: Whether transformed examples are written.
      disable_analyzer_cache: Whether no cache is read or written.
      force_tf_compat_v1: As TFX's.
      custom_config: Handed to ``preprocessing_fn`` if it takes an argument of this name; of JSON's types.
      disable_statistics: Whether no statistics are computed before and after.
      stats_options_updater_fn: As TFX's: import path of a function.

    Raises:
      ValueError: Both or neither of ``module_file`` and ``preprocessing_fn``, one of ``statistics`` and
        ``config_resolver``, and other combinations that TFX refuses.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)

    def __init__(
        self,
        *,
        examples: types.BaseChannel,
        schema: types.BaseChannel,
        options: TransformOptions | None = None,
        statistics: types.BaseChannel | None = None,
        config_resolver: str | None = None,
        module_file: str | None = None,
        preprocessing_fn: str | None = None,
        splits_config: transform_pb2.SplitsConfig | None = None,
        analyzer_cache: types.BaseChannel | None = None,
        materialize: bool = True,
        disable_analyzer_cache: bool = False,
        force_tf_compat_v1: bool = False,
        custom_config: Mapping[str, Any] | None = None,
        disable_statistics: bool = False,
        stats_options_updater_fn: str | None = None,
    ) -> None:
        if (statistics is None) != (config_resolver is None):
            raise ValueError(
                "statistics: needed beside config_resolver, and of no use without it; give both or neither"
            )
        super().__init__(
            examples=examples,
            schema=schema,
            module_file=module_file,
            preprocessing_fn=preprocessing_fn,
            splits_config=splits_config,
            analyzer_cache=analyzer_cache,
            materialize=materialize,
            disable_analyzer_cache=disable_analyzer_cache,
            force_tf_compat_v1=force_tf_compat_v1,
            custom_config=None if custom_config is None else dict(custom_config),
            disable_statistics=disable_statistics,
            stats_options_updater_fn=stats_options_updater_fn,
        )
        # TFX's constructor makes the component's specification itself, which has no place for our document.
        self.spec.exec_properties["spec"] = (options or TransformOptions()).to_json()
        if statistics is not None:
            parameter = component_spec.ChannelParameter(type=standard_artifacts.ExampleStatistics)
            self.spec.INPUTS = {**self.spec.INPUTS, "statistics": parameter}
            self.spec.inputs["statistics"] = statistics
            self.spec.exec_properties["config_resolver"] = config_resolver
