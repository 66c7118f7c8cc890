"""The YAML file: defaults, overrides, and an exact message for everything that is not allowed."""

import json
import pathlib

import pytest

from lockstep.components.errors import ConfigurationError
from lockstep.pipelines.config import PipelineConfig, example_names, load_config
from lockstep.pipelines.yaml_reader import parse_yaml

_AUGMENTED = (
    "features={photo: {kind: image, height: 8, width: 8}}",
    "train.augment=lockstep.transforms.augmentation:ImageAugmentation",
)
MINIMAL = """
name: demo
data: {path: rows.csv}
label: {column: y}
features: {x: {kind: numeric}}
evaluate: {ungated: true}
"""


def load(tmp_path: pathlib.Path, text: str, *overrides: str) -> PipelineConfig:
    """Loads a YAML text."""
    path = tmp_path / "pipeline.yaml"
    path.write_text(text, encoding="utf-8")
    return load_config(str(path), overrides=overrides, root=tmp_path / "root")[0].config


def message_of(tmp_path: pathlib.Path, text: str, *overrides: str) -> str:
    """Returns the error of a YAML text, without the file's name."""
    with pytest.raises(ConfigurationError) as raised:
        load(tmp_path, text, *overrides)
    return str(raised.value).replace(f"{tmp_path}/pipeline.yaml: ", "")


def test_paths_are_relative_to_the_file(tmp_path: pathlib.Path) -> None:
    """A relative data path and push folder are beside the YAML file, wherever the command is called."""
    config = load(tmp_path, MINIMAL + "push: {dir: served}\n")
    assert config.data.path == str(tmp_path / "rows.csv")
    assert config.push.dir == str(tmp_path / "served")


def test_models_are_pushed_below_the_root_by_default(tmp_path: pathlib.Path) -> None:
    """Without a push block the push folder belongs to the root."""
    assert load(tmp_path, MINIMAL).push.dir == str(tmp_path / "root" / "pushed")


def test_an_override_replaces_one_key_and_keeps_its_neighbours(tmp_path: pathlib.Path) -> None:
    """--set goes down dotted keys and reads the value as YAML."""
    config = load(tmp_path, MINIMAL, "train.workers=1", "train.steps=7", "data.splits={train: 3, eval: 1}")
    assert (config.train.workers, config.train.steps) == (1, 7)
    assert dict(config.data.splits) == {"train": 3, "eval": 1}
    assert config.label.column == "y"


def test_an_override_names_a_column_with_a_dot_in_quotes(tmp_path: pathlib.Path) -> None:
    """A dot parts keys, except within quotes."""
    assert load(tmp_path, MINIMAL, 'features."a.b".kind=buckets').features["a.b"].kind == "buckets"


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-3", 0.001), ("1.5E2", 150.0), ("010", 10), ("no", "no"), ("1:30", "1:30"), ("2020-13-45", "2020-13-45")],
)
def test_plain_values_are_what_they_look_like(text: str, value: object) -> None:
    """YAML 1.2's core types: no octal, no sexagesimal, no booleans but true and false, no dates."""
    assert parse_yaml(f"x: {text}") == {"x": value}


def test_anchors_and_merge_keys_work(tmp_path: pathlib.Path) -> None:
    """A block can be written once and used twice; a key beside a merge wins."""
    text = MINIMAL.replace(
        "{x: {kind: numeric}}", "{x: &n {kind: buckets, num_buckets: 4}, z: {<<: *n, num_buckets: 5}}"
    )
    features = load(tmp_path, text).features
    assert (features["x"].num_buckets, features["z"].num_buckets, features["z"].kind) == (4, 5, "buckets")


def test_json_round_trips(tmp_path: pathlib.Path) -> None:
    """What the child process reads is what the parent had."""
    config = load(tmp_path, MINIMAL)
    assert PipelineConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize("name", example_names())
def test_every_example_is_valid(name: str, tmp_path: pathlib.Path) -> None:
    """The shipped examples load, and round trip through JSON."""
    source, _ = load_config(name, root=tmp_path)
    assert PipelineConfig.from_json(source.config.to_json()) == source.config
    assert source.config.name == name


