"""One YAML file, one dataclass tree: what a pipeline reads, learns, checks and pushes."""

import dataclasses
import difflib
import functools
import importlib.resources
import json
import pathlib
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pydantic

from lockstep.components.class_labels import ClassOptions, LabelKind
from lockstep.components.errors import ConfigurationError
from lockstep.components.evaluator.options import EvaluateOptions
from lockstep.components.example_gen.options import DataOptions
from lockstep.components.example_validator.options import ValidateOptions
from lockstep.components.object_store import is_object_uri
from lockstep.components.package_files import is_package_path, resolve_package_path
from lockstep.components.pusher.options import PushOptions
from lockstep.components.trainer.models import BUILT_IN
from lockstep.components.trainer.spec import (
    ModelOptions,
    TrainOptions,
    check_class_weights,
    check_validation,
    check_weight_column,
)
from lockstep.components.transform.options import TransformOptions
from lockstep.pipelines.beam_engines import BeamOptions
from lockstep.pipelines.example_data import example_data, is_example_path
from lockstep.pipelines.kubeflow.options import KubeflowOptions
from lockstep.pipelines.yaml_reader import parse_yaml
from lockstep.transforms.augmentation_options import AugmentationOptions
from lockstep.transforms.features import Feature, Label, transformed_features, vocabulary_name

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_IMPORT_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
IMAGE_AUGMENTATION = "lockstep.transforms.augmentation:ImageAugmentation"
_MAX_MESSAGE = 2000
_RUN_FN_STRATEGIES = ("multi_worker_mirrored", "one_device")  # those whose processes are plain workers
_KEY_PART = re.compile(r'"([^"]+)"|([^".=]+)')
_OVERRIDE = re.compile(
    rf"\s*(?P<key>(?:{_KEY_PART.pattern})(?:\.(?:{_KEY_PART.pattern}))*)\s*=(?P<value>.*)", re.DOTALL
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PipelineConfig:
    """A whole pipeline, as its YAML file declares it.

    Args:
      name: Letters, digits, ``_``, ``.`` and ``-``, 63 at most; names the run's folder and the metadata's pipeline.
      data: Where the rows come from.
      label: What the model learns to predict.
      features: Raw column -> how it becomes model inputs. Required unless ``preprocessing`` is given.
      preprocessing: ``module:function``. Without ``features``: tf.Transform's ``preprocessing_fn``. Beside them: takes
        the raw columns and the declared features, and returns the features that it adds.
      schema: File of a reviewed schema, which ``lockstep schema freeze`` makes; without it one is inferred from the
        training split in each run.
      validate: Which anomalies of the data let the run go on.
      transform: How the transformed records are written.
      model: Which Keras model is trained.
      run_fn: ``module:function`` for TFX's stock Trainer, run unchanged in every worker, instead of ``model.build``;
        ``model.parameters`` are its ``custom_config``. It decides itself what ``train`` does, but for ``workers``,
        ``steps`` (its ``train_steps``) and what says how workers are watched.
      train: How it is trained.
      evaluate: What is measured, and what the model must reach to be pushed.
      push: Where a blessed model goes; ``lockstep run`` takes ``pushed`` in the root folder where no ``dir`` is given.
      beam: Which engine runs the Beam steps.
      kubeflow: What a package compiled for Kubeflow asks of it.
    """

    name: str
    data: DataOptions
    label: Label
    features: Mapping[str, Feature] = dataclasses.field(default_factory=dict)
    preprocessing: str | None = None
    schema: str | None = None
    validate: ValidateOptions = ValidateOptions()
    transform: TransformOptions = TransformOptions()
    model: ModelOptions = ModelOptions()
    run_fn: str | None = None
    train: TrainOptions = TrainOptions()
    evaluate: EvaluateOptions
    push: PushOptions
    beam: BeamOptions = BeamOptions()
    kubeflow: KubeflowOptions = KubeflowOptions()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"name: {self.name!r} is not allowed; use letters, digits, '_', '.' and '-', 63 at most")
        if not self.features and self.preprocessing is None:
            raise ValueError("features: nothing declared; declare at least one column, or give preprocessing")
        if ":" not in self.model.build and self.model.build not in BUILT_IN:
            raise ValueError(
                f"model.build: {self.model.build!r} is not allowed; give one of {', '.join(BUILT_IN)}, or"
                " module:function"
            )
        self._check_build()
        for key in ("preprocessing", "run_fn"):
            value = getattr(self, key)
            if value is not None and not _IMPORT_PATH.fullmatch(value):
                raise ValueError(f"{key}: {value!r} is not allowed; spell it module:function")
        self._check_run_fn()
        self._check_augmentation()
        try:
            check_class_weights(self.train, self.label_kind)
            check_weight_column(self.train, self.label.output, self.run_fn is not None)
            check_validation(self.train, self.label_kind, self.run_fn is not None)
        except ValueError as e:
            raise ValueError(f"train.{e}") from e
        self._check_features()
        try:
            self.evaluate.computed_metrics(self.label_kind)
        except ValueError as e:
            raise ValueError(f"evaluate.{e}") from e
        for split in ("train", "eval"):
            if split not in self.data.splits:
                raise ValueError(
                    f"data.splits: {split!r} is missing; training needs 'train', evaluation 'eval'; there are"
                    f" {', '.join(map(repr, self.data.splits))}"
                )

    def _check_build(self) -> None:
        if self.label.kind == "multiclass" and self.model.build == "factorization_machine":
            raise ValueError(
                "model.build: 'factorization_machine' is not allowed for a multiclass label: it gives one value, not"
                " one a class; give mlp, linear, or module:function"
            )
        if self.run_fn is not None or ":" in self.model.build:
            return
        finds_boxes = self.model.build == "detector"
        if finds_boxes != (self.label.kind == "boxes"):
            builds = ", ".join(name for name in BUILT_IN if name != "detector")
            raise ValueError(
                f"model.build: {self.model.build!r} is not allowed for a label of kind {self.label.kind}; give"
                f" {builds if finds_boxes else 'detector'}, or module:function"
            )

    def _check_features(self) -> None:
        # Raises where two outputs meet.
        outputs = transformed_features(self.features, self.label, self.train.weight_column)
        is_open = any(feature.kind == "auto" for feature in self.features.values())
        has_index = is_open or any(output.dtype == "int64" for output in outputs.values())
        is_known = self.features and self.preprocessing is None
        if is_known and self.model.build == "factorization_machine" and not has_index:
            raise ValueError(
                "model.build: 'factorization_machine' learns from indices, and no feature gives any; declare one of"
                " kind vocabulary, hash, buckets, integer, cross or list"
            )

    def _check_run_fn(self) -> None:
        if self.run_fn is None:
            if self.label.transformed is not None:
                raise ValueError(
                    f"label.transformed: {self.label.transformed!r} needs run_fn; a model of model.build learns the"
                    " feature that is called like label.column"
                )
            return
        if self.model.build != ModelOptions().build:
            raise ValueError("model.build: not allowed beside run_fn; keep one of the two")
        if self.train.epochs is not None:
            raise ValueError(f"train.epochs: {self.train.epochs} is not allowed beside run_fn; give train.steps")
        if self.train.augment is not None:
            raise ValueError("train.augment: not allowed beside run_fn, which reads its records itself; leave it out")
        for name, feature in self.features.items():
            if feature.decode == "train":
                raise ValueError(
                    f"features.{name}.decode: 'train' is not allowed beside run_fn, which reads its records itself;"
                    " give transform"
                )
        if self.train.strategy not in _RUN_FN_STRATEGIES:
            raise ValueError(
                f"train.strategy: {self.train.strategy!r} is not allowed beside run_fn, which makes its own; give"
                f" {' or '.join(_RUN_FN_STRATEGIES)}, or leave it out"
            )

    def _check_augmentation(self) -> None:
        if self.train.augment != IMAGE_AUGMENTATION:
            return
        try:
            options = AugmentationOptions.from_parameters(self.train.augment_parameters)
        except ValueError as e:
            raise ValueError(f"train.augment_parameters.{e}") from e
        if self.label.kind == "boxes" and (options.boxes, options.box_unit) != (self.label.output, "normalized"):
            raise ValueError(
                f"train.augment_parameters.boxes: {options.boxes!r} with box_unit {options.box_unit} is not allowed;"
                f" the label's boxes are to follow their images: give boxes: {self.label.output}, box_unit: normalized"
            )
        feature = self.features.get(options.image)
        is_declared = feature is not None and feature.kind == "image"
        if self.features and not is_declared and (feature is not None or self.preprocessing is None):
            raise ValueError(
                f"train.augment_parameters.image: {options.image!r} is not allowed; name a feature of kind image"
            )
        if feature is not None and feature.scale is not None:
            expected = {"zero_one": (0.0, 1.0), "minus_one_one": (-1.0, 1.0), "none": (0.0, 255.0)}[feature.scale]
            if tuple(map(float, options.value_range)) != expected:
                raise ValueError(
                    f"train.augment_parameters.value_range: {list(options.value_range)} is not allowed;"
                    f" features.{options.image} with scale {feature.scale} has values within {list(expected)}"
                )

    def to_json(self) -> str:
        """Returns the JSON document that ``from_json`` turns into an equal configuration."""
        return json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "PipelineConfig":
        """Returns the configuration of a JSON document; raises ConfigurationError where a value is not allowed."""
        return _structure(json.loads(text), source="configuration")

    @property
    def label_kind(self) -> LabelKind:
        """What is predicted, as training and evaluation know it."""
        return self.label.kind

    @property
    def class_options(self) -> ClassOptions | None:
        """What training and evaluation are told of the classes of a label that has some."""
        if self.label.kind not in ("multiclass", "boxes"):
            return None
        column = self.label.class_column or self.label.column
        return ClassOptions(vocabulary=vocabulary_name(column), unseen=self.label.unseen)

    @property
    def label_columns(self) -> tuple[str, ...]:
        """The raw columns that the label is made of and that every row must have; an image may be without boxes."""
        if self.label.kind == "boxes":
            return ()
        return tuple(c for c in (self.label.column, self.label.relative_to) if c is not None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfigSource:
    """A configuration and where it came from.

    Args:
      config: The configuration; its paths are absolute, or as written where it is for Kubeflow.
      folder: The YAML file's folder, where the user's modules are looked for; None for an example of Lockstep's.
    """

    config: PipelineConfig
    folder: pathlib.Path | None


def example_names() -> list[str]:
    """Returns the names of the examples that ``lockstep run NAME`` knows."""
    return sorted(
        entry.name.removesuffix(".yaml")
        for entry in importlib.resources.files("lockstep.pipelines").joinpath("examples").iterdir()
        if entry.name.endswith(".yaml")
    )


def load_mapping(pipeline: str) -> tuple[dict[str, Any], pathlib.Path | None]:
    """Reads a YAML file, or an example by its name.

    Args:
      pipeline: A path, or the name of an example. A file of that very name wins.

    Returns:
      The document, and the file's folder (None for an example).

    Raises:
      ConfigurationError: there is no such file or example, or it is not a YAML mapping.
    """
    path = pathlib.Path(pipeline)
    if path.is_file():
        return _parse_yaml(_read_text(path), str(path)), path.resolve().parent
    names = example_names()
    if pipeline in names:
        text = (
            importlib.resources.files("lockstep.pipelines")
            .joinpath("examples")
            .joinpath(f"{pipeline}.yaml")
            .read_text()
        )
        return _parse_yaml(text, f"example {pipeline}"), None
    nearest = difflib.get_close_matches(pipeline, names, n=1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    raise ConfigurationError(
        f"{pipeline}: no such file, and no example of that name{hint} (examples: {', '.join(names)})"
    )


def load_config(
    pipeline: str, *, overrides: Sequence[str] = (), root: pathlib.Path | None = None
) -> tuple[ConfigSource, pathlib.Path]:
    """Reads, overrides and validates a pipeline's configuration.

    Args:
      pipeline: A YAML file, or the name of an example.
      overrides: ``key.key=value`` each, the value in YAML.
      root: Where runs are kept; None is ``lockstep-runs/<name>`` in the working folder.

    Returns:
      The configuration and the root, both with absolute paths.

    Raises:
      ConfigurationError: naming the file, the key, the value got and what is allowed.
    """
    mapping, folder = load_mapping(pipeline)
    for override in overrides:
        _apply_override(mapping, override)
    name = mapping.get("name")
    root = (root or pathlib.Path("lockstep-runs") / str(name)).absolute()
    push = mapping.setdefault("push", {})
    if isinstance(push, dict):
        push.setdefault("dir", str(root / "pushed"))
    config = _structure(mapping, source=pipeline)
    base = folder or pathlib.Path.cwd()
    config = dataclasses.replace(
        config,
        data=dataclasses.replace(config.data, path=_data_path(config.data.path, base, root)),
        push=dataclasses.replace(config.push, dir=_absolute(config.push.dir, base)),
        schema=_schema_path(config, base),
    )
    return ConfigSource(config=config, folder=folder), root


def load_package_config(pipeline: str, *, overrides: Sequence[str] = ()) -> ConfigSource:
    """Reads, overrides and validates the configuration of a pipeline that shall run on Kubeflow.

    Paths stay as they are written, but for the schema's: they are the containers', not this machine's.

    Args:
      pipeline: A YAML file, or the name of an example.
      overrides: ``key.key=value`` each, the value in YAML.

    Returns:
      The configuration; ``push.dir`` is ``<kubeflow.pipeline_root>/<name>/pushed`` where none is given.

    Raises:
      ConfigurationError: naming the file, the key, the value got and what is allowed.
    """
    mapping, folder = load_mapping(pipeline)
    for override in overrides:
        _apply_override(mapping, override)
    push = mapping.setdefault("push", {})
    default = isinstance(push, dict) and "dir" not in push
    if default:
        push["dir"] = "unknown"
    config = _structure(mapping, source=pipeline)
    config = dataclasses.replace(config, schema=_schema_path(config, folder or pathlib.Path.cwd()))
    if is_example_path(config.data.path):
        raise ConfigurationError(
            f"{pipeline}: data.path: {config.data.path} is written by lockstep run on this machine; copy it to where"
            " the containers read, and give that as --set data.path=..."
        )
    if default:
        directory = f"{config.kubeflow.pipeline_root.rstrip('/')}/{config.name}/pushed"
        config = dataclasses.replace(config, push=dataclasses.replace(config.push, dir=directory))
    return ConfigSource(config=config, folder=folder)


def _read_text(path: pathlib.Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as e:
        raise ConfigurationError(f"{path}: not UTF-8 text ({e}); save it as UTF-8") from e


def _parse_yaml(text: str, source: str) -> dict[str, Any]:
    try:
        document = parse_yaml(text)
    except ValueError as e:
        raise ConfigurationError(f"{source}: {e}") from e
    if not isinstance(document, dict):
        raise ConfigurationError(f"{source}: holds no mapping; a pipeline starts with 'name:', 'data:', 'label:'")
    return document


def _apply_override(mapping: dict[str, Any], override: str) -> None:
    spelled = _OVERRIDE.fullmatch(override)
    if spelled is None:
        raise ConfigurationError(
            f"--set {override}: spell it key.key=value, for example train.steps=500; a key with a dot in quotes"
        )
    parts = [quoted or plain for quoted, plain in _KEY_PART.findall(spelled["key"])]
    try:
        value = parse_yaml(spelled["value"])
    except ValueError as e:
        raise ConfigurationError(f"--set {override}: the value is {e}") from e
    target = mapping
    for part in parts[:-1]:
        child = target.setdefault(part, {})
        if not isinstance(child, dict):
            raise ConfigurationError(f"--set {override}: {part!r} holds a value, no keys below it")
        target = child
    target[parts[-1]] = value


def _data_path(path: str, base: pathlib.Path, root: pathlib.Path) -> str:
    return example_data(path, root) if is_example_path(path) else _absolute(path, base)


def _absolute(path: str, base: pathlib.Path) -> str:
    """Makes a path absolute: ``package:NAME/REST`` is in an installed package, others are relative to ``base``."""
    if is_package_path(path):
        return resolve_package_path(path)
    if is_object_uri(path):
        return path
    try:
        return str((base / pathlib.Path(path).expanduser()).absolute())
    except RuntimeError as e:
        raise ConfigurationError(f"{path}: {e}; give a path without ~") from e


def _schema_path(config: PipelineConfig, base: pathlib.Path) -> str | None:
    """Returns the absolute path of the reviewed schema, on the machine where the pipeline is run or compiled."""
    return None if config.schema is None else str((base / pathlib.Path(config.schema).expanduser()).absolute())


_WANTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a number",
    "string_type": "text; put it in quotes where YAML takes it for something else",
    "bool_type": "true or false",
    "dataclass_type": "a block of keys",
    "mapping_type": "a block of keys",
    "dict_type": "a block of keys",
    "tuple_type": "a list, such as [a, b]",
    "list_type": "a list, such as [a, b]",
}


@functools.cache
def _adapter() -> pydantic.TypeAdapter[list[PipelineConfig]]:
    # A list around it, since only then the settings hold for the plain dataclasses inside.
    return pydantic.TypeAdapter(list[PipelineConfig], config=pydantic.ConfigDict(extra="forbid", strict=True))


def _structure(mapping: Mapping[str, Any], *, source: str) -> PipelineConfig:
    try:
        # By JSON, since only there pydantic's strict mode takes mappings for dataclasses and lists for tuples.
        document = json.dumps([mapping])
    except (TypeError, ValueError, RecursionError) as e:
        raise ConfigurationError(f"{source}: a value or key is no text, number, list or mapping: {e}") from e
    for key, number in _whole_numbers(mapping):
        if not -(2**63) <= number < 2**63:  # what files, metadata and TensorFlow keep
            raise ConfigurationError(f"{source}: {key}: {number} is not allowed; give a number of 64 bits")
    try:
        return _adapter().validate_json(document)[0]
    except pydantic.ValidationError as e:
        located = [(_location(error["loc"][1:], mapping), error) for error in e.errors(include_url=False)]
        messages = _join([_cut(_explain(location, error)) for location, error in located if location is not None])
        raise ConfigurationError("\n".join(f"{source}: {message}" for message in messages)) from e


def _whole_numbers(value: Any, key: str = "") -> Iterator[tuple[str, int]]:
    """Gives all whole numbers in a document, with the keys that lead to them."""
    if isinstance(value, int):
        yield key, value
    pairs = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for name, below in pairs:
        yield from _whole_numbers(below, f"{key}.{name}" if key else str(name))


def _join(messages: Sequence[str]) -> list[str]:
    """Makes one message of those about the kinds of plain values that a key could hold."""
    joined: dict[str, str] = {}
    for message in messages:
        problem, give, wanted = message.partition(" is not allowed; give ")
        joined[problem] = f"{joined[problem]} or {wanted}" if give and problem in joined else message
    return list(joined.values())


def _location(parts: Sequence[Any], mapping: Mapping[str, Any]) -> list[str] | None:
    """Returns the key of an error; None if it is about the kind of a union that the value was not meant for.

    Where a key holds a plain value or a block, pydantic tells an error for each, with the kind's name after the key.
    """
    current: Any = PipelineConfig
    value: Any = mapping
    location: list[str] = []
    rest = list(parts)
    while rest:
        part = rest.pop(0)
        location.append(str(part))
        current = _below(current, str(part))
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):  # the key that is absent, or below a plain value
            value = None
        kinds = _kinds(current)
        if rest and len(kinds) > 1 and not any(map(dataclasses.is_dataclass, kinds)):
            rest.pop(0)
        elif rest and len(kinds) > 1:
            names = [kind.__name__ for kind in kinds if isinstance(kind, type) and dataclasses.is_dataclass(kind)]
            if (rest.pop(0) in names) != isinstance(value, dict):
                return None
    return location


def _explain(location: list[str], error: Any) -> str:
    key = ".".join(location)
    if error["type"] == "unexpected_keyword_argument":
        known = _known_keys(location[:-1])
        nearest = difflib.get_close_matches(location[-1], known, n=1, cutoff=0.5)
        hint = f"; did you mean {'.'.join([*location[:-1], nearest[0]])}?" if nearest else ""
        return f"{key}: no such key{hint} (known here: {', '.join(known)})"
    if error["type"] in ("missing", "missing_argument"):
        return f"{key}: required, but not given"
    if error["type"] == "value_error":
        # The dataclasses' own messages begin with the key below the place where the dataclass stands.
        return ".".join(filter(None, [key, str(error["ctx"]["error"])]))
    wanted = _WANTED.get(error["type"]) or str(error["msg"]).removeprefix("Input should be ")
    return f"{key}: {error['input']!r} is not allowed; give {wanted}"


def _cut(message: str) -> str:
    """Shortens a message that repeats a value of thousands of characters; what to do stands at its end."""
    half = _MAX_MESSAGE // 2
    return message if len(message) <= _MAX_MESSAGE else f"{message[:half]} ... {message[-half:]}"


def _known_keys(location: Sequence[str]) -> list[str]:
    """Returns the keys of the dataclass that stands at a location of the configuration."""
    current: Any = PipelineConfig
    for part in location:
        current = _below(current, part)
    current = _unwrap(current)
    return [field.name for field in dataclasses.fields(current)] if dataclasses.is_dataclass(current) else []


def _below(annotation: Any, part: str) -> Any:
    """Returns the annotation of a key, or an item, of what an annotation allows."""
    holder = _unwrap(annotation)
    if dataclasses.is_dataclass(holder):
        return typing.get_type_hints(holder).get(part)
    arguments = [argument for argument in typing.get_args(holder) if argument is not Ellipsis]
    return arguments[-1] if arguments else None


def _kinds(annotation: Any) -> list[Any]:
    """Returns what a union allows beside None; the annotation itself where it is none."""
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        return [argument for argument in typing.get_args(annotation) if argument is not types.NoneType]
    return [annotation]


def _unwrap(annotation: Any) -> Any:
    """Turns ``X | None`` into ``X``, and ``int | X`` too where X is a dataclass."""
    kinds = _kinds(annotation)
    return next(filter(dataclasses.is_dataclass, kinds), kinds[0])
