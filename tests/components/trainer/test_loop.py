"""The loop in one process."""

import io
import itertools
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.components.errors import ConfigurationError
from lockstep.components.trainer import example_weights, gradients, loop
from lockstep.components.trainer.checkpoint import Checkpoints
from lockstep.components.trainer.heartbeat import Reporter, WorkerEvent
from lockstep.components.trainer.input_pipeline import TrainingInput
from lockstep.components.trainer.records import Records
from lockstep.components.trainer.spec import TrainOptions
from lockstep.components.trainer.step_function import StepFunction
from lockstep.components.trainer.synchronous import seed_states
from lockstep.components.trainer.usage import GroupMeter
from tests.components.trainer.conftest import example, write_split

SPEC = {name: tf.io.FixedLenFeature([], tf.float32) for name in ("fare", "tips")}
NUM_RECORDS = 45
BATCH_SIZE = 16


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Records:
    """Records whose label follows from their only feature."""
    rows = [{"fare": i / 10, "tips": float(i % 7 > 3)} for i in range(NUM_RECORDS)]
    return Records(write_split(tmp_path_factory.mktemp("split") / "train", [example(r) for r in rows], 1), SPEC, "tips")


def small_model(*, dropout: float = 0.0, compiled: dict[str, Any] | None = None) -> keras.Model:
    """One feature, one hidden layer, equal initial weights each time."""
    keras.utils.set_random_seed(7)
    fare = keras.Input((1,), name="fare")
    hidden = keras.layers.Dropout(dropout)(keras.layers.Dense(8, activation="tanh")(fare))
    model = keras.Model({"fare": fare}, keras.layers.Dense(1, activation="sigmoid")(hidden))
    if compiled is not None:
        model.compile(**compiled)
    return model


class Run:
    """A training in this process, as ``Training`` puts it together."""

    def __init__(self, split: Records, checkpoint_dir: Path, model: keras.Model | None = None, **options: Any) -> None:
        values = {"workers": 1, "steps": 12, "batch_size": BATCH_SIZE, "checkpoint_every": 3, "steps_per_call": 2}
        self.options = TrainOptions(**{"num_virtual_shards": 8, **values, **options})
        self.data = TrainingInput(split, batch_size=BATCH_SIZE, num_shards=8, shuffle_buffer=10)
        self.model = model or small_model(dropout=0.3)
        optimizer = loop.optimizer_of(self.model, self.options)
        per_example = loop.per_example_loss(self.model, "binary")
        self.meter = GroupMeter()
        self.steps = StepFunction(
            tf.distribute.get_strategy(),
            1,
            self.model,
            optimizer,
            per_example,
            "tips",
            single=self.options.steps_per_call == 1,
            meter=self.meter,
        )
        variables = [*self.model.weights, *seed_states(self.model), *optimizer.variables]
        self.checkpoints = Checkpoints(checkpoint_dir, [v.value for v in variables], is_chief=True, keep=99)
        self.trace_dir = checkpoint_dir / "events"
        self.stream = io.StringIO()
        self.calls: list[tuple[int, int]] = []

    def train(self) -> loop.TrainingResult:
        """Goes on from the newest checkpoint to the end."""
        return loop.train(
            self.steps,
            self.data,
            self.checkpoints,
            self.options,
            first_step=self.checkpoints.restore(),
            reporter=Reporter(0, self.stream, interval_s=0.0),
            before_save=lambda step: None,
            on_call=lambda step, losses, _: self.calls.append((step, len(losses))),
            meter=self.meter,
            trace_dir=str(self.trace_dir),
        )

    @property
    def events(self) -> Iterator[WorkerEvent]:
        """What was said."""
        return filter(None, map(WorkerEvent.from_line, self.stream.getvalue().splitlines()))


@pytest.mark.slow
def test_resuming_from_every_checkpoint_gives_the_same_weights(split: Records, tmp_path: Path) -> None:
    """Weights, dropout and optimizer go on bit for bit from wherever a run was cut off."""
    whole = Run(split, tmp_path / "whole")
    assert whole.train().step == 12
    for steps in (3, 6, 9):
        Run(split, tmp_path / f"cut-{steps}", steps=steps).train()
        resumed = Run(split, tmp_path / f"cut-{steps}")
        result = resumed.train()
        assert (result.first_step, result.step) == (steps, 12)
        assert loop.digest(resumed.model) == loop.digest(whole.model)


