"""The compiled loops of routing on a CPU: forward and backward of one segment.

Logits accumulate, so no pass needs those of the pass before: with A_j = Σ W_j v_j and
k_j = Σ β_j·v_j over the passes so far, l_ij = u_i·A_j + k_j. A pass is then two products
of small matrices, (J, D)(D, I) for the logits and (J, I)(I, D) for the sums, with a
softmax between them, over a chunk of children that stays in the first-level cache.
Lanes of a vector are children wherever a softmax is near, so no parent count is awkward
and nothing is summed across lanes; the children are therefore held twice, as rows
(I, D) and as columns (D, I).

A segment is a run of windows of one text, a group a run of segments. Threads take
groups from a counter; each group adds up its own share of dW, and the shares are added
in the order of the groups, so the result does not depend on who did what.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from textcapsules.model.routing.cpu_parts import (
    add_lengths_back,
    add_product,
    compiled,
    dot_rows,
    each_times,
    fill,
    norm_rows,
    round_up,
    safe_norm,
    squash_lengths,
    squash_rows,
    squash_rows_back,
)
from textcapsules.model.routing.cpu_simd import (
    add,
    divide,
    exp,
    fetch_add,
    fma,
    lane_sum,
    lanes,
    load,
    maximum,
    multiply,
    root,
    splat,
    splat_at,
    store,
    subtract,
    unless_zero,
)

__all__ = ["Arrays", "Gradients", "Sizes", "backward", "forward"]

entry_point = njit(nogil=True, error_model="numpy", cache=True)


class Sizes(NamedTuple):
    """All whole numbers of a problem, the options among them."""

    types: int  # C
    child_size: int  # D
    child_pad: int
    positions: int  # P
    window: int  # K
    windows: int  # W
    parents: int  # J
    parents_pad: int
    parent_size: int  # H
    parent_pad: int
    iterations: int
    leaky: int
    amendment: int
    squash: int
    per_segment: int  # windows
    per_text: int  # segments
    segments: int  # in all
    groups: int
    chunk: int  # children whose logits are held at once
    stride: int  # of a row of columns
    slot: int  # of numbers that there is one of for a parent
    keeps_sums: int
    has_couplings: int


class Arrays(NamedTuple):
    """The tensors of a forward pass, flat."""

    capsules: np.ndarray  # (B, P, C, D)
    mask: np.ndarray  # (B, W, K) of uint8
    push: np.ndarray  # W and below it β, (J_pad, D + 1, H_pad)
    pull: np.ndarray  # W transposed, (J_pad, H, D_pad)
    poses: np.ndarray  # (B, W, J, H)
    lengths: np.ndarray  # (B, W, J)
    couplings: np.ndarray  # (B, W, K·C, J) or empty
    sums: np.ndarray  # Σ_i c_ij u_i of every pass, (B, W, R, J_pad, D_pad), or empty
    totals: np.ndarray  # Σ_i c_ij, (B, W, R, J_pad), or empty


class Gradients(NamedTuple):
    """The further tensors of a backward pass; those of poses etc. are given."""

    poses: np.ndarray
    lengths: np.ndarray
    couplings: np.ndarray  # or empty
    capsules: np.ndarray  # (segments, positions of a segment, C, D)
    push: np.ndarray  # (groups, J_pad, D + 1, H_pad)


class Children(NamedTuple):
    """The capsules of a segment, and of its present window their weights."""

    rows: np.ndarray  # (I, D_pad)
    columns: np.ndarray  # (D_pad, stride)
    norms: np.ndarray  # |u|
    weights: np.ndarray  # â, 0 where masked and in the lanes past the window
    d_columns: np.ndarray
    d_norms: np.ndarray


class Parents(NamedTuple):
    """The parents of a window, with a slot for every pass."""

    sums: np.ndarray  # (J_pad, D_pad)
    totals: np.ndarray  # (J_pad,)
    inputs: np.ndarray  # t, before the squash, (J_pad, H_pad)
    norms: np.ndarray  # |t|, (J_pad,)
    lengths: np.ndarray  # |v|
    poses: np.ndarray  # v, (J_pad, H_pad)
    pulled: np.ndarray  # A that the pass used, (J_pad, D_pad); of the first, zeros
    offsets: np.ndarray  # k, (J_pad,)


class Pass(NamedTuple):
    """What a pass works in."""

    logits: np.ndarray  # then couplings, (2 J_pad, chunk + lanes)
    lane_sums: np.ndarray  # (J_pad, lanes)
    d_pulled: np.ndarray  # (J_pad, D_pad)
    d_offsets: np.ndarray
    d_inputs: np.ndarray  # (J_pad, H_pad)
    stacked: np.ndarray  # gradient of the sums and below it A, (2 J_pad, D_pad)
    d_totals: np.ndarray


@compiled
def read_children(sizes, capsules, first, n, children):
    """Lay out n capsules, the first of which is capsules[first:]."""
    rows, columns, norms = children.rows, children.columns, children.norms
    size, pad, stride = sizes.child_size, sizes.child_pad, sizes.stride
    fill(rows, 0, round_up(n * pad, lanes(rows)), 0.0)
    fill(columns, 0, pad * stride, 0.0)
    for i in range(n):
        for d in range(size):
            x = capsules[first + i * size + d]
            rows[i * pad + d] = x
            columns[d * stride + i] = x
    if sizes.amendment:
        norm_rows((rows, 0), pad, n, norms, 0)


@compiled
def weigh(sizes, mask, first, children):
    """Set the weights of a window; return where its unmasked positions start and end.

    `first` is where the window's mask and its position begin.
    """
    at, position = first
    start, end = 0, sizes.window
    while end > start and not mask[at + end - 1]:
        end -= 1
    while start < end and not mask[at + start]:
        start += 1
    types, weights = sizes.types, children.weights
    n = (end - start) * types
    fill(weights, 0, round_up(n, lanes(weights)), 0.0)
    for k in range(start, end):
        if mask[at + k]:
            for c in range(types):
                child = (position + k) * types + c
                weights[(k - start) * types + c] = (
                    children.norms[child] if sizes.amendment else 1.0
                )
    return start, end


@compiled
def even_pass(sizes, children, first, n, parents):
    """Sum children whose couplings are all alike, as in the first pass."""
    rows, weights, sums = children.rows, children.weights, parents.sums
    pad = sizes.child_pad
    share = splat(sums, 1.0 / (sizes.parents + sizes.leaky))
    total = splat(sums, 0.0)
    for i in range(0, n, lanes(weights)):
        total = add(total, load(weights, i))
    part = lane_sum(multiply(total, share))
    for j in range(sizes.parents):
        parents.totals[j] = part
    for d in range(0, pad, lanes(sums)):
        total = splat(sums, 0.0)
        for i in range(n):
            row = load(rows, (first + i) * pad + d)
            total = fma(splat_at(weights, i), row, total)
        total = multiply(total, share)
        for j in range(sizes.parents):
            store(sums, j * pad + d, total)


@compiled
def form_logits(sizes, children, first, n, matrix, start, out):
    """Set out (J_pad, n) to the children times a matrix, from `start` of each parent."""
    x, x0 = out
    offsets, at = start
    row = sizes.chunk + lanes(x)
    for j in range(sizes.parents_pad):
        fill(x, x0 + j * row, n, offsets[at + j])
    add_product(
        matrix,
        sizes.child_pad,
        1,
        (children.columns, first),
        sizes.stride,
        out,
        row,
        sizes.parents_pad,
        sizes.child_size,
        n,
    )


@compiled
def soften(sizes, logits, i):
    """Turn lanes i of the logits into exponentials; return one over their sum."""
    row = sizes.chunk + lanes(logits)
    zero = splat(logits, 0.0)
    top = zero if sizes.leaky else load(logits, i)
    for j in range(sizes.parents):
        top = maximum(load(logits, j * row + i), top)
    total = exp(subtract(zero, top)) if sizes.leaky else zero
    for j in range(sizes.parents):
        x = exp(subtract(load(logits, j * row + i), top))
        total = add(total, x)
        store(logits, j * row + i, x)
    return divide(splat(logits, 1.0), total)


@compiled
def agreed_pass(sizes, children, first, n, parents, work, slot):
    """Sum the children with the couplings that the pulled parents of a slot give."""
    j_pad, d_pad, logits = sizes.parents_pad, sizes.child_pad, work.logits
    step = lanes(logits)
    row, at = sizes.chunk + step, slot * j_pad * d_pad
    sums, lane_sums, weights = parents.sums, work.lane_sums, children.weights
    fill(sums, at, j_pad * d_pad, 0.0)
    fill(lane_sums, 0, j_pad * step, 0.0)
    for begin in range(0, n, sizes.chunk):
        m = min(sizes.chunk, n - begin)
        form_logits(
            sizes,
            children,
            first + begin,
            m,
            (parents.pulled, at),
            (parents.offsets, slot * sizes.slot),
            (logits, 0),
        )
        for i in range(0, m, step):
            weight = load(weights, begin + i)
            scale = multiply(weight, soften(sizes, logits, i))
            for j in range(sizes.parents):
                c = multiply(scale, load(logits, j * row + i))
                c = unless_zero(weight, c)
                store(logits, j * row + i, c)
                store(lane_sums, j * step, add(load(lane_sums, j * step), c))
        add_product(
            (logits, 0),
            row,
            1,
            (children.rows, (first + begin) * d_pad),
            d_pad,
            (sums, at),
            d_pad,
            j_pad,
            m,
            d_pad,
        )
    for j in range(j_pad):
        parents.totals[slot * sizes.slot + j] = lane_sum(load(lane_sums, j * step))


@compiled
def push(sizes, arrays, sums, totals, out):
    """Set out to each parent's sum through W plus its total times β."""
    (g, g0), (t, t0), matrices = totals, out, arrays.push
    size, pad = sizes.child_size, sizes.parent_pad
    for j in range(sizes.parents_pad):
        total = splat_at(g, g0 + j)
        bias = (j * (size + 1) + size) * pad
        for h in range(0, pad, lanes(t)):
            store(t, t0 + j * pad + h, multiply(total, load(matrices, bias + h)))
    each_times(
        sums,
        sizes.child_pad,
        size,
        (matrices, 0),
        (size + 1) * pad,
        out,
        out,
        pad,
        sizes.parents_pad,
    )


