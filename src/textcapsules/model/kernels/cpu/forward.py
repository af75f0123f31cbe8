"""The forward pass of routing on a CPU, compiled.

Logits accumulate, so no pass needs those of the pass before: with A_j = Σ W_j v_j and
k_j = Σ β_j·v_j over the passes so far, l_ij = u_i·A_j + k_j. A pass is then two
products of small matrices, (J, D)(D, I) for the logits and (J, I)(I, D) for the sums,
with a softmax between them, over a chunk of children that stays in the nearest cache.

The lanes of a vector are children wherever a softmax is near, so that no number of
parents is awkward and nothing is summed across lanes; the children are therefore held
twice, as rows (I, D) and as columns (D, I).

A segment is a run of windows of one text, a group a run of segments. Threads take
groups from a counter; each group adds up its own share of dW, and the shares are added
in the order of the groups, so the result does not depend on which thread did what.
"""

from typing import Any

from numba import types

from textcapsules.model.kernels.cpu.cache import Kernel
from textcapsules.model.kernels.cpu.call import (
    BLOCK_HEAD,
    Arrays,
    Children,
    Gradients,
    Parents,
    Scratch,
    Sizes,
)
from textcapsules.model.kernels.cpu.link import compiled, merged
from textcapsules.model.kernels.cpu.maths import (
    add_logits_product,
    dot_rows,
    each_times,
    fill,
    logits_row,
    norm_rows,
    round_up,
    set_product,
    smallest,
    squash_lengths,
    squash_rows,
    sum_rows,
)
from textcapsules.model.kernels.cpu.simd import (
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
    "clear_parents",
    "form_logits",
    "forward_kernel",
    "kernel_of",
    "pull",
    "push",
    "read_segment",
    "set_weights",
    "top_and_leak",
    "update_parents",
]


@compiled
def read_segment(sizes, capsules, segment, children):
    """Lay out a segment's capsules.

    Returns its first window, counted over the batch, and how many windows and capsules
    it has.
    """
    text, part = segment // sizes.per_text, segment % sizes.per_text
    start = part * sizes.per_segment
    windows = min(sizes.per_segment, sizes.windows - start)
    n = (windows + sizes.window - 1) * sizes.types
    size, pad, stride = sizes.child_size, sizes.child_pad, sizes.stride
    first = (text * sizes.positions + start) * sizes.types * size
    rows, columns = children.rows, children.columns
    step, n_pad = lanes(rows), round_up(n, lanes(rows))
    if size == pad:
        for i in range(0, n * pad, step):
            store(rows, i, load(capsules, first + i))
        fill(rows, n * pad, (n_pad - n) * pad, 0.0)
    else:
        fill(rows, 0, n_pad * pad, 0.0)
        for i in range(n):
            for d in range(size):
                rows[i * pad + d] = capsules[first + i * size + d]
    for d in range(0, pad, step):
        for i in range(0, n_pad, step):
            transpose(rows, i * pad + d, pad, columns, d * stride + i, stride)
        for r in range(d, d + step):  # lanes past the last child are read, not used
            fill(columns, r * stride + n_pad, stride - n_pad, 0.0)
    if sizes.amendment:
        norm_rows((rows, 0), pad, n, children.norms, 0)
    return text * sizes.windows + start, windows, n


@compiled
def normalise(weights, n, gain):
    """Scale n weights to a sum of gain[0]; return the divisor.

    That is their sum, or the smallest normal number where it is less: 0 / tiny = 0.
    """
    sums = splat(weights, 0.0)
    for i in range(0, n, lanes(weights)):
        sums = add(sums, load(weights, i))
    total, floor = lane_sum(sums), smallest(weights)
    total = floor if total < floor else total
    for i in range(0, n, lanes(weights)):
        weight = divide(load(weights, i), splat(weights, total))
        store(weights, i, multiply(splat_at(gain, 0), weight))
    return total


@compiled
def set_weights(sizes, mask, window, position, children, gain):
    """Set the weights of a window whose first position is given within its segment.

    Returns where its unmasked positions start and end, counted from that position, and
    the number that the weights were divided by.
    """
    at, start, end = window * sizes.window, 0, sizes.window
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
    return start, end, normalise(weights, n, gain) if sizes.normalise else 1.0


