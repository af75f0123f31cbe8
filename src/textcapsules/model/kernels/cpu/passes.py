"""From children to sums: reading capsules, the softmax, and one pass of routing.

Lanes of a vector are children wherever a softmax is near, so no parent count is awkward
and nothing is summed across lanes; the children are therefore held twice, as rows
(I, D) and as columns (D, I).
"""

from textcapsules.model.kernels.cpu.parts import (
    add_logits_product,
    compiled,
    fill,
    logits_row,
    merged,
    norm_rows,
    round_up,
    set_product,
    smallest,
    sum_rows,
)
from textcapsules.model.kernels.cpu.rows import transpose
from textcapsules.model.kernels.cpu.simd import (
    add,
    divide,
    exp,
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
    unless_zero,
)

__all__ = [
    "agreed_pass",
    "even_pass",
    "form_logits",
    "highest",
    "read_children",
    "weigh",
]


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
def normalise(weights, n, gain):
    """Scale n weights to a sum of gain[0]; return the sum that they were divided by.

    That is theirs, or the smallest normal number where theirs is less: 0 / tiny = 0.
    """
    total = splat(weights, 0.0)
    for i in range(0, n, lanes(weights)):
        total = add(total, load(weights, i))
    whole, least = lane_sum(total), smallest(weights)
    whole = least if whole < least else whole
    for i in range(0, n, lanes(weights)):
        weight = divide(load(weights, i), splat(weights, whole))
        store(weights, i, multiply(splat_at(gain, 0), weight))
    return whole


@compiled
def weigh(sizes, mask, first, children, gain):
    """Set the weights of a window; return where its unmasked positions start and end.

    `first` is where the window's mask and its position begin. The third number returned
    is what the weights were divided by.
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
    return start, end, normalise(weights, n, gain) if sizes.normalise else 1.0


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
