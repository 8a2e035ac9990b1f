from __future__ import annotations

import builtins
import io
import os
import pickle
import subprocess
import sys
import types
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from oomph.detect import yolov5
from oomph.detect.checkpoint import _safe_unpickle as _inert
from oomph.detect.checkpoint._weights import load_weights, read_plain, read_weights, save_weights
from oomph.errors import MissingFile, UsageError
from oomph.files import write_atomically

NAMES = ["a", "b", "c"]


@pytest.fixture
def foreign() -> Iterator[type[nn.Module]]:
    """A class of the module `models.yolo`, gone again by the time that its file is read."""
    package, module = types.ModuleType("models"), types.ModuleType("models.yolo")

    class Model(nn.Module):
        pass

    Model.__module__, Model.__qualname__ = "models.yolo", "Model"
    module.Model = Model  # type: ignore[attr-defined]
    sys.modules.update({"models": package, "models.yolo": module})
    yield Model
    sys.modules.pop("models", None)
    sys.modules.pop("models.yolo", None)


def wrap(network: nn.Module, foreign: type[nn.Module], names: Any) -> nn.Module:
    """Our tensors inside objects of other classes, as a reference checkpoint has them."""

    def copy(module: nn.Module) -> nn.Module:
        other = foreign()
        for name, parameter in module.named_parameters(recurse=False):
            other.register_parameter(name, nn.Parameter(parameter.detach().half()))
        for name, buffer in module.named_buffers(recurse=False):
            other.register_buffer(name, buffer.half() if buffer.is_floating_point() else buffer)
        for name, child in module.named_children():
            other.add_module(name, copy(child))
        return other

    whole = copy(network)
    vars(whole).update(names=names, yaml={"nc": 3}, stride=torch.tensor([8.0, 16.0, 32.0]))
    return whole


def reference_file(path: Path, foreign: type[nn.Module], names: Any, *, ema: bool = True) -> dict[str, torch.Tensor]:
    """A file as the reference writes it; returns the state that must be read from it."""
    torch.manual_seed(1)
    network = yolov5("n", classes=3)
    other = yolov5("n", classes=3)
    document = {
        "epoch": 5,
        "best_fitness": [0.5],
        "model": wrap(other if ema else network, foreign, names),
        "ema": wrap(network, foreign, names) if ema else None,
        "updates": 7,
        "optimizer": torch.optim.SGD(network.parameters(), 0.1, 0.9).state_dict(),
        "date": "today",
    }
    torch.save(document, path)
    for name in ("models", "models.yolo"):
        sys.modules.pop(name)
    return {
        name: value.half().float() if value.is_floating_point() else value
        for name, value in network.state_dict().items()
    }


@pytest.mark.parametrize(("ema", "names"), [(True, NAMES), (False, dict(enumerate(NAMES)))])
def test_a_reference_checkpoint_loads_strictly_and_the_average_is_preferred(
    tmp_path: Path, foreign: type[nn.Module], names: Any, *, ema: bool
) -> None:
    path = tmp_path / "yolov5n.pt"
    state = reference_file(path, foreign, names, ema=ema)
    weights = read_weights(path)
    assert (weights.size, weights.classes, weights.names) == ("n", 3, tuple(NAMES))
    assert weights.origin == ("ema" if ema else "model")
    model = yolov5("n", classes=3)
    assert load_weights(model, weights) is None
    found = model.state_dict()
    assert all(torch.equal(found[name], value) for name, value in state.items())
    assert found.keys() == state.keys()
    assert torch.equal(weights.build().state_dict()["model.0.conv.weight"], state["model.0.conv.weight"])
    assert "models.yolo" not in sys.modules


def test_another_number_of_classes_takes_all_but_the_head(tmp_path: Path, foreign: type[nn.Module]) -> None:
    state = reference_file(tmp_path / "w.pt", foreign, NAMES)
    model = yolov5("n", classes=5)
    fresh = model.state_dict()["model.24.m.0.weight"].clone()
    note = load_weights(model, read_weights(tmp_path / "w.pt"))
    assert note == (
        "The weights know 3 classes and the data has 5: all layers but the head were taken over, the head begins fresh."
    )
    assert torch.equal(model.state_dict()["model.23.cv3.conv.weight"], state["model.23.cv3.conv.weight"])
    assert torch.equal(model.state_dict()["model.24.m.0.weight"], fresh)
    with pytest.raises(UsageError, match="are those of yolov5n and the network is yolov5s"):
        load_weights(yolov5("s", classes=3), read_weights(tmp_path / "w.pt"))


def test_our_own_weights_come_back_and_torch_can_read_them_safely(tmp_path: Path) -> None:
    model = yolov5("n", classes=2, anchors=[[(8, 16)] * 3, [(20, 30)] * 3, [(99, 88)] * 3])
    path = tmp_path / "runs" / "best.pt"
    save_weights(path, model, ["cat", "dog"], {"epoch": 3, "map50": 0.5})
    weights = read_weights(path)
    assert (weights.names, weights.origin) == (("cat", "dog"), "weights")
    assert all(torch.equal(weights.state[name], value) for name, value in model.state_dict().items())
    plain = torch.load(path, weights_only=True)
    assert plain["anchors"][2][0] == [99.0, 88.0]
    assert plain["extra"] == {"epoch": 3, "map50": 0.5}
    assert read_plain(path)["stride"] == [8, 16, 32]
    assert [file.name for file in path.parent.iterdir()] == ["best.pt"]