@compiled
def first_pass(sizes, children, first, n, parents):
    """Sum the children with equal couplings: those of logits that are all zero."""
    rows, weights, sums = children.rows, children.weights, parents.sums
    pad = sizes.child_pad
    share = splat(sums, 1.0 / (sizes.parents + sizes.leaky))
    total = splat(sums, 0.0)
    for i in range(0, n, lanes(weights)):
        total = add(total, load(weights, i))
    for j in range(sizes.parents):
        parents.totals[j] = lane_sum(multiply(total, share))
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
def form_logits(sizes, children, first, n, scratch, matrix, start, out):
    """Set out (J_pad, n) to children times a matrix, plus `start` of each parent."""
    (a, a0), (x, x0) = matrix, out
    transposed, row = scratch.transposed, sizes.parent_lanes
    for d in range(0, sizes.child_pad, lanes(x)):
        for j in range(0, row, lanes(x)):
            source = a0 + j * sizes.child_pad + d
            transpose(a, source, sizes.child_pad, transposed, d * row + j, row)
    set_product(
        (transposed, 0, row),
        (children.columns, first, sizes.stride),
        (x, x0, logits_row(lanes(x))),
        start,
        (sizes.parents_pad, sizes.child_size, n),
    )


@merged
def top_and_leak(sizes, logits, i):
    """Return the largest logit of the lanes i, and the leak's term of the softmax."""
    row, zero = logits_row(lanes(logits)), splat(logits, 0.0)
    top = zero if sizes.leaky else load(logits, i)
    for at in range(i, i + sizes.parents * row, row):
        top = maximum(load(logits, at), top)
    return top, exp(subtract(zero, top)) if sizes.leaky else zero


@compiled
def couple(sizes, logits, weight, i):
    """Turn the lanes i of the logits into couplings."""
    row = logits_row(lanes(logits))
    top, total = top_and_leak(sizes, logits, i)
    for at in range(i, i + sizes.parents * row, row):
        x = exp(subtract(load(logits, at), top))
        total = add(total, x)
        store(logits, at, x)
    scale = divide(weight, total)
    for at in range(i, i + sizes.parents * row, row):
        c = multiply(scale, load(logits, at))
        store(logits, at, unless_zero(weight, c))