def test_calls_end_at_checkpoints_and_each_is_told(split: Records, tmp_path: Path) -> None:
    """Heartbeats carry step, loss and records; a checkpoint follows every third step and the last."""
    run = Run(split, tmp_path, steps=7)
    result = run.train()
    assert run.calls == [(2, 2), (3, 1), (5, 2), (6, 1), (7, 1)]
    told = [(event.event, event.step) for event in run.events]
    assert told == [
        ("heartbeat", 2),
        ("heartbeat", 3),
        ("checkpoint", 3),
        ("heartbeat", 5),
        ("heartbeat", 6),
        ("checkpoint", 6),
        ("heartbeat", 7),
        ("checkpoint", 7),
    ]
    # 45 records an epoch, in 3 steps.
    assert [event.records for event in run.events if event.event == "heartbeat"] == [32, 45, 77, 90, 106]
    assert result.records == 106
    assert result.loss is not None
    assert np.isfinite(result.loss)


def test_a_rate_counts_records_and_not_padding(split: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that ticks once a call: 16, 16 and 13 records a second, since three rows of the third are padding."""
    run = Run(split, tmp_path, steps=6, steps_per_call=1, checkpoint_every=100)
    ticks = itertools.count(1.0)
    monkeypatch.setattr(loop, "time", types.SimpleNamespace(monotonic=lambda: next(ticks)))
    result = run.train()
    beats = [event for event in run.events if event.event == "heartbeat"]
    assert [beat.examples_per_s for beat in beats] == [None, 16, 13, 16, 16, 13]
    assert [beat.total_records for beat in beats] == [16, 32, 45, 61, 77, 90]
    # Six ticks from the end of the first call to the return, and one more for the checkpoint, which does not count.
    assert result.examples_per_s == (90 - 16) / 7


def test_an_uneven_batch_weighs_each_of_its_records_alike(split: Records, tmp_path: Path) -> None:
    """The last batch of an epoch, 13 records and 3 rows of padding, trains as Keras does on the 13 alone."""
    model = small_model()
    run = Run(split, tmp_path, model, optimizer="sgd", learning_rate=0.5)
    batches = iter(run.data.batches(2))
    columns, weights, total = next(iter(run.data.batches(2)))
    real = weights.numpy().ravel() == 1
    assert (float(total), real.sum()) == (13.0, 13)

    (loss,) = run.steps(batches, 1)

    reference = small_model(compiled={"optimizer": keras.optimizers.SGD(0.5), "loss": "binary_crossentropy"})
    expected = reference.train_on_batch({"fare": columns["fare"].numpy()[real]}, columns["tips"].numpy()[real])
    assert loss == pytest.approx(float(expected), abs=1e-6)
    for ours, theirs in zip(model.weights, reference.weights, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), atol=1e-6)


def test_a_table_too_large_for_accumulation_is_told(split: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are trained one by one, which a sum over parts is not."""
    monkeypatch.setattr(gradients, "DENSE_ELEMENTS", 10)
    fare = keras.Input((1,), name="fare")
    rows = keras.layers.Embedding(100, 2, name="table")(keras.ops.cast(fare, "int64"))
    output = keras.layers.Dense(1, activation="sigmoid")(keras.layers.Flatten()(rows))
    model = keras.Model({"fare": fare}, output)
    optimizer = loop.optimizer_of(model, TrainOptions())
    per_example = loop.per_example_loss(model, "binary")
    strategy = tf.distribute.get_strategy()
    steps = StepFunction(strategy, 1, model, optimizer, per_example, "tips", accumulate=2)
    data = TrainingInput(split, batch_size=BATCH_SIZE, num_shards=8, shuffle_buffer=10)
    with pytest.raises(ConfigurationError, match=r"train\.accumulate: not allowed with table/embeddings"):
        steps(iter(data.batches()), 1)


@pytest.fixture(scope="module")
def weighed_split(tmp_path_factory: pytest.TempPathFactory) -> Records:
    """The same records, each with a weight: 0, 1, 2.5 or 4.5."""
    rows = [
        {"fare": i / 10, "tips": float(i % 7 > 3), "weight": (0.0, 1.0, 2.5, 4.5)[i % 4]} for i in range(NUM_RECORDS)
    ]
    files = write_split(tmp_path_factory.mktemp("weighed") / "train", [example(row) for row in rows], 1)
    return Records(files, {**SPEC, "weight": tf.io.FixedLenFeature([], tf.float32)}, "tips", "weight")


@pytest.mark.parametrize("class_weights", [{}, {"1": 3.0}])
@pytest.mark.parametrize("cache_bytes", [0, 2**20])
def test_weights_train_as_keras_does_with_them(
    weighed_split: Records, class_weights: dict[str, float], cache_bytes: int
) -> None:
    """Of records, and of classes too: over an uneven batch, whose padding weighs nothing; the model sees no weights."""
    options = {"batch_size": BATCH_SIZE, "num_shards": 8, "shuffle_buffer": 10, "cache_bytes": cache_bytes}
    data = TrainingInput(weighed_split, class_weights=class_weights, **options)
    columns, weights, total = next(iter(data.batches(2)))
    assert set(columns) == {"fare", "tips"}
    assert (weights.shape, float(total)) == ((BATCH_SIZE, 1), 13.0)
    fares, labels = columns["fare"].numpy(), columns["tips"].numpy()
    real = (fares > 0).ravel()  # the first record's fare is 0, and so is its weight
    own = np.array([(0.0, 1.0, 2.5, 4.5)[round(float(fare) * 10) % 4] for fare in fares[real, 0]], np.float32)
    by_class = np.where(labels[real, 0] == 1, class_weights.get("1", 1.0), 1.0)
    np.testing.assert_allclose(weights.numpy()[real, 0], own * by_class)
    np.testing.assert_array_equal(weights.numpy()[~real], 0)

    model = small_model()
    optimizer = loop.optimizer_of(model, TrainOptions(optimizer="sgd", learning_rate=0.5))
    per_example = loop.per_example_loss(model, "binary")
    steps = StepFunction(tf.distribute.get_strategy(), 1, model, optimizer, per_example, "tips")
    (loss,) = steps(iter(data.batches(2)), 1)

    # Keras divides by the number of rows that it is given: those without weight count, as they do here.
    padding = 13 - real.sum()
    features = np.concatenate([fares[real], np.zeros((padding, 1), np.float32)])
    expected_labels = np.concatenate([labels[real], np.zeros((padding, 1), np.float32)])
    sample_weight = np.concatenate([own * by_class, np.zeros(padding)]).astype(np.float32)
    reference = small_model(compiled={"optimizer": keras.optimizers.SGD(0.5), "loss": "binary_crossentropy"})
    expected = reference.train_on_batch({"fare": features}, expected_labels, sample_weight=sample_weight)
    assert loss == pytest.approx(float(expected), abs=1e-6)
    for ours, theirs in zip(model.weights, reference.weights, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), atol=1e-6)


