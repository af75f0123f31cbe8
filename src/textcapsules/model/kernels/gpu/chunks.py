"""Triton kernels that route long windows: chunks of children, in parallel.

Each iteration is a pass over the children by programs that own a chunk of them and
write partial sums, then a step of the parents that adds these up, always in the same
order. `maths` explains the states.

With few parents (regime `chunks`) the step is *fused* into the next pass: every program
of it does the whole step for itself, which is cheaper than one more launch. With many
(regime `tiles`), the step is a kernel of its own over tiles of parents, the softmax's
maximum and total come from a pass before the sums, and memory grows with children plus
parents, never their product.
"""

from __future__ import annotations

from torch import Tensor

from textcapsules.model.kernels.gpu.call import (
    Call,
    Gradients,
    new_floats,
    new_outputs,
    power_of_two,
    run,
)
from textcapsules.model.kernels.gpu.maths import (
    child_gradient,
    child_weight,
    inverse_total,
    jit,
    load_children,
    load_couplings,
    load_state,
    output_gradient,
    parent_inputs,
    softmax_parents,
    squash_gradient,
    squash_poses,
    store_couplings,
    store_outputs,
    store_poses,
    store_state,
    tl,
    total_gradient,
    uniform_gradient,
    unit_rows,
    window_start,
)

# In a kernel, names have other types than pyright sees.
# pyright: reportInvalidTypeForm=false, reportPossiblyUnboundVariable=false

# Entries of W in one tile of the step's own kernel.
_STEP_TRANSFORM = 4096
# Children, and where parents are tiled also those, in a tile.
_TILE, _PARENTS = 64, 64
_WARPS, _TILED_WARPS = 4, 8
# Per thread of a normalised backward pass, where W is small: the compiler would take
# 217, and two programs would fit on a multiprocessor where three did.
_REGISTERS = 168
# About three programs for each of an H200's 132 multiprocessors.
_PROGRAMS = 400


@jit
def add_parts(ptr, parts, j, d, J: tl.constexpr, D: tl.constexpr, BS: tl.constexpr):
    """Return the sum of `parts` states: rows j, (BJ, BD) and (BJ,)."""
    matrix = tl.zeros((j.shape[0], d.shape[0]), tl.float32)
    vector = tl.zeros((j.shape[0],), tl.float32)
    for start in range(0, parts, BS):
        part = start + tl.arange(0, BS)
        base = ptr + part * (J * (D + 1))
        here = (part < parts)[:, None] & (j < J)[None, :]
        place = (j[:, None] * D + d[None, :])[None, :, :]
        inside = here[:, :, None] & (d < D)[None, None, :]
        matrices = tl.load(base[:, None, None] + place, mask=inside, other=0.0)
        matrix += tl.sum(matrices, 0)
        vectors = tl.load(base[:, None] + J * D + j[None, :], mask=here, other=0.0)
        vector += tl.sum(vectors, 0)
    return matrix, vector


@jit
def step_parents(
    w_ptr, bias_ptr, gain_ptr, total_ptr, sum_ptr, pull_ptr, part_ptr, n, parts, keep,
    j, d, h, r: tl.constexpr, J: tl.constexpr, D: tl.constexpr, H: tl.constexpr,
    R: tl.constexpr, LEAKY: tl.constexpr, SQUASH: tl.constexpr, BIAS: tl.constexpr,
    NORMALISE: tl.constexpr, BS: tl.constexpr,
):  # fmt: skip
    """Return v of window n, iteration r, and (A, k) after it; store if `keep`."""
    total_ptr += n
    sum_ptr += n * (2 * R - 1) * J * (D + 1)
    pull_ptr += n * (R - 1) * J * (D + 1)
    part_ptr += n * parts * ((D + 1) if r == 0 else J * (D + 1))
    if r == 0:  # one sum for all parents, with equal couplings
        share = 1.0 / (J + 1 if LEAKY else J)
        s, sigma = add_parts(part_ptr, parts, j * 0, d, 1, D, BS)
        total = sigma
        s, sigma = share * s, share * sigma
    else:
        s, sigma = add_parts(part_ptr, parts, j, d, J, D, BS)
        if NORMALISE:
            total = tl.load(total_ptr + j * 0)
    if NORMALISE:
        inverse = inverse_total(total)
        s, sigma = inverse[:, None] * s, inverse * sigma
    t, w, bias = parent_inputs(s, sigma, w_ptr, bias_ptr, j, d, h, J, D, H, BIAS)
    if NORMALISE:
        t *= tl.load(gain_ptr).to(tl.float32)
    v = squash_poses(t, SQUASH)
    A = tl.sum(w * v[:, None, :], 2)
    k = tl.sum(bias * v, 1)
    if r > 0:
        before, k_before = load_state(pull_ptr + (r - 1) * J * (D + 1), j, d, J, D)
        A += before
        k += k_before
    if keep:
        store_state(sum_ptr + r * J * (D + 1), s, sigma, j, d, J, D)
        if NORMALISE and r == 0:
            tl.store(total_ptr + j * 0, total, mask=j == 0)
        if r < R - 1:
            store_state(pull_ptr + r * J * (D + 1), A, k, j, d, J, D)
    return v, A, k