@merged
def later_pass(sizes, children, first, n, parents, scratch, r, out):
    """Sum the children with the couplings of iteration r > 0.

    The last pass also writes the couplings to `out`, if they are wanted.
    """
    j_pad, d_pad, logits = sizes.parents_pad, sizes.child_pad, scratch.logits
    step = lanes(logits)
    row, at = logits_row(step), r * sizes.parent_lanes * d_pad
    sums, lane_sums, weights = parents.sums, scratch.lane_sums, children.weights
    fill(sums, at, j_pad * d_pad, 0.0)
    fill(lane_sums, 0, j_pad * step, 0.0)
    for begin in range(0, n, sizes.chunk):
        m = min(sizes.chunk, n - begin)
        form_logits(
            sizes,
            children,
            first + begin,
            m,
            scratch,
            (parents.pulled, at),
            (parents.offsets, r * sizes.parent_lanes),
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
        if sizes.has_couplings and r + 1 == sizes.iterations:
            couplings, c0 = out
            for i in range(m):
                for j in range(sizes.parents):
                    c = c0 + (begin + i) * sizes.parents + j
                    couplings[c] = logits[j * row + i]
    for j in range(j_pad):
        parents.totals[r * sizes.parent_lanes + j] = lane_sum(load(lane_sums, j * step))


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


@merged
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
def update_parents(sizes, arrays, parents, r):
    """Turn the sums of iteration r into its poses, and pull them back for the next."""
    pad, n = sizes.parent_pad, sizes.parents_pad
    number_at, sum_at = r * sizes.parent_lanes, r * sizes.parent_lanes * sizes.child_pad
    inputs, poses = (parents.inputs, r * n * pad), (parents.poses, r * n * pad)
    push(sizes, arrays, (parents.sums, sum_at), (parents.totals, number_at), inputs)
    norms, lengths = parents.norms, parents.lengths
    norm_rows(inputs, pad, sizes.parents, norms, number_at)
    squash_lengths(sizes.squash, norms, number_at, sizes.parent_lanes, lengths)
    squash_rows(sizes.squash, inputs, pad, n, norms, lengths, number_at, poses)
    if r + 1 == sizes.iterations:
        return
    next_number = number_at + sizes.parent_lanes
    for j in range(sizes.parent_lanes):
        parents.offsets[next_number + j] = parents.offsets[number_at + j]
    pull(
        sizes,
        arrays,
        poses,
        (parents.pulled, sum_at),
        (parents.pulled, next_number * sizes.child_pad),
        (parents.offsets, next_number),
    )


@merged
def clear_parents(sizes, parents):
    """Zero what is read before it is written: paddings, and A and k of the start."""
    numbers = sizes.iterations * sizes.parent_lanes
    for array in (parents.sums, parents.pulled):
        fill(array, 0, numbers * sizes.child_pad, 0.0)
    for array in (parents.totals, parents.norms, parents.offsets):
        fill(array, 0, numbers, 0.0)


@compiled
def write_window(sizes, arrays, parents, window):
    """Write out the poses and lengths of the last pass."""
    last, size, pad = sizes.iterations - 1, sizes.parent_size, sizes.parent_pad
    at = last * sizes.parents_pad * pad
    for j in range(sizes.parents):
        parent = window * sizes.parents + j
        arrays.lengths[parent] = parents.lengths[last * sizes.parent_lanes + j]
        for h in range(size):
            arrays.poses[parent * size + h] = parents.poses[at + j * pad + h]
    if sizes.keeps_sums:
        n = sizes.iterations * sizes.parent_lanes
        m = n * sizes.child_pad
        for i in range(n):
            arrays.totals[window * n + i] = parents.totals[i]
        for i in range(0, m, lanes(arrays.sums)):
            store(arrays.sums, window * m + i, load(parents.sums, i))


@merged
def route_window(sizes, arrays, children, parents, scratch, window, first, reach):
    """Route the children, from `first` on, of a window's unmasked positions."""
    start, end = reach
    n, J = (end - start) * sizes.types, sizes.parents
    at = (window * sizes.window + start) * sizes.types * J
    if sizes.has_couplings and sizes.iterations == 1:
        for i in range(n):
            for j in range(J):
                share = children.weights[i] / (J + sizes.leaky)
                arrays.couplings[at + i * J + j] = share
    for r in range(sizes.iterations):
        if r == 0:
            first_pass(sizes, children, first, n, parents)
        else:
            out = (arrays.couplings, at)
            later_pass(sizes, children, first, n, parents, scratch, r, out)
        update_parents(sizes, arrays, parents, r)
    write_window(sizes, arrays, parents, window)


@merged
def route_group(sizes, mask, arrays, gradients, children, parents, scratch, group):
    """Route every window of a group.

    The outputs start as zeros: that is what a window with no unmasked position keeps.
    """
    types, begin = sizes.types, group * sizes.segments // sizes.groups
    for segment in range(begin, (group + 1) * sizes.segments // sizes.groups):
        window, windows, _ = read_segment(sizes, arrays.capsules, segment, children)
        for w in range(window, window + windows):
            start, end, _ = set_weights(
                sizes, mask, w, w - window, children, arrays.gain
            )
            if start < end:
                first, reach = (w - window + start) * types, (start, end)
                route_window(sizes, arrays, children, parents, scratch, w, first, reach)


def kernel_of(name: str, work: Any, number: types.Float) -> Kernel:
    """Compile a pass as a C function of a block, for one type of numbers.

    `work(sizes, mask, arrays, gradients, children, parents, scratch, group)` does one
    group; the kernel does all those that no other thread has taken.
    """
    zero, byte = number(0), types.uint8(0)  # type: ignore[operator]

    def kernel(data):
        block = pointer(data, types.int64(0))
        at = BLOCK_HEAD + fetch_add(block, 1) * block[2]
        mask = pointer(block[at], byte)
        at += 1
        sizes = unpack(Sizes, block, at)
        at += len(sizes)
        arrays = pointers(unpack(Arrays, block, at), zero)
        at += len(arrays)
        gradients = pointers(unpack(Gradients, block, at), zero)
        at += len(gradients)
        children = pointers(unpack(Children, block, at), zero)
        at += len(children)
        parents = pointers(unpack(Parents, block, at), zero)
        scratch = pointers(unpack(Scratch, block, at + len(parents)), zero)
        clear_parents(sizes, parents)
        while True:
            group = fetch_add(block, 0)
            if group >= sizes.groups:
                return
            work(sizes, mask, arrays, gradients, children, parents, scratch, group)

    return Kernel(kernel, f"{name}-{number}")


def forward_kernel(number: types.Float) -> Kernel:
    """Compile the forward pass for a type of numbers."""
    return kernel_of("forward", route_group, number)
