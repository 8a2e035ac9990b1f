from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from oomph.detect import yolov5
from oomph.errors import InvalidFile, MissingFile, UsageError
from oomph.shrink import load_quantized, quantize, save_quantized

needs_torchao = pytest.mark.export


class Classifier(nn.Module):
    """Text classifier with an embedding, attention, a norm and linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.encoder = nn.TransformerEncoderLayer(32, 2, 256, batch_first=True)
        self.classes = nn.Linear(32, 7)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.classes(self.encoder(self.embedding(tokens)).mean(1))
        return outputs


class Tied(nn.Module):
    """Language model whose last layer shares the weight of its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 64)
        self.hidden = nn.Linear(64, 64)
        self.last = nn.Linear(64, 20, bias=False)
        self.last.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.last(self.hidden(self.embedding(tokens)))
        return outputs


@pytest.fixture
def model() -> Classifier:
    pytest.importorskip("torchao")
    torch.manual_seed(0)
    return Classifier()


TOKENS = (torch.arange(12).view(2, 6),)


def test_an_unknown_method_is_one_sentence() -> None:
    with pytest.raises(UsageError, match=r"the method is 'int4'; choose int8-dynamic or int8-weight-only"):
        quantize(nn.Linear(4, 4), "int4")


def test_missing_torchao_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchao", None)
    with pytest.raises(UsageError, match=r"need torchao, which isn't installed; run `pip install 'oomph\[shrink\]'`"):
        quantize(nn.Linear(4, 4), "int8-dynamic")


@needs_torchao
@pytest.mark.parametrize("method", ["int8-dynamic", "int8-weight-only"])
def test_linear_layers_become_int8_and_others_are_named(model: Classifier, method: str) -> None:
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    result = quantize(model, method, TOKENS)
    assert result.float_layers == ("embedding", "encoder.self_attn", "encoder.self_attn.out_proj")
    int8 = 2 * 32 * 256 + 32 * 7
    assert result.share == pytest.approx(int8 / sum(parameter.numel() for parameter in model.parameters()))
    # A byte instead of four, and a float for each output: its scale.
    saved = 3 * int8
    assert saved - 10 * (256 + 32 + 7) <= result.bytes_before - result.bytes_after <= saved
    assert result.difference is not None
    assert 0 < result.difference < 0.05
    assert model.training
    assert not result.model.training
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, state[name])


@needs_torchao
@pytest.mark.parametrize("method", ["int8-dynamic", "int8-weight-only"])
def test_a_saved_model_computes_the_same(model: Classifier, method: str, tmp_path: Path) -> None:
    result = quantize(model, method)
    assert result.difference is None
    save_quantized(tmp_path / "q.pt", result)
    assert (tmp_path / "q.pt").stat().st_size < 0.7 * result.bytes_before
    fresh = Classifier()
    loaded = load_quantized(tmp_path / "q.pt", fresh)
    with torch.no_grad():
        assert torch.equal(loaded(*TOKENS), result.model(*TOKENS))
        assert not torch.allclose(fresh.eval()(*TOKENS), loaded(*TOKENS), atol=1e-3)


@needs_torchao
def test_a_shared_weight_stays_in_float() -> None:
    pytest.importorskip("torchao")
    result = quantize(Tied(), "int8-weight-only", TOKENS)
    assert result.float_layers == ("embedding", "last")
    assert result.bytes_after < result.bytes_before


@needs_torchao
def test_a_convolutional_net_is_rejected_with_its_sizes() -> None:
    pytest.importorskip("torchao")
    with pytest.raises(UsageError) as error:
        quantize(yolov5("n", 4), "int8-dynamic")
    message = str(error.value)
    assert "60 convolutions would stay in float, and the weights would be 6.79 MiB before and after" in message
    assert "oomph shrink quantize" in message


@needs_torchao
def test_other_files_are_rejected(model: Classifier, tmp_path: Path) -> None:
    class Code:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (tmp_path / "executed",)  # type: ignore[return-value]

    files = {name: tmp_path / f"{name}.pt" for name in ("text", "code", "weights", "pickled")}
    files["text"].write_text("hello")
    torch.save({"format": "oomph quantized", "version": 1, "state": Code()}, files["code"])
    torch.save(model.state_dict(), files["weights"])
    files["pickled"].write_bytes(pickle.dumps(Code()))
    for file in files.values():
        with pytest.raises(InvalidFile, match=r"can't be read|not a file of"):
            load_quantized(file, model)
    assert not (tmp_path / "executed").exists()
    with pytest.raises(MissingFile, match="there is no file"):
        load_quantized(tmp_path / "no.pt", model)
    save_quantized(tmp_path / "q.pt", quantize(model, "int8-weight-only"))
    with pytest.raises(UsageError, match="the weights of another model"):
        load_quantized(tmp_path / "q.pt", nn.Linear(3, 3))
