"""Triton kernels that route a short window in one program.

A program owns one window: its children pass through the registers in tiles of BI, the
parents' state stays there for all iterations. `maths` explains the algebra.
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
    child_weight,
    inverse_total,
    jit,
    load_bias,
    load_couplings,
    load_state,
    load_transform,
    output_gradient,
    softmax_parents,
    squash_gradient,
    squash_poses,
    store_couplings,
    store_outputs,
    store_poses,
    store_state,
    tl,
    total_gradient,
    window_start,
)

# In a kernel, names have other types than pyright sees.
# pyright: reportInvalidTypeForm=false, reportPossiblyUnboundVariable=false

# Children in a tile: 96, the paper's window, fills three of them.
_TILE = 32
# Where W is small. One warp waits for no other, and sums over threads stay within it.
# The compiler would take 254 registers of a thread; with 168 it spills some, but more
# windows fit on a multiprocessor; on an H200 that was the fastest of nine.
_WARPS, _REGISTERS = 1, 168
_SMALL_TRANSFORM = 4096  # entries of W, padded


@jit
def load_window(
    u_ptr, i, d, I, D: tl.constexpr, EVEN: tl.constexpr,  # noqa: E741
):  # fmt: skip
    """Return the children i, (BI, BD) in float32; EVEN: every tile is full."""
    place = u_ptr + i[:, None] * D + d[None, :]
    if EVEN:
        u = tl.load(place)
    else:
        u = tl.load(place, mask=(i < I)[:, None] & (d < D)[None, :], other=0.0)
    return u.to(tl.float32)


@jit
def first_weight(
    u, mask_ptr, mask_k, i, I, C: tl.constexpr, AMENDMENT: tl.constexpr  # noqa: E741
):  # fmt: skip
    """Return â of the children i, zero where they must not vote."""
    voting = tl.load(mask_ptr + (i // C) * mask_k, mask=i < I, other=0)
    return child_weight(u, (voting != 0).to(tl.float32), AMENDMENT)


@jit
def route_window(
    u_ptr, w_ptr, bias_ptr, mask_ptr, gain_ptr, pose_ptr, length_ptr, coupling_ptr,
    total_ptr, sum_ptr, pull_ptr, weight_ptr, P, W, I,  # noqa: E741
    mask_b, mask_w, mask_k, C: tl.constexpr,
    J: tl.constexpr, D: tl.constexpr, H: tl.constexpr, R: tl.constexpr,
    LEAKY: tl.constexpr, AMENDMENT: tl.constexpr, SQUASH: tl.constexpr,
    BIAS: tl.constexpr, COUPLINGS: tl.constexpr, SAVE: tl.constexpr,
    PRECISION: tl.constexpr, NORMALISE: tl.constexpr, EVEN: tl.constexpr,
    BI: tl.constexpr, BJ: tl.constexpr, BD: tl.constexpr, BH: tl.constexpr,
):  # fmt: skip
    """Route one window: poses, lengths, couplings on request, T if normalised.

    The children's weights â are computed in the first pass and read in the others. With
    SAVE, (s, σ) of iteration r goes to slot r of 2R - 1 in `sum_ptr` and (A, k) to slot
    r - 1 of R - 1 in `pull_ptr`.
    """
    n = tl.program_id(0).to(tl.int64)
    u_ptr, mask_ptr = window_start(u_ptr, mask_ptr, n, P, W, C, D, mask_b, mask_w)
    sum_ptr += n * (2 * R - 1) * J * (D + 1)
    pull_ptr += n * (R - 1) * J * (D + 1)
    coupling_ptr += n * I * J
    weight_ptr += n * I
    j, d, h = tl.arange(0, BJ), tl.arange(0, BD), tl.arange(0, BH)
    share = 1.0 / (J + 1 if LEAKY else J)
    bias = load_bias(bias_ptr, j, h, J, H, BIAS)
    A = tl.zeros((BJ, BD), tl.float32)
    k = tl.zeros((BJ,), tl.float32)
    for r in tl.static_range(R):
        s = tl.zeros((BJ, BD), tl.float32)
        sigma = tl.zeros((BJ,), tl.float32)
        for start in range(0, I, BI):
            i = start + tl.arange(0, BI)
            u = load_window(u_ptr, i, d, I, D, EVEN)
            if r == 0:
                weight = first_weight(u, mask_ptr, mask_k, i, I, C, AMENDMENT)
                tl.store(weight_ptr + i, weight, mask=i < I)
                s += tl.sum((share * weight)[:, None] * u, 0)[None, :]
                sigma += tl.sum(share * weight, 0)
            else:
                weight = tl.load(weight_ptr + i, mask=i < I, other=0.0)
                p = softmax_parents(u, A, k, J, LEAKY, PRECISION)
                c = weight[:, None] * p
                s += tl.dot(tl.trans(c), u, input_precision=PRECISION)
                if BIAS:
                    sigma += tl.sum(c, 0)
            if COUPLINGS and r == R - 1:
                if r == 0:
                    c = (share * weight)[:, None] + tl.zeros((BI, BJ), tl.float32)
                store_couplings(coupling_ptr, c, i, j, I, J)
        if r == 0:
            tl.debug_barrier()  # other threads read the weights in the next pass
            if NORMALISE:  # all couplings are equal: T follows from each σ
                total = sigma * (J + 1 if LEAKY else J)
                inverse = inverse_total(total)
                tl.store(total_ptr + n + j * 0, total, mask=j == 0)
        if NORMALISE:
            s, sigma = inverse[:, None] * s, inverse * sigma
        # Loaded anew each time: in cache, and no registers held during the passes.
        w = load_transform(w_ptr, j, d, h, J, D, H)
        t = tl.sum(s[:, :, None] * w, 1)
        if BIAS:
            t += sigma[:, None] * bias
        if NORMALISE:
            t *= tl.load(gain_ptr).to(tl.float32)
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
            store_outputs(pose_ptr, length_ptr, v, n, j, h, J, H)


@jit
def route_window_backward(
    u_ptr, w_ptr, bias_ptr, gain_ptr, dpose_ptr, dlength_ptr, dcoupling_ptr, dtotal_ptr,
    total_ptr, sum_ptr, pull_ptr, weight_ptr, right_ptr, du_ptr, slope_ptr,
    P, W, I,  # noqa: E741
    C: tl.constexpr, J: tl.constexpr, D: tl.constexpr, H: tl.constexpr, R: tl.constexpr,
    LEAKY: tl.constexpr, AMENDMENT: tl.constexpr, SQUASH: tl.constexpr,
    BIAS: tl.constexpr, DPOSE: tl.constexpr, DLENGTH: tl.constexpr,
    DCOUPLING: tl.constexpr, DTOTAL: tl.constexpr, PRECISION: tl.constexpr,
    NORMALISE: tl.constexpr, EVEN: tl.constexpr,
    BI: tl.constexpr, BJ: tl.constexpr, BD: tl.constexpr, BH: tl.constexpr,
):  # fmt: skip
    """Write a window's du (I, D) and the factors that `transform_gradient` sums up.

    Slot r of `sum_ptr` (s, σ) pairs with dt in slot r of `right_ptr`; slot R + r gets
    the gradients of (A, k) after iteration r and pairs with its v. Normalised, Q goes
    to `slope_ptr`.
    """
    n = tl.program_id(0).to(tl.int64)
    u_ptr += ((n // W) * P + n % W) * C * D
    weight_ptr += n * I
    sum_ptr += n * (2 * R - 1) * J * (D + 1)
    pull_ptr += n * (R - 1) * J * (D + 1)
    right_ptr += n * (2 * R - 1) * J * H
    dcoupling_ptr += n * I * J
    du_ptr += n * I * D
    j, d, h = tl.arange(0, BJ), tl.arange(0, BD), tl.arange(0, BH)
    share = 1.0 / (J + 1 if LEAKY else J)
    bias = load_bias(bias_ptr, j, h, J, H, BIAS)
    dA = tl.zeros((BJ, BD), tl.float32)
    dk = tl.zeros((BJ,), tl.float32)
    slope = 0.0
    for r in tl.static_range(R - 1, -1, -1):
        s, sigma = load_state(sum_ptr + r * J * (D + 1), j, d, J, D)
        w = load_transform(w_ptr, j, d, h, J, D, H)
        t = tl.sum(s[:, :, None] * w, 1)
        if BIAS:
            t += sigma[:, None] * bias
        if NORMALISE:
            mean, gain = t, tl.load(gain_ptr).to(tl.float32)
            t = gain * mean
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
        if NORMALISE:
            slope += tl.sum(tl.sum(dt * mean, 1), 0)
            dt = gain * dt
        store_poses(right_ptr + r * J * H, dt, j, h, J, H)
        if NORMALISE:
            total = tl.load(total_ptr + n)
            dt *= inverse_total(total)  # s and σ were divided by T
            if r == 0:
                tl.store(slope_ptr + n, slope)
                dtotal = total_gradient(slope, total, gain_ptr, dtotal_ptr + n, DTOTAL)
        ds = tl.sum(w * dt[:, None, :], 2)
        dsigma = tl.sum(bias * dt, 1)
        if r > 0:
            A, k = load_state(pull_ptr + (r - 1) * J * (D + 1), j, d, J, D)
        for start in range(0, I, BI):
            i = start + tl.arange(0, BI)
            u = load_window(u_ptr, i, d, I, D, EVEN)
            weight = tl.load(weight_ptr + i, mask=i < I, other=0.0)
            inside = (i < I)[:, None] & (d < D)[None, :]
            place = du_ptr + i[:, None] * D + d[None, :]
            if r == 0:
                ds0, dsigma0 = tl.sum(ds, 0), tl.sum(dsigma, 0)
                da = share * (tl.sum(u * ds0[None, :], 1) + dsigma0)
                if DCOUPLING and r == R - 1:
                    dc = load_couplings(dcoupling_ptr, i, j, I, J)
                    da += share * tl.sum(dc, 1)
                if NORMALISE:
                    da += dtotal
                du = (share * weight)[:, None] * ds0[None, :]
            else:
                p = softmax_parents(u, A, k, J, LEAKY, PRECISION)
                dc = tl.dot(u, tl.trans(ds), input_precision=PRECISION)
                dc += dsigma[None, :]
                if DCOUPLING and r == R - 1:
                    dc += load_couplings(dcoupling_ptr, i, j, I, J)
                da = tl.sum(p * dc, 1)  # dâ, also what softmax takes off
                c = weight[:, None] * p
                dl = c * (dc - da[:, None])
                du = tl.dot(c, ds, input_precision=PRECISION)
                du += tl.dot(dl, A, input_precision=PRECISION)
                dA += tl.dot(tl.trans(dl), u, input_precision=PRECISION)
                if BIAS:
                    dk += tl.sum(dl, 0)
            if AMENDMENT:  # â is the length of u: its gradient lies along u
                ratio = tl.where(weight > 0, da, 0.0) / tl.where(weight > 0, weight, 1)
                du += ratio[:, None] * u
            if r < R - 1:  # other iterations have written here
                du += tl.load(place, mask=inside, other=0.0)
            tl.store(place, du, mask=inside)
        tl.debug_barrier()  # the next pass may read du with other threads


def launch_constants(call: Call) -> dict:
    """Return the constants of the two window kernels, tiles included."""
    tiles = call.tiles()
    tile = min(_TILE, max(16, power_of_two(call.children)))
    held = tiles["BJ"] * tiles["BD"] * tiles["BH"]
    warps, registers = _WARPS, _REGISTERS
    if held > _SMALL_TRANSFORM:
        # So that W, which a program holds for a moment, takes 64 registers of a thread.
        warps, registers = min(8, held // (64 * 32)), None
    even = call.children % tile == 0 and tiles["BD"] == call.transform.shape[1]
    launch = {"BI": tile, "EVEN": even, "num_warps": warps, "maxnreg": registers}
    return {**call.constants(), **tiles, **launch, "C": call.capsules.shape[2]}


def forward(call: Call, couplings: bool, save: bool):
    """Return poses, lengths, couplings, totals (or None), and what `backward` needs."""
    outputs = new_outputs(call, couplings, save)
    pointers = [outputs[0] if t is None else t for t in outputs]
    weights = new_floats(call, call.windows, call.children)
    P, W, _, *rest = call.axes()
    run(
        route_window, (call.windows,), *call.inputs(), *pointers, weights, P, W, *rest,
        **launch_constants(call), COUPLINGS=couplings, SAVE=save,
    )  # fmt: skip
    return *outputs[:4], (*outputs[4:], weights) if save else ()


def backward(call: Call, gradients: Gradients, saved: tuple[Tensor, ...]):
    """Return du of every window's children, the right factors of dW, and Q or None."""
    totals, sums, *rest = saved
    J, D, H = call.transform.shape
    N, slots, _ = sums.shape
    right = new_floats(call, N, slots, J, H)
    du = new_floats(call, N, call.children, D)
    slopes = None if totals is None else new_floats(call, N)
    u, w, bias, _, gain = call.inputs()
    kept = (sums if totals is None else totals, sums, *rest)
    run(
        route_window_backward, (N,), u, w, bias, gain, *gradients.pointers(sums), *kept,
        right, du, sums if slopes is None else slopes, call.capsules.shape[1],
        call.mask.shape[1], call.children, **launch_constants(call),
        **gradients.constants(),
    )  # fmt: skip
    return du, right, slopes
