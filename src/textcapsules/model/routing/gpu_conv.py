"""Triton kernels that route a short window in one program, and the parts all share.

A program owns one window: its children pass through the registers in tiles of BI, the
parents' state stays there for all iterations. Logits are never stored. They are sums
of agreements, so l_ij = u_i · A_j + k_j with A_j = W_j Σ v_j and k_j = β_j · Σ v_j, and
one iteration is one pass over the children with a (J, D) state:

    c_ij = â_i softmax_j(l_ij)      s_j = Σ_i c_ij u_i      σ_j = Σ_i c_ij
    v_j  = squash(s_j W_j + σ_j β_j)      A_j += W_j v_j      k_j += β_j · v_j

The first pass has A = 0: all couplings of a child are equal, so it needs no logits, and
no more does its backward pass. The forward pass keeps (s, σ) and (A, k) of every
iteration; the backward pass recomputes the rest.

A *state* is a (J, D) matrix and a J-vector, planar in J·(D + 1) floats. Sizes in
capitals that begin with B (BI, BJ, BD, BH) are tiles: powers of two, the rest masked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from textcapsules.model.routing.reference import RoutingOptions

# Inside kernels nothing has the type it seems to have.
# pyright: reportInvalidTypeForm=false, reportPossiblyUnboundVariable=false
triton: Any
tl: Any
try:
    import triton
    import triton.language as tl
except ImportError:  # the package imports without Triton; `gpu.supports` says so
    triton = tl = None
jit: Any = triton.jit if triton is not None else lambda function: function

# Children in a tile: 96, the paper's window, is three of them without a rest.
_TILE = 32
_WARPS = 2


@jit
def row_norm(x):
    """Return the norm of each row, scaled so that no square leaves float32's range."""
    largest = tl.max(tl.abs(x), 1)
    scale = tl.where(largest > 1e-36, largest, 1.0)  # smaller ones count as zero
    y = x * (1 / scale)[:, None]  # one division a row, not one an entry
    return tl.sqrt_rn(tl.sum(y * y, 1)) * scale


@jit
def rise(x):
    """Return 1 - exp(-x) for x >= 0 without cancellation near zero."""
    series = 1 - x / 6 * (1 - x / 7 * (1 - x / 8))
    series = 1 - x / 3 * (1 - x / 4 * (1 - x / 5 * series))
    series = x * (1 - x / 2 * series)
    return tl.where(x < 0.5, series, 1 - tl.exp(-x))


@jit
def squashed_length(x, SQUASH: tl.constexpr):
    """Return f(x) and f'(x) as `functional.SQUASHES` defines f."""
    saturated = x > 1e9  # f is 1 there, and squares overflow
    x = tl.minimum(x, 1e9)
    if SQUASH == "norm":
        f = x / (1 + x)
        slope = 1 / ((1 + x) * (1 + x))
    elif SQUASH == "sabour":
        f = x * x / (1 + x * x)
        slope = 2 * x / ((1 + x * x) * (1 + x * x))
    elif SQUASH == "released":
        f = x * x / (0.5 + x * x)
        slope = x / ((0.5 + x * x) * (0.5 + x * x))
    elif SQUASH == "exp":
        f = rise(x)
        slope = tl.exp(-x)
    else:  # tanh
        f = rise(2 * x)
        f = f / (2 - f)
        slope = 1 - f * f
    return f, tl.where(saturated, 0.0, slope)


@jit
def unit_rows(x):
    """Return x over its norm, zero where that is zero, and the norm."""
    norm = row_norm(x)
    return x * (1 / tl.maximum(norm, 1e-37))[:, None], norm


@jit
def squash_poses(t, SQUASH: tl.constexpr):
    """Return v, the rows of t with their norm x replaced by f(x)."""
    v = t
    if SQUASH != "none":
        unit, norm = unit_rows(t)
        f, _ = squashed_length(norm, SQUASH)
        v = f[:, None] * unit
    return v


