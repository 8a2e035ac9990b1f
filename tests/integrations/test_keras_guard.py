"""Keras on torch, run for real. `make test-keras-torch` installs it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import oomph
from oomph.errors import RetriesExhausted, UsageError
from oomph.monitor import load_record
from oomph.units import MIB

from ..recovery.faults import CUDA_OOM, in_split_check

pytestmark = [
    pytest.mark.keras_torch,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]
REPO = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def needs_keras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    pytest.importorskip("keras")


class Faults:
    """A function of a Lambda layer that runs out of memory at chosen calls, counted from 1, except in the check."""

    def __init__(self, failing: set[int] = frozenset(), *, from_then_on: bool = False) -> None:  # type: ignore[assignment]
        self.failing, self.from_then_on = failing, from_then_on
        self.count = self.raised = 0

    def __call__(self, x: Tensor) -> Tensor:
        if getattr(x, "requires_grad", False) and not in_split_check():
            self.count += 1
            if self.count in self.failing or (self.from_then_on and self.raised):
                self.raised += 1
                raise torch.OutOfMemoryError(CUDA_OOM)
        return x


def build(faults: Faults | None = None, *, layers: tuple[Any, ...] = (), **options: Any) -> Any:
    """Return a compiled classifier of 8 numbers."""
    import keras

    keras.utils.set_random_seed(0)

    class Fault(keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return x if faults is None else faults(x)

        def compute_output_shape(self, shape: Any) -> Any:
            return shape

    hidden = keras.layers.Dense(16, activation="tanh", kernel_regularizer="l2")
    last = keras.layers.Dense(3, activation="softmax", dtype="float32")
    fault = [] if faults is None else [Fault()]
    model = keras.Sequential([keras.layers.Input((8,)), hidden, *fault, *layers, last])
    defaults: dict[str, Any] = {"loss": "sparse_categorical_crossentropy", "weighted_metrics": ["accuracy"]}
    optimizer = options.pop("optimizer", None) or keras.optimizers.SGD(0.5, momentum=0.9, clipnorm=1.0)
    model.compile(optimizer=optimizer, **{**defaults, **options})
    return model


def fit(model: Any, *, callbacks: Any = (), **guard: Any) -> tuple[dict[str, list[float]], list[Any]]:
    """Train for 5 batches twice, and return the logged values and the weights."""
    from oomph.integrations.keras import guarded

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 8)).astype("float32"), rng.integers(0, 3, 40)
    with guarded(model, **guard) if guard else contextlib.nullcontext():
        history = model.fit(
            x, y, batch_size=8, epochs=2, verbose=0, class_weight={0: 1.0, 1: 2.0, 2: 0.5}, callbacks=list(callbacks)
        )
    return history.history, [np.array(weight) for weight in model.get_weights()]


def fit_on(model: Any, x: Any, y: Any, **guard: Any) -> tuple[dict[str, list[float]], list[Any]]:
    """Train in batches of 8 twice, in order, and return the logged values and the weights."""
    from oomph.integrations.keras import guarded

    with guarded(model, **guard) if guard else contextlib.nullcontext():
        history = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    return history.history, [np.array(weight) for weight in model.get_weights()]


def assert_same(first: tuple[Any, Any], second: tuple[Any, Any], tolerance: float = 1e-5) -> None:
    assert first[0].keys() == second[0].keys()
    for name, values in first[0].items():
        assert values == pytest.approx(second[0][name], rel=tolerance), name
    for ours, theirs in zip(first[1], second[1], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance)


def sums() -> dict[str, Any]:
    import keras

    return {"loss": keras.losses.SparseCategoricalCrossentropy(reduction="sum")}


def weighted_means() -> dict[str, Any]:
    import keras

    return {"loss": keras.losses.SparseCategoricalCrossentropy(reduction="mean_with_sample_weight")}


def accumulated() -> dict[str, Any]:
    import keras

    return {"optimizer": keras.optimizers.Adam(0.01, clipnorm=1.0, gradient_accumulation_steps=2)}


@pytest.mark.parametrize("options", [dict, sums, weighted_means, accumulated])
def test_out_of_memory_errors_leave_weights_and_logs_as_they_are(options: Any, tmp_path: Path) -> None:
    import keras

    def run(faults: Faults, **guard: Any) -> Any:
        calls: list[tuple[int, float]] = []
        log = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: calls.append((batch, logs["loss"])))
        model = build(faults, **options())
        return fit(model, callbacks=[log], **guard), calls, int(model.optimizer.iterations), model

    expected, expected_calls, iterations, _ = run(Faults())
    faults = Faults({2, 5})
    result, calls, ours, model = run(faults, record=tmp_path / "run.jsonl")
    assert faults.raised == 2
    assert_same(result, expected)
    assert ours == iterations
    assert [number for number, _ in calls] == [number for number, _ in expected_calls]
    assert [loss for _, loss in calls] == pytest.approx([loss for _, loss in expected_calls], rel=1e-5)
    record = load_record(tmp_path / "run.jsonl")
    assert len(record.steps) == 10
    assert [event["event"] for event in record.events].count("oom") == 2
    assert "train_step" not in vars(model)
    assert np.abs(result[1][0] - build(**options()).get_weights()[0]).max() > 0.01


@pytest.mark.parametrize(("policy", "tolerance"), [("mixed_bfloat16", 0.05), ("mixed_float16", 5e-3)])
def test_mixed_precision(policy: str, tolerance: float) -> None:
    import keras

    keras.config.set_dtype_policy(policy)
    try:
        expected = fit(build())
        faults = Faults({2, 5})
        assert_same(fit(build(faults), guard_options={}), expected, tolerance)
        assert faults.raised == 2
    finally:
        keras.config.set_dtype_policy("float32")


def test_a_retry_restores_statistics_and_random_states(caplog: pytest.LogCaptureFixture) -> None:
    import keras

    def run(*failing: int, **guard: Any) -> Any:
        faults = Faults(set(failing))

        class Fault(keras.layers.Layer):  # type: ignore[misc]
            def call(self, x: Any) -> Any:
                return faults(x)

        before = (keras.layers.BatchNormalization(), keras.layers.Dropout(0.3, seed=1))
        result = fit(build(layers=(*before, Fault())), **guard)
        assert faults.raised == len(failing)
        return result

    assert_same(run(guard_options={}), run())
    split = run(guard_options={"micro_batch": 4})
    # The layers before the error changed their state already.
    assert_same(run(1, guard_options={"cooldown_steps": 1000}), split, 1e-6)
    assert "1 BatchNorm layers" in caplog.text


def test_a_model_with_two_outputs_logs_both_losses() -> None:
    import keras

    def train(**guard: Any) -> Any:
        keras.utils.set_random_seed(0)
        inputs = keras.Input((8,))
        outputs = {name: keras.layers.Dense(2, name=name)(inputs) for name in ("a", "b")}
        model = keras.Model(inputs, outputs)
        model.compile(keras.optimizers.SGD(0.1), loss={"a": "mse", "b": "mae"}, metrics={"a": ["mae"]})
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(16, 8)), {name: rng.normal(size=(16, 2)) for name in ("a", "b")}
        from oomph.integrations.keras import guarded

        with guarded(model, **guard) if guard else contextlib.nullcontext():
            history = model.fit(x, y, batch_size=8, epochs=2, verbose=0)
        return history.history, model.get_weights()

    expected = train()
    assert {"a_loss", "b_loss", "loss"} <= expected[0].keys()
    assert_same(train(guard_options={"micro_batch": 2}), expected)


@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "sum"])
@pytest.mark.parametrize("micro_batch", [None, 4])
def test_masks_reach_losses_and_metrics(reduction: str, micro_batch: int | None) -> None:
    import keras

    def train(**guard: Any) -> Any:
        keras.utils.set_random_seed(1)
        layers = [keras.layers.Embedding(20, 8, mask_zero=True), keras.layers.LSTM(8, return_sequences=True)]
        model = keras.Sequential([*layers, keras.layers.Dense(3, activation="softmax")])
        loss = keras.losses.SparseCategoricalCrossentropy(reduction=reduction)
        model.compile(keras.optimizers.SGD(0.01), loss, metrics=["accuracy"])
        return fit_on(model, tokens, labels, **guard)

    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 7, 32)
    tokens, labels = rng.integers(1, 20, (32, 6)), rng.integers(0, 3, (32, 6))
    tokens[np.arange(6) >= lengths[:, None]] = 0
    if reduction == "sum_over_batch_size" and micro_batch:
        with pytest.raises(UsageError, match="it is not a mean over samples"):
            train(guard_options={"micro_batch": micro_batch})
    else:
        assert_same(train(guard_options={"micro_batch": micro_batch}), train())


def test_losses_that_layers_add_are_part_of_the_gradient_or_batches_are_not_split() -> None:
    """In two passes, the loss is computed when the layers' losses have no gradient."""
    import keras

    def train(reduction: str, **guard: Any) -> Any:
        keras.utils.set_random_seed(0)
        added = keras.layers.Dense(8, activity_regularizer="l2", kernel_regularizer="l2")
        model = keras.Sequential([keras.layers.Input((8,)), added, keras.layers.Dense(2)])
        model.compile(keras.optimizers.SGD(0.001), keras.losses.MeanSquaredError(reduction=reduction))
        return fit_on(model, x, x[:, :2], **guard)

    x = np.random.default_rng(0).normal(size=(16, 8)).astype("float32")
    for reduction in ("sum", "sum_over_batch_size"):
        assert_same(train(reduction, guard_options={}), train(reduction))
    mean = "sum_over_batch_size"
    assert_same(train(mean, guard_options={"micro_batch": 4}), train(mean))
    with pytest.raises(UsageError, match=r"would change the gradient: .*losses"):
        train("sum", guard_options={"micro_batch": 4})


