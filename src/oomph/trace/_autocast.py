"""CUDA's autocast, played on the CPU's dispatch key.

Tracing runs on fake CPU tensors, and the CPU's autocast has other lists than CUDA's: it leaves LayerNorm and GroupNorm
in low precision, casts losses that CUDA doesn't, and so on. While a trace runs, the kernels of the CPU's autocast key
are replaced by the ones below, which follow CUDA's lists and keep its cache of cast weights; then they are taken away
again.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

LOWER = """
    _convolution.deprecated _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input
    conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm baddbmm
    bmm chain_matmul linalg_multi_dot lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell scaled_dot_product_attention
"""
FULL = """
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar pow.Tensor_Tensor
    pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm frobenius_norm.dim nuclear_norm
    nuclear_norm.dim cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss
    kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss
    triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp
    upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d
    _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d
    upsample_bicubic2d _upsample_bicubic2d_aa
"""
FULL_RESULT = """
    prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm
    linalg_matrix_norm.str_ord sum sum.dim_IntList
"""
WIDEST = "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add"
# On the CPU's lists and not on CUDA's: these pass as they are.
UNTOUCHED = """
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
_ALONE = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
Kernel = Callable[..., Any]


class CudaAutocast:
    """Context in which `torch.autocast("cpu", dtype)` behaves as `torch.autocast("cuda", dtype)` would."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._cast: dict[int, tuple[Tensor, Tensor]] = {}
        self._library: torch.library.Library | None = None
        self._clear = torch.clear_autocast_cache

    def __enter__(self) -> CudaAutocast:  # noqa: PYI034  Self is not in Python 3.10
        self._library = torch.library.Library("aten", "IMPL")
        policies: tuple[tuple[str, Callable[[Kernel], Kernel]], ...] = (
            (LOWER, self._lower),
            (FULL, self._full),
            (FULL_RESULT, self._full_result),
            (WIDEST, self._widest),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a kernel is replaced is the point
            for names, policy in policies:
                for name in names.split():
                    self._replace(name, policy)
            for name in UNTOUCHED.split():
                if _operation(name) is not None:
                    # What such an operation calls is still cast, as on CUDA: it falls through, it isn't excluded.
                    self._library.impl(name, torch.library.fallthrough_kernel, _KEY)
        torch.clear_autocast_cache = self.forget  # an outermost region that ends calls it
        return self

    def __exit__(self, *_: object) -> None:
        assert self._library is not None  # noqa: S101  set on entry
        self._library._destroy()
        torch.clear_autocast_cache = self._clear
        self._cast.clear()

    def forget(self) -> None:
        """Drop the cast weights, as leaving an outermost region of autocast does, in repeated forward passes too."""
        self._clear()
        self._cast.clear()

    def _replace(self, name: str, policy: Callable[[Kernel], Kernel]) -> None:
        op = _operation(name)
        if op is None:
            return

        def kernel(*args: Any, **kwargs: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(_ALONE):
                return policy(op)(*args, **kwargs)

        assert self._library is not None  # noqa: S101
        self._library.impl(name, kernel, _KEY)

    def _lower(self, op: Kernel) -> Kernel:
        return lambda *args, **kwargs: self._call(op, args, kwargs, self.dtype)

    def _full(self, op: Kernel) -> Kernel:
        return lambda *args, **kwargs: self._call(op, args, kwargs, torch.float32)

    def _full_result(self, op: Kernel) -> Kernel:
        def call(*args: Any, **kwargs: Any) -> Any:
            said = kwargs.get("dtype") is not None or any(isinstance(value, torch.dtype) for value in args)
            if not said and _eligible(args[0]):
                kwargs["dtype"] = torch.float32
            return op(*args, **kwargs)

        return call

    def _widest(self, op: Kernel) -> Kernel:
        def call(*args: Any, **kwargs: Any) -> Any:
            full = any(leaf.dtype == torch.float32 for leaf in tree_leaves((args, kwargs)) if _eligible(leaf))
            wanted = torch.float32 if full else self.dtype
            return self._call(op, args, kwargs, wanted)

        return call

    def _call(self, op: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], dtype: torch.dtype) -> Any:
        """Call with everything cast; the last argument first, as the compiler of torch's binaries orders them."""
        named = {name: self._to(kwargs[name], dtype) for name in reversed(kwargs)}
        given = [self._to(value, dtype) for value in reversed(args)]
        return op(*reversed(given), **named)

    def _to(self, values: Any, dtype: torch.dtype) -> Any:
        return tree_map(lambda value: self._cached(value, dtype) if _eligible(value) else value, values)

    def _cached(self, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        if tensor.dtype == dtype:
            return tensor
        weight = tensor.requires_grad and tensor.is_leaf and tensor.dtype == torch.float32 and not tensor._is_view()
        if not weight or dtype != self.dtype:
            return tensor.to(dtype)
        if id(tensor) not in self._cast:
            self._cast[id(tensor)] = (tensor, tensor.to(dtype))
        return self._cast[id(tensor)][1]


def _operation(name: str) -> Kernel | None:
    """An operation by name; None where this version of torch has none of that name."""
    packet = getattr(torch.ops.aten, name.split(".", maxsplit=1)[0], None)
    return getattr(packet, name.partition(".")[2] or "default", None)


def _eligible(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and value.dtype != torch.float64