@compiled
def pull(sizes, arrays, poses, start, out, offsets):
    """Set out to start plus W times each pose, and add β·pose to the offsets."""
    (k, k0), size = offsets, sizes.child_size
    each_times(
        poses,
        sizes.parent_pad,
        sizes.parent_size,
        (arrays.pull, 0),
        sizes.parent_size * sizes.child_pad,
        start,
        out,
        sizes.child_pad,
        sizes.parents_pad,
    )
    dot_rows(
        poses,
        (arrays.push, size * sizes.parent_pad),
        sizes.parent_pad,
        (size + 1) * sizes.parent_pad,
        sizes.parent_pad,
        sizes.parents_pad,
        k,
        k0,
    )


@compiled
def meet(sizes, arrays, parents, slot):
    """From the sums of a pass, make its poses; pull them back for the pass after."""
    at = slot * sizes.parents_pad * sizes.parent_pad
    sums = slot * sizes.parents_pad * sizes.child_pad
    one = slot * sizes.slot
    inputs, poses = (parents.inputs, at), (parents.poses, at)
    push(sizes, arrays, (parents.sums, sums), (parents.totals, one), inputs)
    norms, lengths, pad = parents.norms, parents.lengths, sizes.parent_pad
    norm_rows(inputs, pad, sizes.parents, norms, one)
    squash_lengths(sizes.squash, norms, one, sizes.slot, lengths)
    squash_rows(
        sizes.squash, inputs, pad, sizes.parents_pad, norms, lengths, one, poses
    )
    if slot + 1 == sizes.iterations:
        return
    for j in range(one, one + sizes.slot):
        parents.offsets[j + sizes.slot] = parents.offsets[j]
    after = sums + sizes.parents_pad * sizes.child_pad
    pull(
        sizes,
        arrays,
        poses,
        (parents.pulled, sums),
        (parents.pulled, after),
        (parents.offsets, one + sizes.slot),
    )