@jit
def step_kernel(
    w_ptr, bias_ptr, gain_ptr, total_ptr, sum_ptr, pull_ptr, part_ptr, pose_ptr,
    length_ptr, parts, r: tl.constexpr, J: tl.constexpr, D: tl.constexpr,
    H: tl.constexpr, R: tl.constexpr, LEAKY: tl.constexpr, SQUASH: tl.constexpr,
    BIAS: tl.constexpr, NORMALISE: tl.constexpr,
    BJ: tl.constexpr, BD: tl.constexpr, BH: tl.constexpr, BS: tl.constexpr,
):  # fmt: skip
    """Do the step of a tile of parents; after the last iteration, write the outputs."""
    n = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BJ + tl.arange(0, BJ)
    d, h = tl.arange(0, BD), tl.arange(0, BH)
    v, _, _ = step_parents(
        w_ptr, bias_ptr, gain_ptr, total_ptr, sum_ptr, pull_ptr, part_ptr, n, parts,
        True, j, d, h, r, J, D, H, R, LEAKY, SQUASH, BIAS, NORMALISE, BS,
    )  # fmt: skip
    if r == R - 1:
        store_outputs(pose_ptr, length_ptr, v, n, j, h, J, H)


@jit
def step_parents_backward(
    w_ptr, bias_ptr, gain_ptr, dpose_ptr, dlength_ptr, total_ptr, sum_ptr, right_ptr,
    slope_ptr, part_ptr, n, parts, keep, j, d, h, r: tl.constexpr, J: tl.constexpr,
    D: tl.constexpr, H: tl.constexpr, R: tl.constexpr, SQUASH: tl.constexpr,
    BIAS: tl.constexpr, DPOSE: tl.constexpr, DLENGTH: tl.constexpr,
    NORMALISE: tl.constexpr, BS: tl.constexpr,
):  # fmt: skip
    """Return (ds, dσ) and Q of window n, iteration r.

    Where `keep`, store Q at `slope_ptr`, and the factors of dW.
    """
    dpose_ptr += n * J * H
    dlength_ptr += n * J
    total_ptr += n
    sum_ptr += n * (2 * R - 1) * J * (D + 1)
    right_ptr += n * (2 * R - 1) * J * H
    part_ptr += n * parts * J * (D + 1)
    s, sigma = load_state(sum_ptr + r * J * (D + 1), j, d, J, D)
    t, w, bias = parent_inputs(s, sigma, w_ptr, bias_ptr, j, d, h, J, D, H, BIAS)
    if NORMALISE:
        mean, gain = t, tl.load(gain_ptr).to(tl.float32)
        t = gain * mean
    v = squash_poses(t, SQUASH)
    if r == R - 1:
        dv = output_gradient(v, dpose_ptr, dlength_ptr, j, h, J, H, DPOSE, DLENGTH)
    else:
        dA, dk = add_parts(part_ptr, parts, j, d, J, D, BS)
        if r < R - 2:  # what later iterations gave
            slot = sum_ptr + (R + r + 1) * J * (D + 1)
            after, k_after = load_state(slot, j, d, J, D)
            dA += after
            dk += k_after
        dv = tl.sum(w * dA[:, :, None], 1)
        dv += dk[:, None] * bias
        if keep:
            store_state(sum_ptr + (R + r) * J * (D + 1), dA, dk, j, d, J, D)
            store_poses(right_ptr + (R + r) * J * H, v, j, h, J, H)
    dt = squash_gradient(t, dv, SQUASH)
    slope = 0.0
    if NORMALISE:
        slope = tl.sum(tl.sum(dt * mean, 1), 0)
        dt = gain * dt
        if keep:
            tl.store(slope_ptr, slope)
    if keep:
        store_poses(right_ptr + r * J * H, dt, j, h, J, H)
    if NORMALISE:  # s and σ were divided by T
        dt *= inverse_total(tl.load(total_ptr))
    return tl.sum(w * dt[:, None, :], 2), tl.sum(bias * dt, 1), slope


