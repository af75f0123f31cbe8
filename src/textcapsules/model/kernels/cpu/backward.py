"""The backward pass of routing on a CPU: the passes in reverse, window by window.

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

from numba import types

from textcapsules.model.kernels.cpu.cache import Kernel
from textcapsules.model.kernels.cpu.forward import (
    form_logits,
    kernel_of,
    pull,
    push,
    read_segment,
    set_weights,
    top_and_leak,
    update_parents,
)
from textcapsules.model.kernels.cpu.link import compiled, merged
from textcapsules.model.kernels.cpu.maths import (
    add_lengths_back,
    add_logits_product,
    add_product,
    fill,
    logits_row,
    round_up,
    smallest,
    squash_rows_back,
    sum_rows,
)
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
    transpose,
    unless_zero,
)

__all__ = ["backward_kernel"]


@merged
def first_pass_back(sizes, children, first, n, scratch, d_couplings):
    """Go back through the first pass, whose couplings depend on the weights alone."""
    stacked, weights, pad = scratch.stacked, children.weights, sizes.child_pad
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
        total += scratch.d_totals[j]
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
        dc, at = d_couplings
        for i in range(n):
            if weights[i] != 0:
                for j in range(sizes.parents):
                    slope = dc[at + i * sizes.parents + j]
                    children.d_norms[first + i] += share * slope


@merged
def couplings_back(sizes, children, child, weight, scratch, i):
    """Turn logits and dc of the lanes i into couplings and dl."""
    logits, d_norms = scratch.logits, children.d_norms
    row = logits_row(lanes(logits))
    below = sizes.parents_pad * row
    top, total = top_and_leak(sizes, logits, i)
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
def later_pass_back(sizes, children, first, n, parents, scratch, r, d_couplings):
    """Go back through the pass of iteration r > 0."""
    j_pad, d_pad, logits = sizes.parents_pad, sizes.child_pad, scratch.logits
    stacked, lane_sums, step = scratch.stacked, scratch.lane_sums, lanes(logits)
    row, at = logits_row(step), r * sizes.parent_lanes * d_pad
    below = j_pad * row
    for i in range(0, j_pad * d_pad, step):
        store(stacked, j_pad * d_pad + i, load(parents.pulled, at + i))
    fill(lane_sums, 0, j_pad * step, 0.0)
    for begin in range(0, n, sizes.chunk):
        m, child = min(sizes.chunk, n - begin), first + begin
        offsets = (parents.offsets, r * sizes.parent_lanes)
        pulled = (parents.pulled, at)
        form_logits(sizes, children, child, m, scratch, pulled, offsets, (logits, 0))
        form_logits(
            sizes,
            children,
            child,
            m,
            scratch,
            (stacked, 0),
            (scratch.d_totals, 0),
            (logits, below),
        )
        if sizes.has_couplings and r + 1 == sizes.iterations:
            dc, dc_at = d_couplings
            for i in range(m):
                for j in range(sizes.parents):
                    coupling = dc_at + (begin + i) * sizes.parents + j
                    logits[below + j * row + i] += dc[coupling]
        for i in range(0, m, step):
            weight = load(children.weights, begin + i)
            couplings_back(sizes, children, child + i, weight, scratch, i)
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
            (scratch.d_pulled, 0, d_pad),
            (lane_sums, 0),
            (j_pad, m, d_pad),
        )
    for j in range(j_pad):
        scratch.d_offsets[j] += lane_sum(load(lane_sums, j * step))


@compiled
def add_outer(sizes, parents, scratch, r, out):
    """Add dW and dβ of a pass: sums ⊗ dt, and dA ⊗ v of the pull after it."""
    g, g0 = out
    size, pad, row = sizes.child_size, sizes.child_pad, sizes.parent_pad
    number_at, pose_at = r * sizes.parent_lanes, r * sizes.parents_pad * row
    sum_at = number_at * pad
    for j in range(sizes.parents):
        for h in range(0, row, lanes(g)):
            slope = load(scratch.d_inputs, j * row + h)
            pose = load(parents.poses, pose_at + j * row + h)
            at = g0 + j * (size + 1) * row + h
            for d in range(size):
                total = fma(
                    splat_at(parents.sums, sum_at + j * pad + d), slope, load(g, at)
                )
                store(g, at, fma(splat_at(scratch.d_pulled, j * pad + d), pose, total))
                at += row
            total = fma(splat_at(parents.totals, number_at + j), slope, load(g, at))
            store(g, at, fma(splat_at(scratch.d_offsets, j), pose, total))


@compiled
def read_output_gradients(sizes, gradients, parents, scratch, window):
    """Set d_inputs to the gradient of the window's poses, that of lengths included."""
    size, pad = sizes.parent_size, sizes.parent_pad
    last = sizes.iterations - 1
    fill(scratch.d_inputs, 0, sizes.parents_pad * pad, 0.0)
    for j in range(sizes.parents):
        for h in range(size):
            at = (window * sizes.parents + j) * size + h
            scratch.d_inputs[j * pad + h] = gradients.poses[at]
    add_lengths_back(
        (parents.inputs, last * sizes.parents_pad * pad),
        pad,
        sizes.parents,
        parents.norms,
        last * sizes.parent_lanes,
        gradients.lengths,
        window * sizes.parents,
        (scratch.d_inputs, 0),
    )