def test_a_plain_state_dict_is_taken_too(tmp_path: Path) -> None:
    model = yolov5("n", classes=2)
    torch.save(model.state_dict(), tmp_path / "w.pt")
    assert read_weights(tmp_path / "w.pt").classes == 2


def test_a_failed_write_leaves_the_file_before(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    path.write_bytes(b"before")

    def fail(file: Any) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, fail)
    assert path.read_bytes() == b"before"
    assert [file.name for file in tmp_path.iterdir()] == ["last.pt"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full disk at hand")
def test_a_full_disk_is_an_os_error_and_not_torchs_own() -> None:
    script = (
        "import resource, signal, sys, pathlib\n"
        "from oomph.detect import yolov5, save_weights\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))\n"
        "path = pathlib.Path(sys.argv[1]) / 'w.pt'\n"
        "path.write_bytes(b'before')\n"
        "try:\n    save_weights(path, yolov5('n', classes=2), ['a', 'b'])\n"
        "except OSError:\n    print('survived', path.read_bytes(), len(list(path.parent.iterdir())))\n"
    )
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-c", script, folder], capture_output=True, text=True, check=False)
    assert done.stdout == "survived b'before' 1\n", done.stderr


def test_damage_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    save_weights(path, yolov5("n", classes=2), ["a", "b"])
    whole = bytearray(path.read_bytes())
    middle = len(whole) // 2
    whole[middle : middle + 256] = bytes(byte ^ 255 for byte in whole[middle : middle + 256])  # more than padding
    path.write_bytes(whole)
    with pytest.raises(UsageError, match="is damaged"):
        read_weights(path)
    path.write_bytes(whole[:middle])
    with pytest.raises(UsageError, match="is damaged"):
        read_weights(path)


def test_files_that_are_no_checkpoints_get_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match="there is no file"):
        read_weights(tmp_path / "none.pt")
    with pytest.raises(UsageError, match="can't be read"):
        read_weights(tmp_path)
    old = tmp_path / "old.pt"
    torch.save({"a": torch.ones(2)}, old, _use_new_zipfile_serialization=False)
    with pytest.raises(UsageError, match=r"no zip file, as torch has written them since 1\.6"):
        read_weights(old)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("hello.txt", "hello")
    with pytest.raises(UsageError, match="is a zip file but no checkpoint"):
        read_weights(tmp_path / "a.zip")
    torch.save({"model": {"weight": torch.ones(2)}}, tmp_path / "other.pt")
    with pytest.raises(UsageError, match="not those of YOLOv5"):
        read_weights(tmp_path / "other.pt")
    torch.save({"hello": 3}, tmp_path / "empty.pt")
    with pytest.raises(UsageError, match="holds no model"):
        read_weights(tmp_path / "empty.pt")


class Evil:
    """A pickle that would leave a mark if it were run."""

    def __init__(self, call: Any, *args: Any) -> None:
        self.call, self.args = call, args

    def __reduce__(self) -> Any:
        return self.call, self.args


def with_pickle(path: Path, pickled: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/version", "3")
    return path


def marks(mark: Path) -> dict[str, bytes]:
    """Files that would make a mark, each in its own way."""
    touch = f"touch {mark}"
    code = f"open({str(mark)!r}, 'w')"
    nested = {"model": [{"deep": (Evil(os.system, touch),)}]}
    state = Evil(getattr, Evil(__import__, "os"), "system")
    return {
        "system": pickle.dumps(Evil(os.system, touch), 2),
        "system4": pickle.dumps(Evil(os.system, touch), 4),
        "nested": pickle.dumps(nested, 2),
        "eval": pickle.dumps({"ema": Evil(builtins.eval, code)}, 2),
        "exec": pickle.dumps({"ema": Evil(builtins.exec, code)}, 2),
        "popen": pickle.dumps(Evil(subprocess.Popen, ["touch", str(mark)]), 2),
        "getattr": pickle.dumps(state, 2),
        "load": pickle.dumps(Evil(torch.load, str(mark)), 2),
        "hub": b"\x80\x02ctorch.hub\nload\nX\x01\x00\x00\x00a\x85R.",
        "unknown": b"\x80\x02csome.package\nfunction\nX\x01\x00\x00\x00a\x85R.",
        "old style": b"cos\nsystem\n(S'" + touch.encode() + b"'\ntR.",
        "inst": b"(S'" + touch.encode() + b"'\nios\nsystem\n.",
        "obj": b"(csome.package\nThing\nS'x'\no.",
        "dotted": b"\x80\x04\x8c\x05torch\x8c\x14_utils.os.system.abc\x93\x8c\x01a\x85R.",
        "extension": b"\x80\x02\x82\x01.",
        "memo": b"\x80\x02Nr\xff\xff\xff\x7f.",
        "rebuild": b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(cos\nsystem\nK\x00))\x89NtR.",
        "tamper": b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}X\x01\x00\x00\x00aK\x01sb.",
        "class state": b"\x80\x02csome.package\nThing\n}X\x01\x00\x00\x00aK\x01sb.",
        "truncated": b"\x80\x02}q\x00X\x05\x00\x00\x00mod",
        "huge": b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.",
        "empty": b"",
    }


