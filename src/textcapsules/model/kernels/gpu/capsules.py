"""Primary capsules and the squash on a GPU, with one kernel or two per direction.

`primary_capsules_gpu` goes from word vectors to squashed capsules. A convolution over
words is a product of every word vector with all filters, Z (B, T, K, F), and a sum
along its diagonals: feature p adds Z[p], Z[p + 1], ... of its K places. The kernel
reads these diagonals and does the rest on chip: bias, ReLU, the linear map to capsules
and their squash. The backward pass recomputes it from the features; each program
takes some n-grams' share of the capsules, and a second kernel adds up what these give
the features.

`squash_gpu` squashes poses from anywhere; plain code launches a dozen small kernels.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from textcapsules.model.kernels.gpu.call import power_of_two, run, sum_rows
from textcapsules.model.kernels.gpu.maths import (
    jit,
    squash_gradient,
    squash_poses,
    tl,
    triton,
)

# In a kernel, names have other types than pyright sees.
# pyright: reportInvalidTypeForm=false, reportPossiblyUnboundVariable=false
__all__ = ["primary_capsules_gpu", "squash_gpu"]

_POSES = 64  # per program of the squash
_NGRAMS = 16  # per program of the primary capsules
_NUMBERS = 64  # entries of their capsules at a time
_GROUPS = 64  # at most, into which products over all n-grams are cut


@jit
def tile(N, D: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr):
    """Return the places of this program's rows, (BN, BD), and which of them exist."""
    rows = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    d = tl.arange(0, BD)
    inside = (rows < N)[:, None] & (d < D)[None, :]
    return rows[:, None] * D + d[None, :], inside


@jit
def squash_rows(
    x_ptr, out_ptr, N, D: tl.constexpr, SQUASH: tl.constexpr, BN: tl.constexpr,
    BD: tl.constexpr,
):  # fmt: skip
    """Squash BN rows."""
    places, inside = tile(N, D, BN, BD)
    x = tl.load(x_ptr + places, mask=inside, other=0.0).to(tl.float32)
    out = squash_poses(x, SQUASH).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + places, out, mask=inside)


@jit
def squash_rows_backward(
    x_ptr, dv_ptr, out_ptr, N, D: tl.constexpr, SQUASH: tl.constexpr, BN: tl.constexpr,
    BD: tl.constexpr,
):  # fmt: skip
    """Turn the gradient of BN squashed rows into that of the rows."""
    places, inside = tile(N, D, BN, BD)
    x = tl.load(x_ptr + places, mask=inside, other=0.0).to(tl.float32)
    dv = tl.load(dv_ptr + places, mask=inside, other=0.0).to(tl.float32)
    out = squash_gradient(x, dv, SQUASH).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + places, out, mask=inside)


class _Squash(torch.autograd.Function):
    """Poses (..., D) to squashed poses."""

    @staticmethod
    def forward(ctx: Any, poses: Tensor, kind: str) -> Tensor:
        poses = poses.contiguous()
        ctx.save_for_backward(poses)
        ctx.kind = kind
        return run_on_rows(squash_rows, kind, poses)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dv: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        (poses,) = ctx.saved_tensors
        return run_on_rows(squash_rows_backward, ctx.kind, poses, dv.contiguous()), None


def run_on_rows(kernel: Any, kind: str, *tensors: Tensor) -> Tensor:
    """Run a kernel of the squash over all rows and return what it wrote."""
    D = tensors[0].shape[-1]
    out, N = torch.empty_like(tensors[0]), tensors[0].numel() // D
    sizes = {"D": D, "SQUASH": kind, "BN": _POSES, "BD": power_of_two(D)}
    run(kernel, (triton.cdiv(N, _POSES),), *tensors, out, N, **sizes)
    return out


def squash_gpu(poses: Tensor, kind: str) -> Tensor:
    """Return `functional.squash` of poses (..., D)."""
    return poses if kind == "none" else _Squash.apply(poses, kind)  # type: ignore[return-value]


