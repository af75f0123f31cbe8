"""Triton kernels over chunks of children: the passes and the step of the parents.

Programs own a chunk of children and write partial sums; the parents' step adds these
up, always in the same order. With few parents every program of the next pass does the
step for itself, which is cheaper than one more launch.
"""

from __future__ import annotations

from textcapsules.model.kernels.gpu.parts import (
    child_gradient,
    child_weight,
    inverse_total,
    jit,
    load_children,
    load_couplings,
    load_poses,
    load_state,
    load_transform,
    output_gradient,
    row_norm,
    softmax_parents,
    squash_gradient,
    squash_poses,
    store_couplings,
    store_poses,
    store_state,
    tl,
    total_gradient,
    uniform_gradient,
)

# Inside kernels nothing has the type it seems to have.
# pyright: reportInvalidTypeForm=false, reportPossiblyUnboundVariable=false


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
        found = tl.load(base[:, None, None] + place, mask=inside, other=0.0)
        matrix += tl.sum(found, 0)
        found = tl.load(base[:, None] + J * D + j[None, :], mask=here, other=0.0)
        vector += tl.sum(found, 0)
    return matrix, vector


@jit
def step_parents(
    w_ptr, bias_ptr, gain_ptr, total_ptr, sum_ptr, pull_ptr, part_ptr, parts, keep,
    j, d, h, r: tl.constexpr, J: tl.constexpr, D: tl.constexpr, H: tl.constexpr,
    R: tl.constexpr, LEAKY: tl.constexpr, SQUASH: tl.constexpr, BIAS: tl.constexpr,
    NORMALISE: tl.constexpr, BS: tl.constexpr,
):  # fmt: skip
    """Return v of iteration r and (A, k) after it; store states where `keep`."""
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
    w = load_transform(w_ptr, j, d, h, J, D, H)
    bias = tl.zeros((j.shape[0], h.shape[0]), tl.float32)
    t = tl.sum(s[:, :, None] * w, 1)
    if BIAS:
        bias = load_poses(bias_ptr, j, h, J, H)
        t += sigma[:, None] * bias
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
def unstep_parents(
    w_ptr, bias_ptr, gain_ptr, dpose_ptr, dlength_ptr, total_ptr, sum_ptr, right_ptr,
    slope_ptr, part_ptr, parts, keep, j, d, h, r: tl.constexpr, J: tl.constexpr,
    D: tl.constexpr, H: tl.constexpr, R: tl.constexpr, SQUASH: tl.constexpr,
    BIAS: tl.constexpr, DPOSE: tl.constexpr, DLENGTH: tl.constexpr,
    NORMALISE: tl.constexpr, BS: tl.constexpr,
):  # fmt: skip
    """Return (ds, dσ) and Q of iteration r; store Q, the factors of dW where `keep`."""
    s, sigma = load_state(sum_ptr + r * J * (D + 1), j, d, J, D)
    w = load_transform(w_ptr, j, d, h, J, D, H)
    bias = tl.zeros((j.shape[0], h.shape[0]), tl.float32)
    t = tl.sum(s[:, :, None] * w, 1)
    if BIAS:
        bias = load_poses(bias_ptr, j, h, J, H)
        t += sigma[:, None] * bias
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
def gather_uniform(
    u_ptr, mask_ptr, coupling_ptr, out_ptr, P, W, C, I,  # noqa: E741
    mask_b, mask_w, mask_k, each, J: tl.constexpr, D: tl.constexpr, R: tl.constexpr,
    LEAKY: tl.constexpr, AMENDMENT: tl.constexpr, COUPLINGS: tl.constexpr,
    BI: tl.constexpr, BJ: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Write a chunk's Σ â u and Σ â: the first pass, couplings all equal."""
    n, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    u_ptr += ((n // W) * P + n % W) * C * D
    mask_ptr += (n // W) * mask_b + (n % W) * mask_w
    d = tl.arange(0, BD)
    s = tl.zeros((BD,), tl.float32)
    sigma = tl.zeros((BI,), tl.float32)
    for start in range(part * each, tl.minimum(I, (part + 1) * each), BI):
        i = start + tl.arange(0, BI)
        u, seen = load_children(u_ptr, mask_ptr, mask_k, i, d, I, C, D)
        weight = child_weight(u, seen, AMENDMENT)
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
def softmax_tile(u, A, k, norm_ptr, i, j, I, J, PRECISION: tl.constexpr):  # noqa: E741
    """Return a tile of the softmax, from each child's maximum and total."""
    logits = tl.dot(u, tl.trans(A), input_precision=PRECISION) + k[None, :]
    top = tl.load(norm_ptr + i, mask=i < I, other=0.0)
    total = tl.load(norm_ptr + I + i, mask=i < I, other=1.0)
    p = tl.exp(logits - top[:, None]) * (1 / total)[:, None]
    return tl.where((i < I)[:, None] & (j < J)[None, :], p, 0.0)


@jit
def gather_children(
    u_ptr, w_ptr, bias_ptr, mask_ptr, gain_ptr, coupling_ptr, total_ptr, sum_ptr,
    pull_ptr, norm_ptr, part_ptr, out_ptr, P, W, C, I,  # noqa: E741
    mask_b, mask_w, mask_k, each,
    r: tl.constexpr, J: tl.constexpr, D: tl.constexpr, H: tl.constexpr, R: tl.constexpr,
    LEAKY: tl.constexpr, AMENDMENT: tl.constexpr, SQUASH: tl.constexpr,
    BIAS: tl.constexpr, COUPLINGS: tl.constexpr, FUSED: tl.constexpr,
    PRECISION: tl.constexpr, NORMALISE: tl.constexpr, BI: tl.constexpr,
    BJ: tl.constexpr, BD: tl.constexpr, BH: tl.constexpr, BS: tl.constexpr,
):  # fmt: skip
    """Write a chunk's (s, σ) of iteration r > 0 for a tile of parents."""
    n, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    u_ptr += ((n // W) * P + n % W) * C * D
    mask_ptr += (n // W) * mask_b + (n % W) * mask_w
    sum_ptr += n * (2 * R - 1) * J * (D + 1)
    pull_ptr += n * (R - 1) * J * (D + 1)
    parts = tl.num_programs(1)
    j = tl.program_id(2) * BJ + tl.arange(0, BJ)
    d, h = tl.arange(0, BD), tl.arange(0, BH)
    if FUSED:
        before = part_ptr + n * parts * ((D + 1) if r == 1 else J * (D + 1))
        _, A, k = step_parents(
            w_ptr, bias_ptr, gain_ptr, total_ptr + n, sum_ptr, pull_ptr, before, parts,
            part == 0, j, d, h, r - 1, J, D, H, R, LEAKY, SQUASH, BIAS, NORMALISE, BS,
        )  # fmt: skip
    else:
        A, k = load_state(pull_ptr + (r - 1) * J * (D + 1), j, d, J, D)
    s = tl.zeros((BJ, BD), tl.float32)
    sigma = tl.zeros((BJ,), tl.float32)
    for start in range(part * each, tl.minimum(I, (part + 1) * each), BI):
        i = start + tl.arange(0, BI)
        u, seen = load_children(u_ptr, mask_ptr, mask_k, i, d, I, C, D)
        if FUSED:
            p = softmax_parents(u, A, k, J, LEAKY, PRECISION)
        else:
            p = softmax_tile(u, A, k, norm_ptr + n * 2 * I, i, j, I, J, PRECISION)
        c = child_weight(u, seen, AMENDMENT)[:, None] * p
        s += tl.dot(tl.trans(c), u, input_precision=PRECISION)
        if BIAS:
            sigma += tl.sum(c, 0)
        if COUPLINGS and r == R - 1:
            store_couplings(coupling_ptr + n * I * J, c, i, j, I, J)
    out_ptr += (n * parts + part) * J * (D + 1)
    store_state(out_ptr, s, sigma, j, d, J, D)


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
    sum_ptr += n * (2 * R - 1) * J * (D + 1)
    pull_ptr += n * (R - 1) * J * (D + 1)
    part_ptr += n * parts * ((D + 1) if r == 0 else J * (D + 1))
    j = tl.program_id(1) * BJ + tl.arange(0, BJ)
    d, h = tl.arange(0, BD), tl.arange(0, BH)
    v, _, _ = step_parents(
        w_ptr, bias_ptr, gain_ptr, total_ptr + n, sum_ptr, pull_ptr, part_ptr, parts,
        True, j, d, h, r, J, D, H, R, LEAKY, SQUASH, BIAS, NORMALISE, BS,
    )  # fmt: skip
    if r == R - 1:
        store_poses(pose_ptr + n * J * H, v, j, h, J, H)
        length = row_norm(v).to(length_ptr.dtype.element_ty)
        tl.store(length_ptr + n * J + j, length, mask=j < J)


@jit
def scatter_children(
    u_ptr, w_ptr, bias_ptr, mask_ptr, gain_ptr, dpose_ptr, dlength_ptr, dcoupling_ptr,
    total_ptr, sum_ptr, pull_ptr, right_ptr, slope_ptr, du_ptr, part_ptr, out_ptr,
    P, W, C, I, mask_b, mask_w, mask_k, each, r: tl.constexpr,  # noqa: E741
    J: tl.constexpr, D: tl.constexpr, H: tl.constexpr, R: tl.constexpr,
    LEAKY: tl.constexpr, AMENDMENT: tl.constexpr, SQUASH: tl.constexpr,
    BIAS: tl.constexpr, DPOSE: tl.constexpr, DLENGTH: tl.constexpr,
    DCOUPLING: tl.constexpr, PRECISION: tl.constexpr, NORMALISE: tl.constexpr,
    BI: tl.constexpr, BJ: tl.constexpr, BD: tl.constexpr, BH: tl.constexpr,
    BS: tl.constexpr,
):  # fmt: skip
    """Undo a step and the pass before it: add to a chunk's du, write its (dA, dk)."""
    n, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    parts = tl.num_programs(1)
    u_ptr += ((n // W) * P + n % W) * C * D
    mask_ptr += (n // W) * mask_b + (n % W) * mask_w
    pull_ptr += (n * (R - 1) + r - 1) * J * (D + 1)
    j, d, h = tl.arange(0, BJ), tl.arange(0, BD), tl.arange(0, BH)
    ds, dsigma, _ = unstep_parents(
        w_ptr, bias_ptr, gain_ptr, dpose_ptr + n * J * H, dlength_ptr + n * J,
        total_ptr + n, sum_ptr + n * (2 * R - 1) * J * (D + 1),
        right_ptr + n * (2 * R - 1) * J * H, slope_ptr + n * R + r,
        part_ptr + n * parts * J * (D + 1), parts, part == 0, j, d, h, r, J, D, H, R,
        SQUASH, BIAS, DPOSE, DLENGTH, NORMALISE, BS,
    )  # fmt: skip
    A, k = load_state(pull_ptr, j, d, J, D)
    dA = tl.zeros((BJ, BD), tl.float32)
    dk = tl.zeros((BJ,), tl.float32)
    for start in range(part * each, tl.minimum(I, (part + 1) * each), BI):
        i = start + tl.arange(0, BI)
        u, seen = load_children(u_ptr, mask_ptr, mask_k, i, d, I, C, D)
        weight = child_weight(u, seen, AMENDMENT)
        p = softmax_parents(u, A, k, J, LEAKY, PRECISION)
        dc = tl.dot(u, tl.trans(ds), input_precision=PRECISION) + dsigma[None, :]
        if DCOUPLING and r == R - 1:
            dc += load_couplings(dcoupling_ptr + n * I * J, i, j, I, J)
        du, dl = child_gradient(u, weight, seen, p, dc, A, ds, AMENDMENT, PRECISION)
        dA += tl.dot(tl.trans(dl), u, input_precision=PRECISION)
        if BIAS:
            dk += tl.sum(dl, 0)
        add_children(du_ptr + n * I * D, du, i, d, I, D, r < R - 1)
    out_ptr += (n * parts + part) * J * (D + 1)
    store_state(out_ptr, dA, dk, j, d, J, D)


@jit
def add_children(ptr, du, i, d, I, D: tl.constexpr, ADD: tl.constexpr):  # noqa: E741
    """Write du of the children i, or add it to what later iterations wrote."""
    inside = (i < I)[:, None] & (d < D)[None, :]
    place = ptr + i[:, None] * D + d[None, :]
    if ADD:
        du += tl.load(place, mask=inside, other=0.0)
    tl.store(place, du, mask=inside)


@jit
def scatter_uniform(
    u_ptr, w_ptr, bias_ptr, mask_ptr, gain_ptr, dpose_ptr, dlength_ptr, dcoupling_ptr,
    dtotal_ptr, total_ptr, sum_ptr, right_ptr, slope_ptr, du_ptr, part_ptr, dsum_ptr,
    P, W, C, I, mask_b, mask_w, mask_k, each, J: tl.constexpr,  # noqa: E741
    D: tl.constexpr, H: tl.constexpr, R: tl.constexpr, LEAKY: tl.constexpr,
    AMENDMENT: tl.constexpr, SQUASH: tl.constexpr, BIAS: tl.constexpr,
    DPOSE: tl.constexpr, DLENGTH: tl.constexpr, DCOUPLING: tl.constexpr,
    DTOTAL: tl.constexpr, NORMALISE: tl.constexpr, SLOPES: tl.constexpr,
    FUSED: tl.constexpr,
    BI: tl.constexpr, BJ: tl.constexpr, BD: tl.constexpr, BH: tl.constexpr,
    BS: tl.constexpr,
):  # fmt: skip
    """Undo the first pass, whose couplings are all equal."""
    n, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    parts = tl.num_programs(1)
    u_ptr += ((n // W) * P + n % W) * C * D
    mask_ptr += (n // W) * mask_b + (n % W) * mask_w
    j, d, h = tl.arange(0, BJ), tl.arange(0, BD), tl.arange(0, BH)
    if FUSED:
        ds, dsigma, slope = unstep_parents(
            w_ptr, bias_ptr, gain_ptr, dpose_ptr + n * J * H, dlength_ptr + n * J,
            total_ptr + n, sum_ptr + n * (2 * R - 1) * J * (D + 1),
            right_ptr + n * (2 * R - 1) * J * H, slope_ptr + n * R,
            part_ptr + n * parts * J * (D + 1), parts, part == 0, j, d, h, 0, J, D, H,
            R, SQUASH, BIAS, DPOSE, DLENGTH, NORMALISE, BS,
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
    for start in range(part * each, tl.minimum(I, (part + 1) * each), BI):
        i = start + tl.arange(0, BI)
        u, seen = load_children(u_ptr, mask_ptr, mask_k, i, d, I, C, D)
        weight = child_weight(u, seen, AMENDMENT)
        extra = tl.zeros((BI,), tl.float32)
        if DCOUPLING and R == 1:
            for first in range(0, J, BJ):
                tile = load_couplings(dcoupling_ptr + n * I * J, i, first + j, I, J)
                extra += tl.sum(tile, 1)
        du = uniform_gradient(
            u, weight, seen, ds_all, dsigma_all, extra, share, dtotal, AMENDMENT,
            NORMALISE,
        )  # fmt: skip
        add_children(du_ptr + n * I * D, du, i, d, I, D, R > 1)


@jit
def unstep_kernel(
    w_ptr, bias_ptr, gain_ptr, dpose_ptr, dlength_ptr, total_ptr, sum_ptr, right_ptr,
    slope_ptr, part_ptr, dsum_ptr, parts, r: tl.constexpr, J: tl.constexpr,
    D: tl.constexpr, H: tl.constexpr, R: tl.constexpr, SQUASH: tl.constexpr,
    BIAS: tl.constexpr, DPOSE: tl.constexpr, DLENGTH: tl.constexpr,
    NORMALISE: tl.constexpr, BJ: tl.constexpr, BD: tl.constexpr, BH: tl.constexpr,
    BS: tl.constexpr,
):  # fmt: skip
    """Write (ds, dσ) and Q of a tile of parents."""
    n = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BJ + tl.arange(0, BJ)
    d, h = tl.arange(0, BD), tl.arange(0, BH)
    slope_ptr += (n * R + r) * tl.num_programs(1) + tl.program_id(1)
    ds, dsigma, _ = unstep_parents(
        w_ptr, bias_ptr, gain_ptr, dpose_ptr + n * J * H, dlength_ptr + n * J,
        total_ptr + n, sum_ptr + n * (2 * R - 1) * J * (D + 1),
        right_ptr + n * (2 * R - 1) * J * H, slope_ptr,
        part_ptr + n * parts * J * (D + 1), parts, True, j, d, h, r, J, D, H, R,
        SQUASH, BIAS, DPOSE, DLENGTH, NORMALISE, BS,
    )  # fmt: skip
    store_state(dsum_ptr + n * J * (D + 1), ds, dsigma, j, d, J, D)
