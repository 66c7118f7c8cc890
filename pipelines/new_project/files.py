"""The files of a new project, as text."""

import json
import string
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from lockstep.components.example_gen.options import STORED
from lockstep.pipelines.new_project.choices import LabelChoice, TrainingChoice
from lockstep.pipelines.new_project.columns import Table
from lockstep.transforms.auto import Choice, feature_line, flow

__all__ = ["PIPELINE_NAME", "example_rows", "model_text", "pipeline_text", "readme_text", "test_text"]

PIPELINE_NAME = "pipeline.yaml"
_NUM_ROWS = 40


def pipeline_text(
    name: str,
    *,
    path: str,
    label: str,
    table: Table,
    choice: LabelChoice,
    features: Mapping[str, Choice],
    training: TrainingChoice,
    module: str,
) -> str:
    """Returns the pipeline's YAML, with a comment for each choice.

    Args:
      name: Of the pipeline.
      path: ``data.path``.
      label: The column.
      table: Of the data.
      choice: Of the label.
      features: Of the other columns.
      training: How long.
      module: Of the model, without ``.py``.
    """
    rows = f"the first {table.num_rows:,}" if table.is_sample else f"{table.num_rows:,}"
    parameters = {"hidden": [64, 32], "dropout": 0.1, **{key: _rounded(v) for key, v in choice.parameters.items()}}
    bound = _rounded(choice.value)
    return f"""\
# Written by `lockstep init` from {rows} rows of {len(table.columns)} columns. Each choice is a guess that says why:
# change what you know better. All keys are in Lockstep's docs/configuration.md, kinds of features in docs/features.md.
name: {flow(name)}

data:
  path: {flow(path)}
{_times(table)}  splits: {{train: 4, eval: 1}}     # by a row's content: equal rows are never in two splits

label:
  column: {flow(label)}     # {choice.reason}
{_block(choice.options)}

features:
{chr(10).join(feature_line(column, feature) for column, feature in features.items())}

model:
  build: {module}:build_model     # {module}.py beside this file
  parameters: {flow(parameters)}

train:
  strategy: multi_worker_mirrored
  workers: 1          # `lockstep run {PIPELINE_NAME} --workers 4` trains the same with four processes
  steps: {training.steps}
  batch_size: {training.batch_size}      # over all workers
  learning_rate: 0.002

evaluate:
  thresholds:
    {choice.metric}: {{{choice.bound}: {bound:g}}}     # {choice.guess} reaches {bound:g}: a worse model is not pushed

push:
  keep: 5
"""


def _times(table: Table) -> str:
    """Returns the types that are declared, since text is not taken for a time by itself."""
    declared = {name: column.type for name, column in table.columns.items() if column.is_declared}
    return f"  types: {flow(declared)}     # all values are times\n" if declared else ""


def _block(options: Mapping[str, Any]) -> str:
    return "\n".join(f"  {key}: {flow(value)}" for key, value in options.items())


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


_MODEL = string.Template('''\
"""The model of the pipeline $name: any function of Keras 3 may stand here."""

import keras
from keras import ops


def build_model(inputs):
    """Returns the model.

    Args:
      inputs: ``inputs.features`` maps each transformed feature to its ``shape``, ``dtype`` and, for indices,
        ``num_values``; ``inputs.parameters`` is ``model.parameters`` of pipeline.yaml.
    """
    tensors, encoded = {}, []
    for number, (name, feature) in enumerate(inputs.features.items()):
        # A column may be called anything, a layer may not.
        tensors[name] = keras.Input(shape=feature.shape, dtype=feature.dtype, name=f"input_{number}")
        encoded.append(_encode(tensors[name], feature))
    hidden = keras.layers.Concatenate()(encoded)
    for units in inputs.parameters["hidden"]:
        hidden = keras.layers.Dense(units, activation="relu")(hidden)
        hidden = keras.layers.Dropout(inputs.parameters["dropout"])(hidden)
$head
    return keras.Model(tensors, output)


def _encode(tensor, feature):
    """Returns one feature as float32 [batch, n]: a number as it is, an index as a vector that is learned."""
    if feature.num_values is None:
        return keras.layers.Flatten()(ops.cast(tensor, "float32"))
    size = min(32, round(feature.num_values**0.5) + 1)
    vectors = keras.layers.Embedding(feature.num_values, size)(tensor)
    if feature.count is None:
        return keras.layers.Flatten()(vectors)
    # Several indices, filled up with 0: the mean of those that are none.
    is_value = ops.expand_dims(ops.cast(ops.not_equal(tensor, 0), "float32"), -1)
    return ops.sum(vectors * is_value, axis=1) / ops.maximum(ops.sum(is_value, axis=1), 1.0)
''')
_HEADS = {
    "binary": '    output = keras.layers.Dense(1, activation="sigmoid")(hidden)  # the probability',
    "multiclass": (
        '    output = keras.layers.Dense(inputs.num_classes, activation="softmax")(hidden)  # of each class'
    ),
    "regression": (
        "    # The network learns a label of mean 0 and deviation 1, as it gets its numbers.\n"
        "    scaled = keras.layers.Dense(1)(hidden)\n"
        '    output = scaled * inputs.parameters["deviation"] + inputs.parameters["mean"]'
    ),
}


