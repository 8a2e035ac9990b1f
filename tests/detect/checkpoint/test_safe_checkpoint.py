"""Checkpoints are data: hostile files execute nothing and are rejected with one sentence."""

from __future__ import annotations

import builtins
import io
import os
import pickle
import random
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from oomph.detect import read_checkpoint, read_weights
from oomph.detect.checkpoint._safe_unpickle import RejectedPickle, safe_unpickle
from oomph.errors import UsageError


class Evil:
    """Calls a function when it is unpickled."""

    def __init__(self, call: Any, *args: Any) -> None:
        self.call, self.args = call, args

    def __reduce__(self) -> Any:
        return self.call, self.args


def write_checkpoint(path: Path, pickled: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/version", "3")
    return path


def hostile_pickles(mark: Path) -> dict[str, bytes]:
    """Return pickles that would create the file `mark`, exhaust memory or crash an ordinary reader."""
    touch = f"touch {mark}"
    code = f"open({str(mark)!r}, 'w')"
    nested = {"model": [{"deep": (Evil(os.system, touch),)}]}
    attribute = Evil(getattr, Evil(__import__, "os"), "system")
    return {
        "system": pickle.dumps(Evil(os.system, touch), 2),
        "system4": pickle.dumps(Evil(os.system, touch), 4),
        "nested": pickle.dumps(nested, 2),
        "eval": pickle.dumps({"ema": Evil(builtins.eval, code)}, 2),
        "exec": pickle.dumps({"ema": Evil(builtins.exec, code)}, 2),
        "popen": pickle.dumps(Evil(subprocess.Popen, ["touch", str(mark)]), 2),
        "getattr": pickle.dumps(attribute, 2),
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


@pytest.mark.parametrize("name", hostile_pickles(Path("mark")))
def test_a_hostile_file_executes_nothing_and_is_rejected_with_one_sentence(name: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    path = write_checkpoint(tmp_path / "evil.pt", hostile_pickles(mark)[name])
    for read in (read_weights, read_checkpoint):
        with pytest.raises(UsageError) as caught:
            read(path)
        assert not mark.exists()
        message = str(caught.value)
        assert "\n" not in message
        assert message.endswith(f"; {caught.value.fix}.")


def test_the_error_names_the_forbidden_call(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "evil.pt", hostile_pickles(tmp_path / "mark")["system"])
    with pytest.raises(UsageError, match=r"refers to (posix|nt)\.system, which can execute code"):
        read_weights(path)
    path = write_checkpoint(tmp_path / "evil.pt", hostile_pickles(tmp_path / "mark")["unknown"])
    with pytest.raises(UsageError, match=r"tries to call some\.package\.function when it is read"):
        read_weights(path)


@pytest.mark.medium
def test_an_ordinary_reader_would_execute_the_call(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    pickle.loads(hostile_pickles(mark)["system"])  # noqa: S301  that is the point
    assert mark.exists()


STORAGE = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04tQ"


@pytest.mark.parametrize("shape", [b"K\x00(K\x08t(K\x01t", b"K\x00(J\xff\xff\xff\x7ft(K\x00t", b"K\x05(K\x01t(K\x01t"])
def test_a_tensor_outside_its_storage_is_rejected(tmp_path: Path, shape: bytes) -> None:
    data = b"\x80\x02}X\x05\x00\x00\x00model}X\x01\x00\x00\x00wctorch._utils\n_rebuild_tensor_v2\n("
    data += STORAGE + shape + b"\x89NtRss."
    path = tmp_path / "w.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", data)
        archive.writestr("archive/data/0", bytes(16))
    with pytest.raises(UsageError, match="lies outside its storage"):
        read_weights(path)


def test_shared_and_endless_nesting(tmp_path: Path) -> None:
    shared: list[Any] = []
    for _ in range(60):
        shared = [shared, shared]
    torch.save(shared, tmp_path / "shared.pt")
    assert len(read_checkpoint(tmp_path / "shared.pt")) == 2
    endless: list[Any] = []
    endless.append(endless)
    torch.save(endless, tmp_path / "endless.pt")
    with pytest.raises(UsageError, match="endlessly nested objects"):
        read_checkpoint(tmp_path / "endless.pt")


@pytest.mark.parametrize("seed", range(3))
def test_random_corruption_is_rejected_and_nothing_worse(seed: int, foreign_module: type[nn.Module]) -> None:
    buffer = io.BytesIO()
    model = foreign_module()
    model.add_module("conv", nn.Conv2d(2, 2, 1))
    torch.save({"model": model, "names": ["a"]}, buffer)
    with zipfile.ZipFile(buffer) as archive:
        good = archive.read("archive/data.pkl")
    assert isinstance(safe_unpickle(good), dict)
    chance = random.Random(seed)  # noqa: S311  reproducible
    rejected = 0
    for _ in range(300):
        bad = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            bad[chance.randrange(len(bad))] = chance.randrange(256)
        try:
            safe_unpickle(bytes(bad))
        except RejectedPickle:
            rejected += 1
    assert rejected > 50


def test_a_compressed_entry_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"a": "b" * 10_000}, 2))
    with pytest.raises(UsageError, match="compressed or too large"):
        read_weights(path)


def test_read_checkpoint_returns_plain_data_and_rejects_objects(
    tmp_path: Path, foreign_module: type[nn.Module]
) -> None:
    content: dict[str, Any] = {
        "step": 3,
        "rng": torch.get_rng_state(),
        "nested": [(1, "a")],
        "bytes": b"\x00\xff",
        "none": None,
    }
    torch.save(content, tmp_path / "plain.pt")
    loaded = read_checkpoint(tmp_path / "plain.pt")
    assert torch.equal(loaded.pop("rng"), content.pop("rng"))
    assert loaded == content
    torch.save({"model": foreign_module()}, tmp_path / "object.pt")
    with pytest.raises(UsageError, match=r"contains a models\.yolo\.Model, not only plain data"):
        read_checkpoint(tmp_path / "object.pt")
