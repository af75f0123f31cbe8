"""Squash on a GPU in one kernel each way: plain code takes a dozen small ones."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from textcapsules.model.kernels.gpu.call import power_of_two, run
from textcapsules.model.kernels.gpu.parts import (
    jit,
    squash_gradient,
    squash_poses,
    tl,
    triton,
)

# pyright: reportInvalidTypeForm=false, reportPossiblyUnboundVariable=false
__all__ = ["squash_gpu"]

_ROWS = 64  # poses a program squashes


@jit
def tile(N, D: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr):
    """Return the places of this program's rows, (BN, BD), and which of them exist."""
    rows = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    d = tl.arange(0, BD)
    inside = (rows < N)[:, None] & (d < D)[None, :]
    return rows[:, None] * D + d[None, :], inside


@jit
def squash_rows(
    x_ptr,
    out_ptr,
    N,
    D: tl.constexpr,
    SQUASH: tl.constexpr,
    BN: tl.constexpr,
    BD: tl.constexpr,
):
    """Squash BN rows."""
    places, inside = tile(N, D, BN, BD)
    x = tl.load(x_ptr + places, mask=inside, other=0.0).to(tl.float32)
    out = squash_poses(x, SQUASH).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + places, out, mask=inside)


@jit
def squash_rows_backward(
    x_ptr,
    slope_ptr,
    out_ptr,
    N,
    D: tl.constexpr,
    SQUASH: tl.constexpr,
    BN: tl.constexpr,
    BD: tl.constexpr,
):
    """Pull the gradient of BN squashed rows back."""
    places, inside = tile(N, D, BN, BD)
    x = tl.load(x_ptr + places, mask=inside, other=0.0).to(tl.float32)
    dv = tl.load(slope_ptr + places, mask=inside, other=0.0).to(tl.float32)
    out = squash_gradient(x, dv, SQUASH).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + places, out, mask=inside)


class _Squash(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, poses: Tensor, kind: str) -> Tensor:
        poses = poses.contiguous()
        ctx.save_for_backward(poses)
        ctx.kind = kind
        return launch(squash_rows, kind, poses)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        (poses,) = ctx.saved_tensors
        return launch(squash_rows_backward, ctx.kind, poses, slope.contiguous()), None


def launch(kernel: Any, kind: str, *tensors: Tensor) -> Tensor:
    """Run a kernel over all rows and return what it wrote."""
    D = tensors[0].shape[-1]
    out, n_rows = torch.empty_like(tensors[0]), tensors[0].numel() // D
    run(
        kernel,
        (triton.cdiv(n_rows, _ROWS),),
        *tensors,
        out,
        n_rows,
        D=D,
        SQUASH=kind,
        BN=_ROWS,
        BD=power_of_two(D),
    )
    return out


def squash_gpu(poses: Tensor, kind: str) -> Tensor:
    """Return `functional.squash` of poses (..., D)."""
    return poses if kind == "none" else _Squash.apply(poses, kind)  # type: ignore[return-value]