@jit
def load_features(
    z_ptr, bias_ptr, rows, f, N, P, T, stride, K: tl.constexpr, F: tl.constexpr
):
    """Return ReLU of the n-grams' features, (BM, BF), from Z."""
    inside = (rows < N)[:, None] & (f < F)[None, :]
    first = (rows // P).to(tl.int64) * T + (rows % P) * stride  # its first word
    total = tl.load(bias_ptr + f, mask=f < F, other=0.0)[None, :]
    total += tl.zeros((rows.shape[0], f.shape[0]), tl.float32)
    for k in tl.static_range(K):
        place = ((first + k) * K + k)[:, None] * F + f[None, :]
        total += tl.load(z_ptr + place, mask=inside, other=0.0)
    return tl.where(inside, tl.maximum(total, 0.0), 0.0)


@jit
def load_map(weight_ptr, bias_ptr, c, d, f, C, D: tl.constexpr, F: tl.constexpr):
    """Return the linear map's columns for entries d of capsules c, and its bias."""
    row, inside = c * D + d, (c < C) & (d < D)  # (BN,)
    here = (f < F)[:, None] & inside[None, :]
    weight = tl.load(weight_ptr + row[None, :] * F + f[:, None], mask=here, other=0.0)
    return weight, tl.load(bias_ptr + row, mask=inside, other=0.0)


@jit
def form_capsules(
    z_ptr, filter_bias_ptr, weight_ptr, bias_ptr, out_ptr, feature_ptr, N, P, T, stride,
    C, K: tl.constexpr, F: tl.constexpr, D: tl.constexpr, SQUASH: tl.constexpr,
    PRECISION: tl.constexpr, BM: tl.constexpr, BF: tl.constexpr, BC: tl.constexpr,
    BD: tl.constexpr,
):  # fmt: skip
    """Write BC capsules of BM n-grams."""
    rows, f = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BF)
    n = tl.arange(0, BC * BD)
    c, d = tl.program_id(1) * BC + n // BD, n % BD
    features = load_features(z_ptr, filter_bias_ptr, rows, f, N, P, T, stride, K, F)
    if tl.program_id(1) == 0:
        here = (rows < N)[:, None] & (f < F)[None, :]
        tl.store(feature_ptr + rows[:, None] * F + f[None, :], features, mask=here)
    weight, bias = load_map(weight_ptr, bias_ptr, c, d, f, C, D, F)
    t = tl.dot(features, weight, input_precision=PRECISION) + bias[None, :]
    v = squash_poses(t.reshape(BM * BC, BD), SQUASH).reshape(BM, BC * BD)
    place = rows[:, None].to(tl.int64) * (C * D) + (c * D + d)[None, :]
    inside = (rows < N)[:, None] & ((c < C) & (d < D))[None, :]
    tl.store(out_ptr + place, v, mask=inside)