@pytest.mark.parametrize(
    ("text", "overrides", "message"),
    [
        (MINIMAL, ["train.worker=2"], "train.worker: no such key; did you mean train.workers? (known here: strategy,"),
        (MINIMAL, ["trian.workers=2"], "trian: no such key; did you mean train? (known here: name, data,"),
        (MINIMAL, ["train.workers=0"], "train.workers: 0 is not allowed; give 1 or more"),
        (MINIMAL, ["train.workers=two"], "train.workers: 'two' is not allowed; give a whole number"),
        (MINIMAL, ["train.workers=2.0"], "train.workers: 2.0 is not allowed; give a whole number"),
        (MINIMAL, ["train.workers=true"], "train.workers: True is not allowed; give a whole number"),
        (MINIMAL, ["train.strategy=mirror"], "train.strategy: 'mirror' is not allowed; give 'one_device', 'mirrored'"),
        (MINIMAL, ["features.y={kind: numeric}"], "features.y: this column is label.column too"),
        (MINIMAL, ["features.x.kind=number"], "features.x.kind: 'number' is not allowed; give 'numeric'"),
        (MINIMAL, ["features.x.scal=1"], "features.x.scal: no such key; did you mean features.x.scale? (known here"),
        (MINIMAL, ["features.x.scale=1"], "features.x.scale: 1 is not allowed; give 'z_score', 'min_max', 'robust'"),
        (MINIMAL, ["features.x.clip=[0, a]"], "features.x.clip.1: 'a' is not allowed; give a number"),
        (
            MINIMAL,
            ["features.x={kind: numeric, missing: constant, default: [1]}"],
            "features.x.default: [1] is not allowed; give a whole number or a number or text",
        ),
        (
            MINIMAL,
            ["label={column: y, kind: multiclass}", "model.build=factorization_machine"],
            "model.build: 'factorization_machine' is not allowed for a multiclass label",
        ),
        (
            MINIMAL,
            ["label={column: y, kind: multiclass}", "evaluate={thresholds: {auc: {min: 0.5}}}"],
            "evaluate.metrics: 'auc' does not suit a multiclass label; give accuracy, balanced_accuracy",
        ),
        (
            MINIMAL,
            [*_AUGMENTED, "train.augment_parameters={image: photo, rotat: 5}"],
            "train.augment_parameters.rotat: no such option; did you mean 'rotate'?",
        ),
        (
            MINIMAL,
            [*_AUGMENTED, "train.augment_parameters={image: photo, zoom: 2}"],
            "train.augment_parameters.zoom: 2 is not allowed; give two numbers, such as [0.9, 1.1]",
        ),
        (
            MINIMAL,
            [*_AUGMENTED, "train.augment_parameters={image: picture}"],
            "train.augment_parameters.image: 'picture' is not allowed; name a feature of kind image",
        ),
        (
            MINIMAL,
            [*_AUGMENTED, "features.photo.scale=none", "train.augment_parameters={image: photo}"],
            "train.augment_parameters.value_range: [0.0, 1.0] is not allowed; features.photo with scale none has",
        ),
        (MINIMAL, [*_AUGMENTED], "train.augment_parameters.image: required, but not given"),
        (
            MINIMAL,
            ["train.augment_parameters={image: photo}"],
            "train.augment_parameters: {'image': 'photo'} is not allowed; there is no augment to make with them",
        ),
        (MINIMAL, ["label.unseen=leave_out"], "label.unseen: 'leave_out' has no effect on kind 'binary'"),
        (MINIMAL, ["features.x_missing={kind: numeric}"], "features.x_missing and features.x both produce"),
        (MINIMAL, ["label.threshold=0.5", "label.kind=regression"], "label.threshold: 0.5 has no effect on kind"),
        (MINIMAL, ["data.splits={train: 0, eval: 1}"], "data.splits.train: 0 is not allowed"),
        (MINIMAL, ["train={workers: 5}"], "train.workers: 5 is not allowed with batch_size: 240, which is dealt in 24"),
        (
            MINIMAL,
            ["model.build=mpl"],
            "model.build: 'mpl' is not allowed; give one of mlp, linear, conv, detector, factorization_machine",
        ),
        (
            MINIMAL,
            ["model.build=factorization_machine", "features={x: {kind: numeric}}"],
            "model.build: 'factorization_machine' learns from indices, and no feature gives any; declare one of kind",
        ),
        (MINIMAL, ["features.x={kind: timestamp, parts: [hours]}"], "features.x.parts.0: 'hours' is not allowed; give"),
        (MINIMAL, ["features.x={kind: cross, columns: [y, z], num_buckets: 9}"], "features.x.columns: 'y' is label.co"),
        (
            MINIMAL,
            ["features.x={kind: text, output: counts, top_k: 99999}"],
            "features.x.top_k: `output: counts` would",
        ),
        (
            MINIMAL,
            ["features.x={kind: list, max_values: 1, ngrams: [1, 2]}"],
            "features.x.ngrams: (1, 2) has no effect",
        ),
        (MINIMAL, ["data.path=~nosuchuser/x.csv"], "~nosuchuser/x.csv: "),
        (MINIMAL, ["train.steps=" + "[" * 5000], "--set train.steps="),
        (MINIMAL + "true: 1\n", [], "not valid YAML: while reading a mapping"),
        (MINIMAL + "? [a, b]\n: 1\n", [], "not valid YAML: while reading a mapping"),
        (MINIMAL, ["features={}"], "features: nothing declared"),
        (
            MINIMAL,
            ["features={}", "preprocessing=m.f"],
            "preprocessing: 'm.f' is not allowed; spell it module:function",
        ),
        (MINIMAL, ["run_fn=m.f"], "run_fn: 'm.f' is not allowed; spell it module:function"),
        (
            MINIMAL,
            ["run_fn='m:f'", "features.x={kind: image, height: 9, width: 9, decode: train}"],
            "features.x.decode: 'train' is not allowed beside run_fn, which reads its records itself; give transform",
        ),
        (MINIMAL, ["run_fn='m:f'", "model.build=linear"], "model.build: not allowed beside run_fn"),
        (MINIMAL, ["train.class_weights={2: 1.0}"], "train.class_weights.2: 1.0 is not allowed; give a weight for 0"),
        (
            MINIMAL,
            ["label={column: y, kind: regression}", "train.class_weights={1: 2.0}"],
            "train.class_weights: {'1': 2.0} is not allowed; the label's kind is regression; leave it out",
        ),
        (
            MINIMAL,
            ["train.validate_every=5", "train.early_stopping={monitor: mse}"],
            "train.early_stopping.monitor: 'mse' is not allowed; the label's kind is binary; give one of loss, auc",
        ),
        (
            MINIMAL,
            ["run_fn='m:f'", "train.validate_every=5"],
            "train.validate_every: 5 is not allowed; a run_fn validates by itself; leave it out",
        ),
        (
            MINIMAL,
            ["run_fn='m:f'", "train.weight_column=w"],
            "train.weight_column: 'w' is not allowed; a run_fn weighs its records itself; leave it out",
        ),
        (MINIMAL, ["run_fn='m:f'", "train.epochs=2"], "train.epochs: 2 is not allowed beside run_fn; give train.steps"),
        (MINIMAL, ["train.workers=many"], "train.workers: 'many' is not allowed; give a whole number"),
        (MINIMAL, ["train.workers={min: 1}"], "train.workers.max: required, but not given"),
        (MINIMAL, ["train.workers={min: 2, max: 1}"], "train.workers.max: 1 is not allowed; give min: 2, or more"),
        (
            MINIMAL,
            ["train.workers={min: 1, max: 2, mim: 1}"],
            "train.workers.mim: no such key; did you mean train.work",
        ),
        (MINIMAL, ["train.workers={min: 1, max: 5}"], "train.workers: 5 is not allowed with batch_size: 240"),
        (MINIMAL, ["train={steps: 5, epochs: 2}"], "train.epochs: 2 is not allowed; steps is given too"),
        (MINIMAL, ["train.schedule={kind: cosine, final: 2.0}"], "train.schedule.final: 2.0 is not allowed"),
        (
            MINIMAL,
            ["run_fn='m:f'", "train={strategy: mirrored, workers: 1}"],
            "train.strategy: 'mirrored' is not allowed beside",
        ),
        (MINIMAL, ["label.transformed=y_xf"], "label.transformed: 'y_xf' needs run_fn"),
        (MINIMAL, ["data.splits={train: 1, test: 1}"], "data.splits: 'eval' is missing"),
        (MINIMAL, ["evaluate={thresholds: {acu: {min: 1}}}"], "evaluate.thresholds: 'acu' is not known, did you mean"),
        (MINIMAL, ["evaluate={thresholds: {rmse: {min: 1}}}"], "evaluate.metrics: 'rmse' does not suit a binary label"),
        (MINIMAL, ["evaluate={}"], "evaluate.thresholds: none is given"),
        (MINIMAL, ["name=a b"], "name: 'a b' is not allowed"),
        (MINIMAL, ["beam.options=['--runner=x']"], "beam.options: --runner is not allowed here; set beam.runner"),
        (MINIMAL, ["push=null"], "push: None is not allowed; give a block of keys"),
        (MINIMAL, ["name"], "--set name: spell it key.key=value"),
        (MINIMAL, ["name.first=x"], "--set name.first=x: 'name' holds a value, no keys below it"),
        (MINIMAL, ["data.path=package:no_such_package/x.csv"], "package:no_such_package/x.csv: no installed package"),
        (MINIMAL, ["data.path=package:no_such.part/x.csv"], "package:no_such.part/x.csv: no installed package"),
        (MINIMAL, ["data.path=package:json.decoder/x.csv"], "package:json.decoder/x.csv: no installed package"),
        (MINIMAL, ["data.path=package:../x.csv"], "package:../x.csv: no installed package '..'; install it, or give a"),
        (MINIMAL.replace("name: demo", ""), [], "name: required, but not given"),
        (MINIMAL.replace("evaluate: {ungated: true}", ""), [], "evaluate: required, but not given"),
        (MINIMAL + "name: again\n", [], "not valid YAML: while reading a mapping"),
        ("- a list\n", [], "holds no mapping"),
        ("a: [\n", [], "not valid YAML"),
        (MINIMAL + "train: {seed: 2026-11-30}\n", [], "train.seed: '2026-11-30' is not allowed; give a whole number"),
    ],
)
def test_what_is_not_allowed_is_named(tmp_path: pathlib.Path, text: str, overrides: list[str], message: str) -> None:
    """Every message begins with the key, and says what is allowed."""
    assert message_of(tmp_path, text, *overrides).startswith(message)


