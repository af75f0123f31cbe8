"""The backward pass of the routing kernels: the passes in reverse, window by window.

The sums of every pass are kept from the forward pass. Poses, A and k follow from them
by J products of (D, H), which is cheap; the couplings follow from A and k and are
formed again chunk by chunk, as in the forward pass, so nothing grows with I·J.

With p the softmax, w the weights and dc_ij = u_i·ds_j + dσ_j:

    du_i += Σ_j c_ij ds_j + dl_ij A_j      dw_i += q_i = Σ_j p_ij dc_ij
    dl_ij = w_i p_ij (dc_ij - q_i)         dA_j += Σ_i dl_ij u_i,  dk_j += Σ_i dl_ij

The weights are w = â or, normalised, w = g â / S with g the gain and S = Σ_i â_i over a
window. All passes of the window add to dw before the rest can follow:

    dâ_i += (g dw_i - Σ_k w_k dw_k) / S    dg += Σ_k w_k dw_k / g
"""

from typing import Any

from numba import types

from textcapsules.model.kernels.cpu.cache import Kernel
from textcapsules.model.kernels.cpu.forward import (
    clear,
    meet,
    pull,
    push,
    segment_bounds,
)
from textcapsules.model.kernels.cpu.layout import (
    BLOCK_HEAD,
    N_ARRAYS,
    N_CHILDREN,
    N_GRADIENTS,
    N_PARENTS,
    N_SIZES,
    Arrays,
    Children,
    Gradients,
    Parents,
    Pass,
    Sizes,
    fetch_add,
    pointer,
    pointers,
    unpack,
)
from textcapsules.model.kernels.cpu.parts import (
    add_lengths_back,
    add_logits_product,
    add_product,
    compiled,
    fill,
    logits_row,
    merged,
    round_up,
    smallest,
    squash_rows_back,
    sum_rows,
)
from textcapsules.model.kernels.cpu.passes import (
    form_logits,
    highest,
    read_children,
    weigh,
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
    multiply,
    splat,
    splat_at,
    store,
    subtract,
    unless_zero,
)

__all__ = ["backward_kernel"]


@merged
def even_back(sizes, children, first, n, work, d_couplings):
    """Go back through the first pass, whose couplings depend on the weights alone."""
    stacked, weights, pad = work.stacked, children.weights, sizes.child_pad
    columns, d_columns, stride = children.columns, children.d_columns, sizes.stride
    step = lanes(stacked)
    share = 1.0 / (sizes.parents + sizes.leaky)
    shares, gathered = splat(stacked, share), sizes.parents_pad * pad
    for d in range(0, pad, step):  # Σ_j ds_j, below ds where A was
        total = splat(stacked, 0.0)
        for j in range(sizes.parents):
            total = add(total, load(stacked, j * pad + d))
        store(stacked, gathered + d, multiply(total, shares))
    total = 0.0
    for j in range(sizes.parents):
        total += work.d_totals[j]
    for i in range(0, n, step):
        weight = load(weights, i)
        along = splat(stacked, total * share)
        for d in range(sizes.child_size):
            slope = splat_at(stacked, gathered + d)
            at = d * stride + first + i
            along = fma(slope, load(columns, at), along)
            change = unless_zero(weight, multiply(slope, weight))
            store(d_columns, at, add(load(d_columns, at), change))
        along = add(load(children.d_norms, first + i), unless_zero(weight, along))
        store(children.d_norms, first + i, along)
    if sizes.has_couplings and sizes.iterations == 1:
        slopes, at = d_couplings
        for i in range(n):
            if weights[i] != 0:
                for j in range(sizes.parents):
                    slope = slopes[at + i * sizes.parents + j]
                    children.d_norms[first + i] += share * slope


@merged
def couplings_back(sizes, children, child, weight, work, i):
    """Turn logits and dc of the lanes i into couplings and dl."""
    logits, d_norms = work.logits, children.d_norms
    row = logits_row(lanes(logits))
    below = sizes.parents_pad * row
    top, total = highest(sizes, logits, i)
    gathered = splat(logits, 0.0)
    for at in range(i, i + sizes.parents * row, row):
        x = exp(subtract(load(logits, at), top))
        total = add(total, x)
        gathered = fma(x, load(logits, below + at), gathered)
        store(logits, at, x)
    scale = divide(splat(logits, 1.0), total)
    gathered = multiply(scale, gathered)
    along = add(load(d_norms, child), unless_zero(weight, gathered))
    store(d_norms, child, along)
    scale = multiply(scale, weight)
    for at in range(i, i + sizes.parents * row, row):
        c = unless_zero(weight, multiply(scale, load(logits, at)))
        slope = multiply(c, subtract(load(logits, below + at), gathered))
        store(logits, at, c)
        store(logits, below + at, unless_zero(weight, slope))


