"""Triton kernels that route a short window in one program.

A program owns one window: its children pass through the registers in tiles of BI, the
parents' state stays there for all iterations. `maths` explains the algebra.
"""

from __future__ import annotations

from typing import NamedTuple

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
    window_start,
)

# In a kernel, names have other types than pyright sees.
# pyright: reportInvalidTypeForm=false, reportPossiblyUnboundVariable=false


class Shape(NamedTuple):
    """How a window's program is laid out where W is small."""

    tile: int  # children at a time
    step: int  # entries of W in a slice of the parents' step, per warp
    registers: int  # of a thread: more of them leave room for fewer programs
    stages: int  # loads ahead of the products


# Tensor cores leave a program waiting: many slim ones hide that. Products in float32
# wait for shared memory: three loads ahead, and half of W at a time. The fastest of
# those tried on an H200 (benchmarks/results/h200-windows.json).
_TENSOR, _FLOAT = Shape(32, 1024, 128, 1), Shape(32, 2048, 168, 3)
_WARPS = 1  # where W is small: it waits for no other, and sums stay within it
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
def add_window(
    du_ptr, du, da, u, weight, i, d, I, D: tl.constexpr, more,  # noqa: E741
    AMENDMENT: tl.constexpr,
):  # fmt: skip
    """Write du of the children i; where there is `more`, add what was written."""
    if AMENDMENT:  # â is the length of u: its gradient lies along u
        ratio = tl.where(weight > 0, da, 0.0) / tl.where(weight > 0, weight, 1)
        du += ratio[:, None] * u
    inside = (i < I)[:, None] & (d < D)[None, :]
    place = du_ptr + i[:, None] * D + d[None, :]
    du += tl.load(place, mask=inside & more, other=0.0)
    tl.store(place, du, mask=inside)


@jit
def step_window(
    w_ptr, bias_ptr, gain, sum_ptr, pull_ptr, pose_ptr, length_ptr, n, r, d, h,
    J: tl.constexpr, D: tl.constexpr, H: tl.constexpr, R: tl.constexpr,
    SQUASH: tl.constexpr, BIAS: tl.constexpr, SAVE: tl.constexpr,
    NORMALISE: tl.constexpr, BJ: tl.constexpr, BS: tl.constexpr,
):  # fmt: skip
    """Do the parents' step of iteration r: from (s, σ) in memory to (A, k), or outputs.

    BS parents at a time: all of W would fill the registers.
    """
    SLOT: tl.constexpr = J * (D + 1) if SAVE else 0
    sum_ptr += r * SLOT
    pull_ptr += r * SLOT
    for first in range(0, BJ, BS):
        j = first + tl.arange(0, BS)
        s, sigma = load_state(sum_ptr, j, d, J, D)
        t, w, bias = parent_inputs(s, sigma, w_ptr, bias_ptr, j, d, h, J, D, H, BIAS)
        v = squash_poses(gain * t if NORMALISE else t, SQUASH)
        if r < R - 1:
            A, k = tl.sum(w * v[:, None, :], 2), tl.sum(bias * v, 1)
            if r > 0:
                before, k_before = load_state(pull_ptr - SLOT, j, d, J, D)
                A += before
                k += k_before
                if not SAVE:  # the slot is the same
                    tl.debug_barrier()
            store_state(pull_ptr, A, k, j, d, J, D)
        else:
            store_outputs(pose_ptr, length_ptr, v, n, j, h, J, H)


