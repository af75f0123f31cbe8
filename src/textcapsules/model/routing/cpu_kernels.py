"""The compiled loops of routing on a CPU: forward and backward of one segment.

Logits accumulate, so no pass needs those of the pass before: with A_j = Σ W_j v_j and
k_j = Σ β_j·v_j over the passes so far, l_ij = u_i·A_j + k_j. A pass is then two
products of small matrices, (J, D)(D, I) for the logits and (J, I)(I, D) for the sums,
with a softmax between them, over a chunk of children that stays in the nearest cache.
Lanes of a vector are children wherever a softmax is near, so no parent count is awkward
and nothing is summed across lanes; the children are therefore held twice, as rows
(I, D) and as columns (D, I).

A segment is a run of windows of one text, a group a run of segments. Threads take
groups from a counter; each group adds up its own share of dW, and the shares are added
in the order of the groups, so the result does not depend on who did what.
"""

from typing import Any, NamedTuple

from numba import cfunc, types

from textcapsules.model.routing.cpu_parts import (
    add_logits_product,
    compiled,
    dot_rows,
    each_times,
    fill,
    logits_row,
    merged,
    norm_rows,
    round_up,
    set_product,
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
    pointer,
    pointers,
    splat,
    splat_at,
    store,
    subtract,
    transpose,
    unless_zero,
    unpack,
)

__all__ = [
    "Arrays",
    "Children",
    "Gradients",
    "Parents",
    "Pass",
    "Sizes",
    "forward_kernel",
]

# A Block is what a kernel is called with, int64 all: the next group, the next thread,
# the length of a thread's part, and for each thread its part: where the mask is, Sizes,
# Arrays, in the backward pass Gradients, and its own Children, Parents and Pass.
BLOCK_HEAD = 3
c_function = cfunc(types.void(types.voidptr), error_model="numpy", cache=True)


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
    slot: int  # J padded to whole vectors
    keeps_sums: int
    has_couplings: int


class Arrays(NamedTuple):
    """Where the tensors of a forward pass are; in the kernels, pointers to them."""

    capsules: int  # (B, P, C, D)
    push: int  # W and below it β, (J_pad, D + 1, H_pad)
    pull: int  # W transposed, (J_pad, H, D_pad)
    poses: int  # (B, W, J, H)
    lengths: int  # (B, W, J)
    couplings: int  # (B, W, K·C, J) or empty
    sums: int  # Σ_i c_ij u_i of every pass, (B, W, R, slot, D_pad), or empty
    totals: int  # Σ_i c_ij, (B, W, R, slot), or empty


class Gradients(NamedTuple):
    """The further tensors of a backward pass; those of poses etc. are given."""

    poses: int
    lengths: int
    couplings: int  # or empty
    capsules: int  # (segments, positions of a segment, C, D)
    push: int  # (groups, J_pad, D + 1, H_pad)


class Children(NamedTuple):
    """The capsules of a segment, and of its present window their weights."""

    rows: int  # (I, D_pad)
    columns: int  # (D_pad, stride)
    norms: int  # |u|
    weights: int  # â, 0 where masked and in the lanes past the window
    d_columns: int
    d_norms: int


class Parents(NamedTuple):
    """The parents of a window, with a slot for every pass."""

    sums: int  # (J_pad, D_pad)
    totals: int  # (J_pad,)
    inputs: int  # t, before the squash, (J_pad, H_pad)
    norms: int  # |t|, (J_pad,)
    lengths: int  # |v|
    poses: int  # v, (J_pad, H_pad)
    pulled: int  # A that the pass used, (J_pad, D_pad); of the first, zeros
    offsets: int  # k, (J_pad,)


class Pass(NamedTuple):
    """What a pass works in."""

    logits: int  # then couplings, (2 J_pad, logits_row)
    turned: int  # A transposed, (D_pad, slot)
    lane_sums: int  # (J_pad, lanes)
    d_pulled: int  # (J_pad, D_pad)
    d_offsets: int
    d_inputs: int  # (J_pad, H_pad)
    stacked: int  # gradient of the sums, J_pad rows below it A, (2 slot, D_pad)
    d_totals: int


N_SIZES, N_ARRAYS = len(Sizes._fields), len(Arrays._fields)
N_CHILDREN, N_PARENTS = len(Children._fields), len(Parents._fields)


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
    whole = lane_sum(multiply(total, share))
    for j in range(sizes.parents):
        parents.totals[j] = whole
    for d in range(0, pad, lanes(sums)):
        total = splat(sums, 0.0)
        for begin in range(0, n, sizes.chunk):  # short sums of short sums
            part = splat(sums, 0.0)
            for i in range(begin, min(begin + sizes.chunk, n)):
                row = load(rows, (first + i) * pad + d)
                part = fma(splat_at(weights, i), row, part)
            total = add(total, part)
        total = multiply(total, share)
        for j in range(sizes.parents):
            store(sums, j * pad + d, total)