@jit
def form_capsules_backward(
    feature_ptr, weight_ptr, bias_ptr, dv_ptr, dt_ptr, dfeature_ptr, part_ptr, N, C,
    F: tl.constexpr, D: tl.constexpr, SQUASH: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BF: tl.constexpr, BC: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Write the gradient of the linear map's output for BC capsules of BM n-grams.

    What it gives the features goes to (C / BC, N, F), its sum over the n-grams to a row
    of `part_ptr`.
    """
    part_ptr += tl.program_id(0) * (C * D + F)
    dfeature_ptr += tl.program_id(1).to(tl.int64) * N * F
    rows, f = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BF)
    n = tl.arange(0, BC * BD)
    c, d = tl.program_id(1) * BC + n // BD, n % BD
    here = (rows < N)[:, None] & (f < F)[None, :]
    at = rows[:, None] * F + f[None, :]
    features = tl.load(feature_ptr + at, mask=here, other=0.0)
    weight, bias = load_map(weight_ptr, bias_ptr, c, d, f, C, D, F)
    t = tl.dot(features, weight, input_precision=PRECISION) + bias[None, :]
    place = rows[:, None].to(tl.int64) * (C * D) + (c * D + d)[None, :]
    inside = (rows < N)[:, None] & ((c < C) & (d < D))[None, :]
    dv = tl.load(dv_ptr + place, mask=inside, other=0.0)
    dt = squash_gradient(
        t.reshape(BM * BC, BD), dv.reshape(BM * BC, BD), SQUASH
    ).reshape(BM, BC * BD)
    dt = tl.where(inside, dt, 0.0)
    tl.store(dt_ptr + place, dt, mask=inside)
    tl.store(part_ptr + c * D + d, tl.sum(dt, 0), mask=(c < C) & (d < D))
    dfeatures = tl.dot(dt, tl.trans(weight), input_precision=PRECISION)
    tl.store(dfeature_ptr + at, dfeatures, mask=here)


@jit
def spread_features(
    feature_ptr, dfeature_ptr, dz_ptr, part_ptr, N, P, T, stride, C, K: tl.constexpr,
    F: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BF: tl.constexpr,
    SPLITS: tl.constexpr,
):  # fmt: skip
    """Add up what all capsules give the features of BM n-grams, and write it to dZ.

    Its sum over the n-grams goes to the end of a row of `part_ptr`.
    """
    rows, f = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BF)
    here = (rows < N)[:, None] & (f < F)[None, :]
    at = rows[:, None] * F + f[None, :]
    total = tl.zeros((BM, BF), tl.float32)
    for split in tl.static_range(SPLITS):  # unrolled: no load waits for another
        place = dfeature_ptr + split * N.to(tl.int64) * F + at
        total += tl.load(place, mask=here, other=0.0)
    features = tl.load(feature_ptr + at, mask=here, other=0.0)
    total = tl.where(features > 0, total, 0.0)
    part_ptr += tl.program_id(0) * (C * D + F) + C * D
    tl.store(part_ptr + f, tl.sum(total, 0), mask=f < F)
    first = (rows // P).to(tl.int64) * T + (rows % P) * stride  # its first word
    for k in tl.static_range(K):
        place = ((first + k) * K + k)[:, None] * F + f[None, :]
        tl.store(dz_ptr + place, total, mask=here)


class _Form(torch.autograd.Function):
    """Word vectors (B, T, V) to capsules (B, P, C, D)."""

    @staticmethod
    def forward(
        ctx: Any, vectors, filters, filter_bias, weight, bias, shape, stride, squash,
        precision,
    ):  # fmt: skip
        (B, T, V), (F, _, K) = vectors.shape, filters.shape
        P, (C, D) = (T - K) // stride + 1, shape
        flat = filters.permute(1, 2, 0).reshape(V, K * F)
        z = vectors.reshape(B * T, V) @ flat  # (B·T, K·F)
        out = vectors.new_empty(B, P, C, D)
        features = vectors.new_empty(B, P, F)
        BD = power_of_two(D)
        tiles = {
            "K": K, "F": F, "D": D, "SQUASH": squash, "PRECISION": precision,
            "BM": _NGRAMS, "BF": max(16, power_of_two(F)),
            "BC": max(1, _NUMBERS // BD), "BD": BD,
        }  # fmt: skip
        ctx.sizes, ctx.tiles = (B * P, P, T, stride, C), tiles
        grid = (triton.cdiv(B * P, _NGRAMS), triton.cdiv(C, tiles["BC"]))
        inputs = (z, filter_bias, weight, bias)
        with torch.cuda.device_of(z):
            run(form_capsules, grid, *inputs, out, features, *ctx.sizes, **tiles)
        ctx.save_for_backward(vectors, flat, features, weight, bias)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dv: Tensor):  # type: ignore[override]
        vectors, flat, features, weight, bias = ctx.saved_tensors
        (B, T, V), (N, _, _, _, C) = vectors.shape, ctx.sizes
        F, D, K = (ctx.tiles[name] for name in "FDK")
        dt = vectors.new_empty(B, N // B, C * D)
        dz = vectors.new_zeros(B, T, K * F)  # zeros: some words are no n-gram's k-th
        # Of the filters' and the map's gradients, one row per group of texts; of the
        # biases', one per program. One kernel adds both up.
        groups = next(n for n in range(min(B, _GROUPS), 0, -1) if B % n == 0)
        programs = triton.cdiv(N, _NGRAMS)
        sizes = [V * K * F, C * D * F]
        shapes = (groups, sum(sizes)), (programs, C * D + F)
        parts = vectors.new_empty(sum(rows * columns for rows, columns in shapes))
        products, biases = parts.split([rows * columns for rows, columns in shapes])
        splits = triton.cdiv(C, ctx.tiles["BC"])
        dfeatures = vectors.new_empty(splits, N, F)
        with torch.cuda.device_of(dz):
            run(
                form_capsules_backward, (programs, splits), features, weight, bias,
                dv.contiguous(), dt, dfeatures, biases, N, C, **ctx.tiles,
            )  # fmt: skip
            run(
                spread_features, (programs,), features, dfeatures, dz, biases,
                *ctx.sizes, **ctx.tiles, SPLITS=splits,
            )  # fmt: skip
        dvectors = None
        if ctx.needs_input_grad[0]:
            dvectors = (dz.view(B * T, K * F) @ flat.t()).view_as(vectors)
        dfilters, dweight = products.view(shapes[0]).split(sizes, 1)
        multiply_groups(vectors, dz, dfilters)
        multiply_groups(dt, features, dweight)
        with torch.cuda.device_of(dz):
            totals = sum_rows(parts, *shapes, turned=(V, K, F))
        dfilters, dweight, dbias, dfilter_bias = totals.split([*sizes, C * D, F])
        dfilters, dweight = dfilters.view(F, V, K), dweight.view(C * D, F)
        return dvectors, dfilters, dfilter_bias, dweight, dbias, *(None,) * 4


def multiply_groups(left: Tensor, right: Tensor, out: Tensor) -> None:
    """Write Σ_b left_bᵀ right_b, (B, R, X) and (B, R, Y), to a row (X·Y) per group.

    One product over all rows would leave most of a GPU idle, or need a workspace.
    """
    shape = left.shape[-1], right.shape[-1]
    left, right = (t.reshape(len(out), -1, t.shape[-1]) for t in (left, right))
    torch.bmm(left.mT, right, out=out.unflatten(1, shape))


def primary_capsules_gpu(
    vectors: Tensor,
    filters: Tensor,
    filter_bias: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    shape: tuple[int, int],
    stride: int,
    squash: str,
    precision: str = "ieee",
) -> Tensor:
    """Return the squashed primary capsules (B, P, C, D) of word vectors.

    Args:
        vectors: (B, T, V), float32.
        filters: of the n-gram convolution, (F, V, K).
        filter_bias: (F,).
        weight: of the linear map, (C·D, F).
        bias: of the linear map, (C·D,).
        shape: C and D.
        stride: words from one n-gram to the next.
        squash: a name of `functional.SQUASHES`, or none.
        precision: how the kernel forms products, as for routing.
    """
    maps = (filters, filter_bias, weight, bias)
    return _Form.apply(vectors, *maps, shape, stride, squash, precision)  # type: ignore[return-value]