@jit
def route_window(
    u_ptr, w_ptr, bias_ptr, mask_ptr, gain_ptr, pose_ptr, length_ptr, coupling_ptr,
    total_ptr, sum_ptr, pull_ptr, weight_ptr, P, W, I,  # noqa: E741
    mask_b, mask_w, mask_k, C: tl.constexpr,
    J: tl.constexpr, D: tl.constexpr, H: tl.constexpr, R: tl.constexpr,
    LEAKY: tl.constexpr, AMENDMENT: tl.constexpr, SQUASH: tl.constexpr,
    BIAS: tl.constexpr, COUPLINGS: tl.constexpr, SAVE: tl.constexpr,
    PRECISION: tl.constexpr, NORMALISE: tl.constexpr, EVEN: tl.constexpr,
    BI: tl.constexpr, BJ: tl.constexpr, BS: tl.constexpr, BD: tl.constexpr,
    BH: tl.constexpr,
):  # fmt: skip
    """Route one window: poses, lengths, couplings on request, T if normalised.

    The children's weights â are computed in the first pass and read in the others. With
    SAVE, (s, σ) of iteration r goes to slot r of 2R - 1 in `sum_ptr` and (A, k) to slot
    r of R - 1 in `pull_ptr`; else each has one slot. The states pass through memory
    between the steps, and no loop over iterations is unrolled: a kernel of few
    registers and little code leaves room for more windows on a multiprocessor.
    """
    n = tl.program_id(0).to(tl.int64)
    u_ptr, mask_ptr = window_start(u_ptr, mask_ptr, n, P, W, C, D, mask_b, mask_w)
    SLOT: tl.constexpr = J * (D + 1) if SAVE else 0  # from one iteration to the next
    sum_ptr += n * ((2 * R - 1) * SLOT if SAVE else J * (D + 1))
    pull_ptr += n * ((R - 1) * SLOT if SAVE else J * (D + 1))
    coupling_ptr += n * I * J
    weight_ptr += n * I
    j, d, h = tl.arange(0, BJ), tl.arange(0, BD), tl.arange(0, BH)
    share = 1.0 / (J + 1 if LEAKY else J)
    s0 = tl.zeros((BD,), tl.float32)
    sigma0 = 0.0
    for start in range(0, I, BI):
        i = start + tl.arange(0, BI)
        u = load_window(u_ptr, i, d, I, D, EVEN)
        weight = first_weight(u, mask_ptr, mask_k, i, I, C, AMENDMENT)
        tl.store(weight_ptr + i, weight, mask=i < I)
        s0 += tl.sum((share * weight)[:, None] * u, 0)
        sigma0 += tl.sum(share * weight, 0)
        if COUPLINGS and R == 1:
            c = (share * weight)[:, None] + tl.zeros((BI, BJ), tl.float32)
            store_couplings(coupling_ptr, c, i, j, I, J)
    gain, inverse = 1.0, 1.0
    if NORMALISE:  # all couplings are equal: T follows from σ
        total = sigma0 * (J + 1 if LEAKY else J)
        tl.store(total_ptr + n, total)
        gain, inverse = tl.load(gain_ptr).to(tl.float32), inverse_total(total)
        s0, sigma0 = inverse * s0, inverse * sigma0
    s = s0[None, :] + tl.zeros((BJ, BD), tl.float32)
    store_state(sum_ptr, s, sigma0 + tl.zeros((BJ,), tl.float32), j, d, J, D)
    for r in range(R):
        tl.debug_barrier()  # other threads read the state, and the weights
        step_window(
            w_ptr, bias_ptr, gain, sum_ptr, pull_ptr, pose_ptr, length_ptr, n, r, d, h,
            J, D, H, R, SQUASH, BIAS, SAVE, NORMALISE, BJ, BS,
        )  # fmt: skip
        if r < R - 1:
            tl.debug_barrier()
            A, k = load_state(pull_ptr + r * SLOT, j, d, J, D)
            s = tl.zeros((BJ, BD), tl.float32)
            sigma = tl.zeros((BJ,), tl.float32)
            for start in range(0, I, BI):
                i = start + tl.arange(0, BI)
                u = load_window(u_ptr, i, d, I, D, EVEN)
                weight = tl.load(weight_ptr + i, mask=i < I, other=0.0)
                p = softmax_parents(u, A, k, J, LEAKY, PRECISION)
                c = weight[:, None] * p
                s += tl.dot(tl.trans(c), u, input_precision=PRECISION)
                if BIAS:
                    sigma += tl.sum(c, 0)
                if COUPLINGS and r == R - 2:
                    store_couplings(coupling_ptr, c, i, j, I, J)
            if NORMALISE:
                s, sigma = inverse * s, inverse * sigma
            store_state(sum_ptr + (r + 1) * SLOT, s, sigma, j, d, J, D)


