"""Weights after five split steps beside those of an unsplit run: equal, or the split was refused or announced."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import oomph
from oomph.errors import UsageError

SAMPLES, CLASSES, STEPS = 12, 4, 5
IGNORED = -100


class Net(nn.Module):
    """A classifier whose outputs serve as logits and as embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.head = nn.Linear(6, 16), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.hidden(x)))


class TwoTowers(nn.Module):
    """Two encoders and a learned temperature, as CLIP has them."""

    def __init__(self) -> None:
        super().__init__()
        self.image, self.text = nn.Linear(6, 8), nn.Linear(6, 8)
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, images: Tensor, texts: Tensor) -> dict[str, Tensor]:
        return {"image": self.image(images), "text": self.text(texts), "scale": self.scale.exp()}


class LanguageModel(nn.Module):
    """A model that returns its loss over the labels that are not ignored, as those of transformers do."""

    def __init__(self, *, takes_count: bool = True) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(CLASSES, 8), nn.Linear(8, CLASSES)
        self.takes_count = takes_count

    def forward(self, input_ids: Tensor, labels: Tensor, **options: Any) -> dict[str, Tensor]:
        count = options.get("num_items_in_batch")
        logits = self.head(self.embed(input_ids))[:, :-1].flatten(0, 1)
        targets = labels[:, 1:].flatten()
        if count is None or not self.takes_count:
            return {"loss": F.cross_entropy(logits, targets), "logits": logits}
        return {"loss": F.cross_entropy(logits, targets, reduction="sum") / count, "logits": logits}


def clip_loss(outputs: dict[str, Tensor], targets: object) -> Tensor:
    del targets
    image, text = F.normalize(outputs["image"], dim=1), F.normalize(outputs["text"], dim=1)
    logits = outputs["scale"] * image @ text.T
    pairs = torch.arange(len(logits))
    return (F.cross_entropy(logits, pairs) + F.cross_entropy(logits.T, pairs)) / 2


def supervised_contrastive(outputs: Tensor, targets: Tensor) -> Tensor:
    z = F.normalize(outputs, dim=1)
    itself = torch.eye(len(z), dtype=torch.bool)
    log_p = z @ z.T - torch.logsumexp((z @ z.T).masked_fill(itself, -1e9), 1, keepdim=True)
    same = (targets[:, None] == targets).to(z.dtype).masked_fill(itself, 0)
    return -(same * log_p).sum(1).div(same.sum(1).clamp(min=1)).mean()