@pytest.mark.parametrize("weight", [-0.5, float("nan"), float("inf")])
@pytest.mark.parametrize("cache_bytes", [0, 2**20])
def test_what_is_no_weight_is_told(tmp_path: Path, weight: float, cache_bytes: int) -> None:
    """When it is read, whether records are kept or not."""
    rows = [{"fare": 1.0, "tips": 1.0, "weight": weight if index == 9 else 1.0} for index in range(16)]
    files = write_split(tmp_path / "train", [example(row) for row in rows], 1)
    records = Records(files, {**SPEC, "weight": tf.io.FixedLenFeature([], tf.float32)}, "tips", "weight")
    expected = re.escape(f"train.weight_column: weight holds {weight}; a weight is a finite number of 0 or more")

    def first_batch() -> None:
        data = TrainingInput(records, batch_size=16, num_shards=8, cache_bytes=cache_bytes)
        next(iter(data.batches()))

    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        first_batch()
    found = example_weights.as_data_error(caught.value)
    assert found is not None
    assert re.fullmatch(expected, str(found))
    assert example_weights.as_data_error(tf.errors.InvalidArgumentError(None, None, "another")) is None


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (None, "'weight' is not among the outputs of the preprocessing function"),
        (tf.io.FixedLenFeature([], tf.string), "feature 'weight' is not one number a record"),
        (tf.io.FixedLenFeature([3], tf.float32), "feature 'weight' is not one number a record"),
    ],
)
def test_a_feature_that_holds_no_weights_is_told(spec: Any, message: str) -> None:
    """It must be one number a record."""
    features = {**SPEC, **({} if spec is None else {"weight": spec})}
    with pytest.raises(ConfigurationError, match=f"train.weight_column: {message}"):
        Records(("a.gz",), features, "tips", "weight")


def test_a_compiled_model_keeps_its_optimizer_and_loss(split: Records, tmp_path: Path) -> None:
    """Losses given by name, function or object are taken for each example."""
    for loss in ("mean_absolute_error", keras.losses.mean_absolute_error, keras.losses.MeanAbsoluteError()):
        optimizer = keras.optimizers.SGD(0.25)
        model = small_model(compiled={"optimizer": optimizer, "loss": loss})
        assert loop.optimizer_of(model, TrainOptions()) is optimizer
        values = loop.per_example_loss(model, "binary")(tf.constant([[1.0], [0.0]]), tf.constant([[0.25], [0.5]]))
        np.testing.assert_allclose(values, [0.75, 0.5])


def test_regularisation_is_added_to_the_loss(split: Records, tmp_path: Path) -> None:
    """A penalty on weights counts once a step."""
    fare = keras.Input((1,), name="fare")
    penalty = keras.regularizers.L2(0.5)
    output = keras.layers.Dense(1, kernel_regularizer=penalty, kernel_initializer="ones", activation="sigmoid")(fare)
    model = keras.Model({"fare": fare}, output)
    columns, _, _ = next(iter(TrainingInput(split, batch_size=BATCH_SIZE, num_shards=8, shuffle_buffer=10).batches()))
    plain = float(tf.reduce_mean(keras.losses.binary_crossentropy(columns["tips"], model({"fare": columns["fare"]}))))
    run = Run(split, tmp_path, model)
    (loss,) = run.steps(iter(run.data.batches()), 1)
    assert loss == pytest.approx(plain + 0.5, abs=1e-5)