@pytest.mark.parametrize("name", marks(Path("mark")))
def test_a_malicious_file_runs_nothing_and_is_refused_with_one_sentence(name: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    path = with_pickle(tmp_path / "evil.pt", marks(mark)[name])
    with pytest.raises(UsageError) as caught:
        read_weights(path)
    assert not mark.exists()
    words = str(caught.value)
    assert "\n" not in words
    assert words.endswith(f"; {caught.value.fix}.")


def test_the_refusal_names_what_was_asked_for(tmp_path: Path) -> None:
    path = with_pickle(tmp_path / "evil.pt", marks(tmp_path / "mark")["system"])
    with pytest.raises(UsageError, match=r"asks for posix\.system, which can run things|asks for nt\.system"):
        read_weights(path)
    path = with_pickle(tmp_path / "evil.pt", marks(tmp_path / "mark")["unknown"])
    with pytest.raises(UsageError, match=r"asks to call some\.package\.function when it is read"):
        read_weights(path)


def test_the_marks_would_be_made_by_an_ordinary_reader(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    pickle.loads(marks(mark)["system"])  # noqa: S301  that is the point
    assert mark.exists()


@pytest.mark.parametrize(
    "tensor",
    [
        b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04tQ",
    ],
)
@pytest.mark.parametrize("shape", [b"K\x00(K\x08t(K\x01t", b"K\x00(J\xff\xff\xff\x7ft(K\x00t", b"K\x05(K\x01t(K\x01t"])
def test_a_tensor_can_not_reach_outside_its_storage(tmp_path: Path, tensor: bytes, shape: bytes) -> None:
    data = b"\x80\x02}X\x05\x00\x00\x00model}X\x01\x00\x00\x00wctorch._utils\n_rebuild_tensor_v2\n("
    data += tensor + shape + b"\x89NtRss."
    path = tmp_path / "w.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", data)
        archive.writestr("archive/data/0", bytes(16))
    with pytest.raises(UsageError, match="lies outside its storage"):
        read_weights(path)


def test_shared_and_endless_nests_are_no_trap(tmp_path: Path) -> None:
    laughs: list[Any] = []
    for _ in range(60):
        laughs = [laughs, laughs]
    torch.save(laughs, tmp_path / "laughs.pt")
    assert len(read_plain(tmp_path / "laughs.pt")) == 2
    endless: list[Any] = []
    endless.append(endless)
    torch.save(endless, tmp_path / "endless.pt")
    with pytest.raises(UsageError, match="without an end"):
        read_plain(tmp_path / "endless.pt")


def test_shared_modules_are_no_trap(tmp_path: Path, foreign: type[nn.Module]) -> None:
    inner = foreign()
    for _ in range(40):
        outer = foreign()
        outer.add_module("a", inner)
        outer.add_module("b", inner)
        inner = outer
    torch.save({"model": inner}, tmp_path / "w.pt")
    with pytest.raises(UsageError, match="modules inside modules without an end"):
        read_weights(tmp_path / "w.pt")


@pytest.mark.parametrize("seed", range(3))
def test_garbled_pickles_are_refused_and_nothing_worse(seed: int, foreign: type[nn.Module]) -> None:
    import random

    buffer = io.BytesIO()
    torch.save({"model": wrap(nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2)), foreign, NAMES)}, buffer)
    with zipfile.ZipFile(buffer) as archive:
        good = archive.read("archive/data.pkl")
    assert isinstance(_inert._unpickle(good), dict)
    chance = random.Random(seed)  # noqa: S311  the same garble every time
    refused = 0
    for _ in range(300):
        bad = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            bad[chance.randrange(len(bad))] = chance.randrange(256)
        try:
            _inert._unpickle(bytes(bad))
        except _inert._Refused:
            refused += 1
    assert refused > 50


def test_a_compressed_part_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"a": "b" * 10_000}, 2))
    with pytest.raises(UsageError, match="compressed or too large"):
        read_weights(path)


def test_plain_reading_refuses_objects(tmp_path: Path, foreign: type[nn.Module]) -> None:
    torch.save({"step": 3, "rng": torch.get_rng_state(), "nested": [(1, "a")]}, tmp_path / "plain.pt")
    found = read_plain(tmp_path / "plain.pt")
    assert found["nested"] == [(1, "a")]
    assert torch.equal(found["rng"], torch.get_rng_state())
    torch.save({"model": foreign()}, tmp_path / "object.pt")
    with pytest.raises(UsageError, match=r"holds a models\.yolo\.Model"):
        read_plain(tmp_path / "object.pt")