def test_a_number_that_no_machine_word_holds_is_refused(tmp_path: pathlib.Path) -> None:
    """Wherever it stands: a worker would only find out in the middle of a run."""
    overrides = ["train.batch_size=99999999999999999999", "model.parameters={layers: [8, 99999999999999999999]}"]
    for override, key in zip(overrides, ("train.batch_size", "model.parameters.layers.1"), strict=True):
        with pytest.raises(ConfigurationError, match=rf"{key}: 9+ is not allowed; give a number of 64 bits"):
            load(tmp_path, MINIMAL, override)


def test_a_document_that_holds_itself_is_refused(tmp_path: pathlib.Path) -> None:
    """By an anchor; no walk through it would end."""
    assert "Circular reference" in message_of(tmp_path, MINIMAL + "model: {parameters: &a {layers: [*a]}}\n")


def test_a_value_of_thousands_of_characters_is_not_repeated_whole(tmp_path: pathlib.Path) -> None:
    """The key before it and the remedy after it are."""
    for key, remedy in (("name", "63 at most"), ("train.steps", "give a whole number")):
        with pytest.raises(ConfigurationError) as told:
            load(tmp_path, MINIMAL, f"{key}={'x' * 100_000}")
        assert len(str(told.value)) < 3000
        assert f"{key}: 'xxx" in str(told.value)
        assert str(told.value).endswith(remedy)