def test_several_losses_are_refused() -> None:
    """There is one label."""
    model = small_model(compiled={"loss": ["mse"]})
    with pytest.raises(ConfigurationError, match="compiled with several losses"):
        loop.per_example_loss(model, "binary")


def test_the_model_gets_its_inputs_and_never_the_label() -> None:
    """Columns that are no input of it stay away; a wish for the label, or for an unknown feature, is refused."""
    columns = {"fare": tf.ones([2, 1]), "company": tf.ones([2, 1]), "tips": tf.ones([2, 1])}
    assert set(loop.model_columns(small_model(), columns, "tips")) == {"fare"}
    greedy = keras.Model({"tips": (tips := keras.Input((1,), name="tips"))}, keras.layers.Dense(1)(tips))
    with pytest.raises(ConfigurationError, match="input 'tips' is not a transformed feature"):
        loop.model_columns(greedy, columns, "tips")
    nameless = keras.Model(tips, keras.layers.Dense(1)(tips))
    with pytest.raises(ConfigurationError, match="must take a dict"):
        loop.model_columns(nameless, columns, "tips")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_names_its_step(value: float) -> None:
    """Steps are counted from 1, over the whole training."""
    with pytest.raises(loop.DivergedError, match=f"The loss is {value} at step 43;"):
        loop.check_finite(np.array([1.0, 0.5, value, value], np.float32), 40)


@settings(deadline=None)
@given(
    first_step=st.integers(0, 60),
    steps=st.integers(1, 60),
    every=st.integers(1, 70),
    per_call=st.integers(1, 70),
)
def test_calls_cover_the_steps_and_stop_at_checkpoints(first_step: int, steps: int, every: int, per_call: int) -> None:
    """From any step to the end, never over a checkpoint, never more than allowed at once."""
    options = TrainOptions(steps=steps, checkpoint_every=every, steps_per_call=per_call)
    calls = list(loop.calls(first_step, options))
    sizes = [call.size for call in calls]
    assert sum(sizes) == max(0, steps - first_step)
    assert all(1 <= size <= per_call for size in sizes)
    ends = [first_step + int(end) for end in np.cumsum(sizes)]
    saved = {step for step in range(first_step + 1, steps + 1) if step % every == 0 or step == steps}
    assert {end for end, call in zip(ends, calls, strict=True) if call.is_last} == saved


def test_a_profile_of_some_steps_holds_their_operations(split: Records, tmp_path: Path) -> None:
    """Calls end at both ends of it; the file is the one that TensorBoard's plugin reads, with events in it."""
    run = Run(split, tmp_path / "run", steps=9, steps_per_call=4, trace_steps=(3, 7))
    run.train()
    assert run.calls == [(2, 2), (3, 1), (6, 3), (7, 1), (9, 2)]
    (path,) = (run.trace_dir / "plugins" / "profile").rglob("*.xplane.pb")
    # Names of events are plain text in the protocol buffer, whose module moves from release to release.
    assert b"MatMul" in path.read_bytes()


def test_a_training_that_goes_on_after_the_steps_to_trace_traces_nothing(split: Records, tmp_path: Path) -> None:
    """What an earlier attempt wrote stays."""
    Run(split, tmp_path / "run", steps=6).train()
    late = Run(split, tmp_path / "run", steps=9, trace_steps=(3, 7))
    late.train()
    assert not late.trace_dir.exists()


def test_one_step_a_call_trains_like_several(split: Records, tmp_path: Path) -> None:
    """It is built without a loop."""
    one = Run(split, tmp_path / "one", small_model(), steps_per_call=1)
    several = Run(split, tmp_path / "several", small_model(), steps_per_call=3)
    losses = [run.train().loss for run in (one, several)]
    assert [len(run.calls) for run in (one, several)] == [12, 4]
    for a, b in zip(one.model.get_weights(), several.model.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
    assert losses[0] is not None


def test_heartbeats_say_what_a_worker_uses(split: Records, tmp_path: Path) -> None:
    """Processor, memory and waiting for input; not the first, whose call traced."""
    run = Run(split, tmp_path / "run")
    result = run.train()
    first, *rest = (event for event in run.events if event.event == "heartbeat")
    assert first.cpu is None
    for event in rest:
        assert event.memory_mb is not None
        assert event.memory_mb > 50
        assert event.input_share is not None
        assert 0 <= event.input_share <= 1
        assert event.gpu_memory_mb is None
    assert result.input_share is not None
    assert 0 <= result.input_share <= 1