@merged
def agreed_back(sizes, children, first, n, parents, work, slot, d_couplings):
    """Go back through a later pass."""
    j_pad, d_pad, logits = sizes.parents_pad, sizes.child_pad, work.logits
    stacked, lane_sums, step = work.stacked, work.lane_sums, lanes(logits)
    row, at = logits_row(step), slot * sizes.slot * d_pad
    below = j_pad * row
    for i in range(0, j_pad * d_pad, step):
        store(stacked, j_pad * d_pad + i, load(parents.pulled, at + i))
    fill(lane_sums, 0, j_pad * step, 0.0)
    for begin in range(0, n, sizes.chunk):
        m, child = min(sizes.chunk, n - begin), first + begin
        pulled, offsets = (parents.pulled, at), (parents.offsets, slot * sizes.slot)
        form_logits(sizes, children, child, m, work, pulled, offsets, (logits, 0))
        form_logits(
            sizes,
            children,
            child,
            m,
            work,
            (stacked, 0),
            (work.d_totals, 0),
            (logits, below),
        )
        if sizes.has_couplings and slot + 1 == sizes.iterations:
            slopes, c0 = d_couplings
            for i in range(m):
                for j in range(sizes.parents):
                    c = c0 + (begin + i) * sizes.parents + j
                    logits[below + j * row + i] += slopes[c]
        for i in range(0, m, step):
            weight = load(children.weights, begin + i)
            couplings_back(sizes, children, child + i, weight, work, i)
        sum_rows((logits, below), row, m, sizes.parents, lane_sums)
        add_product(
            (stacked, 0, d_pad),
            (logits, 0, row),
            (children.d_columns, child, sizes.stride),
            (lane_sums, 0),
            (round_up(sizes.child_size, 4), 2 * j_pad, m),
        )
        add_logits_product(
            (logits, below, 1),
            (children.rows, child * d_pad, d_pad),
            (work.d_pulled, 0, d_pad),
            (lane_sums, 0),
            (j_pad, m, d_pad),
        )
    for j in range(j_pad):
        work.d_offsets[j] += lane_sum(load(lane_sums, j * step))


@compiled
def add_outer(sizes, parents, work, slot, out):
    """Add dW and dβ of a pass: sums ⊗ dt, and dA ⊗ v of the pull after it."""
    g, g0 = out
    size, pad, row = sizes.child_size, sizes.child_pad, sizes.parent_pad
    sums, one = slot * sizes.slot * pad, slot * sizes.slot
    poses = slot * sizes.parents_pad * row
    for j in range(sizes.parents):
        for h in range(0, row, lanes(g)):
            slope = load(work.d_inputs, j * row + h)
            pose = load(parents.poses, poses + j * row + h)
            at = g0 + j * (size + 1) * row + h
            for d in range(size):
                total = fma(
                    splat_at(parents.sums, sums + j * pad + d), slope, load(g, at)
                )
                store(g, at, fma(splat_at(work.d_pulled, j * pad + d), pose, total))
                at += row
            total = fma(splat_at(parents.totals, one + j), slope, load(g, at))
            store(g, at, fma(splat_at(work.d_offsets, j), pose, total))


@compiled
def read_slopes(sizes, gradients, parents, work, window):
    """Set d_inputs to the gradient of the window's poses, that of lengths included."""
    size, pad = sizes.parent_size, sizes.parent_pad
    last = sizes.iterations - 1
    fill(work.d_inputs, 0, sizes.parents_pad * pad, 0.0)
    for j in range(sizes.parents):
        for h in range(size):
            at = (window * sizes.parents + j) * size + h
            work.d_inputs[j * pad + h] = gradients.poses[at]
    add_lengths_back(
        (parents.inputs, last * sizes.parents_pad * pad),
        pad,
        sizes.parents,
        parents.norms,
        last * sizes.slot,
        gradients.lengths,
        window * sizes.parents,
        (work.d_inputs, 0),
    )


@merged
def window_back(sizes, arrays, gradients, children, parents, work, spot):
    """Go back through all passes of a window."""
    window, first, n, d_couplings, d_push = spot
    totals = sizes.iterations * sizes.slot
    m = totals * sizes.child_pad
    for i in range(0, m, lanes(parents.sums)):
        store(parents.sums, i, load(arrays.sums, window * m + i))
    for i in range(totals):
        parents.totals[i] = arrays.totals[window * totals + i]
    for slot in range(sizes.iterations):
        meet(sizes, arrays, parents, slot)
    fill(work.d_pulled, 0, sizes.slot * sizes.child_pad, 0.0)
    fill(work.d_offsets, 0, sizes.slot, 0.0)
    read_slopes(sizes, gradients, parents, work, window)
    slopes, pad = (work.d_inputs, 0), sizes.parent_pad
    for slot in range(sizes.iterations - 1, -1, -1):
        if slot + 1 < sizes.iterations:
            push(sizes, arrays, (work.d_pulled, 0), (work.d_offsets, 0), slopes)
        squash_rows_back(
            sizes.squash,
            (parents.inputs, slot * sizes.parents_pad * pad),
            pad,
            sizes.parents_pad,
            parents.norms,
            parents.lengths,
            slot * sizes.slot,
            slopes,
        )
        add_outer(sizes, parents, work, slot, d_push)
        fill(work.d_totals, 0, sizes.slot, 0.0)
        nothing = (parents.pulled, 0)
        pull(sizes, arrays, slopes, nothing, (work.stacked, 0), (work.d_totals, 0))
        if slot == 0:
            even_back(sizes, children, first, n, work, d_couplings)
        else:
            agreed_back(sizes, children, first, n, parents, work, slot, d_couplings)