def hardest(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none").topk(len(targets) // 3).values.mean()


def cox(outputs: Tensor, targets: Tensor) -> Tensor:
    risk = outputs[torch.argsort(targets + torch.arange(len(targets)) / 100, descending=True), 0]
    return -(risk - torch.logcumsumexp(risk, 0)).mean()


def quantile(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none").quantile(0.8)


def detector_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Multiplied by the batch size and divided by the sum of scores, as that of YOLOv8."""
    scores = torch.sigmoid(outputs.detach()) * (targets[:, None] > 1)
    return F.binary_cross_entropy_with_logits(outputs, scores, reduction="sum") / scores.sum() * len(outputs)


LOSSES: dict[str, Callable[..., Tensor]] = {
    "supervised contrastive": supervised_contrastive,
    "top-k mining": hardest,
    "Cox": cox,
    "quantile": quantile,
    "detector": detector_loss,
}


def classes(step: int, *, ignored: bool = False) -> tuple[Tensor, Tensor]:
    """Return a batch; with ignored targets in its second half only."""
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(SAMPLES, 6, generator=generator, dtype=torch.float64)
    y = torch.randint(0, CLASSES, (SAMPLES,), generator=generator)
    if ignored:
        y[SAMPLES // 2 :: 2] = IGNORED
    return x, y


def padded(step: int) -> dict[str, Tensor]:
    """Return token sequences of different lengths."""
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(0, CLASSES, (SAMPLES, 7), generator=generator)
    lengths = torch.randint(2, 8, (SAMPLES, 1), generator=generator)
    return {"input_ids": tokens, "labels": tokens.masked_fill(torch.arange(7) >= lengths, IGNORED)}


@dataclasses.dataclass
class Run:
    """The weights after five steps, the guard's notices and the largest number of micro-batches."""

    weights: Tensor
    notices: tuple[str, ...]
    micro_batches: int

    def difference(self, other: Run) -> float:
        return float((self.weights - other.weights).norm() / other.weights.norm())


def run(build: Callable[[], nn.Module], batch: Callable[[int], Any], **options: Any) -> Run:
    torch.manual_seed(0)
    model = build().double()
    parameters = [*model.parameters(), *(options["loss"].parameters() if "loss_parameters" in options else ())]
    options.pop("loss_parameters", None)
    guard = oomph.guard(model=model, optimizer=torch.optim.SGD(parameters, lr=0.1), **options)
    reports = [guard.step(batch(step)) for step in range(STEPS)]
    weights = torch.cat([parameter.detach().flatten() for parameter in parameters])
    return Run(weights, guard.notices, max(report.micro_batches for report in reports))


def split_and_whole(build: Callable[[], nn.Module], batch: Callable[[int], Any], **options: Any) -> tuple[Run, Run]:
    size = options.pop("micro_batch", 5)
    split = run(build, batch, micro_batch=size, **options)
    assert split.micro_batches == -(-SAMPLES // size)
    return split, run(build, batch, **options)


def assert_exact(build: Callable[[], nn.Module], batch: Callable[[int], Any], **options: Any) -> None:
    split, whole = split_and_whole(build, batch, **options)
    assert split.difference(whole) < 1e-10
    assert split.notices == ()


class TestLossFunctions:
    @pytest.mark.parametrize("size", [1, 5])
    @pytest.mark.parametrize(
        "loss",
        [
            nn.CrossEntropyLoss(weight=torch.tensor([0.1, 2.0, 0.7, 5.0], dtype=torch.float64)),
            nn.CrossEntropyLoss(reduction="sum"),
            nn.CrossEntropyLoss(label_smoothing=0.1),
            F.cross_entropy,
            nn.MultiMarginLoss(),
        ],
        ids=["class weights", "sum", "label smoothing", "function", "per sample"],
    )
    def test_torch_losses(self, loss: Any, size: int) -> None:
        assert_exact(Net, classes, loss=loss, micro_batch=size)

    @pytest.mark.parametrize("size", [1, 5])
    def test_ignored_targets_in_the_second_half_only(self, size: int) -> None:
        assert_exact(Net, lambda step: classes(step, ignored=True), loss=nn.CrossEntropyLoss(), micro_batch=size)

    @pytest.mark.parametrize("name", LOSSES)
    def test_losses_over_the_whole_batch(self, name: str) -> None:
        assert_exact(Net, classes, loss=LOSSES[name])

    @pytest.mark.parametrize("size", [1, 5])
    def test_clip_with_a_learned_scale(self, size: int) -> None:
        def batch(step: int) -> Any:
            return {"images": classes(step)[0], "texts": classes(step + 99)[0]}, classes(step)[1]

        assert_exact(TwoTowers, batch, loss=clip_loss, micro_batch=size)

    def test_a_weight_per_sample(self) -> None:
        weight = torch.linspace(0.1, 3, SAMPLES, dtype=torch.float64)[:, None]

        def batch(step: int) -> tuple[Tensor, Tensor]:
            x, y = classes(step)
            return x, F.one_hot(y, CLASSES).double()

        assert_exact(Net, batch, loss=nn.BCEWithLogitsLoss(weight=weight))

    def test_a_loss_with_parameters(self) -> None:
        class Prototypes(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.centers = nn.Parameter(torch.linspace(-1, 1, CLASSES * CLASSES).reshape(CLASSES, -1).double())

            def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
                distances = torch.cdist(outputs, self.centers)
                return F.cross_entropy(-distances, targets) + distances.std()

        split = run(Net, classes, loss=Prototypes(), micro_batch=5, loss_parameters=True)
        whole = run(Net, classes, loss=Prototypes(), loss_parameters=True)
        assert split.difference(whole) < 1e-10


class TestForwards:
    @pytest.mark.parametrize("name", LOSSES)
    def test_outputs_with_a_loss_beside_them(self, name: str) -> None:
        assert_exact(Net, classes, forward=lambda model, batch: model(batch[0]), loss=LOSSES[name])

    @pytest.mark.parametrize("name", LOSSES)
    def test_a_plain_loss_that_is_no_mean_is_refused(self, name: str) -> None:
        loss = LOSSES[name]
        with pytest.raises(UsageError, match="would change the gradient") as caught:
            run(Net, classes, forward=lambda model, batch: loss(model(batch[0]), batch[1]), micro_batch=5)
        assert "let forward= return the outputs" in str(caught.value)

    def test_a_plain_mean(self) -> None:
        assert_exact(Net, classes, forward=lambda model, batch: F.cross_entropy(model(batch[0]), batch[1]))

    def test_a_sum_is_recognized_and_can_be_declared(self) -> None:
        def forward(model: nn.Module, batch: Any) -> Tensor:
            return F.cross_entropy(model(batch[0]), batch[1], reduction="sum")

        with pytest.raises(UsageError, match='reduction="sum"'):
            run(Net, classes, forward=forward, micro_batch=5)
        assert_exact(Net, classes, forward=forward, reduction="sum")

    @pytest.mark.parametrize("size", [1, 5])
    def test_ignored_targets_are_recognized(self, size: int) -> None:
        def forward(model: nn.Module, batch: Any) -> Tensor:
            return F.cross_entropy(model(batch[0]), batch[1])

        assert_exact(Net, lambda step: classes(step, ignored=True), forward=forward, micro_batch=size)

    def test_class_weights_are_refused(self) -> None:
        weight = torch.tensor([0.1, 2.0, 0.7, 5.0], dtype=torch.float64)

        def forward(model: nn.Module, batch: Any) -> Tensor:
            return F.cross_entropy(model(batch[0]), batch[1], weight)

        with pytest.raises(UsageError, match="not a mean over samples"):
            run(Net, classes, forward=forward, micro_batch=5)

    def test_a_wrong_declaration_is_refused(self) -> None:
        with pytest.raises(UsageError, match="not a sum over samples"):
            run(
                Net,
                classes,
                loss=lambda outputs, targets: F.cross_entropy(outputs, targets) + 0,
                reduction="sum",
                micro_batch=5,
            )

    def test_a_declared_mean_needs_one_pass(self) -> None:
        calls: list[int] = []

        def loss(outputs: Tensor, targets: Tensor) -> Tensor:
            calls.extend([len(outputs)] if torch.is_grad_enabled() else [])
            return F.cross_entropy(outputs, targets)

        assert_exact(Net, classes, loss=loss, reduction="mean")
        assert calls[:3] == [4, 4, 4]

    def test_inexact_splits_are_allowed_and_announced(self) -> None:
        def forward(model: nn.Module, batch: Any) -> Tensor:
            return supervised_contrastive(model(batch[0]), batch[1])

        split, whole = split_and_whole(Net, classes, forward=forward, inexact="warn")
        assert split.difference(whole) > 1e-3
        assert "not exact, as you allowed" in split.notices[0]

    def test_a_difference_that_shows_later_is_found_after_a_thousand_steps(self) -> None:
        torch.manual_seed(0)
        net = Net().double()
        guard = oomph.guard(
            model=net,
            optimizer=torch.optim.SGD(net.parameters(), 0.0),
            forward=lambda model, batch: F.cross_entropy(model(batch[0]), batch[1], torch.arange(4.0).double() + 1),
        )
        ones = classes(0)[0], torch.ones(SAMPLES, dtype=torch.long)  # all targets have the same weight
        guard.step(ones)
        assert not guard.notices
        guard.steps = 1000
        guard.step(classes(1))
        assert "not a mean over samples" in guard.notices[0]

    def test_class_weights_as_long_as_the_batch_are_refused(self) -> None:
        """They look like a value per sample, so a split would cut them."""

        def batch(step: int) -> dict[str, Tensor]:
            x, y = classes(step)
            return {"x": x, "y": y.repeat(1) % SAMPLES, "weights": torch.linspace(0.1, 3, SAMPLES, dtype=torch.float64)}

        def forward(model: nn.Module, batch: Any) -> Tensor:
            return (
                F.cross_entropy(model(batch["x"]), batch["y"], reduction="none") * batch["weights"][batch["y"]]
            ).mean()

        with pytest.raises(UsageError, match="would change the gradient"):
            run(Net, batch, forward=forward, micro_batch=5)


class TestModelsWithTheirOwnLoss:
    def test_padded_labels_are_counted_over_the_whole_batch(self) -> None:
        assert_exact(LanguageModel, padded)

    def test_a_model_without_a_count(self) -> None:
        assert_exact(lambda: LanguageModel(takes_count=False), padded)

    def test_the_loss_through_a_forward(self) -> None:
        assert_exact(LanguageModel, padded, forward=lambda model, batch: model(**batch)["loss"])

    def test_a_model_without_a_loss(self) -> None:
        with pytest.raises(UsageError, match="without a loss"):
            run(Net, lambda step: {"x": classes(step)[0]})


class TestBuffersAndHooks:
    def test_spectral_norm(self) -> None:
        def build() -> nn.Module:
            net = Net()
            nn.utils.parametrizations.spectral_norm(net.hidden)
            return net

        assert_exact(build, classes, loss=F.cross_entropy)
        assert_exact(build, classes, loss=hardest)

    def test_a_codebook_is_announced(self) -> None:
        class Codebook(Net):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("codes", torch.randn(3, 16))
                self.codes: Tensor

            def forward(self, x: Tensor) -> Tensor:
                h = torch.tanh(self.hidden(x))
                if self.training:
                    self.codes.lerp_(h.detach().mean(0).expand(3, -1), 0.5)
                return self.head(h + (self.codes.mean(0) - h).detach())

        split, whole = split_and_whole(Codebook, classes, loss=F.cross_entropy)
        assert split.difference(whole) > 1e-6
        assert "'codes'" in split.notices[0]

    def test_a_queue_is_announced(self) -> None:
        class Queue(Net):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("queue", torch.zeros(SAMPLES, CLASSES))
                self.queue: Tensor

            def forward(self, x: Tensor) -> Tensor:
                keys = super().forward(x)
                logits = keys @ self.queue.T
                if self.training:
                    self.queue = torch.cat([keys.detach(), self.queue])[:SAMPLES]
                return logits

        assert "'queue'" in split_and_whole(Queue, classes, loss=F.cross_entropy)[0].notices[0]

    def test_clamping_hooks_are_announced(self) -> None:
        def build() -> nn.Module:
            net = Net()
            net.head.weight.register_hook(lambda grad: grad.clamp(-0.01, 0.01))
            return net

        split, whole = split_and_whole(build, classes, loss=F.cross_entropy)
        assert split.difference(whole) > 1e-6
        assert "hook" in split.notices[0]

    @pytest.mark.parametrize("kind", ["dropout", "noise", "mixup"])
    def test_random_numbers_are_announced(self, kind: str) -> None:
        class Random(Net):
            def forward(self, x: Tensor) -> Tensor:
                if kind == "dropout":
                    x = F.dropout(x, 0.5, self.training)
                elif kind == "noise":
                    x = x + torch.randn_like(x)
                else:
                    x = torch.lerp(x, x[torch.randperm(len(x))], 0.3) if self.training else x
                return super().forward(x)

        assert "random numbers" in " ".join(split_and_whole(Random, classes, loss=F.cross_entropy)[0].notices)

    def test_batch_norm_is_announced(self) -> None:
        notices = split_and_whole(lambda: nn.Sequential(nn.BatchNorm1d(6), Net()), classes, loss=hardest)[0].notices
        assert "BatchNorm" in notices[0]


class TestAccumulation:
    def test_torch_losses_are_weighted_by_their_counts(self) -> None:
        def weights(sizes: list[int]) -> Tensor:
            torch.manual_seed(0)
            net = Net().double()
            guard = oomph.guard(model=net, optimizer=torch.optim.SGD(net.parameters(), 0.1), loss=F.cross_entropy)
            for step in range(STEPS):
                x, y = classes(step, ignored=True)
                parts = list(zip(x.split(sizes), y.split(sizes), strict=True))
                for part in parts:
                    guard.step(part, update=part is parts[-1])
            return net.head.weight.detach()

        torch.testing.assert_close(weights([7, 3, 2]), weights([SAMPLES]), rtol=1e-10, atol=1e-12)

    def test_a_loss_that_the_user_may_have_divided_is_announced(self) -> None:
        net = Net().double()
        guard = oomph.guard(
            model=net,
            optimizer=torch.optim.SGD(net.parameters(), 0.1),
            forward=lambda model, batch: F.cross_entropy(model(batch[0]), batch[1]) / 4,
        )
        guard.step(classes(0), update=False)
        assert "must not be divided" in guard.notices[0]

    def test_a_loss_over_the_whole_batch_is_announced(self) -> None:
        net = Net().double()
        guard = oomph.guard(model=net, optimizer=torch.optim.SGD(net.parameters(), 0.1), loss=supervised_contrastive)
        guard.step(classes(0), update=False)
        assert "not the gradient of one large batch" in guard.notices[0]


def test_one_guard_per_net_of_a_gan_names_the_stray_gradients() -> None:
    torch.manual_seed(0)
    generator, critic = nn.Linear(3, 6).double(), nn.Linear(6, 1).double()
    critic_guard = oomph.guard(
        model=critic,
        optimizer=torch.optim.SGD(critic.parameters(), 0.1),
        forward=lambda net, batch: (net(generator(batch).detach()) - net(torch.ones(len(batch), 6).double())).mean(),
    )
    generator_guard = oomph.guard(
        model=generator,
        optimizer=torch.optim.SGD(generator.parameters(), 0.1),
        forward=lambda net, batch: -critic(net(batch)).mean(),
    )
    noise = torch.randn(SAMPLES, 3, dtype=torch.float64)
    critic_guard.step(noise)
    assert not critic_guard.notices
    generator_guard.step(noise)
    critic_guard.step(noise)
    assert "at the start of the step" in critic_guard.notices[0]


class Pair(NamedTuple):
    x: Tensor
    extra: Any


@dataclasses.dataclass
class Record:
    x: Tensor
    extra: Any


def containers(x: Tensor, extra: Any) -> Iterator[tuple[Any, Callable[[Any], Tensor]]]:
    yield {"x": x, "extra": extra}, lambda batch: batch["x"]
    yield Pair(x, extra), lambda batch: batch.x
    yield Record(x, extra), lambda batch: batch.x
    yield [{"x": x}, extra], lambda batch: batch[0]["x"]
    yield {"deep": [(x, extra)]}, lambda batch: batch["deep"][0][0]


@pytest.mark.medium
@settings(max_examples=40, deadline=None)
@given(
    samples=st.integers(2, 13),
    micro_batch=st.integers(1, 6),
    container=st.integers(0, 4),
    loss=st.sampled_from([F.cross_entropy, nn.CrossEntropyLoss(reduction="sum"), cox, hardest, F.multi_margin_loss]),
    seed=st.integers(0, 1000),
)
def test_any_batch_any_loss_any_split(
    samples: int, micro_batch: int, container: int, loss: Callable[..., Any], seed: int
) -> None:
    samples = max(samples, 3)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 6, generator=generator, dtype=torch.float64)
    targets = torch.randint(0, CLASSES, (samples,), generator=generator)
    inputs, read = list(containers(x, {"names": [str(n) for n in range(samples)], "ids": torch.arange(samples)}))[
        container
    ]
    grads = []
    for size in (micro_batch, None):
        torch.manual_seed(seed)
        net = Net().double()
        guard = oomph.guard(
            model=net,
            optimizer=torch.optim.SGD(net.parameters(), 0.1),
            forward=lambda model, batch: model(read(batch[0])),
            loss=loss,
            micro_batch=size,
        )
        guard.backward((inputs, targets))
        grads.append(
            torch.cat([parameter.grad.flatten() for parameter in net.parameters() if parameter.grad is not None])
        )
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-10, atol=1e-12)