def model_text(name: str, label_kind: str) -> str:
    """Returns the module of the model."""
    return _MODEL.substitute(name=name, head=_HEADS[label_kind])


_TEST = string.Template('''\
"""Tests of this project, some seconds: ``python -m pytest``."""

import functools
import json
import pathlib

import numpy as np
import pytest
from lockstep.components.trainer.models import model_inputs
from lockstep.pipelines.config import load_config
from lockstep.transforms.features import to_config, vocabulary_name
from lockstep.transforms.preprocessing import preprocessing_fn
from lockstep.transforms.testing import assert_no_skew, run_preprocessing

import $module

FOLDER = pathlib.Path(__file__).parent
SOURCE, _ = load_config(str(FOLDER / "$pipeline"))
CONFIG = SOURCE.config
EXAMPLE = json.loads((FOLDER / "example_rows.json").read_text(encoding="utf-8"))
PREPROCESSING = functools.partial(preprocessing_fn, custom_config=to_config(CONFIG.features, CONFIG.label))


def test_the_served_model_will_see_the_features_that_training_sees():
    """Raw rows through Beam and through the exported graph agree, the label's column left out of a request."""
    assert_no_skew(PREPROCESSING, EXAMPLE["rows"], without=[CONFIG.label.column], types=EXAMPLE["types"])


@pytest.mark.filterwarnings("ignore:When providing `inputs` as a dict")  # what the inputs are called is no matter
def test_the_model_gives_a_prediction_for_each_row():
    """Finite, and of the shape that the label's kind asks for."""
    found = run_preprocessing(PREPROCESSING, EXAMPLE["rows"], types=EXAMPLE["types"])
    is_multiclass = CONFIG.label.kind == "multiclass"
    classes = vocabulary_name(CONFIG.label.column)
    inputs = model_inputs(
        found.transform_output,
        label=CONFIG.label.output,
        label_kind=CONFIG.label.kind,
        parameters=CONFIG.model.parameters,
        num_classes=found.transform_output.vocabulary_size_by_name(classes) if is_multiclass else None,
    )
    model = $module.build_model(inputs)
    predictions = np.asarray(model({name: found.features[name] for name in inputs.features}))
    assert predictions.shape == (len(EXAMPLE["rows"]), inputs.num_classes or 1)
    assert np.isfinite(predictions).all()
''')


def test_text(module: str) -> str:
    """Returns the unit tests."""
    return _TEST.substitute(module=module, pipeline=PIPELINE_NAME)


def example_rows(table: Table, label: str) -> str:
    """Returns some rows that have a label as JSON, for the unit tests, with the types of their columns."""
    # From everywhere: files are often sorted by the label.
    places = pa.array(sorted({place * table.num_rows // (4 * _NUM_ROWS) for place in range(4 * _NUM_ROWS)}))
    values = {name: column.values.take(places).to_pylist() for name, column in table.columns.items()}
    rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    kept = [{name: _plain(value) for name, value in row.items()} for row in rows if _plain(row[label]) is not None]
    types = {name: STORED[column.type] for name, column in table.columns.items()}
    lines = ",\n    ".join(json.dumps(row, ensure_ascii=False) for row in kept[:: max(1, len(kept) // _NUM_ROWS)])
    return f'{{\n  "types": {json.dumps(types, ensure_ascii=False)},\n  "rows": [\n    {lines}\n  ]\n}}\n'


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return None if isinstance(value, float) and value != value else value


_README = string.Template("""\
# $name

Predicts the column `$label` with [TFX](https://www.tensorflow.org/tfx) and Lockstep.

| | |
|---|---|
| `$pipeline` | the pipeline: data, features, label, training, what a model must reach |
| `$module.py` | the model, a function that returns a `keras.Model` |
| `test_$module.py`, `example_rows.json` | unit tests, and the rows that they use: some of your data |

    lockstep run $pipeline                 # from the data to a pushed model, with a report
    lockstep run $pipeline --workers 4     # the same, trained by four processes
    lockstep predict lockstep-runs/$name/pushed --data FILE
    lockstep schema freeze $pipeline       # keep what the columns look like now; later data are checked against it
    lockstep doctor $pipeline              # whether this machine can run it
    python -m pytest                       # the unit tests
""")


def readme_text(name: str, label: str, module: str) -> str:
    """Returns what a person reads first."""
    return _README.substitute(name=name, label=label, module=module, pipeline=PIPELINE_NAME)