@jit
def step_window_backward(
    w_ptr, bias_ptr, gain, inverse, dpose_ptr, dlength_ptr, sum_ptr, right_ptr, r, d, h,
    J: tl.constexpr, D: tl.constexpr, H: tl.constexpr, R: tl.constexpr,
    SQUASH: tl.constexpr, BIAS: tl.constexpr, DPOSE: tl.constexpr,
    DLENGTH: tl.constexpr, NORMALISE: tl.constexpr, BJ: tl.constexpr, BS: tl.constexpr,
):  # fmt: skip
    """Go back through a step: write dt and v, (ds, dσ) if r > 0; return their sums, Q.

    (ds, dσ) goes to slot R + r - 1 of `sum_ptr`, where (dA, dk) of that iteration will
    be.
    """
    SLOT: tl.constexpr = J * (D + 1)
    ds_all = tl.zeros((d.shape[0],), tl.float32)
    dsigma_all = 0.0
    slope = 0.0
    for first in range(0, BJ, BS):
        j = first + tl.arange(0, BS)
        s, sigma = load_state(sum_ptr + r * SLOT, j, d, J, D)
        t, w, bias = parent_inputs(s, sigma, w_ptr, bias_ptr, j, d, h, J, D, H, BIAS)
        v = squash_poses(gain * t if NORMALISE else t, SQUASH)
        if r == R - 1:
            dv = output_gradient(v, dpose_ptr, dlength_ptr, j, h, J, H, DPOSE, DLENGTH)
        else:
            dA, dk = load_state(sum_ptr + (R + r) * SLOT, j, d, J, D)
            dv = tl.sum(w * dA[:, :, None], 1) + dk[:, None] * bias
            store_poses(right_ptr + (R + r) * J * H, v, j, h, J, H)
        if NORMALISE:
            dt = squash_gradient(gain * t, dv, SQUASH)
            slope += tl.sum(tl.sum(dt * t, 1), 0)
            dt = gain * dt
        else:
            dt = squash_gradient(t, dv, SQUASH)
        store_poses(right_ptr + r * J * H, dt, j, h, J, H)
        if NORMALISE:
            dt = inverse * dt  # s and σ were divided by T
        ds, dsigma = tl.sum(w * dt[:, None, :], 2), tl.sum(bias * dt, 1)
        if r > 0:
            store_state(sum_ptr + (R + r - 1) * SLOT, ds, dsigma, j, d, J, D)
        else:
            ds_all += tl.sum(ds, 0)
            dsigma_all += tl.sum(dsigma, 0)
    return ds_all, dsigma_all, slope


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
    BI: tl.constexpr, BJ: tl.constexpr, BS: tl.constexpr, BD: tl.constexpr,
    BH: tl.constexpr,
):  # fmt: skip
    """Write a window's du (I, D) and the factors that `transform_gradient` sums up.

    Slot r of `sum_ptr` (s, σ) pairs with dt in slot r of `right_ptr`; slot R + r gets
    the gradients of (A, k) after iteration r and pairs with its v. Normalised, Q goes
    to `slope_ptr`.
    """
    n = tl.program_id(0).to(tl.int64)
    SLOT: tl.constexpr = J * (D + 1)  # from one iteration's state to the next
    u_ptr += ((n // W) * P + n % W) * C * D
    weight_ptr += n * I
    sum_ptr += n * (2 * R - 1) * SLOT
    pull_ptr += n * (R - 1) * SLOT
    right_ptr += n * (2 * R - 1) * J * H
    dcoupling_ptr += n * I * J
    du_ptr += n * I * D
    dpose_ptr += n * J * H
    dlength_ptr += n * J
    j, d, h = tl.arange(0, BJ), tl.arange(0, BD), tl.arange(0, BH)
    share = 1.0 / (J + 1 if LEAKY else J)
    ds0 = tl.zeros((BD,), tl.float32)
    dsigma0 = 0.0
    gain, inverse, slope = 1.0, 1.0, 0.0
    if NORMALISE:
        total = tl.load(total_ptr + n)
        gain, inverse = tl.load(gain_ptr).to(tl.float32), inverse_total(total)
    for back in range(R):
        r = R - 1 - back
        ds0, dsigma0, more = step_window_backward(
            w_ptr, bias_ptr, gain, inverse, dpose_ptr, dlength_ptr, sum_ptr, right_ptr,
            r, d, h, J, D, H, R, SQUASH, BIAS, DPOSE, DLENGTH, NORMALISE, BJ, BS,
        )  # fmt: skip
        slope += more
        if r > 0:
            tl.debug_barrier()  # other threads read (ds, dσ)
            A, k = load_state(pull_ptr + (r - 1) * SLOT, j, d, J, D)
            ds, dsigma = load_state(sum_ptr + (R + r - 1) * SLOT, j, d, J, D)
            dA = tl.zeros((BJ, BD), tl.float32)
            dk = tl.zeros((BJ,), tl.float32)
            for start in range(0, I, BI):
                i = start + tl.arange(0, BI)
                u = load_window(u_ptr, i, d, I, D, EVEN)
                weight = tl.load(weight_ptr + i, mask=i < I, other=0.0)
                p = softmax_parents(u, A, k, J, LEAKY, PRECISION)
                dc = tl.dot(u, tl.trans(ds), input_precision=PRECISION)
                dc += dsigma[None, :]
                if DCOUPLING:  # of the last iteration alone
                    voters = tl.where(r == R - 1, I, 0)
                    dc += load_couplings(dcoupling_ptr, i, j, voters, J)
                da = tl.sum(p * dc, 1)  # dâ, also what softmax takes off
                c = weight[:, None] * p
                dl = c * (dc - da[:, None])
                du = tl.dot(c, ds, input_precision=PRECISION)
                du += tl.dot(dl, A, input_precision=PRECISION)
                dA += tl.dot(tl.trans(dl), u, input_precision=PRECISION)
                if BIAS:
                    dk += tl.sum(dl, 0)
                add_window(du_ptr, du, da, u, weight, i, d, I, D, r < R - 1, AMENDMENT)
            if r < R - 1:  # what later iterations gave
                after, k_after = load_state(sum_ptr + (R + r) * SLOT, j, d, J, D)
                dA += after
                dk += k_after
            tl.debug_barrier()  # all have read (ds, dσ)
            store_state(sum_ptr + (R + r - 1) * SLOT, dA, dk, j, d, J, D)
            tl.debug_barrier()  # other threads read (dA, dk), and du
    dtotal = 0.0
    if NORMALISE:
        tl.store(slope_ptr + n, slope)
        dtotal = total_gradient(slope, total, gain_ptr, dtotal_ptr + n, DTOTAL)
    for start in range(0, I, BI):
        i = start + tl.arange(0, BI)
        u = load_window(u_ptr, i, d, I, D, EVEN)
        weight = tl.load(weight_ptr + i, mask=i < I, other=0.0)
        da = share * (tl.sum(u * ds0[None, :], 1) + dsigma0) + dtotal
        if DCOUPLING and R == 1:
            dc = load_couplings(dcoupling_ptr, i, j, I, J)
            da += share * tl.sum(dc, 1)
        du = (share * weight)[:, None] * ds0[None, :]
        add_window(du_ptr, du, da, u, weight, i, d, I, D, R > 1, AMENDMENT)


def launch_constants(call: Call) -> dict:
    """Return the constants of the two window kernels, tiles included."""
    tiles, shape = call.tiles(), _FLOAT if call.precision == "ieee" else _TENSOR
    tile = min(shape.tile, max(16, power_of_two(call.children)))
    held = tiles["BJ"] * tiles["BD"] * tiles["BH"]
    warps, registers = _WARPS, shape.registers
    if held > _SMALL_TRANSFORM:
        # So that W, which a program holds for a moment, takes 64 registers of a thread.
        warps, registers = min(8, held // (64 * 32)), None
    even = call.children % tile == 0 and tiles["BD"] == call.transform.shape[1]
    parents = shape.step * warps // (tiles["BD"] * tiles["BH"])
    launch = {
        "BI": tile, "BS": min(tiles["BJ"], max(1, parents)), "EVEN": even,
        "num_warps": warps, "maxnreg": registers, "num_stages": shape.stages,
    }  # fmt: skip
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