def test_a_batch_of_one_sample_with_one_output_has_its_own_loss() -> None:
    """A tensor with one element is not taken for a loss that the forward returned."""
    import keras

    def train(**guard: Any) -> Any:
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), "mse")
        return fit_on(model, x, x[:, :1], **guard)

    x = np.random.default_rng(0).normal(size=(9, 8)).astype("float32")
    assert_same(train(guard_options={}), train())
    assert_same(train(guard_options={"micro_batch": 1}), train())


@pytest.mark.parametrize("micro_batch", [None, 4])
@pytest.mark.parametrize("lists_metrics", [False, True])
def test_metrics_of_an_overridden_compute_loss_are_those_of_the_whole_batch(
    micro_batch: int | None, *, lists_metrics: bool
) -> None:
    import keras

    class Model(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.tracker = keras.layers.Dense(2), keras.metrics.Mean(name="extra")

        def call(self, x: Any) -> Any:
            return self.layer(x)

        def compute_loss(self, x: Any, y: Any, predictions: Any, weights: Any = None) -> Any:
            del x, weights
            loss = keras.ops.mean((y - predictions) ** 2)
            self.tracker.update_state(loss + 1)
            return loss

        @property
        def metrics(self) -> Any:
            return [self.tracker] if lists_metrics else super().metrics

    def train(**guard: Any) -> Any:
        keras.utils.set_random_seed(0)
        model = Model()
        model.compile("sgd")
        return fit_on(model, x, x[:, :2], **guard)

    x = np.random.default_rng(0).normal(size=(32, 8)).astype("float32")
    expected = train()
    assert expected[0]["extra"][0] > 1
    assert_same(train(guard_options={"micro_batch": micro_batch}), expected)


def test_a_model_that_is_compiled_again_has_its_new_loss_and_loss_scale(tmp_path: Path) -> None:
    import keras

    from oomph.integrations.keras import guarded

    def train(**guard: Any) -> Any:
        keras.utils.set_random_seed(0)
        layers = [keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(2, dtype="float32")]
        model, losses, metrics = keras.Sequential([keras.layers.Input((8,)), *layers]), [], []
        with guarded(model_compiled(model, "sum_over_batch_size"), **guard) if guard else contextlib.nullcontext():
            for reduction in ("sum_over_batch_size", "sum"):
                history = model_compiled(model, reduction).fit(x, x[:, :2], batch_size=8, shuffle=False, verbose=0)
                losses += history.history["loss"]
                metrics += history.history["mae"]
        return {"loss": losses, "mae": metrics}, [np.array(weight) for weight in model.get_weights()]

    def model_compiled(model: Any, reduction: str) -> Any:
        sgd = keras.optimizers.SGD(0.01)
        optimizer = keras.optimizers.LossScaleOptimizer(sgd, initial_scale=8.0, dynamic_growth_steps=2)
        model.compile(optimizer, keras.losses.MeanSquaredError(reduction=reduction), metrics=["mae"])
        return model

    x = np.random.default_rng(0).normal(size=(40, 8)).astype("float32")
    keras.config.set_dtype_policy("mixed_float16")
    try:
        expected = train()
        assert_same(train(record=tmp_path / "run.jsonl"), expected, 1e-3)
        assert_same(train(guard_options={"micro_batch": 4}), expected, 1e-3)
    finally:
        keras.config.set_dtype_policy("float32")
    assert [step["step"] for step in load_record(tmp_path / "run.jsonl").steps] == list(range(1, 11))


def test_batch_normalization_keeps_two_samples_and_is_announced() -> None:
    import keras

    from oomph.integrations.keras import guarded

    sizes: list[int] = []

    class Block(keras.layers.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.parts = [keras.layers.Dense(4), keras.layers.BatchNormalization(name="norm")]

        def call(self, x: Any, training: Any = None) -> Any:
            if training and not in_split_check():
                sizes.append(x.shape[0])
                if x.shape[0] > largest:
                    raise torch.OutOfMemoryError(CUDA_OOM)
            return self.parts[1](self.parts[0](x), training=training)

    def compiled(*, trainable: bool = True) -> Any:
        model = keras.Sequential([keras.layers.Input((8,)), Block(), keras.layers.Dense(2)])
        model.layers[0].parts[1].trainable = trainable
        model.compile("sgd", "mse")
        return model

    x = np.random.default_rng(0).normal(size=(8, 8)).astype("float32")
    largest = 2
    with guarded(compiled()) as training:
        training._model.fit(x, x[:, :2], batch_size=8, verbose=0)
    assert sizes == [8, 4, 2, 2, 2, 2]
    assert training.guard is not None
    (notice,) = training.guard.notices
    assert "1 BatchNorm layers (the first is 'norm')" in notice
    assert "trainable=False" in notice

    largest = 1
    with pytest.raises(RetriesExhausted), guarded(compiled()) as training:
        training._model.fit(x, x[:, :2], batch_size=8, verbose=0)
    sizes.clear()
    with guarded(compiled(trainable=False)) as training:
        training._model.fit(x, x[:, :2], batch_size=8, verbose=0)
    assert sizes[-8:] == [1] * 8
    assert training.guard is not None
    assert training.guard.notices == ()


def test_the_emergency_checkpoint_continues_the_run(tmp_path: Path) -> None:
    import keras

    path = tmp_path / "emergency.keras"
    model = build(Faults({4}, from_then_on=True))
    with pytest.raises(RetriesExhausted) as raised:
        fit(model, checkpoint=path)
    assert raised.value.checkpoint == str(path)
    assert int(model.optimizer.iterations) == 3
    assert "train_step" not in vars(model)

    class Fault(keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return x

    loaded = keras.models.load_model(path, custom_objects={"Fault": Fault})
    assert int(loaded.optimizer.iterations) == 3
    for ours, theirs in zip(loaded.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for ours, theirs in zip(loaded.optimizer.variables, model.optimizer.variables, strict=True):
        np.testing.assert_array_equal(np.array(ours), np.array(theirs))
    fit(loaded, guard_options={})


def test_a_budget_plans_the_micro_batch(tmp_path: Path) -> None:
    import keras

    from oomph.integrations.keras import guarded
    from oomph.machine import rss_bytes

    layers = [keras.layers.Conv2D(32, 3, activation="relu"), keras.layers.GlobalAveragePooling2D()]
    model = keras.Sequential([keras.layers.Input((128, 128, 3)), *layers, keras.layers.Dense(3)])
    model.compile("sgd", "mse")
    x, y = np.zeros((64, 128, 128, 3), "float32"), np.zeros((64, 3), "float32")
    with guarded(model, budget=rss_bytes() + 300 * MIB, record=tmp_path / "run.jsonl") as training:
        model.fit(x, y, batch_size=64, verbose=0)
    assert training.guard is not None
    assert training.guard.config.micro_batch in range(1, 64)
    assert any(event["event"] == "plan" for event in load_record(tmp_path / "run.jsonl").events)


def test_prediction_is_that_of_a_job_written_by_hand() -> None:
    model = build(optimizer="adam", layers=())
    job = oomph.Job(
        model=lambda: torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3)),
        batch=lambda samples, _: (torch.zeros(samples, 8), torch.zeros(samples, dtype=torch.long)),
        loss=torch.nn.functional.cross_entropy,
        optimizer=lambda model: torch.optim.Adam(model.parameters(), 1e-3),
    )
    settings = oomph.Settings(batch=100_000)
    expected = oomph.predict(job, settings, "cpu").allocated.value
    assert oomph.predict(model, settings, "cpu").allocated.value == pytest.approx(expected, rel=0.35)


def test_what_cannot_be_guarded_is_refused() -> None:
    import keras

    from oomph.integrations.keras import describe, guarded

    class OwnStep(keras.Model):  # type: ignore[misc]
        def train_step(self, data: Any) -> Any:
            return super().train_step(data)

    own = OwnStep()
    own.compile("sgd", "mse")
    for model, message in (
        (torch.nn.Linear(1, 1), "a Linear can't be guarded"),
        (keras.Sequential([keras.layers.Dense(1)]), "no optimizer"),
        (own, "a train_step of its own"),
    ):
        with pytest.raises(UsageError, match=message):
            guarded(model)
    with pytest.raises(UsageError, match=r"ends with \.keras"):
        guarded(build(), checkpoint="run.h5")
    with pytest.raises(UsageError, match="guard_options contains 'loss'"):
        guarded(build(), guard_options={"loss": None})
    for options, message in (
        ({"checkpoint": "missing/run.keras"}, "'missing', which is not a folder"),
        ({"budget": "much"}, "'much'"),
        ({"guard_options": {"micro_batch": 0}}, "micro_batch is 0"),
        ({"guard_options": {"inexact": "yes"}}, "inexact is 'yes'"),
        ({"guard_options": {"split": 3}}, "split is 3"),
    ):
        with pytest.raises(UsageError, match=message):
            guarded(build(), **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="isn't compiled"):
        describe(keras.Sequential([keras.layers.Dense(1)]))


def run_python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    paths = [str(REPO), str(REPO / "src"), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "KERAS_BACKEND": "torch", **environment}
    return subprocess.run(
        [sys.executable, *arguments], check=False, env=env, capture_output=True, text=True, timeout=180
    )


@pytest.mark.skipif(sys.platform != "linux", reason="needs the limits of Linux")
def test_a_limit_that_kills_the_run_splits_batches(tmp_path: Path) -> None:
    malloc = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": str(MIB)}
    plain, guarded = (
        run_python("-m", "tests.integrations.keras_process", kind, str(tmp_path), **malloc)
        for kind in ("plain", "guarded")
    )
    assert plain.returncode != 0
    assert "can't allocate memory" in plain.stderr
    assert guarded.returncode == 0, guarded.stderr
    assert min(json.loads((tmp_path / "micro_batches.json").read_text())) > 1


def test_the_example_trains(tmp_path: Path) -> None:
    script = REPO / "examples/keras/guarded.py"
    process = run_python("-m", "tests.integrations.run_script", str(script), str(tmp_path))
    assert process.returncode == 0, process.stderr
    assert "micro-batches" in process.stdout
