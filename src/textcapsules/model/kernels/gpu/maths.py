"""The mathematics of the Triton kernels, and the device functions they share.

Logits are never stored. They are sums of agreements, so l_ij = u_i · A_j + k_j with
A_j = W_j Σ v_j and k_j = β_j · Σ v_j, and one iteration is one pass over the children
with a (J, D) state:

    c_ij = â_i softmax_j(l_ij)      s_j = Σ_i c_ij u_i      σ_j = Σ_i c_ij
    v_j  = squash(s_j W_j + σ_j β_j)      A_j += W_j v_j      k_j += β_j · v_j

The first pass has A = 0: all couplings of a child are equal, so neither it nor its
backward pass needs logits. The forward pass keeps (s, σ) and (A, k) of every
iteration; the backward pass recomputes the rest.

Normalised, the weights are γ â_i / T with T = Σ_i â_i, γ the gain: one factor for the
whole window. The passes over the children stay as they are. The parents' step
multiplies (s, σ) by 1 / T before it keeps them, and t_j = s_j W_j + σ_j β_j by γ. The
first pass has added T up already. Backward, the step divides (ds, dσ) by T, and one
number per window gives both gradients, Q = Σ dt · t / γ over iterations and parents:

    dγ = Σ_windows Q      dT = -γ Q / T, added to every dâ_i in the last pass

Couplings leave the kernels without that factor: `route` multiplies them by it, and the
gradient which T gets there comes back as that of an output.

A *state* is a (J, D) matrix and a J-vector, planar in J·(D + 1) floats. Sizes in
capitals that begin with B (BI, BJ, BD, BH) are tiles: powers of two, the rest masked.
"""

from __future__ import annotations

from typing import Any

# In a kernel, names have other types than pyright sees.
# pyright: reportInvalidTypeForm=false, reportPossiblyUnboundVariable=false
triton: Any
tl: Any
try:
    import triton
    import triton.language as tl
except ImportError:  # the package imports without Triton; `route.supports` says so
    triton = tl = None
# Arguments that change from batch to batch. Triton would compile a kernel anew where
# one of them is 1 or a multiple of 16; none of them counts what lies side by side in
# memory, and loads and stores stay as wide as they were. Nor need the gradient of the
# lengths, a few numbers per text, or the gain, one number, begin where 16 bytes do.
SIZES = (
    "N", "P", "T", "W", "mask_b", "mask_w", "parts", "rows", "rows_each", "more_rows",
)  # fmt: skip
SHORT = ("dlength_ptr", "gain_ptr")
jit: Any = (
    triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=SHORT)
    if triton is not None
    else lambda function: function
)


@jit
def row_norm(x):
    """Return the norm of each row, scaled so that no square leaves float32's range."""
    largest = tl.max(tl.abs(x), 1)
    scale = tl.where(largest > 1e-36, largest, 1.0)  # smaller ones count as zero
    y = x * (1 / scale)[:, None]  # one division per row, not one per entry
    return tl.sqrt(tl.sum(y * y, 1)) * scale


@jit
def one_minus_exp(x):
    """Return 1 - exp(-x) for x >= 0 without cancellation near zero."""
    y = tl.minimum(x, 0.5)  # where the series holds; beyond, it would overflow
    series = 1 - y / 6 * (1 - y / 7 * (1 - y / 8))
    series = 1 - y / 3 * (1 - y / 4 * (1 - y / 5 * series))
    series = y * (1 - y / 2 * series)
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
        f = one_minus_exp(x)
        slope = tl.exp(-x)
    else:  # tanh
        f = one_minus_exp(2 * x)
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
    poses = tl.load(ptr + j[:, None] * H + h[None, :], mask=inside, other=0.0)
    return poses.to(tl.float32)


@jit
def load_bias(ptr, j, h, J: tl.constexpr, H: tl.constexpr, BIAS: tl.constexpr):
    """Return the rows j of β, (BJ, BH), or zeros where there is none."""
    bias = tl.zeros((j.shape[0], h.shape[0]), tl.float32)
    if BIAS:
        bias = load_poses(ptr, j, h, J, H)
    return bias


@jit
def store_poses(ptr, poses, j, h, J: tl.constexpr, H: tl.constexpr):
    """Write the rows j of a (J, H) matrix in the type of `ptr`."""
    inside = (j < J)[:, None] & (h < H)[None, :]
    poses = poses.to(ptr.dtype.element_ty)
    tl.store(ptr + j[:, None] * H + h[None, :], poses, mask=inside)


@jit
def store_outputs(pose_ptr, length_ptr, v, n, j, h, J: tl.constexpr, H: tl.constexpr):
    """Write the poses of window n and their lengths."""
    store_poses(pose_ptr + n * J * H, v, j, h, J, H)
    length = row_norm(v).to(length_ptr.dtype.element_ty)
    tl.store(length_ptr + n * J + j, length, mask=j < J)