@jit
def squash_gradient(t, dv, SQUASH: tl.constexpr):
    """Return dt, zero where t is, as the definition has it."""
    dt = dv
    if SQUASH != "none":
        unit, norm = unit_rows(t)
        f, slope = squashed_length(norm, SQUASH)
        along = tl.sum(unit * dv, 1)
        ratio = f / tl.maximum(norm, 1e-37)
        dt = ratio[:, None] * (dv - along[:, None] * unit)
        dt += (slope * along)[:, None] * unit
        dt = tl.where((norm > 0)[:, None], dt, 0.0)
    return dt


@jit
def load_state(ptr, j, d, J: tl.constexpr, D: tl.constexpr):
    """Return the rows j of a state: (BJ, BD) and (BJ,)."""
    inside = (j < J)[:, None] & (d < D)[None, :]
    matrix = tl.load(ptr + j[:, None] * D + d[None, :], mask=inside, other=0.0)
    return matrix, tl.load(ptr + J * D + j, mask=j < J, other=0.0)


@jit
def store_state(ptr, matrix, vector, j, d, J: tl.constexpr, D: tl.constexpr):
    """Write the rows j of a state."""
    inside = (j < J)[:, None] & (d < D)[None, :]
    tl.store(ptr + j[:, None] * D + d[None, :], matrix, mask=inside)
    tl.store(ptr + J * D + j, vector, mask=j < J)


@jit
def load_poses(ptr, j, h, J: tl.constexpr, H: tl.constexpr):
    """Return the rows j of a (J, H) matrix in float32."""
    inside = (j < J)[:, None] & (h < H)[None, :]
    found = tl.load(ptr + j[:, None] * H + h[None, :], mask=inside, other=0.0)
    return found.to(tl.float32)


@jit
def store_poses(ptr, poses, j, h, J: tl.constexpr, H: tl.constexpr):
    """Write the rows j of a (J, H) matrix in the type of `ptr`."""
    inside = (j < J)[:, None] & (h < H)[None, :]
    poses = poses.to(ptr.dtype.element_ty)
    tl.store(ptr + j[:, None] * H + h[None, :], poses, mask=inside)


@jit
def load_transform(w_ptr, j, d, h, J: tl.constexpr, D: tl.constexpr, H: tl.constexpr):
    """Return W_j for the rows j, (BJ, BD, BH) in float32."""
    inside = (j < J)[:, None, None] & (d < D)[None, :, None] & (h < H)[None, None, :]
    place = j[:, None, None] * (D * H) + d[None, :, None] * H + h[None, None, :]
    return tl.load(w_ptr + place, mask=inside, other=0.0).to(tl.float32)


