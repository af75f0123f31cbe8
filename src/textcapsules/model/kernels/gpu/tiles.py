"""Triton kernels over tiles of parents, for more of them than a program can hold.

The softmax's maximum and total come from a pass before the sums, and memory grows with
children plus parents, never their product.
"""

from __future__ import annotations

from textcapsules.model.kernels.gpu.chunks import add_children, softmax_tile
from textcapsules.model.kernels.gpu.parts import (
    child_weight,
    jit,
    load_children,
    load_couplings,
    load_state,
    store_state,
    tl,
    unit_rows,
)

# Inside kernels nothing has the type it seems to have.
# pyright: reportInvalidTypeForm=false, reportPossiblyUnboundVariable=false


@jit
def normalise_children(
    u_ptr, mask_ptr, pull_ptr, norm_ptr, P, W, C, I,  # noqa: E741
    mask_b, mask_w, mask_k, r: tl.constexpr, J: tl.constexpr, D: tl.constexpr,
    R: tl.constexpr, LEAKY: tl.constexpr, PRECISION: tl.constexpr, BI: tl.constexpr,
    BJ: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Write the maximum of a child's logits and the total of their exponentials."""
    n = tl.program_id(0).to(tl.int64)
    u_ptr += ((n // W) * P + n % W) * C * D
    mask_ptr += (n // W) * mask_b + (n % W) * mask_w
    pull_ptr += (n * (R - 1) + r - 1) * J * (D + 1)
    i, d = tl.program_id(1) * BI + tl.arange(0, BI), tl.arange(0, BD)
    u, _ = load_children(u_ptr, mask_ptr, mask_k, i, d, I, C, D)
    top = tl.full((BI,), 0.0 if LEAKY else float("-inf"), tl.float32)
    total = tl.full((BI,), 1.0 if LEAKY else 0.0, tl.float32)
    for first in range(0, J, BJ):
        j = first + tl.arange(0, BJ)
        A, k = load_state(pull_ptr, j, d, J, D)
        logits = tl.dot(u, tl.trans(A), input_precision=PRECISION) + k[None, :]
        logits = tl.where((j < J)[None, :], logits, float("-inf"))
        higher = tl.maximum(top, tl.max(logits, 1))
        total = total * tl.exp(top - higher)
        total += tl.sum(tl.exp(logits - higher[:, None]), 1)
        top = higher
    norm_ptr += n * 2 * I
    tl.store(norm_ptr + i, top, mask=i < I)
    tl.store(norm_ptr + I + i, total, mask=i < I)


@jit
def coupling_gradient(
    u, A, k, ds, dsigma, norm_ptr, dcoupling_ptr, i, j, I, J: tl.constexpr,  # noqa: E741
    DCOUPLING: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return a tile of the softmax p and of the couplings' gradient dc."""
    p = softmax_tile(u, A, k, norm_ptr, i, j, I, J, PRECISION)
    dc = tl.dot(u, tl.trans(ds), input_precision=PRECISION) + dsigma[None, :]
    if DCOUPLING:
        dc += load_couplings(dcoupling_ptr, i, j, I, J)
    return p, dc


@jit
def scatter_tiles(
    u_ptr, mask_ptr, dcoupling_ptr, pull_ptr, norm_ptr, dsum_ptr, du_ptr, da_ptr,
    P, W, C, I, mask_b, mask_w, mask_k, r: tl.constexpr, J: tl.constexpr,  # noqa: E741
    D: tl.constexpr, R: tl.constexpr, AMENDMENT: tl.constexpr,
    DCOUPLING: tl.constexpr, PRECISION: tl.constexpr, BI: tl.constexpr,
    BJ: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Add to du of a tile of children, over all parents; write dâ."""
    n = tl.program_id(0).to(tl.int64)
    u_ptr += ((n // W) * P + n % W) * C * D
    mask_ptr += (n // W) * mask_b + (n % W) * mask_w
    pull_ptr += (n * (R - 1) + r - 1) * J * (D + 1)
    dsum_ptr += n * J * (D + 1)
    norm_ptr += n * 2 * I
    dcoupling_ptr += n * I * J
    i, d = tl.program_id(1) * BI + tl.arange(0, BI), tl.arange(0, BD)
    u, seen = load_children(u_ptr, mask_ptr, mask_k, i, d, I, C, D)
    weight = child_weight(u, seen, AMENDMENT)
    da = tl.zeros((BI,), tl.float32)
    du = tl.zeros((BI, BD), tl.float32)
    for first in range(0, J, BJ):
        j = first + tl.arange(0, BJ)
        A, k = load_state(pull_ptr, j, d, J, D)
        ds, dsigma = load_state(dsum_ptr, j, d, J, D)
        p, dc = coupling_gradient(
            u, A, k, ds, dsigma, norm_ptr, dcoupling_ptr, i, j, I, J, DCOUPLING,
            PRECISION,
        )  # fmt: skip
        da += tl.sum(p * dc, 1)
        du += tl.dot(weight[:, None] * p, ds, input_precision=PRECISION)
    for first in range(0, J, BJ):
        j = first + tl.arange(0, BJ)
        A, k = load_state(pull_ptr, j, d, J, D)
        ds, dsigma = load_state(dsum_ptr, j, d, J, D)
        p, dc = coupling_gradient(
            u, A, k, ds, dsigma, norm_ptr, dcoupling_ptr, i, j, I, J, DCOUPLING,
            PRECISION,
        )  # fmt: skip
        dl = weight[:, None] * p * (dc - da[:, None])
        du += tl.dot(dl, A, input_precision=PRECISION)
    if AMENDMENT:
        unit, _ = unit_rows(u)
        du += (seen * da)[:, None] * unit
    add_children(du_ptr + n * I * D, du, i, d, I, D, r < R - 1)
    tl.store(da_ptr + n * I + i, da, mask=i < I)


@jit
def pull_tiles(
    u_ptr, mask_ptr, dcoupling_ptr, pull_ptr, norm_ptr, dsum_ptr, da_ptr, out_ptr,
    P, W, C, I, mask_b, mask_w, mask_k, each, r: tl.constexpr,  # noqa: E741
    J: tl.constexpr, D: tl.constexpr, R: tl.constexpr, AMENDMENT: tl.constexpr,
    DCOUPLING: tl.constexpr, PRECISION: tl.constexpr, BI: tl.constexpr,
    BJ: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Write (dA, dk) of a tile of parents over a chunk of children."""
    n, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    u_ptr += ((n // W) * P + n % W) * C * D
    mask_ptr += (n // W) * mask_b + (n % W) * mask_w
    pull_ptr += (n * (R - 1) + r - 1) * J * (D + 1)
    norm_ptr += n * 2 * I
    dcoupling_ptr += n * I * J
    j, d = tl.program_id(2) * BJ + tl.arange(0, BJ), tl.arange(0, BD)
    A, k = load_state(pull_ptr, j, d, J, D)
    ds, dsigma = load_state(dsum_ptr + n * J * (D + 1), j, d, J, D)
    dA = tl.zeros((BJ, BD), tl.float32)
    dk = tl.zeros((BJ,), tl.float32)
    for start in range(part * each, tl.minimum(I, (part + 1) * each), BI):
        i = start + tl.arange(0, BI)
        u, seen = load_children(u_ptr, mask_ptr, mask_k, i, d, I, C, D)
        weight = child_weight(u, seen, AMENDMENT)
        da = tl.load(da_ptr + n * I + i, mask=i < I, other=0.0)
        p, dc = coupling_gradient(
            u, A, k, ds, dsigma, norm_ptr, dcoupling_ptr, i, j, I, J, DCOUPLING,
            PRECISION,
        )  # fmt: skip
        dl = weight[:, None] * p * (dc - da[:, None])
        dA += tl.dot(tl.trans(dl), u, input_precision=PRECISION)
        dk += tl.sum(dl, 0)
    out_ptr += (n * tl.num_programs(1) + part) * J * (D + 1)
    store_state(out_ptr, dA, dk, j, d, J, D)