@compiled
def clear(parents):
    """Zero what is read before it is written: paddings, and A and k of the start."""
    for array in (parents.sums, parents.pulled):
        fill(array, 0, array.size, 0.0)
    for array in (parents.totals, parents.norms, parents.offsets):
        fill(array, 0, array.size, 0.0)


@compiled
def write_window(sizes, arrays, parents, window):
    """Write out the poses and lengths of the last pass."""
    last, size, pad = sizes.iterations - 1, sizes.parent_size, sizes.parent_pad
    at, one = last * sizes.parents_pad * pad, last * sizes.slot
    for j in range(sizes.parents):
        parent = window * sizes.parents + j
        arrays.lengths[parent] = parents.lengths[one + j]
        for h in range(size):
            arrays.poses[parent * size + h] = parents.poses[at + j * pad + h]
    if sizes.keeps_sums:
        n, m = sizes.iterations * sizes.slot, parents.sums.size
        for i in range(n):
            arrays.totals[window * n + i] = parents.totals[i]
        for i in range(0, m, lanes(arrays.sums)):
            store(arrays.sums, window * m + i, load(parents.sums, i))


@compiled
def write_couplings(sizes, couplings, at, children, n, work):
    """Write out the couplings of n children of a chunk, or of a single pass."""
    row = sizes.chunk + lanes(work.logits)
    share = 1.0 / (sizes.parents + sizes.leaky)
    for i in range(n):
        for j in range(sizes.parents):
            if sizes.iterations == 1:
                c = children.weights[i] * share
            else:
                c = work.logits[j * row + i]
            couplings[at + i * sizes.parents + j] = c