@jit
def step_kernel_backward(
    w_ptr, bias_ptr, gain_ptr, dpose_ptr, dlength_ptr, total_ptr, sum_ptr, right_ptr,
    slope_ptr, part_ptr, dsum_ptr, parts, r: tl.constexpr, J: tl.constexpr,
    D: tl.constexpr, H: tl.constexpr, R: tl.constexpr, SQUASH: tl.constexpr,
    BIAS: tl.constexpr, DPOSE: tl.constexpr, DLENGTH: tl.constexpr,
    NORMALISE: tl.constexpr, BJ: tl.constexpr, BD: tl.constexpr, BH: tl.constexpr,
    BS: tl.constexpr,
):  # fmt: skip
    """Do the backward step of a tile of parents: write its (ds, dσ) and Q."""
    n = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BJ + tl.arange(0, BJ)
    d, h = tl.arange(0, BD), tl.arange(0, BH)
    slope_ptr += (n * R + r) * tl.num_programs(1) + tl.program_id(1)
    ds, dsigma, _ = step_parents_backward(
        w_ptr, bias_ptr, gain_ptr, dpose_ptr, dlength_ptr, total_ptr, sum_ptr,
        right_ptr, slope_ptr, part_ptr, n, parts, True, j, d, h, r, J, D, H, R, SQUASH,
        BIAS, DPOSE, DLENGTH, NORMALISE, BS,
    )  # fmt: skip
    store_state(dsum_ptr + n * J * (D + 1), ds, dsigma, j, d, J, D)


@jit
def add_children(ptr, du, i, d, I, D: tl.constexpr, ADD: tl.constexpr):  # noqa: E741
    """Write du of the children i, or add it to what later iterations wrote."""
    inside = (i < I)[:, None] & (d < D)[None, :]
    place = ptr + i[:, None] * D + d[None, :]
    if ADD:
        du += tl.load(place, mask=inside, other=0.0)
    tl.store(place, du, mask=inside)


