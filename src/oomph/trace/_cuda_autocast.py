"""CUDA's autocast rules, applied through the CPU's dispatch key.

Tracing runs on fake CPU tensors, and the CPU's autocast lists differ from CUDA's: they leave LayerNorm and GroupNorm in
low precision, cast losses that CUDA does not, and so on. During a trace, the kernels below replace those of the CPU's
autocast key. They follow CUDA's lists and keep its cache of cast weights.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

LOW_PRECISION_OPS = """
    _convolution.deprecated _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input
    conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm baddbmm
    bmm chain_matmul linalg_multi_dot lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell scaled_dot_product_attention
"""
FP32_OPS = """
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar pow.Tensor_Tensor
    pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm frobenius_norm.dim nuclear_norm
    nuclear_norm.dim cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss
    kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss
    triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp
    upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d
    _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d
    upsample_bicubic2d _upsample_bicubic2d_aa
"""
FP32_RESULT_OPS = """
    prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm
    linalg_matrix_norm.str_ord sum sum.dim_IntList
"""
PROMOTE_OPS = "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add"
# Ops on the CPU's lists that are not on CUDA's: autocast ignores them.
IGNORED_OPS = """
    cat stack
    avg_pool3d binary_cross_entropy polar quantile nanquantile stft trace cholesky cholesky_inverse cholesky_solve
    inverse lu_solve orgqr ormqr pinverse max_pool3d max_unpool2d max_unpool3d adaptive_avg_pool3d reflection_pad1d
    reflection_pad2d replication_pad1d replication_pad2d replication_pad3d cross_entropy_loss ctc_loss.IntList
    ctc_loss.Tensor fft_fft linalg_cond linalg_cond.p_str linalg_matrix_rank linalg_solve linalg_cholesky
    linalg_svdvals linalg_eigvals linalg_eigvalsh linalg_inv linalg_householder_product linalg_tensorinv
    linalg_tensorsolve fake_quantize_per_tensor_affine geqrf _lu_with_info qr svd triangular_solve
    fractional_max_pool2d fractional_max_pool3d adaptive_max_pool3d multilabel_margin_loss_forward linalg_qr
    linalg_cholesky_ex linalg_svd linalg_eig linalg_eigh linalg_lstsq linalg_inv_ex index_copy
"""

_KEY = "AutocastCPU"
_KEY_SET = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
Kernel = Callable[..., Any]


class CudaAutocast:
    """Context in which `torch.autocast("cpu", dtype)` behaves like `torch.autocast("cuda", dtype)`."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._cast_weights: dict[int, tuple[Tensor, Tensor]] = {}
        self._library: torch.library.Library | None = None
        self._torch_clear_cache = torch.clear_autocast_cache

    def __enter__(self) -> CudaAutocast:  # noqa: PYI034  Self is not in Python 3.10
        self._library = torch.library.Library("aten", "IMPL")
        policies: tuple[tuple[str, Callable[[Kernel], Kernel]], ...] = (
            (LOW_PRECISION_OPS, self._low_precision),
            (FP32_OPS, self._fp32),
            (FP32_RESULT_OPS, self._fp32_result),
            (PROMOTE_OPS, self._promote),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about replaced kernels
            for names, policy in policies:
                for name in names.split():
                    self._replace(name, policy)
            for name in IGNORED_OPS.split():
                if _find_op(name) is not None:
                    # Fall through instead of excluding the key: operations called from here are still cast, as on CUDA.
                    self._library.impl(name, torch.library.fallthrough_kernel, _KEY)
        torch.clear_autocast_cache = self.clear_cache  # torch.autocast calls it when the outermost region ends
        return self

    def __exit__(self, *_: object) -> None:
        assert self._library is not None  # noqa: S101  set on entry
        self._library._destroy()
        torch.clear_autocast_cache = self._torch_clear_cache
        self._cast_weights.clear()

    def clear_cache(self) -> None:
        """Drop the cast weights, as torch does whenever an outermost autocast region ends."""
        self._torch_clear_cache()
        self._cast_weights.clear()

    def _replace(self, name: str, policy: Callable[[Kernel], Kernel]) -> None:
        op = _find_op(name)
        if op is None:
            return

        def kernel(*args: Any, **kwargs: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(_KEY_SET):
                return policy(op)(*args, **kwargs)

        assert self._library is not None  # noqa: S101
        self._library.impl(name, kernel, _KEY)

    def _low_precision(self, op: Kernel) -> Kernel:
        return lambda *args, **kwargs: self._call(op, args, kwargs, self.dtype)

    def _fp32(self, op: Kernel) -> Kernel:
        return lambda *args, **kwargs: self._call(op, args, kwargs, torch.float32)

    def _fp32_result(self, op: Kernel) -> Kernel:
        def call(*args: Any, **kwargs: Any) -> Any:
            has_dtype = kwargs.get("dtype") is not None or any(isinstance(value, torch.dtype) for value in args)
            if not has_dtype and _is_castable(args[0]):
                kwargs["dtype"] = torch.float32
            return op(*args, **kwargs)

        return call

    def _promote(self, op: Kernel) -> Kernel:
        def call(*args: Any, **kwargs: Any) -> Any:
            any_fp32 = any(leaf.dtype == torch.float32 for leaf in tree_leaves((args, kwargs)) if _is_castable(leaf))
            return self._call(op, args, kwargs, torch.float32 if any_fp32 else self.dtype)

        return call

    def _call(self, op: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], dtype: torch.dtype) -> Any:
        """Call with all arguments cast, the last one first: the evaluation order in torch's compiled binaries."""
        cast_kwargs = {name: self._cast_all(kwargs[name], dtype) for name in reversed(kwargs)}
        cast_args = [self._cast_all(value, dtype) for value in reversed(args)]
        return op(*reversed(cast_args), **cast_kwargs)

    def _cast_all(self, values: Any, dtype: torch.dtype) -> Any:
        return tree_map(lambda value: self._cast(value, dtype) if _is_castable(value) else value, values)

    def _cast(self, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        if tensor.dtype == dtype:
            return tensor
        is_weight = tensor.requires_grad and tensor.is_leaf and tensor.dtype == torch.float32 and not tensor._is_view()
        if not is_weight or dtype != self.dtype:
            return tensor.to(dtype)
        if id(tensor) not in self._cast_weights:
            self._cast_weights[id(tensor)] = (tensor, tensor.to(dtype))
        return self._cast_weights[id(tensor)][1]


def _find_op(name: str) -> Kernel | None:
    """Return an operation by name; None if this version of torch does not have it."""
    packet = getattr(torch.ops.aten, name.split(".", maxsplit=1)[0], None)
    return getattr(packet, name.partition(".")[2] or "default", None)


def _is_castable(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and value.dtype != torch.float64
