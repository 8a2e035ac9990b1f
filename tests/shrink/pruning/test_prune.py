from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from oomph.errors import MissingFile, UsageError
from oomph.shrink import load_pruned, prune, save_pruned
from oomph.shrink.pruning import count_operations

IMAGE = torch.rand(1, 3, 32, 32)


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.norm(self.conv(x)).relu()
        return y


class Classifier(nn.Module):
    """Channels that an addition, a concatenation, a depthwise and a linear layer connect."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, stride=2)
        self.body = nn.Sequential(Residual(32), Residual(32))
        self.side = nn.Conv2d(3, 32, 3, stride=2)
        self.join = nn.Conv2d(64, 48, 1)
        self.depthwise = nn.Conv2d(48, 48, 3, groups=48)
        self.head = nn.Linear(48, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = torch.cat((self.body(self.stem(images)), self.side(images)), 1)
        y: Tensor = self.head(self.depthwise(self.join(x)).mean((2, 3)))
        return y


def test_operations_of_a_convolution() -> None:
    layer = nn.Conv2d(3, 8, 3, padding=1)
    assert count_operations(layer, (torch.rand(1, 3, 10, 10),)) == 2 * 8 * 3 * 9 * 100


@pytest.mark.parametrize("ops", [0.7, 0.3])
def test_channels_really_go_and_the_outputs_stay(ops: float) -> None:
    model = Classifier().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    result = prune(model, IMAGE, ops=ops)
    assert result.operations[1] <= ops * result.operations[0]
    assert result.operations[1] == count_operations(result.model, (IMAGE,))
    assert result.parameters[1] < result.parameters[0]
    stem, side = result.widths["stem"][1], result.widths["side"][1]
    assert stem < 32
    assert result.widths["body.0.conv"] == (stem, stem)
    assert result.widths["join"][0] == stem + side
    assert result.widths["head"] == (result.widths["join"][1], 10)
    assert result.model(torch.rand(2, 3, 32, 32)).shape == (2, 10)
    assert result.model.training
    # The user's model isn't changed.
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training


def test_the_least_important_channels_go() -> None:
    first, last = nn.Conv2d(3, 16, 1, bias=False), nn.Conv2d(16, 4, 1)
    model = nn.Sequential(first, nn.ReLU(), last)
    strong = torch.arange(16) % 2 == 0
    with torch.no_grad():
        first.weight[~strong] *= 1e-3
        last.weight[:, ~strong] *= 1e-3
    pruned = prune(model, torch.rand(1, 3, 8, 8), ops=0.6).model
    assert torch.equal(pruned.get_parameter("0.weight"), first.weight[strong])
    assert torch.equal(pruned.get_parameter("2.weight"), last.weight[:, strong])


def test_a_limit_of_the_user_decides_how_many_go() -> None:
    sizes = []

    def fits(model: nn.Module) -> bool:
        sizes.append(sum(parameter.numel() for parameter in model.parameters()))
        return sizes[-1] <= 12_000

    result = prune(Classifier(), IMAGE, fits=fits)
    assert result.parameters[1] <= 12_000
    assert result.parameters[1] == max(size for size in sizes if size <= 12_000)


def test_kept_layers_keep_their_outputs() -> None:
    result = prune(Classifier(), IMAGE, ops=0.98, keep=["stem"])
    assert result.widths["stem"] == (3, 32)
    assert result.widths["side"][1] < 32


def test_a_file_holds_widths_and_weights_without_code(tmp_path: Path) -> None:
    pruned = prune(Classifier(), IMAGE, ops=0.5).model.eval()
    save_pruned(tmp_path / "pruned.pt", pruned)
    loaded = load_pruned(tmp_path / "pruned.pt", Classifier()).eval()
    assert torch.equal(loaded(IMAGE), pruned(IMAGE))
    assert set(torch.load(tmp_path / "pruned.pt", weights_only=True)) == {"format", "version", "widths", "model"}


def test_wrong_files_are_one_sentence(tmp_path: Path) -> None:
    save_pruned(tmp_path / "pruned.pt", prune(Classifier(), IMAGE, ops=0.5).model)
    torch.save({"model": {}}, tmp_path / "other.pt")
    with pytest.raises(UsageError, match=r"is not a pruned Residual; pass the model that was pruned"):
        load_pruned(tmp_path / "pruned.pt", Residual(8))
    with pytest.raises(UsageError, match=r"other\.pt is not a pruned model; pass a file of oomph\.shrink\.save_pruned"):
        load_pruned(tmp_path / "other.pt", Classifier())
    with pytest.raises(MissingFile):
        load_pruned(tmp_path / "no.pt", Classifier())


def test_frozen_layers_stay_frozen() -> None:
    model = Classifier()
    model.stem.requires_grad_(requires_grad=False)
    pruned = prune(model, IMAGE, ops=0.5).model
    assert not pruned.get_parameter("stem.weight").requires_grad
    assert pruned.get_parameter("side.weight").requires_grad
    assert not model.stem.weight.requires_grad


class Reshaped(nn.Module):
    """Channels that a reshape to fixed numbers hides."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 1)
        self.extra = nn.Parameter(torch.rand(1, 16, 1, 1))
        self.head = nn.Conv2d(16, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.conv(x).view(1, 4, 4, 8, 8).transpose(1, 2).reshape(1, 16, 8, 8) * self.extra)
        return y


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "ops is None; pass a fraction of the operations between 0 and 1"),
        ({"ops": 1.5}, "ops is 1.5; pass a fraction"),
        ({"ops": 0.5, "fits": lambda _: True}, "both ops and fits are given; pass one of them"),
        ({"ops": 0.00001}, "no number of channels is small enough; pass a larger target"),
    ],
)
def test_wrong_targets_are_one_sentence(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        prune(Classifier(), IMAGE, **arguments)  # type: ignore[arg-type]


def test_a_model_whose_channels_cannot_be_followed_is_one_sentence() -> None:
    with pytest.raises(UsageError, match="Reshaped"):
        prune(Reshaped(), torch.rand(1, 3, 8, 8), ops=0.5)


def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_pruning", None)
    with pytest.raises(UsageError, match=r"pruning needs the package torch-pruning.*pip install 'oomph\[shrink\]'"):
        prune(Classifier(), IMAGE, ops=0.5)
