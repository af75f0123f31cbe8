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
    compiled,
    dot_rows,
    each_times,
    fill,
    norm_rows,
    product,
    round_up,
    squash_lengths,
    squash_rows,
    sum_rows,
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
    splat,
    splat_at,
    store,
    subtract,
    transpose,
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
    step, whole = lanes(rows), round_up(n, lanes(rows))
    if size == pad:
        for i in range(0, n * pad, step):
            store(rows, i, load(capsules, first + i))
        fill(rows, n * pad, (whole - n) * pad, 0.0)
    else:
        fill(rows, 0, whole * pad, 0.0)
        for i in range(n):
            for d in range(size):
                rows[i * pad + d] = capsules[first + i * size + d]
    for d in range(0, pad, step):
        for i in range(0, whole, step):
            transpose(rows, i * pad + d, pad, columns, d * stride + i, stride)
        for r in range(d, d + step):  # lanes past the last child are read, not used
            fill(columns, r * stride + whole, stride - whole, 0.0)
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
    (a, a0), (x, _) = matrix, out
    product(
        (a, a0, sizes.child_pad, 1),
        (children.columns, first, sizes.stride),
        out,
        sizes.chunk + lanes(x),
        (sizes.parents_pad, sizes.child_size, n),
        start,
    )


@compiled
def highest(sizes, logits, i):
    """Return the largest logit of lanes i, and the leak's share of the softmax's sum."""
    row, zero = sizes.chunk + lanes(logits), splat(logits, 0.0)
    top = zero if sizes.leaky else load(logits, i)
    for at in range(i, i + sizes.parents * row, row):
        top = maximum(load(logits, at), top)
    return top, exp(subtract(zero, top)) if sizes.leaky else zero


@compiled
def couple(sizes, logits, weight, i):
    """Turn lanes i of the logits into couplings."""
    row = sizes.chunk + lanes(logits)
    top, total = highest(sizes, logits, i)
    for at in range(i, i + sizes.parents * row, row):
        x = exp(subtract(load(logits, at), top))
        total = add(total, x)
        store(logits, at, x)
    scale = divide(weight, total)
    for at in range(i, i + sizes.parents * row, row):
        c = multiply(scale, load(logits, at))
        store(logits, at, unless_zero(weight, c))


@compiled
def agreed_pass(sizes, children, first, n, parents, work, slot, out):
    """Sum the children with the couplings that the pulled parents of a slot give.

    The last pass also writes the couplings to `out`, if they were asked for.
    """
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
            couple(sizes, logits, load(weights, begin + i), i)
        sum_rows((logits, 0), row, m, sizes.parents, lane_sums)
        product(
            (logits, 0, row, 1),
            (children.rows, (first + begin) * d_pad, d_pad),
            (sums, at),
            d_pad,
            (j_pad, m, d_pad),
            (lane_sums, -1),
        )
        if sizes.has_couplings and slot + 1 == sizes.iterations:
            couplings, c0 = out
            for i in range(m):
                for j in range(sizes.parents):
                    c = c0 + (begin + i) * sizes.parents + j
                    couplings[c] = logits[j * row + i]
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
def route_window(sizes, arrays, children, parents, work, window, first, reach):
    """Route the children of a window's unmasked positions, `reach`."""
    start, end = reach
    n, stride = (end - start) * sizes.types, sizes.parents
    at = (window * sizes.window + start) * sizes.types * stride
    even_pass(sizes, children, first, n, parents)
    if sizes.has_couplings and sizes.iterations == 1:
        for i in range(n):
            for j in range(stride):
                share = children.weights[i] / (stride + sizes.leaky)
                arrays.couplings[at + i * stride + j] = share
    meet(sizes, arrays, parents, 0)
    for slot in range(1, sizes.iterations):
        out = (arrays.couplings, at)
        agreed_pass(sizes, children, first, n, parents, work, slot, out)
        meet(sizes, arrays, parents, slot)
    write_window(sizes, arrays, parents, window)


@compiled
def segment_bounds(sizes, segment):
    """Return a segment's text, first window and window after the last."""
    text, part = segment // sizes.per_text, segment % sizes.per_text
    start = part * sizes.per_segment
    return text, start, min(start + sizes.per_segment, sizes.windows)


@entry_point
def forward(sizes, arrays, children, parents, work, counter):
    """Route every group that no other thread has taken.

    The outputs start as zeros: that is what a window with no unmasked position keeps.
    """
    clear(parents)
    types = sizes.types
    while True:
        group = fetch_add(counter)
        if group >= sizes.groups:
            return
        begin = group * sizes.segments // sizes.groups
        for segment in range(begin, (group + 1) * sizes.segments // sizes.groups):
            text, start, end = segment_bounds(sizes, segment)
            first = (text * sizes.positions + start) * types * sizes.child_size
            n = (end - start + sizes.window - 1) * types
            read_children(sizes, arrays.capsules, first, n, children)
            for w in range(end - start):
                window = text * sizes.windows + start + w
                at = (window * sizes.window, w)
                reach = weigh(sizes, arrays.mask, at, children)
                if reach[0] < reach[1]:
                    first = (w + reach[0]) * types
                    route_window(
                        sizes, arrays, children, parents, work, window, first, reach
                    )