@jit
def load_transform(w_ptr, j, d, h, J: tl.constexpr, D: tl.constexpr, H: tl.constexpr):
    """Return W_j for the rows j, (BJ, BD, BH) in float32."""
    inside = (j < J)[:, None, None] & (d < D)[None, :, None] & (h < H)[None, None, :]
    place = j[:, None, None] * (D * H) + d[None, :, None] * H + h[None, None, :]
    return tl.load(w_ptr + place, mask=inside, other=0.0).to(tl.float32)


@jit
def parent_inputs(
    s, sigma, w_ptr, bias_ptr, j, d, h, J: tl.constexpr, D: tl.constexpr,
    H: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """Return t = s W + σ β of the parents j, with their W and β."""
    w = load_transform(w_ptr, j, d, h, J, D, H)
    bias = load_bias(bias_ptr, j, h, J, H, BIAS)
    t = tl.sum(s[:, :, None] * w, 1)
    if BIAS:
        t += sigma[:, None] * bias
    return t, w, bias


@jit
def window_start(u_ptr, mask_ptr, n, P, W, C, D: tl.constexpr, mask_b, mask_w):
    """Return where the children of window n and its mask begin."""
    u_ptr += ((n // W) * P + n % W) * C * D
    mask_ptr += (n // W) * mask_b + (n % W) * mask_w
    return u_ptr, mask_ptr


@jit
def load_children(u_ptr, mask_ptr, mask_k, i, d, I, C, D: tl.constexpr):  # noqa: E741
    """Return the children i, (BI, BD) in float32, and 1.0 where they may vote."""
    inside = i < I
    place = i[:, None] * D + d[None, :]
    u = tl.load(u_ptr + place, mask=inside[:, None] & (d < D)[None, :], other=0.0)
    voting = tl.load(mask_ptr + (i // C) * mask_k, mask=inside, other=0)
    return u.to(tl.float32), (voting != 0).to(tl.float32)


@jit
def child_weight(u, voting, AMENDMENT: tl.constexpr):
    """Return â: the child's length if amended, else 1; 0 where it must not vote."""
    weight = voting
    if AMENDMENT:
        weight = voting * row_norm(u)
    return weight


@jit
def inverse_total(total):
    """Return 1 / T, or 1 where no child votes: all that it multiplies is zero there."""
    return 1 / tl.where(total > 0, total, 1.0)


@jit
def total_gradient(slope, total, gain_ptr, dtotal_ptr, DTOTAL: tl.constexpr):
    """Return dT of a window, from its Q and from the gradient of T as an output."""
    gain = tl.load(gain_ptr).to(tl.float32)
    dtotal = -gain * slope * inverse_total(total)
    if DTOTAL:
        dtotal += tl.load(dtotal_ptr)
    return dtotal


@jit
def softmax_parents(
    u, A, k, J: tl.constexpr, LEAKY: tl.constexpr, PRECISION: tl.constexpr
):
    """Return softmax_j(u_i · A_j + k_j), (BI, BJ), zero past the J parents."""
    logits = tl.dot(u, tl.trans(A), input_precision=PRECISION) + k[None, :]
    if A.shape[0] > J:
        inside = tl.arange(0, A.shape[0]) < J
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
    u, weight, voting, p, dc, A, ds, AMENDMENT: tl.constexpr, PRECISION: tl.constexpr
):
    """Return du of one pass and dl, from the couplings' gradient dc (BI, BJ)."""
    da = tl.sum(p * dc, 1)  # dâ, also what softmax takes off
    dl = weight[:, None] * p * (dc - da[:, None])
    du = tl.dot(weight[:, None] * p, ds, input_precision=PRECISION)
    du += tl.dot(dl, A, input_precision=PRECISION)
    if AMENDMENT:
        unit, _ = unit_rows(u)
        du += (voting * da)[:, None] * unit
    return du, dl


@jit
def uniform_gradient(
    u, weight, voting, ds, dsigma, extra, share, dtotal, AMENDMENT: tl.constexpr,
    NORMALISE: tl.constexpr,
):  # fmt: skip
    """Return du of the first pass, where every coupling is â times `share`.

    `ds` (BD,) and `dsigma` are sums over the parents, `extra` (BI,) the sum of the
    couplings' own gradients, `dtotal` that of Σ â where weights are normalised.
    """
    du = (share * weight)[:, None] * ds[None, :]
    if AMENDMENT:
        da = share * (tl.sum(u * ds[None, :], 1) + dsigma + extra)
        if NORMALISE:
            da += dtotal
        unit, _ = unit_rows(u)
        du += (voting * da)[:, None] * unit
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