@compiled
def begin_weights_back(children, first, n):
    """Make room for the gradient of a window's weights where that of norms is."""
    d_norms, before = children.d_norms, children.d_norms_before
    for i in range(0, n, lanes(d_norms)):
        store(before, i, load(d_norms, first + i))
        store(d_norms, first + i, splat(d_norms, 0.0))


@compiled
def end_weights_back(children, first, n, gain, total):
    """Turn the gradient of weights, normalised by `total`, into that of norms.

    Returns that of the gain; where the gain is 0 nobody votes, and all terms are 0.
    """
    weights, d_norms, step = children.weights, children.d_norms, lanes(gain)
    along = splat(gain, 0.0)
    for i in range(0, n, step):
        along = fma(load(weights, i), load(d_norms, first + i), along)
    whole = lane_sum(along)
    # The smallest normal number stood for a sum below it, which then had no effect.
    common = splat(gain, whole if total > smallest(gain) else 0.0)
    for i in range(0, n, step):
        weight, slope = load(weights, i), load(d_norms, first + i)
        slope = subtract(multiply(splat_at(gain, 0), slope), common)
        slope = unless_zero(weight, divide(slope, splat(gain, total)))
        store(d_norms, first + i, add(load(children.d_norms_before, i), slope))
    return whole / gain[0] if gain[0] != 0 else whole


@compiled
def write_children(sizes, children, n, out, at):
    """Write out the gradient of n children, that of their norms included."""
    size, pad, stride = sizes.child_size, sizes.child_pad, sizes.stride
    rows, d_rows, step = children.rows, children.columns, lanes(out)  # done with those
    for i in range(0, n, step):
        for d in range(0, pad, step):
            source = d * stride + i
            transpose(children.d_columns, source, stride, d_rows, i * pad + d, pad)
    if sizes.amendment:
        for i in range(n):
            if children.norms[i] > 0:
                norm, slope = splat_at(children.norms, i), splat_at(children.d_norms, i)
                for d in range(i * pad, (i + 1) * pad, step):
                    total = fma(slope, divide(load(rows, d), norm), load(d_rows, d))
                    store(d_rows, d, total)
    for i in range(n):
        for d in range(size):
            out[at + i * size + d] = d_rows[i * pad + d]


@merged
def groups_back(sizes, mask, arrays, gradients, children, parents, work, counter):
    """Go back through every group that no other thread has taken."""
    clear(sizes, parents)
    types = sizes.types
    span = (sizes.per_segment + sizes.window - 1) * types * sizes.child_size
    share = sizes.parents_pad * (sizes.child_size + 1) * sizes.parent_pad
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
            fill(children.d_columns, 0, sizes.child_pad * sizes.stride, 0.0)
            fill(children.d_norms, 0, sizes.stride, 0.0)
            for w in range(end - start):
                window = text * sizes.windows + start + w
                at = (window * sizes.window, w)
                low, high, total = weigh(sizes, mask, at, children, arrays.gain)
                if low < high:
                    first, n_window = (w + low) * types, (high - low) * types
                    at = (window * sizes.window + low) * types * sizes.parents
                    spot = (
                        window,
                        first,
                        n_window,
                        (gradients.couplings, at),
                        (gradients.push, group * share),
                    )
                    if sizes.normalise:
                        begin_weights_back(children, first, n_window)
                    window_back(sizes, arrays, gradients, children, parents, work, spot)
                    if sizes.normalise:
                        gradients.gain[window] = end_weights_back(
                            children, first, n_window, arrays.gain, total
                        )
            write_children(sizes, children, n, gradients.capsules, segment * span)


def backward_kernel(number: types.Float) -> Any:
    """Compile the backward pass for a type of numbers, as a C function of a Block."""
    zero, byte = number(0), types.uint8(0)  # type: ignore[operator]

    def backward(data):
        block = pointer(data, types.int64(0))
        at = BLOCK_HEAD + fetch_add(block, 1) * block[2]
        sizes = unpack(Sizes, block, at + 1)
        at += 1 + N_SIZES
        mask = pointer(block[at - 1 - N_SIZES], byte)
        arrays = pointers(unpack(Arrays, block, at), zero)
        at += N_ARRAYS
        gradients = pointers(unpack(Gradients, block, at), zero)
        at += N_GRADIENTS
        children = pointers(unpack(Children, block, at), zero)
        parents = pointers(unpack(Parents, block, at + N_CHILDREN), zero)
        work = pointers(unpack(Pass, block, at + N_CHILDREN + N_PARENTS), zero)
        groups_back(sizes, mask, arrays, gradients, children, parents, work, block)

    return Kernel(backward, f"backward-{number}")