@merged
def window_back(sizes, arrays, gradients, children, parents, scratch, place):
    """Go back through all passes of a window."""
    window, first, n, d_couplings, d_push = place
    totals = sizes.iterations * sizes.parent_lanes
    m = totals * sizes.child_pad
    for i in range(0, m, lanes(parents.sums)):
        store(parents.sums, i, load(arrays.sums, window * m + i))
    for i in range(totals):
        parents.totals[i] = arrays.totals[window * totals + i]
    for r in range(sizes.iterations):
        update_parents(sizes, arrays, parents, r)
    fill(scratch.d_pulled, 0, sizes.parent_lanes * sizes.child_pad, 0.0)
    fill(scratch.d_offsets, 0, sizes.parent_lanes, 0.0)
    read_output_gradients(sizes, gradients, parents, scratch, window)
    d_inputs, pad = (scratch.d_inputs, 0), sizes.parent_pad
    for r in range(sizes.iterations - 1, -1, -1):
        if r + 1 < sizes.iterations:
            push(sizes, arrays, (scratch.d_pulled, 0), (scratch.d_offsets, 0), d_inputs)
        squash_rows_back(
            sizes.squash,
            (parents.inputs, r * sizes.parents_pad * pad),
            pad,
            sizes.parents_pad,
            parents.norms,
            parents.lengths,
            r * sizes.parent_lanes,
            d_inputs,
        )
        add_outer(sizes, parents, scratch, r, d_push)
        fill(scratch.d_totals, 0, sizes.parent_lanes, 0.0)
        zeros, d_sums = (parents.pulled, 0), (scratch.stacked, 0)
        pull(sizes, arrays, d_inputs, zeros, d_sums, (scratch.d_totals, 0))
        if r == 0:
            first_pass_back(sizes, children, first, n, scratch, d_couplings)
        else:
            later_pass_back(sizes, children, first, n, parents, scratch, r, d_couplings)


@merged
def begin_weight_gradients(children, first, n):
    """Put the gradient of norms aside: a window's weights use its place."""
    d_norms, before = children.d_norms, children.d_norms_before
    for i in range(0, n, lanes(d_norms)):
        store(before, i, load(d_norms, first + i))
        store(d_norms, first + i, splat(d_norms, 0.0))


@compiled
def end_weight_gradients(children, first, n, gain, divisor):
    """Turn the gradient of weights, once divided by `divisor`, into that of norms.

    Returns the gain's gradient; where the gain is 0 nobody votes: all terms are 0.
    """
    weights, d_norms, step = children.weights, children.d_norms, lanes(gain)
    along = splat(gain, 0.0)
    for i in range(0, n, step):
        along = fma(load(weights, i), load(d_norms, first + i), along)
    total = lane_sum(along)
    # The smallest normal number stood for a sum below it, which then had no effect.
    common = splat(gain, total if divisor > smallest(gain) else 0.0)
    for i in range(0, n, step):
        weight, slope = load(weights, i), load(d_norms, first + i)
        slope = subtract(multiply(splat_at(gain, 0), slope), common)
        slope = unless_zero(weight, divide(slope, splat(gain, divisor)))
        store(d_norms, first + i, add(load(children.d_norms_before, i), slope))
    return total / gain[0] if gain[0] != 0 else total


@compiled
def write_children(sizes, children, n, out, at):
    """Write out the gradient of n children, that of their norms included."""
    size, pad, stride = sizes.child_size, sizes.child_pad, sizes.stride
    # Nobody reads the columns any more: their memory holds the gradient's rows.
    rows, d_rows, step = children.rows, children.columns, lanes(out)
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
def group_back(sizes, mask, arrays, gradients, children, parents, scratch, group):
    """Go back through every window of a group."""
    types, begin = sizes.types, group * sizes.segments // sizes.groups
    span = (sizes.per_segment + sizes.window - 1) * types * sizes.child_size
    share = sizes.parents_pad * (sizes.child_size + 1) * sizes.parent_pad
    d_push = (gradients.push, group * share)
    for segment in range(begin, (group + 1) * sizes.segments // sizes.groups):
        window, windows, n = read_segment(sizes, arrays.capsules, segment, children)
        fill(children.d_columns, 0, sizes.child_pad * sizes.stride, 0.0)
        fill(children.d_norms, 0, sizes.stride, 0.0)
        for w in range(window, window + windows):
            start, end, divisor = set_weights(
                sizes, mask, w, w - window, children, arrays.gain
            )
            if start < end:
                first, n_window = (w - window + start) * types, (end - start) * types
                at = (w * sizes.window + start) * types * sizes.parents
                d_couplings = (gradients.couplings, at)
                place = (w, first, n_window, d_couplings, d_push)
                if sizes.normalise:
                    begin_weight_gradients(children, first, n_window)
                window_back(sizes, arrays, gradients, children, parents, scratch, place)
                if sizes.normalise:
                    gradients.gain[w] = end_weight_gradients(
                        children, first, n_window, arrays.gain, divisor
                    )
        write_children(sizes, children, n, gradients.capsules, segment * span)


def backward_kernel(number: types.Float) -> Kernel:
    """Compile the backward pass for a type of numbers."""
    return kernel_of("backward", group_back, number)