@compiled
def form_logits(sizes, children, first, n, work, matrix, start, out):
    """Set out (J_pad, n) to children times a matrix, plus `start` of each parent."""
    (a, a0), (x, x0), (turned, slot) = matrix, out, (work.turned, sizes.slot)
    for d in range(0, sizes.child_pad, lanes(x)):
        for j in range(0, slot, lanes(x)):
            source = a0 + j * sizes.child_pad + d
            transpose(a, source, sizes.child_pad, turned, d * slot + j, slot)
    set_product(
        (turned, 0, slot),
        (children.columns, first, sizes.stride),
        (x, x0, logits_row(lanes(x))),
        start,
        (sizes.parents_pad, sizes.child_size, n),
    )


@compiled
def highest(sizes, logits, i):
    """Return the largest logit of lanes i, and the leak's part of the softmax's sum."""
    row, zero = logits_row(lanes(logits)), splat(logits, 0.0)
    top = zero if sizes.leaky else load(logits, i)
    for at in range(i, i + sizes.parents * row, row):
        top = maximum(load(logits, at), top)
    return top, exp(subtract(zero, top)) if sizes.leaky else zero


@compiled
def couple(sizes, logits, weight, i):
    """Turn lanes i of the logits into couplings."""
    row = logits_row(lanes(logits))
    top, total = highest(sizes, logits, i)
    for at in range(i, i + sizes.parents * row, row):
        x = exp(subtract(load(logits, at), top))
        total = add(total, x)
        store(logits, at, x)
    scale = divide(weight, total)
    for at in range(i, i + sizes.parents * row, row):
        c = multiply(scale, load(logits, at))
        store(logits, at, unless_zero(weight, c))


@merged
def agreed_pass(sizes, children, first, n, parents, work, slot, out):
    """Sum the children with the couplings that the pulled parents of a slot give.

    The last pass also writes the couplings to `out`, if they were asked for.
    """
    j_pad, d_pad, logits = sizes.parents_pad, sizes.child_pad, work.logits
    step = lanes(logits)
    row, at = logits_row(step), slot * sizes.slot * d_pad
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
            work,
            (parents.pulled, at),
            (parents.offsets, slot * sizes.slot),
            (logits, 0),
        )
        for i in range(0, m, step):
            couple(sizes, logits, load(weights, begin + i), i)
        sum_rows((logits, 0), row, m, sizes.parents, lane_sums)
        add_logits_product(
            (logits, 0, 1),
            (children.rows, (first + begin) * d_pad, d_pad),
            (sums, at, d_pad),
            (lane_sums, 0),
            (j_pad, m, d_pad),
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
    sums = slot * sizes.slot * sizes.child_pad
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
    after = sums + sizes.slot * sizes.child_pad
    pull(
        sizes,
        arrays,
        poses,
        (parents.pulled, sums),
        (parents.pulled, after),
        (parents.offsets, one + sizes.slot),
    )


@compiled
def clear(sizes, parents):
    """Zero what is read before it is written: paddings, and A and k of the start."""
    numbers = sizes.iterations * sizes.slot
    for array in (parents.sums, parents.pulled):
        fill(array, 0, numbers * sizes.child_pad, 0.0)
    for array in (parents.totals, parents.norms, parents.offsets):
        fill(array, 0, numbers, 0.0)


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
        n = sizes.iterations * sizes.slot
        m = n * sizes.child_pad
        for i in range(n):
            arrays.totals[window * n + i] = parents.totals[i]
        for i in range(0, m, lanes(arrays.sums)):
            store(arrays.sums, window * m + i, load(parents.sums, i))


@merged
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


@merged
def route_groups(sizes, mask, arrays, children, parents, work, counter):
    """Route every group that no other thread has taken.

    The outputs start as zeros: that is what a window with no unmasked position keeps.
    """
    clear(sizes, parents)
    types = sizes.types
    while True:
        group = fetch_add(counter, 0)
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
                reach = weigh(sizes, mask, at, children)
                if reach[0] < reach[1]:
                    first = (w + reach[0]) * types
                    route_window(
                        sizes, arrays, children, parents, work, window, first, reach
                    )


def forward_kernel(number: types.Float) -> Any:
    """Compile the forward pass for a type of numbers, as a C function of a Block."""
    zero, byte = number(0), types.uint8(0)  # type: ignore[operator]

    @c_function
    def forward(data):
        block = pointer(data, types.int64(0))
        at = BLOCK_HEAD + fetch_add(block, 1) * block[2]
        sizes = unpack(Sizes, block, at + 1)
        at += 1 + N_SIZES
        mask = pointer(block[at - 1 - N_SIZES], byte)
        arrays = pointers(unpack(Arrays, block, at), zero)
        at += N_ARRAYS
        children = pointers(unpack(Children, block, at), zero)
        parents = pointers(unpack(Parents, block, at + N_CHILDREN), zero)
        work = pointers(unpack(Pass, block, at + N_CHILDREN + N_PARENTS), zero)
        route_groups(sizes, mask, arrays, children, parents, work, block)

    return forward
