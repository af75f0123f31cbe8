"""The margin loss on a GPU in one kernel: plain code launches two dozen small ones."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from textcapsules.model.kernels.gpu.call import power_of_two, run
from textcapsules.model.kernels.gpu.maths import jit, tl

# In a kernel, names have other types than pyright sees.
# pyright: reportInvalidTypeForm=false
__all__ = ["margin_loss_gpu"]

_CLASSES = 1024  # that a program reads at a time
_LENGTHS = 4096  # of its texts, at a time: a small batch is one program's


@jit
def margin_rows(
    length_ptr, target_ptr, loss_ptr, slope_ptr, N, E, length_row, target_row, share,
    m_plus, m_minus, down_weight, BN: tl.constexpr, BE: tl.constexpr,
):  # fmt: skip
    """Write the loss of BN texts and the gradient of their lengths, times `share`."""
    row = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)[:, None]
    total = tl.zeros((BN, BE), tl.float32)
    for start in range(0, E, BE):
        e = start + tl.arange(0, BE)[None, :]
        inside = (row < N) & (e < E)
        length = tl.load(length_ptr + row * length_row + e, mask=inside, other=0.0)
        target = tl.load(target_ptr + row * target_row + e, mask=inside, other=0.0)
        short = target * tl.maximum(m_plus - length, 0.0)
        long = down_weight * (1 - target) * tl.maximum(length - m_minus, 0.0)
        loss = short * (m_plus - length) + long * (length - m_minus)
        total += tl.where(inside, loss, 0.0)
        tl.store(slope_ptr + row * E + e, 2 * share * (long - short), mask=inside)
    tl.store(loss_ptr + tl.program_id(0), share * tl.sum(tl.sum(total, 1), 0))


class _Margin(torch.autograd.Function):
    """Lengths (B, E) and targets (B, E) to the loss, one number."""

    @staticmethod
    def forward(ctx: Any, lengths: Tensor, targets: Tensor, *margins: float) -> Tensor:
        B, E = lengths.shape
        classes = min(_CLASSES, power_of_two(E))
        texts = min(_LENGTHS // classes, power_of_two(B))
        programs = -(-B // texts)
        losses, slope = lengths.new_empty(programs), lengths.new_empty(B, E)
        rows = (lengths.stride(0), targets.stride(0))
        with torch.cuda.device_of(lengths):
            run(
                margin_rows, (programs,), lengths, targets, losses, slope, B, E, *rows,
                1 / B, *margins, BN=texts, BE=classes,
            )  # fmt: skip
        ctx.save_for_backward(slope)
        return losses.view(()) if programs == 1 else losses.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor):  # type: ignore[override]
        return ctx.saved_tensors[0] * gradient, *(None,) * 4


def margin_loss_gpu(
    lengths: Tensor,
    targets: Tensor,
    *,
    m_plus: float,
    m_minus: float,
    down_weight: float,
) -> Tensor:
    """Return `losses.margin_loss` of lengths (B, E) and targets (B, E)."""
    lengths, targets = (
        t if t.stride(1) == 1 else t.contiguous() for t in (lengths, targets)
    )
    return _Margin.apply(lengths, targets, m_plus, m_minus, down_weight)  # type: ignore[return-value]