@jit
def load_children(u_ptr, mask_ptr, mask_k, i, d, I, C, D: tl.constexpr):  # noqa: E741
    """Return the children i, (BI, BD) in float32, and 1.0 where they may vote."""
    inside = i < I
    place = i[:, None] * D + d[None, :]
    u = tl.load(u_ptr + place, mask=inside[:, None] & (d < D)[None, :], other=0.0)
    seen = tl.load(mask_ptr + (i // C) * mask_k, mask=inside, other=0)
    return u.to(tl.float32), (seen != 0).to(tl.float32)


@jit
def child_weight(u, seen, AMENDMENT: tl.constexpr):
    """Return â: the child's length if amended, else 1; 0 where it must not vote."""
    weight = seen
    if AMENDMENT:
        weight = seen * row_norm(u)
    return weight


@jit
def softmax_parents(u, A, k, inside, LEAKY: tl.constexpr, PRECISION: tl.constexpr):
    """Return softmax_j(u_i · A_j + k_j), (BI, BJ), zero where not `inside`."""
    logits = tl.dot(u, tl.trans(A), input_precision=PRECISION) + k[None, :]
    logits = tl.where(inside[None, :], logits, float("-inf"))
    top = tl.max(logits, 1)
    if LEAKY:  # one more parent, of logit zero
        top = tl.maximum(top, 0.0)
    e = tl.exp(logits - top[:, None])
    total = tl.sum(e, 1)
    if LEAKY:
        total += tl.exp(-top)
    return e * (1 / total)[:, None]


@jit
def child_gradient(
    u, weight, seen, p, dc, A, ds, AMENDMENT: tl.constexpr, PRECISION: tl.constexpr
):
    """Return du of one pass and dl, from the couplings' gradient dc (BI, BJ)."""
    da = tl.sum(p * dc, 1)  # dâ, also what softmax takes off
    dl = weight[:, None] * p * (dc - da[:, None])
    du = tl.dot(weight[:, None] * p, ds, input_precision=PRECISION)
    du += tl.dot(dl, A, input_precision=PRECISION)
    if AMENDMENT:
        unit, _ = unit_rows(u)
        du += (seen * da)[:, None] * unit
    return du, dl


@jit
def uniform_gradient(
    u, weight, seen, ds, dsigma, extra, share, AMENDMENT: tl.constexpr
):
    """Return du of the first pass, where every coupling is â times `share`.

    `ds` (BD,) and `dsigma` are sums over the parents, `extra` (BI,) the sum of the
    couplings' own gradients.
    """
    du = (share * weight)[:, None] * ds[None, :]
    if AMENDMENT:
        da = share * (tl.sum(u * ds[None, :], 1) + dsigma + extra)
        unit, _ = unit_rows(u)
        du += (seen * da)[:, None] * unit
    return du


@jit
def store_couplings(ptr, c, i, j, I, J: tl.constexpr):  # noqa: E741
    """Write a tile (BI, BJ) of a window's couplings in the type of `ptr`."""
    inside = (i < I)[:, None] & (j < J)[None, :]
    c = c.to(ptr.dtype.element_ty)
    tl.store(ptr + i[:, None].to(tl.int64) * J + j[None, :], c, mask=inside)


@jit
def load_couplings(ptr, i, j, I, J: tl.constexpr):  # noqa: E741
    """Return a tile (BI, BJ) of a window's couplings, or their gradient, in float32."""
    inside = (i < I)[:, None] & (j < J)[None, :]
    place = i[:, None].to(tl.int64) * J + j[None, :]
    return tl.load(ptr + place, mask=inside, other=0.0).to(tl.float32)


@jit
def output_gradient(
    v, dpose_ptr, dlength_ptr, j, h, J: tl.constexpr, H: tl.constexpr,
    DPOSE: tl.constexpr, DLENGTH: tl.constexpr,
):  # fmt: skip
    """Return dv of the last iteration from the gradients of poses and lengths."""
    dv = tl.zeros_like(v)
    if DPOSE:
        dv += load_poses(dpose_ptr, j, h, J, H)
    if DLENGTH:
        unit, _ = unit_rows(v)
        dlength = tl.load(dlength_ptr + j, mask=j < J, other=0.0).to(tl.float32)
        dv += dlength[:, None] * unit
    return dv


@jit
def route_window(
    u_ptr, w_ptr, bias_ptr, mask_ptr, pose_ptr, length_ptr, coupling_ptr,
    sum_ptr, pull_ptr, P, W, C, I, mask_b, mask_w, mask_k,  # noqa: E741
    J: tl.constexpr, D: tl.constexpr, H: tl.constexpr, R: tl.constexpr,
    LEAKY: tl.constexpr, AMENDMENT: tl.constexpr, SQUASH: tl.constexpr,
    BIAS: tl.constexpr, COUPLINGS: tl.constexpr, SAVE: tl.constexpr,
    PRECISION: tl.constexpr, BI: tl.constexpr, BJ: tl.constexpr, BD: tl.constexpr,
    BH: tl.constexpr,
):  # fmt: skip
    """Route one window: poses, lengths, couplings on request.

    With SAVE, (s, σ) of iteration r goes to slot r of 2R - 1 in `sum_ptr` and (A, k) to
    slot r - 1 of R - 1 in `pull_ptr`.
    """
    n = tl.program_id(0).to(tl.int64)
    u_ptr += ((n // W) * P + n % W) * C * D
    mask_ptr += (n // W) * mask_b + (n % W) * mask_w
    sum_ptr += n * (2 * R - 1) * J * (D + 1)
    pull_ptr += n * (R - 1) * J * (D + 1)
    coupling_ptr += n * I * J
    j, d, h = tl.arange(0, BJ), tl.arange(0, BD), tl.arange(0, BH)
    share = 1.0 / (J + 1 if LEAKY else J)
    bias = tl.zeros((BJ, BH), tl.float32)
    if BIAS:
        bias = load_poses(bias_ptr, j, h, J, H)
    A = tl.zeros((BJ, BD), tl.float32)
    k = tl.zeros((BJ,), tl.float32)
    for r in tl.static_range(R):
        s = tl.zeros((BJ, BD), tl.float32)
        sigma = tl.zeros((BJ,), tl.float32)
        for start in range(0, I, BI):
            i = start + tl.arange(0, BI)
            u, seen = load_children(u_ptr, mask_ptr, mask_k, i, d, I, C, D)
            weight = child_weight(u, seen, AMENDMENT)
            if r == 0:
                s += tl.sum((share * weight)[:, None] * u, 0)[None, :]
                sigma += tl.sum(share * weight, 0)
            else:
                p = softmax_parents(u, A, k, j < J, LEAKY, PRECISION)
                c = weight[:, None] * p
                s += tl.dot(tl.trans(c), u, input_precision=PRECISION)
                if BIAS:
                    sigma += tl.sum(c, 0)
            if COUPLINGS and r == R - 1:
                if r == 0:
                    c = (share * weight)[:, None] + tl.zeros((BI, BJ), tl.float32)
                store_couplings(coupling_ptr, c, i, j, I, J)
        # Loaded anew each time: in cache, and no registers held during the passes.
        w = load_transform(w_ptr, j, d, h, J, D, H)
        t = tl.sum(s[:, :, None] * w, 1)
        if BIAS:
            t += sigma[:, None] * bias
        v = squash_poses(t, SQUASH)
        if SAVE:
            store_state(sum_ptr + r * J * (D + 1), s, sigma, j, d, J, D)
        if r < R - 1:
            A += tl.sum(w * v[:, None, :], 2)
            if BIAS:
                k += tl.sum(bias * v, 1)
            if SAVE:
                store_state(pull_ptr + r * J * (D + 1), A, k, j, d, J, D)
        else:
            store_poses(pose_ptr + n * J * H, v, j, h, J, H)
            length = row_norm(v).to(length_ptr.dtype.element_ty)
            tl.store(length_ptr + n * J + j, length, mask=j < J)


@jit
def route_window_backward(
    u_ptr, w_ptr, bias_ptr, mask_ptr, dpose_ptr, dlength_ptr, dcoupling_ptr,
    sum_ptr, pull_ptr, right_ptr, du_ptr, P, W, C, I,  # noqa: E741
    mask_b, mask_w, mask_k,
    J: tl.constexpr, D: tl.constexpr, H: tl.constexpr, R: tl.constexpr,
    LEAKY: tl.constexpr, AMENDMENT: tl.constexpr, SQUASH: tl.constexpr,
    BIAS: tl.constexpr, DPOSE: tl.constexpr, DLENGTH: tl.constexpr,
    DCOUPLING: tl.constexpr, PRECISION: tl.constexpr, BI: tl.constexpr,
    BJ: tl.constexpr, BD: tl.constexpr, BH: tl.constexpr,
):  # fmt: skip
    """Write a window's du (I, D) and the factors that `transform_gradient` sums up.

    Slot r of `sum_ptr` (s, σ) pairs with dt in slot r of `right_ptr`; slot R + r gets
    the gradients of (A, k) after iteration r and pairs with its v.
    """
    n = tl.program_id(0).to(tl.int64)
    u_ptr += ((n // W) * P + n % W) * C * D
    mask_ptr += (n // W) * mask_b + (n % W) * mask_w
    sum_ptr += n * (2 * R - 1) * J * (D + 1)
    pull_ptr += n * (R - 1) * J * (D + 1)
    right_ptr += n * (2 * R - 1) * J * H
    dcoupling_ptr += n * I * J
    du_ptr += n * I * D
    j, d, h = tl.arange(0, BJ), tl.arange(0, BD), tl.arange(0, BH)
    share = 1.0 / (J + 1 if LEAKY else J)
    bias = tl.zeros((BJ, BH), tl.float32)
    if BIAS:
        bias = load_poses(bias_ptr, j, h, J, H)
    dA = tl.zeros((BJ, BD), tl.float32)
    dk = tl.zeros((BJ,), tl.float32)
    for r in tl.static_range(R - 1, -1, -1):
        s, sigma = load_state(sum_ptr + r * J * (D + 1), j, d, J, D)
        w = load_transform(w_ptr, j, d, h, J, D, H)
        t = tl.sum(s[:, :, None] * w, 1)
        if BIAS:
            t += sigma[:, None] * bias
        v = squash_poses(t, SQUASH)
        if r == R - 1:
            dpose, dlength = dpose_ptr + n * J * H, dlength_ptr + n * J
            dv = output_gradient(v, dpose, dlength, j, h, J, H, DPOSE, DLENGTH)
        else:
            dv = tl.sum(w * dA[:, :, None], 1)
            if BIAS:
                dv += dk[:, None] * bias
            store_state(sum_ptr + (R + r) * J * (D + 1), dA, dk, j, d, J, D)
            store_poses(right_ptr + (R + r) * J * H, v, j, h, J, H)
        dt = squash_gradient(t, dv, SQUASH)
        store_poses(right_ptr + r * J * H, dt, j, h, J, H)
        ds = tl.sum(w * dt[:, None, :], 2)
        dsigma = tl.sum(bias * dt, 1)
        if r > 0:
            A, k = load_state(pull_ptr + (r - 1) * J * (D + 1), j, d, J, D)
        for start in range(0, I, BI):
            i = start + tl.arange(0, BI)
            u, seen = load_children(u_ptr, mask_ptr, mask_k, i, d, I, C, D)
            weight = child_weight(u, seen, AMENDMENT)
            inside = (i < I)[:, None] & (d < D)[None, :]
            place = du_ptr + i[:, None] * D + d[None, :]
            if r == 0:
                extra = tl.zeros((BI,), tl.float32)
                if DCOUPLING and r == R - 1:
                    extra = tl.sum(load_couplings(dcoupling_ptr, i, j, I, J), 1)
                ds0, dsigma0 = tl.sum(ds, 0), tl.sum(dsigma, 0)
                du = uniform_gradient(
                    u, weight, seen, ds0, dsigma0, extra, share, AMENDMENT
                )
            else:
                p = softmax_parents(u, A, k, j < J, LEAKY, PRECISION)
                dc = tl.dot(u, tl.trans(ds), input_precision=PRECISION)
                dc += dsigma[None, :]
                if DCOUPLING and r == R - 1:
                    dc += load_couplings(dcoupling_ptr, i, j, I, J)
                du, dl = child_gradient(
                    u, weight, seen, p, dc, A, ds, AMENDMENT, PRECISION
                )
                dA += tl.dot(tl.trans(dl), u, input_precision=PRECISION)
                if BIAS:
                    dk += tl.sum(dl, 0)
            if r < R - 1:  # other iterations have written here
                du += tl.load(place, mask=inside, other=0.0)
            tl.store(place, du, mask=inside)
        tl.debug_barrier()  # the next pass may read du with other threads


@jit
def fold_windows(du_ptr, out_ptr, P, W, K, size, BLOCK: tl.constexpr):
    """Add up what the windows over a position gave it, always in the same order."""
    position = tl.program_id(0).to(tl.int64)
    b, p = position // P, position % P
    x = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)  # type and pose entry
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(tl.maximum(0, p - W + 1), tl.minimum(K, p + 1)):
        place = ((b * W + p - k) * K + k) * size + x
        total += tl.load(du_ptr + place, mask=x < size, other=0.0)
    total = total.to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + position * size + x, total, mask=x < size)


@jit
def transform_gradient(
    left_ptr, right_ptr, out_ptr, rows, rows_each, J: tl.constexpr, D: tl.constexpr,
    H: tl.constexpr, PRECISION: tl.constexpr, BR: tl.constexpr, BD: tl.constexpr,
    BH: tl.constexpr,
):  # fmt: skip
    """Write dW_j and dβ_j of a share of the rows: Σ left ⊗ right, one parent each."""
    j, part = tl.program_id(0), tl.program_id(1).to(tl.int64)
    d, h = tl.arange(0, BD), tl.arange(0, BH)
    dw = tl.zeros((BD, BH), tl.float32)
    dbias = tl.zeros((BH,), tl.float32)
    end = tl.minimum(rows, (part + 1) * rows_each)
    for start in range(part * rows_each, end, BR):
        row = start + tl.arange(0, BR)
        here = row < end
        base = left_ptr + row * (J * (D + 1))
        place = base[:, None] + j * D + d[None, :]
        left = tl.load(place, mask=here[:, None] & (d < D)[None, :], other=0.0)
        scalar = tl.load(base + J * D + j, mask=here, other=0.0)
        place = right_ptr + (row * J + j)[:, None] * H + h[None, :]
        right = tl.load(place, mask=here[:, None] & (h < H)[None, :], other=0.0)
        dw += tl.dot(tl.trans(left), right, input_precision=PRECISION)
        dbias += tl.sum(scalar[:, None] * right, 0)
    out_ptr += part * (J * (D + 1) * H)
    place = (j * D + d)[:, None] * H + h[None, :]
    tl.store(out_ptr + place, dw, mask=(d < D)[:, None] & (h < H)[None, :])
    tl.store(out_ptr + J * D * H + j * H + h, dbias, mask=h < H)


class Call(NamedTuple):
    """What the forward and backward launches of one call have in common."""

    capsules: Tensor  # (B, P, C, D)
    transform: Tensor  # (J, D, H)
    bias: Tensor | None  # (J, H)
    mask: Tensor  # (B, W, K)
    options: RoutingOptions
    precision: str

    @property
    def windows(self) -> int:
        """N, windows of the whole batch."""
        return self.mask.shape[0] * self.mask.shape[1]

    @property
    def children(self) -> int:
        """I, children of one window."""
        return self.mask.shape[2] * self.capsules.shape[2]

    def tiles(self) -> dict[str, int]:
        """Return the powers of two that hold J, D and H; a product needs 16 or more."""
        names = zip(("BJ", "BD", "BH"), self.transform.shape, strict=True)
        return {name: max(16, power_of_two(size)) for name, size in names}

    def inputs(self) -> tuple[Tensor, ...]:
        """Return the four tensors; a missing bias is never read."""
        bias = self.transform if self.bias is None else self.bias
        return self.capsules, self.transform, bias, self.mask

    def axes(self) -> tuple[int, ...]:
        """Return P, W, C, I and the mask's strides, as every pass takes them."""
        _, P, C, _ = self.capsules.shape
        return P, self.mask.shape[1], C, self.children, *self.mask.stride()

    def constants(self) -> dict[str, int | bool | str]:
        """Return what kernels are compiled for."""
        o = self.options
        J, D, H = self.transform.shape
        return {
            "J": J, "D": D, "H": H, "R": o.iterations, "LEAKY": o.leaky,
            "AMENDMENT": o.amendment, "SQUASH": o.squash, "BIAS": self.bias is not None,
            "PRECISION": self.precision,
        }  # fmt: skip


class Gradients(NamedTuple):
    """Gradients of the outputs; None where nothing downstream read them."""

    poses: Tensor | None
    lengths: Tensor | None
    couplings: Tensor | None

    def pointers(self, other: Tensor) -> tuple[Tensor, ...]:
        """Return all three, `other` in place of None: it is never read."""
        return tuple(other if g is None else g.contiguous() for g in self)

    def constants(self) -> dict[str, bool]:
        """Return which of them are there."""
        names = ("DPOSE", "DLENGTH", "DCOUPLING")
        return {name: g is not None for name, g in zip(names, self, strict=True)}


def power_of_two(size: int) -> int:
    """Return the smallest power of two that is not below `size`."""
    return 1 << max(size - 1, 0).bit_length()


def run(kernel, grid: tuple[int, ...], *arguments, num_warps: int = 4, **constants):
    """Launch a kernel with those of the constants that it takes."""
    taken = {name: c for name, c in constants.items() if name in kernel.arg_names}
    kernel[grid](*arguments, **taken, num_warps=num_warps)


def new_outputs(call: Call, couplings: bool, save: bool):
    """Return memory for poses, lengths, couplings and the saved states, or None."""
    N, R = call.windows, call.options.iterations
    J, D, H = call.transform.shape
    like = {"dtype": call.capsules.dtype, "device": call.capsules.device}
    poses = torch.empty(N, J, H, **like)
    lengths = torch.empty(N, J, **like)
    found = torch.empty(N, call.children, J, **like) if couplings else None
    if not save:
        return poses, lengths, found, None, None
    like["dtype"] = torch.float32
    sums = torch.empty(N, 2 * R - 1, J * (D + 1), **like)
    pulls = torch.empty(N, R - 1, J * (D + 1), **like)
    return poses, lengths, found, sums, pulls


def launch_constants(call: Call) -> dict:
    """Return the constants of the two window kernels, tiles included."""
    tiles = call.tiles()
    tile = min(_TILE, max(16, power_of_two(call.children)))
    # So that W, which a program holds for a moment, takes 64 registers of a thread.
    warps = tiles["BJ"] * tiles["BD"] * tiles["BH"] // (64 * 32)
    warps = min(8, max(_WARPS, warps))
    return {**call.constants(), **tiles, "BI": tile, "num_warps": warps}


def forward(call: Call, couplings: bool, save: bool):
    """Return poses, lengths, couplings or None, and what `backward` needs."""
    outputs = new_outputs(call, couplings, save)
    pointers = [outputs[0] if t is None else t for t in outputs]
    run(
        route_window, (call.windows,), *call.inputs(), *pointers, *call.axes(),
        **launch_constants(call), COUPLINGS=couplings, SAVE=save,
    )  # fmt: skip
    return outputs


def backward(call: Call, gradients: Gradients, saved: tuple[Tensor, ...]):
    """Return du of every window's children, and the right factors of dW."""
    sums, pulls = saved
    J, D, H = call.transform.shape
    N, slots, _ = sums.shape
    right = torch.empty(N, slots, J, H, dtype=torch.float32, device=sums.device)
    du = torch.empty(N, call.children, D, dtype=torch.float32, device=sums.device)
    run(
        route_window_backward, (N,), *call.inputs(), *gradients.pointers(sums), sums,
        pulls, right, du, *call.axes(), **launch_constants(call),
        **gradients.constants(),
    )  # fmt: skip
    return du, right


def fold(call: Call, du: Tensor) -> Tensor:
    """Return the capsules' gradient from that of every window's children."""
    B, P, C, D = call.capsules.shape
    _, W, K = call.mask.shape
    if W == 1:
        return du.view_as(call.capsules).to(call.capsules.dtype)
    out = torch.empty_like(call.capsules)
    block = min(1024, power_of_two(C * D))
    grid = (B * P, -(-C * D // block))
    run(fold_windows, grid, du, out, P, W, K, C * D, BLOCK=block)
    return out


def reduce_transform(call: Call, left: Tensor, right: Tensor):
    """Return dW and dβ: what the iterations of all windows add up to."""
    J, D, H = call.transform.shape
    rows = left.shape[0] * left.shape[1]
    # Enough programs to fill a GPU, each with some tiles of rows to add up.
    parts = max(1, min(rows // 192, 512 // J))
    out = torch.empty(parts, J * (D + 1) * H, dtype=torch.float32, device=left.device)
    constants = {**call.constants(), **call.tiles(), "BR": 64}
    each = -(-rows // parts)
    run(transform_gradient, (J, parts), left, right, out, rows, each, **constants)
    total = out.sum(0) if parts > 1 else out[0]
    dtransform, dbias = total.to(call.transform.dtype).split([J * D * H, J * H])
    return dtransform.view(J, D, H), dbias.view(J, H)
