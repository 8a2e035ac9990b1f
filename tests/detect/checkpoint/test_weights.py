from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from oomph.detect import load_weights, read_checkpoint, read_weights, save_weights, yolov5
from oomph.errors import MissingFile, UsageError

NAMES = ["a", "b", "c"]


def as_foreign(network: nn.Module, foreign_module: type[nn.Module], names: Any) -> nn.Module:
    """Copy our tensors into objects of another class, in half precision, as in a reference checkpoint."""

    def copy(module: nn.Module) -> nn.Module:
        other = foreign_module()
        for name, parameter in module.named_parameters(recurse=False):
            other.register_parameter(name, nn.Parameter(parameter.detach().half()))
        for name, buffer in module.named_buffers(recurse=False):
            other.register_buffer(name, buffer.half() if buffer.is_floating_point() else buffer)
        for name, child in module.named_children():
            other.add_module(name, copy(child))
        return other

    model = copy(network)
    vars(model).update(names=names, yaml={"nc": 3}, stride=torch.tensor([8.0, 16.0, 32.0]))
    return model


def write_reference_checkpoint(
    path: Path, foreign_module: type[nn.Module], names: Any, *, ema: bool = True
) -> dict[str, torch.Tensor]:
    """Write a checkpoint like the reference's, and return the state that must be read from it."""
    torch.manual_seed(1)
    network, other = yolov5("n", classes=3), yolov5("n", classes=3)
    content = {
        "epoch": 5,
        "best_fitness": [0.5],
        "model": as_foreign(other if ema else network, foreign_module, names),
        "ema": as_foreign(network, foreign_module, names) if ema else None,
        "updates": 7,
        "optimizer": torch.optim.SGD(network.parameters(), 0.1, 0.9).state_dict(),
        "date": "today",
    }
    torch.save(content, path)
    for name in ("models", "models.yolo"):
        sys.modules.pop(name)
    return {
        name: value.half().float() if value.is_floating_point() else value
        for name, value in network.state_dict().items()
    }


@pytest.mark.medium
@pytest.mark.parametrize(("ema", "names"), [(True, NAMES), (False, dict(enumerate(NAMES)))])
def test_a_reference_checkpoint_loads_strictly_and_its_ema_is_preferred(
    tmp_path: Path, foreign_module: type[nn.Module], names: Any, *, ema: bool
) -> None:
    path = tmp_path / "yolov5n.pt"
    expected = write_reference_checkpoint(path, foreign_module, names, ema=ema)
    weights = read_weights(path)
    assert (weights.size, weights.classes, weights.names) == ("n", 3, tuple(NAMES))
    assert weights.origin == ("ema" if ema else "model")
    model = yolov5("n", classes=3)
    assert load_weights(model, weights) is None
    state = model.state_dict()
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[name], value) for name, value in expected.items())
    assert torch.equal(weights.build().state_dict()["model.0.conv.weight"], expected["model.0.conv.weight"])
    assert "models.yolo" not in sys.modules


@pytest.mark.medium
def test_another_number_of_classes_loads_all_layers_but_the_head(
    tmp_path: Path, foreign_module: type[nn.Module]
) -> None:
    expected = write_reference_checkpoint(tmp_path / "w.pt", foreign_module, NAMES)
    model = yolov5("n", classes=5)
    head = model.state_dict()["model.24.m.0.weight"].clone()
    assert load_weights(model, read_weights(tmp_path / "w.pt")) == (
        "the weights have 3 classes and the data has 5: all layers but the head were loaded, the head starts fresh"
    )
    assert torch.equal(model.state_dict()["model.23.cv3.conv.weight"], expected["model.23.cv3.conv.weight"])
    assert torch.equal(model.state_dict()["model.24.m.0.weight"], head)


@pytest.mark.medium
def test_weights_of_another_size_are_rejected(tmp_path: Path) -> None:
    save_weights(tmp_path / "w.pt", yolov5("n", classes=3), NAMES)
    with pytest.raises(UsageError, match="the weights are yolov5n and the network is yolov5s"):
        load_weights(yolov5("s", classes=3), read_weights(tmp_path / "w.pt"))


