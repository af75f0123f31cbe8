"""What the CPU kernels are called with, and how they find their way in it.

A kernel is a C function of one address, that of a Block: int64 all, the next group, the
next thread, the length of a thread's part, and for each thread its part: where the mask
is, Sizes, Arrays, in the backward pass Gradients, and its own Children, Parents, Pass.
The classes below name the numbers of a part; inside the kernels, those that are
addresses become pointers.
"""

from typing import NamedTuple

from numba import types
from numba.core import cgutils

from textcapsules.model.kernels.cpu.rows import places
from textcapsules.model.kernels.cpu.simd import intrinsic

__all__ = [
    "BLOCK_HEAD",
    "Arrays",
    "Children",
    "Gradients",
    "Parents",
    "Pass",
    "Sizes",
    "fetch_add",
    "pointer",
    "pointers",
    "unpack",
]

BLOCK_HEAD = 3


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
    normalise: int
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
    gain: int  # what normalised weights sum to, one number, or empty


class Gradients(NamedTuple):
    """The further tensors of a backward pass; those of poses etc. are given."""

    poses: int
    lengths: int
    couplings: int  # or empty
    capsules: int  # (segments, positions of a segment, C, D)
    push: int  # (groups, J_pad, D + 1, H_pad)
    gain: int  # (B, W) or empty


class Children(NamedTuple):
    """The capsules of a segment, and of its present window their weights."""

    rows: int  # (I, D_pad)
    columns: int  # (D_pad, stride)
    norms: int  # |u|
    weights: int  # w, 0 where masked and in the lanes past the window
    d_columns: int
    d_norms: int  # of a window that is normalised, dw until its last pass
    d_norms_before: int  # of the windows before it


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
N_GRADIENTS = len(Gradients._fields)


@intrinsic
def pointer(typingctx, address, like):
    """Return an address, an int64 or a C pointer, as a pointer to numbers like one."""
    result = types.CPointer(like)

    def generate(context, builder, signature, arguments):
        kind = context.get_value_type(result)
        cast = builder.bitcast if address is types.voidptr else builder.inttoptr
        return cast(arguments[0], kind)

    return result(address, like), generate


@intrinsic
def unpack(typingctx, names, block, at):
    """Return block[at:], int64, as an instance of a class of named tuples."""
    count = len(names.instance_class._fields)
    result = types.NamedUniTuple(types.int64, count, names.instance_class)

    def generate(context, builder, signature, arguments):
        one = context.get_constant(types.intp, 1)
        spots = places(builder, [*arguments[1:], one], 0, count)
        numbers = [builder.load(place) for place in spots]
        return context.make_tuple(builder, signature.return_type, numbers)

    return result(names, block, types.intp), generate


@intrinsic
def pointers(typingctx, addresses, like):
    """Return a named tuple of addresses as one of pointers to numbers like one."""
    kind = types.CPointer(like)
    result = types.NamedUniTuple(kind, addresses.count, addresses.instance_class)

    def generate(context, builder, signature, arguments):
        numbers = cgutils.unpack_tuple(builder, arguments[0], addresses.count)
        place = context.get_value_type(kind)
        found = [builder.inttoptr(number, place) for number in numbers]
        return context.make_tuple(builder, signature.return_type, found)

    return result(addresses, like), generate


@intrinsic
def fetch_add(typingctx, counters, index):
    """Add 1 to one of some int64 and return what it was, safe among threads."""

    def generate(context, builder, signature, arguments):
        place = builder.gep(arguments[0], [arguments[1]])
        one = context.get_constant(types.int64, 1)
        return builder.atomic_rmw("add", place, one, ordering="monotonic")

    return types.int64(counters, types.intp), generate