@jit
def repeat_rows(x, BJ: tl.constexpr):
    """Return x, (BP, BD), one copy after the other, (BJ, BD)."""
    BP: tl.constexpr = x.shape[0]
    BD: tl.constexpr = x.shape[1]
    return tl.broadcast_to(x[None, :, :], (BJ // BP, BP, BD)).reshape(BJ, BD)


@jit
def repeat_numbers(x, BJ: tl.constexpr):
    """Return x, (BP,), one copy after the other, (BJ,)."""
    BP: tl.constexpr = x.shape[0]
    return tl.broadcast_to(x[None, :], (BJ // BP, BP)).reshape(BJ)


@jit
def softmax_tile(u, A, k, norm_ptr, i, j, I, J, PRECISION: tl.constexpr):  # noqa: E741
    """Return a tile of the softmax, from each child's maximum and total."""
    logits = tl.dot(u, tl.trans(A), input_precision=PRECISION) + k[None, :]
    top = tl.load(norm_ptr + i, mask=i < I, other=0.0)
    total = tl.load(norm_ptr + I + i, mask=i < I, other=1.0)
    p = tl.exp(logits - top[:, None]) * (1 / total)[:, None]
    return tl.where((i < I)[:, None] & (j < J)[None, :], p, 0.0)


@jit
def gather_uniform(
    u_ptr, mask_ptr, coupling_ptr, out_ptr, P, W, C, I,  # noqa: E741
    mask_b, mask_w, mask_k, chunk, J: tl.constexpr, D: tl.constexpr, R: tl.constexpr,
    LEAKY: tl.constexpr, AMENDMENT: tl.constexpr, COUPLINGS: tl.constexpr,
    BI: tl.constexpr, BJ: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Write a chunk's Σ â u and Σ â: the first pass, couplings all equal."""
    n, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    u_ptr, mask_ptr = window_start(u_ptr, mask_ptr, n, P, W, C, D, mask_b, mask_w)
    d = tl.arange(0, BD)
    s = tl.zeros((BD,), tl.float32)
    sigma = tl.zeros((BI,), tl.float32)
    for start in range(part * chunk, tl.minimum(I, (part + 1) * chunk), BI):
        i = start + tl.arange(0, BI)
        u, voting = load_children(u_ptr, mask_ptr, mask_k, i, d, I, C, D)
        weight = child_weight(u, voting, AMENDMENT)
        s += tl.sum(weight[:, None] * u, 0)
        sigma += weight
        if COUPLINGS and R == 1:
            share = 1.0 / (J + 1 if LEAKY else J)
            for first in range(0, J, BJ):
                c = (share * weight)[:, None] + tl.zeros((BI, BJ), tl.float32)
                j = first + tl.arange(0, BJ)
                store_couplings(coupling_ptr + n * I * J, c, i, j, I, J)
    out_ptr += (n * tl.num_programs(1) + part) * (D + 1)
    tl.store(out_ptr + d, s, mask=d < D)
    tl.store(out_ptr + D, tl.sum(sigma, 0))


@jit
def normalise_children(
    u_ptr, mask_ptr, pull_ptr, norm_ptr, P, W, C, I,  # noqa: E741
    mask_b, mask_w, mask_k, r: tl.constexpr, J: tl.constexpr, D: tl.constexpr,
    R: tl.constexpr, LEAKY: tl.constexpr, PRECISION: tl.constexpr, BI: tl.constexpr,
    BJ: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Write the maximum of a child's logits and the total of their exponentials."""
    n = tl.program_id(0).to(tl.int64)
    u_ptr, mask_ptr = window_start(u_ptr, mask_ptr, n, P, W, C, D, mask_b, mask_w)
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
def gather_children(
    u_ptr, w_ptr, bias_ptr, mask_ptr, gain_ptr, coupling_ptr, total_ptr, sum_ptr,
    pull_ptr, norm_ptr, part_ptr, out_ptr, P, W, C, I,  # noqa: E741
    mask_b, mask_w, mask_k, chunk,
    r: tl.constexpr, J: tl.constexpr, D: tl.constexpr, H: tl.constexpr, R: tl.constexpr,
    LEAKY: tl.constexpr, AMENDMENT: tl.constexpr, SQUASH: tl.constexpr,
    BIAS: tl.constexpr, COUPLINGS: tl.constexpr, FUSED: tl.constexpr,
    PRECISION: tl.constexpr, NORMALISE: tl.constexpr, BI: tl.constexpr,
    BJ: tl.constexpr, BP: tl.constexpr, BD: tl.constexpr, BH: tl.constexpr,
    BS: tl.constexpr,
):  # fmt: skip
    """Write a chunk's (s, σ) of iteration r > 0 for a tile of parents."""
    n, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    u_ptr, mask_ptr = window_start(u_ptr, mask_ptr, n, P, W, C, D, mask_b, mask_w)
    parts = tl.num_programs(1)
    j = tl.program_id(2) * BJ + tl.arange(0, BJ)
    d, h = tl.arange(0, BD), tl.arange(0, BH)
    if FUSED:
        _, A, k = step_parents(
            w_ptr, bias_ptr, gain_ptr, total_ptr, sum_ptr, pull_ptr, part_ptr, n, parts,
            part == 0, tl.arange(0, BP), d, h, r - 1, J, D, H, R, LEAKY, SQUASH, BIAS,
            NORMALISE, BS,
        )  # fmt: skip
        A, k = repeat_rows(A, BJ), repeat_numbers(k, BJ)  # past J: never voted for
    else:
        A, k = load_state(pull_ptr + (n * (R - 1) + r - 1) * J * (D + 1), j, d, J, D)
    s = tl.zeros((BJ, BD), tl.float32)
    sigma = tl.zeros((BJ,), tl.float32)
    for start in range(part * chunk, tl.minimum(I, (part + 1) * chunk), BI):
        i = start + tl.arange(0, BI)
        u, voting = load_children(u_ptr, mask_ptr, mask_k, i, d, I, C, D)
        if FUSED:
            p = softmax_parents(u, A, k, J, LEAKY, PRECISION)
        else:
            p = softmax_tile(u, A, k, norm_ptr + n * 2 * I, i, j, I, J, PRECISION)
        c = child_weight(u, voting, AMENDMENT)[:, None] * p
        s += tl.dot(tl.trans(c), u, input_precision=PRECISION)
        if BIAS:
            sigma += tl.sum(c, 0)
        if COUPLINGS and r == R - 1:
            store_couplings(coupling_ptr + n * I * J, c, i, j, I, J)
    out_ptr += (n * parts + part) * J * (D + 1)
    store_state(out_ptr, s, sigma, j, d, J, D)


@jit
def scatter_children(
    u_ptr, w_ptr, bias_ptr, mask_ptr, gain_ptr, dpose_ptr, dlength_ptr, dcoupling_ptr,
    total_ptr, sum_ptr, pull_ptr, right_ptr, slope_ptr, du_ptr, part_ptr, out_ptr,
    P, W, C, I, mask_b, mask_w, mask_k, chunk, r: tl.constexpr,  # noqa: E741
    J: tl.constexpr, D: tl.constexpr, H: tl.constexpr, R: tl.constexpr,
    LEAKY: tl.constexpr, AMENDMENT: tl.constexpr, SQUASH: tl.constexpr,
    BIAS: tl.constexpr, DPOSE: tl.constexpr, DLENGTH: tl.constexpr,
    DCOUPLING: tl.constexpr, PRECISION: tl.constexpr, NORMALISE: tl.constexpr,
    BI: tl.constexpr, BJ: tl.constexpr, BP: tl.constexpr, BD: tl.constexpr,
    BH: tl.constexpr, BS: tl.constexpr,
):  # fmt: skip
    """Go back through a step and the pass before it: add to du, write (dA, dk)."""
    n, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    parts = tl.num_programs(1)
    u_ptr, mask_ptr = window_start(u_ptr, mask_ptr, n, P, W, C, D, mask_b, mask_w)
    pull_ptr += (n * (R - 1) + r - 1) * J * (D + 1)
    j, d, h = tl.arange(0, BJ), tl.arange(0, BD), tl.arange(0, BH)
    ds, dsigma, _ = step_parents_backward(
        w_ptr, bias_ptr, gain_ptr, dpose_ptr, dlength_ptr, total_ptr, sum_ptr,
        right_ptr, slope_ptr + n * R + r, part_ptr, n, parts, part == 0,
        tl.arange(0, BP), d, h, r, J, D, H, R, SQUASH, BIAS, DPOSE, DLENGTH, NORMALISE,
        BS,
    )  # fmt: skip
    ds, dsigma = repeat_rows(ds, BJ), repeat_numbers(dsigma, BJ)
    A, k = load_state(pull_ptr, j, d, J, D)
    dA = tl.zeros((BJ, BD), tl.float32)
    dk = tl.zeros((BJ,), tl.float32)
    for start in range(part * chunk, tl.minimum(I, (part + 1) * chunk), BI):
        i = start + tl.arange(0, BI)
        u, voting = load_children(u_ptr, mask_ptr, mask_k, i, d, I, C, D)
        weight = child_weight(u, voting, AMENDMENT)
        p = softmax_parents(u, A, k, J, LEAKY, PRECISION)
        dc = tl.dot(u, tl.trans(ds), input_precision=PRECISION) + dsigma[None, :]
        if DCOUPLING and r == R - 1:
            dc += load_couplings(dcoupling_ptr + n * I * J, i, j, I, J)
        du, dl = child_gradient(u, weight, voting, p, dc, A, ds, AMENDMENT, PRECISION)
        dA += tl.dot(tl.trans(dl), u, input_precision=PRECISION)
        if BIAS:
            dk += tl.sum(dl, 0)
        add_children(du_ptr + n * I * D, du, i, d, I, D, r < R - 1)
    out_ptr += (n * parts + part) * J * (D + 1)
    store_state(out_ptr, dA, dk, j, d, J, D)


@jit
def scatter_uniform(
    u_ptr, w_ptr, bias_ptr, mask_ptr, gain_ptr, dpose_ptr, dlength_ptr, dcoupling_ptr,
    dtotal_ptr, total_ptr, sum_ptr, right_ptr, slope_ptr, du_ptr, part_ptr, dsum_ptr,
    P, W, C, I, mask_b, mask_w, mask_k, chunk, J: tl.constexpr,  # noqa: E741
    D: tl.constexpr, H: tl.constexpr, R: tl.constexpr, LEAKY: tl.constexpr,
    AMENDMENT: tl.constexpr, SQUASH: tl.constexpr, BIAS: tl.constexpr,
    DPOSE: tl.constexpr, DLENGTH: tl.constexpr, DCOUPLING: tl.constexpr,
    DTOTAL: tl.constexpr, NORMALISE: tl.constexpr, SLOPES: tl.constexpr,
    FUSED: tl.constexpr, BI: tl.constexpr, BJ: tl.constexpr, BP: tl.constexpr,
    BD: tl.constexpr, BH: tl.constexpr, BS: tl.constexpr,
):  # fmt: skip
    """Go back through the first pass, whose couplings are all equal."""
    n, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    parts = tl.num_programs(1)
    u_ptr, mask_ptr = window_start(u_ptr, mask_ptr, n, P, W, C, D, mask_b, mask_w)
    j, d, h = tl.arange(0, BJ), tl.arange(0, BD), tl.arange(0, BH)
    if FUSED:
        ds, dsigma, slope = step_parents_backward(
            w_ptr, bias_ptr, gain_ptr, dpose_ptr, dlength_ptr, total_ptr, sum_ptr,
            right_ptr, slope_ptr + n * R, part_ptr, n, parts, part == 0,
            tl.arange(0, BP), d, h, 0, J, D, H, R, SQUASH, BIAS, DPOSE, DLENGTH,
            NORMALISE, BS,
        )  # fmt: skip
    else:
        ds = tl.zeros((BJ, BD), tl.float32)
        dsigma = tl.zeros((BJ,), tl.float32)
        for first in range(0, J, BJ):
            more, sigma = load_state(dsum_ptr + n * J * (D + 1), first + j, d, J, D)
            ds += more
            dsigma += sigma
    ds_all, dsigma_all = tl.sum(ds, 0), tl.sum(dsigma, 0)
    dtotal = 0.0
    if NORMALISE:
        slopes = tl.zeros((BJ,), tl.float32)
        # Where fused, another program writes the slot of this iteration: not read.
        for first in range(1 if FUSED else 0, SLOPES, BJ):
            place = slope_ptr + n * SLOPES + first + j
            slopes += tl.load(place, mask=first + j < SLOPES, other=0.0)
        slope = tl.sum(slopes, 0) + (slope if FUSED else 0.0)
        total = tl.load(total_ptr + n)
        dtotal = total_gradient(slope, total, gain_ptr, dtotal_ptr + n, DTOTAL)
    share = 1.0 / (J + 1 if LEAKY else J)
    for start in range(part * chunk, tl.minimum(I, (part + 1) * chunk), BI):
        i = start + tl.arange(0, BI)
        u, voting = load_children(u_ptr, mask_ptr, mask_k, i, d, I, C, D)
        weight = child_weight(u, voting, AMENDMENT)
        extra = tl.zeros((BI,), tl.float32)
        if DCOUPLING and R == 1:
            for first in range(0, J, BJ):
                tile = load_couplings(dcoupling_ptr + n * I * J, i, first + j, I, J)
                extra += tl.sum(tile, 1)
        du = uniform_gradient(
            u, weight, voting, ds_all, dsigma_all, extra, share, dtotal, AMENDMENT,
            NORMALISE,
        )  # fmt: skip
        add_children(du_ptr + n * I * D, du, i, d, I, D, R > 1)


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
def load_tile(
    u, pull_ptr, dsum_ptr, norm_ptr, dcoupling_ptr, i, j, d, I,  # noqa: E741
    J: tl.constexpr, D: tl.constexpr, DCOUPLING: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return A and ds of the parents j, and p and dc of the children i to them."""
    A, k = load_state(pull_ptr, j, d, J, D)
    ds, dsigma = load_state(dsum_ptr, j, d, J, D)
    p, dc = coupling_gradient(
        u, A, k, ds, dsigma, norm_ptr, dcoupling_ptr, i, j, I, J, DCOUPLING, PRECISION,
    )  # fmt: skip
    return A, ds, p, dc


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
    u_ptr, mask_ptr = window_start(u_ptr, mask_ptr, n, P, W, C, D, mask_b, mask_w)
    pull_ptr += (n * (R - 1) + r - 1) * J * (D + 1)
    dsum_ptr += n * J * (D + 1)
    norm_ptr += n * 2 * I
    dcoupling_ptr += n * I * J
    i, d = tl.program_id(1) * BI + tl.arange(0, BI), tl.arange(0, BD)
    u, voting = load_children(u_ptr, mask_ptr, mask_k, i, d, I, C, D)
    weight = child_weight(u, voting, AMENDMENT)
    da = tl.zeros((BI,), tl.float32)
    du = tl.zeros((BI, BD), tl.float32)
    for first in range(0, J, BJ):
        j = first + tl.arange(0, BJ)
        _, ds, p, dc = load_tile(
            u, pull_ptr, dsum_ptr, norm_ptr, dcoupling_ptr, i, j, d, I, J, D, DCOUPLING,
            PRECISION,
        )  # fmt: skip
        da += tl.sum(p * dc, 1)
        du += tl.dot(weight[:, None] * p, ds, input_precision=PRECISION)
    for first in range(0, J, BJ):
        j = first + tl.arange(0, BJ)
        A, _, p, dc = load_tile(
            u, pull_ptr, dsum_ptr, norm_ptr, dcoupling_ptr, i, j, d, I, J, D, DCOUPLING,
            PRECISION,
        )  # fmt: skip
        dl = weight[:, None] * p * (dc - da[:, None])
        du += tl.dot(dl, A, input_precision=PRECISION)
    if AMENDMENT:
        unit, _ = unit_rows(u)
        du += (voting * da)[:, None] * unit
    add_children(du_ptr + n * I * D, du, i, d, I, D, r < R - 1)
    tl.store(da_ptr + n * I + i, da, mask=i < I)


@jit
def pull_tiles(
    u_ptr, mask_ptr, dcoupling_ptr, pull_ptr, norm_ptr, dsum_ptr, da_ptr, out_ptr,
    P, W, C, I, mask_b, mask_w, mask_k, chunk, r: tl.constexpr,  # noqa: E741
    J: tl.constexpr, D: tl.constexpr, R: tl.constexpr, AMENDMENT: tl.constexpr,
    DCOUPLING: tl.constexpr, PRECISION: tl.constexpr, BI: tl.constexpr,
    BJ: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Write (dA, dk) of a tile of parents over a chunk of children."""
    n, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    u_ptr, mask_ptr = window_start(u_ptr, mask_ptr, n, P, W, C, D, mask_b, mask_w)
    pull_ptr += (n * (R - 1) + r - 1) * J * (D + 1)
    norm_ptr += n * 2 * I
    dcoupling_ptr += n * I * J
    j, d = tl.program_id(2) * BJ + tl.arange(0, BJ), tl.arange(0, BD)
    A, k = load_state(pull_ptr, j, d, J, D)
    ds, dsigma = load_state(dsum_ptr + n * J * (D + 1), j, d, J, D)
    dA = tl.zeros((BJ, BD), tl.float32)
    dk = tl.zeros((BJ,), tl.float32)
    for start in range(part * chunk, tl.minimum(I, (part + 1) * chunk), BI):
        i = start + tl.arange(0, BI)
        u, voting = load_children(u_ptr, mask_ptr, mask_k, i, d, I, C, D)
        weight = child_weight(u, voting, AMENDMENT)
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


class Plan:
    """How one call is cut up, and the launches that its passes share."""

    def __init__(self, call: Call, **constants: bool) -> None:
        self.call, self.fused = call, call.regime == "chunks"
        self.N, self.I = call.windows, call.children
        self.state = call.transform.shape[0] * (call.transform.shape[1] + 1)
        tiles = call.tiles()
        tiles["BJ"] = tiles["BJ"] if self.fused else min(_PARENTS, tiles["BJ"])
        # Products take 16 parents or more; the step, no more than there are.
        tiles["BP"] = min(tiles["BJ"], power_of_two(call.transform.shape[0]))
        tile = min(_TILE, max(16, power_of_two(self.I)))
        self.parent_tiles = -(-call.transform.shape[0] // tiles["BJ"])
        self.child_tiles = -(-self.I // tile)
        self.chunk, self.parts = self.cut(tile, self.N * self.parent_tiles)
        # The first pass has one sum for all parents: it may be cut finer.
        self.first_chunk, self.first_parts = self.cut(tile, self.N)
        self.constants = {
            **call.constants(), **tiles, **constants, "BI": tile, "FUSED": self.fused,
            "num_warps": _WARPS if self.fused else _TILED_WARPS,
            "BS": min(16, max(2, power_of_two(self.first_parts))),
        }  # fmt: skip
        step = max(1, _STEP_TRANSFORM // (tiles["BD"] * tiles["BH"]))
        self.step_tile = min(step, power_of_two(call.transform.shape[0]))
        self.step_tiles = -(-call.transform.shape[0] // self.step_tile)
        # Numbers that a window's Q is the sum of: one per iteration and step's tile.
        self.slopes = call.options.iterations * (1 if self.fused else self.step_tiles)
        small = tiles["BJ"] * tiles["BD"] * tiles["BH"] <= _STEP_TRANSFORM
        limited = self.fused and small and call.gain is not None
        self.registers = _REGISTERS if limited else None

    def cut(self, tile: int, programs: int) -> tuple[int, int]:
        """Return how many children a chunk has, and how many chunks there are."""
        wanted = min(max(1, _PROGRAMS // programs), self.child_tiles)
        chunk = tile * -(-self.child_tiles // wanted)
        return chunk, -(-self.I // chunk)

    def new_parts(self, r: int) -> Tensor:
        """Return memory for the partial states of pass r."""
        if r == 0:  # one for all parents
            size = self.call.transform.shape[1] + 1
            return new_floats(self.call, self.N, self.first_parts, size)
        return new_floats(self.call, self.N, self.parts, self.state)

    def launch(self, kernel, grid: tuple[int, ...], *arguments, **constants) -> None:
        """Launch a kernel with those of the constants that it takes."""
        run(kernel, grid, *arguments, **{**self.constants, **constants})

    def launch_step(self, kernel, *arguments, parts: int, r: int) -> None:
        """Launch a kernel of the parents' step over tiles of parents."""
        grid = (self.N, self.step_tiles)
        self.launch(kernel, grid, *arguments, parts, r=r, BJ=self.step_tile)


def forward(call: Call, couplings: bool, save: bool):
    """Return poses, lengths, couplings, totals (or None), and what `backward` needs."""
    outputs = new_outputs(call, couplings, True)
    poses, lengths, coupled, totals, sums, pulls = outputs
    plan, R = Plan(call, COUPLINGS=couplings), call.options.iterations
    u, w, bias, mask, gain = call.inputs()
    c = poses if coupled is None else coupled
    T = sums if totals is None else totals
    norms = new_floats(call, 0 if plan.fused else R - 1, plan.N, 2, plan.I)
    grid = (plan.N, plan.parts, plan.parent_tiles)
    parts, axes = plan.new_parts(0), (*call.axes(), plan.first_chunk)
    plan.launch(gather_uniform, (plan.N, plan.first_parts), u, mask, c, parts, *axes)
    for r in range(1, R):
        before, parts, norm = parts, plan.new_parts(r), parts
        if not plan.fused:
            norm = norms[r - 1]
            states = (w, bias, gain, T, sums, pulls, before, poses, lengths)
            plan.launch_step(step_kernel, *states, parts=before.shape[1], r=r - 1)
            tiles = (plan.N, plan.child_tiles)
            inputs = (u, mask, pulls, norm, *call.axes())
            plan.launch(normalise_children, tiles, *inputs, r=r)
        plan.launch(
            gather_children, grid, u, w, bias, mask, gain, c, T, sums,
            pulls, norm, before, parts, *call.axes(), plan.chunk, r=r,
        )  # fmt: skip
    states = (w, bias, gain, T, sums, pulls, parts, poses, lengths)
    plan.launch_step(step_kernel, *states, parts=parts.shape[1], r=R - 1)
    return *outputs[:4], (sums, pulls, norms) if save else ()


def backward(call: Call, gradients: Gradients, saved: tuple[Tensor, ...]):
    """Return du of every window's children, the right factors of dW, and Q or None."""
    totals, sums, pulls, norms = saved
    plan, R = Plan(call, **gradients.constants()), call.options.iterations
    u, w, bias, mask, gain = call.inputs()
    dpose, dlength, dcoupling, dtotal = gradients.pointers(sums)
    J, D, H = call.transform.shape
    right = new_floats(call, plan.N, 2 * R - 1, J, H)
    du = new_floats(call, plan.N, plan.I, D)
    slopes = None if totals is None else new_floats(call, plan.N, plan.slopes)
    T, Q = (sums, sums) if slopes is None else (totals, slopes)
    dsum = new_floats(call, plan.N, plan.state)
    da = new_floats(call, plan.N, plan.I)
    grid = (plan.N, plan.parts)
    parts = sums
    for r in range(R - 1, 0, -1):
        before, parts = parts, plan.new_parts(r)
        if plan.fused:
            plan.launch(
                scatter_children, grid, u, w, bias, mask, gain, dpose, dlength,
                dcoupling, T, sums, pulls, right, Q, du, before, parts, *call.axes(),
                plan.chunk, r=r, maxnreg=plan.registers,
            )  # fmt: skip
            continue
        states = (w, bias, gain, dpose, dlength, T, sums, right, Q, before, dsum)
        plan.launch_step(step_kernel_backward, *states, parts=plan.parts, r=r)
        inputs = (u, mask, dcoupling, pulls, norms[r - 1], dsum)
        reads_couplings = gradients.couplings is not None and r == R - 1
        constants = {"r": r, "DCOUPLING": reads_couplings}
        tiles = (plan.N, plan.child_tiles)
        plan.launch(scatter_tiles, tiles, *inputs, du, da, *call.axes(), **constants)
        rest = (da, parts, *call.axes(), plan.chunk)
        tiles = (*grid, plan.parent_tiles)
        plan.launch(pull_tiles, tiles, *inputs, *rest, **constants)
    if not plan.fused:
        states = (w, bias, gain, dpose, dlength, T, sums, right, Q, parts, dsum)
        plan.launch_step(step_kernel_backward, *states, parts=plan.parts, r=0)
    plan.launch(
        scatter_uniform, (plan.N, plan.first_parts), u, w, bias, mask, gain,
        dpose, dlength, dcoupling, dtotal, T, sums, right, Q, du, parts, dsum,
        *call.axes(), plan.first_chunk, SLOPES=plan.slopes,
    )  # fmt: skip
    return du, right, slopes
