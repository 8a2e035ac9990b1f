"""Compiled and GPU-only code as plain Python during a trace: torch.compile, TorchScript, torch.cuda, torch.load."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.weak import WeakTensorKeyDictionary

from .._trace import COMPILED

_CUDA_CALLS = ("empty_cache", "init", "ipc_collect", "reset_peak_memory_stats", "set_device", "synchronize")


@contextmanager
def eager_code(note: Callable[[str], None]) -> Iterator[None]:
    """Run compiled functions as Python, code for a GPU on the CPU, and `Module.to` on fake tensors.

    Args:
        note: receives the assumptions that this rests on.
    """
    with ExitStack() as stack:
        stack.enter_context(_without_compilation(note))
        for owner, name, value in _patches():
            stack.enter_context(_patched(owner, name, value))
        if not torch.cuda.is_available():
            for name in _CUDA_CALLS:
                stack.enter_context(_patched(torch.cuda, name, lambda *_, **__: None))
        yield


@contextmanager
def untraced_transformers() -> Iterator[None]:
    """Let transformers, if it is imported, treat fake tensors as real ones.

    It takes them for a sign of a compiler, and keeps masks without padding, which it drops when it trains.
    """
    imports = sys.modules.get("transformers.utils.import_utils")
    if hasattr(imports, "is_fake_tensor"):
        with _patched(imports, "is_fake_tensor", lambda _: False):
            yield
    else:
        yield


@contextmanager
def _patched(owner: Any, name: str, value: Any) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


def _patches() -> Iterator[tuple[Any, str, Any]]:
    yield nn.Module, "_apply", _apply_to_fake_tensors()
    yield FakeTensor, "tolist", lambda tensor: torch.Tensor.tolist(tensor)  # noqa: PLW0108  looked up when it is called
    yield torch.jit, "script", lambda obj, *_, **__: obj
    yield torch.jit, "trace", lambda function, *_, **__: function
    yield torch._C.ScriptFunction, "__call__", _run_script_as_python()
    yield torch, "load", _load_on_cpu(torch.load)
    yield torch.autocast, "__init__", _autocast_on_cpu(torch.autocast.__init__)


@contextmanager
def _without_compilation(note: Callable[[str], None]) -> Iterator[None]:
    def compile_nothing(model: Any = None, **_: Any) -> Any:
        note(COMPILED)
        return model if model is not None else lambda function: function

    with ExitStack() as stack:
        stack.enter_context(_patched(torch, "compile", compile_nothing))
        if "torch._dynamo" in sys.modules:
            # Functions that were compiled before; importing dynamo for nothing would take seconds.
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        flex = sys.modules.get("torch.nn.attention.flex_attention")
        if flex is not None:
            for name, value in _flex_patches(note):
                if hasattr(flex, name):
                    stack.enter_context(_patched(flex, name, value))
        yield


def _flex_patches(note: Callable[[str], None]) -> Iterator[tuple[str, Any]]:
    def attend(*args: Any, **_: Any) -> Any:
        note("flex_attention counts as its fused kernel, which torch.compile generates")
        return _flex_attention(*args[:3])

    yield "flex_attention_hop", attend
    yield "_validate_device", lambda *_: None  # it rejects training on the CPU
    yield "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True


def _flex_attention(query: Any, key: Any, value: Any) -> Any:
    """Return what the fused kernel returns: the output and, for the backward pass, one number per query."""
    out = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, enable_gqa=query.shape[-3] != key.shape[-3]
    )
    per_query = query.new_empty(query.shape[:-1], dtype=torch.float32)
    return out, per_query, per_query


def _apply_to_fake_tensors() -> Callable[..., nn.Module]:
    """Return a method for `.to()`, `.half()`, `.cuda()` that keeps parameters tied; torch's rejects fake tensors."""
    moved = WeakTensorKeyDictionary()  # parameters on the meta device can't become others in place

    def convert(parameter: nn.Parameter, data: torch.Tensor) -> nn.Parameter:
        if parameter.device == data.device:
            parameter.data = data
            return parameter
        if parameter not in moved:
            moved[parameter] = nn.Parameter(data, parameter.requires_grad)
        return moved[parameter]  # type: ignore[no-any-return]

    def apply(module: nn.Module, function: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> nn.Module:  # noqa: FBT001, FBT002
        for child in module.children() if recurse else ():
            child._apply(function)
        for name, parameter in module._parameters.items():
            if parameter is not None:
                with torch.no_grad():
                    module._parameters[name] = convert(parameter, function(parameter.data))
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = function(buffer)
        return module

    return apply


def _run_script_as_python() -> Callable[..., Any]:
    original = torch._C.ScriptFunction.__call__

    def call(function: Any, *args: Any, **kwargs: Any) -> Any:
        python = getattr(function, "_torchdynamo_inline", None)
        return original(function, *args, **kwargs) if python is None else python(*args, **kwargs)

    return call


def _load_on_cpu(original: Callable[..., Any]) -> Callable[..., Any]:
    def load(file: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        del map_location
        return original(file, "cpu", *args, **kwargs)

    return load


def _autocast_on_cpu(original: Callable[..., None]) -> Callable[..., None]:
    """Redirect `torch.autocast("cuda")` to the CPU's key, where the trace applies CUDA's rules."""

    def init(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        original(self, "cpu" if device_type == "cuda" else device_type, *args, **kwargs)

    return init