@pytest.mark.medium
@pytest.mark.parametrize("size", ["mobilenet", "shufflenet", "depthwise"])
def test_the_architecture_is_saved_and_built_again(tmp_path: Path, size: str) -> None:
    torch.manual_seed(0)
    model, images = yolov5(size, classes=3), torch.rand(2, 3, 64, 64)
    model(images)  # so that the statistics of BatchNorm aren't the initial ones
    save_weights(tmp_path / "w.pt", model, NAMES)
    weights = read_weights(tmp_path / "w.pt")
    assert (weights.size, weights.classes) == (size, 3)
    with torch.no_grad():
        assert torch.equal(weights.build().eval()(images)[0], model.eval()(images)[0])
    with pytest.raises(UsageError, match=f"the weights are {size} and the network is yolov5n; train {size}, or"):
        load_weights(yolov5("n", classes=3), weights)
    other = yolov5(size, classes=5)
    assert "all layers but the head were loaded" in str(load_weights(other, weights))
    assert torch.equal(other.state_dict()["model.0.conv.weight"], weights.state["model.0.conv.weight"])
    torch.save(model.state_dict(), tmp_path / "plain.pt")
    assert read_weights(tmp_path / "plain.pt").size == size


def test_an_unknown_architecture_is_rejected(tmp_path: Path) -> None:
    save_weights(tmp_path / "w.pt", yolov5("n", classes=3), NAMES)
    content = torch.load(tmp_path / "w.pt", weights_only=True)
    torch.save({**content, "size": "resnet"}, tmp_path / "w.pt")
    with pytest.raises(UsageError, match=r"are those of 'resnet', a network that .*; use weights of one of n, s, m"):
        read_weights(tmp_path / "w.pt")
    torch.save({**content, "size": "mobilenet"}, tmp_path / "w.pt")
    with pytest.raises(UsageError, match="are not those of YOLOv5"):
        read_weights(tmp_path / "w.pt")


@pytest.mark.medium
def test_saved_weights_are_read_by_oomph_and_by_torch(tmp_path: Path) -> None:
    model = yolov5("n", classes=2, anchors=[[(8, 16)] * 3, [(20, 30)] * 3, [(99, 88)] * 3])
    path = tmp_path / "runs" / "best.pt"
    save_weights(path, model, ["cat", "dog"], {"epoch": 3, "map50": 0.5})
    weights = read_weights(path)
    assert (weights.names, weights.origin) == (("cat", "dog"), "weights")
    assert all(torch.equal(weights.state[name], value) for name, value in model.state_dict().items())
    content = torch.load(path, weights_only=True)
    assert content["anchors"][2][0] == [99.0, 88.0]
    assert content["extra"] == {"epoch": 3, "map50": 0.5}
    assert read_checkpoint(path)["stride"] == [8, 16, 32]
    assert [file.name for file in path.parent.iterdir()] == ["best.pt"]


def test_a_plain_state_dict_is_accepted(tmp_path: Path) -> None:
    torch.save(yolov5("n", classes=2).state_dict(), tmp_path / "w.pt")
    assert read_weights(tmp_path / "w.pt").classes == 2


@pytest.fixture
def full_disk() -> Iterator[None]:
    """Let no file grow beyond 1 MiB."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_raises_os_error_and_keeps_the_previous_file(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    path.write_bytes(b"previous")
    with pytest.raises(OSError, match="File too large"):
        save_weights(path, yolov5("n", classes=2), ["a", "b"])
    assert path.read_bytes() == b"previous"
    assert list(tmp_path.iterdir()) == [path]


def test_damaged_files_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    save_weights(path, yolov5("n", classes=2), ["a", "b"])
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 256] = bytes(byte ^ 255 for byte in content[middle : middle + 256])  # more than padding
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is damaged"):
        read_weights(path)
    path.write_bytes(content[:middle])
    with pytest.raises(UsageError, match="is damaged"):
        read_weights(path)


def test_other_files_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match="there is no file"):
        read_weights(tmp_path / "none.pt")
    with pytest.raises(UsageError, match="can't be read"):
        read_weights(tmp_path)
    torch.save({"a": torch.ones(2)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(UsageError, match=r"not in the zip format that torch writes since version 1\.6"):
        read_weights(tmp_path / "old.pt")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("hello.txt", "hello")
    with pytest.raises(UsageError, match="is a zip file but not a torch checkpoint"):
        read_weights(tmp_path / "a.zip")
    torch.save({"model": {"weight": torch.ones(2)}}, tmp_path / "other.pt")
    with pytest.raises(UsageError, match="are not those of YOLOv5"):
        read_weights(tmp_path / "other.pt")
    torch.save({"hello": 3}, tmp_path / "empty.pt")
    with pytest.raises(UsageError, match="contains no model"):
        read_weights(tmp_path / "empty.pt")


def test_shared_modules_do_not_explode(tmp_path: Path, foreign_module: type[nn.Module]) -> None:
    inner = foreign_module()
    for _ in range(40):
        outer = foreign_module()
        outer.add_module("a", inner)
        outer.add_module("b", inner)
        inner = outer
    torch.save({"model": inner}, tmp_path / "w.pt")
    with pytest.raises(UsageError, match="endlessly nested modules"):
        read_weights(tmp_path / "w.pt")
