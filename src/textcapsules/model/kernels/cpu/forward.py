"""The compiled loops of routing on a CPU: the forward pass.

Logits accumulate, so no pass needs those of the pass before: with A_j = Σ W_j v_j and
k_j = Σ β_j·v_j over the passes so far, l_ij = u_i·A_j + k_j. A pass is then two
products of small matrices, (J, D)(D, I) for the logits and (J, I)(I, D) for the sums,
with a softmax between them, over a chunk of children that stays in the nearest cache.

A segment is a run of windows of one text, a group a run of segments. Threads take
groups from a counter; each group adds up its own share of dW, and the shares are added
in the order of the groups, so the result does not depend on who did what.
"""

from typing import Any

from numba import types

from textcapsules.model.kernels.cpu.cache import Kernel
from textcapsules.model.kernels.cpu.layout import (
    BLOCK_HEAD,
    N_ARRAYS,
    N_CHILDREN,
    N_PARENTS,
    N_SIZES,
    Arrays,
    Children,
    Parents,
    Pass,
    Sizes,
    fetch_add,
    pointer,
    pointers,
    unpack,
)
from textcapsules.model.kernels.cpu.parts import (
    compiled,
    dot_rows,
    each_times,
    fill,
    merged,
    norm_rows,
    squash_lengths,
    squash_rows,
)
from textcapsules.model.kernels.cpu.passes import (
    agreed_pass,
    even_pass,
    read_children,
    weigh,
)
from textcapsules.model.kernels.cpu.simd import lanes, load, multiply, splat_at, store

__all__ = ["clear", "forward_kernel", "meet", "pull", "push", "segment_bounds"]


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
    if sizes.has_couplings and sizes.iterations == 1:
        for i in range(n):
            for j in range(stride):
                share = children.weights[i] / (stride + sizes.leaky)
                arrays.couplings[at + i * stride + j] = share
    for slot in range(sizes.iterations):
        if slot == 0:
            even_pass(sizes, children, first, n, parents)
        else:
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
                low, high, _ = weigh(sizes, mask, at, children, arrays.gain)
                if low < high:
                    first, reach = (w + low) * types, (low, high)
                    route_window(
                        sizes, arrays, children, parents, work, window, first, reach
                    )


def forward_kernel(number: types.Float) -> Any:
    """Compile the forward pass for a type of numbers, as a C function of a Block."""
    zero, byte = number(0), types.uint8(0)  # type: ignore[operator]

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

    return Kernel(forward, f"forward-{number}")