def test_every_error_is_told_at_once(tmp_path: pathlib.Path) -> None:
    """Two mistakes make two lines, so that one round mends both."""
    assert len(message_of(tmp_path, MINIMAL, "train.stepz=1", "dada={}").splitlines()) == 2


def test_an_unknown_pipeline_names_the_nearest_example(tmp_path: pathlib.Path) -> None:
    """A typing error in an example's name is told with the name."""
    with pytest.raises(
        ConfigurationError, match="taxy: no such file, and no example of that name; did you mean 'taxi'"
    ):
        load_config("taxy", root=tmp_path)


def test_text_that_is_not_utf8_is_told(tmp_path: pathlib.Path) -> None:
    """A Latin-1 file is refused with its name, not with a traceback."""
    (tmp_path / "p.yaml").write_bytes("name: caf\xe9".encode("latin-1"))
    with pytest.raises(ConfigurationError, match=r"p\.yaml: not UTF-8 text"):
        load_config(str(tmp_path / "p.yaml"), root=tmp_path)


def test_configuration_json_is_plain(tmp_path: pathlib.Path) -> None:
    """The document holds only JSON's own types, so any tool can read a run's request."""
    document = json.loads(load(tmp_path, MINIMAL).to_json())
    assert document["features"]["x"]["kind"] == "numeric"
