"""Several vectors at once, one a row of a matrix, and squares of them transposed.

A product of matrices keeps eight rows of its result in registers while it runs through
the depth; numba has no such array, but a tuple of vectors is one to LLVM.
"""

from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils

from textcapsules.model.kernels.cpu.simd import (
    Vector,
    call,
    intrinsic,
    read,
    repeat,
    write,
)

__all__ = ["Rows", "places", "rows_of", "transpose"]


def places(builder, arguments, which, count):
    """Return the addresses of array[at + r * row], those three from `which` on."""
    array, at, row = arguments[which : which + 3]
    steps = [builder.mul(row, row.type(r)) for r in range(count)]
    return [builder.gep(array, [builder.add(at, step)]) for step in steps]


class Rows(NamedTuple):
    """Functions on a tuple of vectors, one a row of a matrix; `row` leads to the next.

    load(array, at, row), save(sums, array, at, row): row r is array[at + r * row:].
    zero(array): zeros.  add(sums, others): their sums.
    splat(array, at): array[at + r] in every lane of row r.
    accumulate(sums, array, at, x): add array[at + r * step] times x to row r.
    accumulate_own(sums, array, at, row, others, there, others_row): add
        array[at + r * row] times the vector others[there + r * others_row:] to row r.
    """

    load: Any
    zero: Any
    add: Any
    splat: Any
    accumulate: Any
    accumulate_own: Any
    save: Any


def rows_of(count, step):
    """Return the functions on `count` rows.

    The step of `accumulate` is a function of the lanes: known when compiling, so that
    every row's number is at a fixed distance from one address.
    """

    def gather(context, builder, signature, vectors):
        return context.make_tuple(builder, signature.return_type, vectors)

    @intrinsic
    def load_rows(typingctx, array, at, row):
        vector = Vector(array.dtype)

        def generate(context, builder, signature, arguments):
            kind = context.get_value_type(vector)
            spots = places(builder, arguments, 0, count)
            vectors = [read(builder, place, kind, array) for place in spots]
            return gather(context, builder, signature, vectors)

        return types.UniTuple(vector, count)(array, types.intp, types.intp), generate

    @intrinsic
    def zero_rows(typingctx, array):
        vector = Vector(array.dtype)

        def generate(context, builder, signature, arguments):
            nothing = ir.Constant(context.get_value_type(vector), None)
            return gather(context, builder, signature, [nothing] * count)

        return types.UniTuple(vector, count)(array), generate

    @intrinsic
    def add_rows(typingctx, sums, others):
        def generate(context, builder, signature, arguments):
            ours, theirs = (
                cgutils.unpack_tuple(builder, rows, count) for rows in arguments
            )
            pairs = zip(ours, theirs, strict=True)
            vectors = [builder.fadd(one, other) for one, other in pairs]
            return gather(context, builder, signature, vectors)

        return sums(sums, sums), generate

    @intrinsic
    def splat_rows(typingctx, array, at):
        vector = Vector(array.dtype)

        def generate(context, builder, signature, arguments):
            one = context.get_constant(types.intp, 1)
            arguments = [*arguments, one]
            spots = places(builder, arguments, 0, count)
            kind = context.get_value_type(vector)
            vectors = [repeat(builder, builder.load(place), kind) for place in spots]
            return gather(context, builder, signature, vectors)

        return types.UniTuple(vector, count)(array, types.intp), generate

    @intrinsic
    def accumulate(typingctx, sums, array, at, x):
        def generate(context, builder, signature, arguments):
            total, array, at, factor = arguments
            row = context.get_constant(types.intp, step.py_func(x.lanes))
            arguments, vectors = [total, array, at, row], []
            spots = places(builder, arguments, 1, count)
            for r, place in enumerate(spots):
                number = repeat(builder, builder.load(place), factor.type)
                part = builder.extract_value(total, r)
                vectors.append(call(builder, "fma", part.type, number, factor, part))
            return gather(context, builder, signature, vectors)

        return sums(sums, array, types.intp, x), generate

    @intrinsic
    def accumulate_own(typingctx, sums, array, at, row, others, there, others_row):
        def generate(context, builder, signature, arguments):
            ours = places(builder, arguments, 1, count)
            theirs = places(builder, arguments, 4, count)
            vectors = []
            for r, (place, other) in enumerate(zip(ours, theirs, strict=True)):
                part = builder.extract_value(arguments[0], r)
                number = repeat(builder, builder.load(place), part.type)
                x = read(builder, other, part.type, array)
                vectors.append(call(builder, "fma", part.type, number, x, part))
            return gather(context, builder, signature, vectors)

        whole = (types.intp, types.intp)
        return sums(sums, array, *whole, others, *whole), generate

    @intrinsic
    def save_rows(typingctx, sums, array, at, row):
        def generate(context, builder, signature, arguments):
            spots = places(builder, arguments, 1, count)
            for r, place in enumerate(spots):
                write(builder, builder.extract_value(arguments[0], r), place, array)
            return context.get_dummy_value()

        return types.void(sums, array, types.intp, types.intp), generate

    return Rows(
        load_rows,
        zero_rows,
        add_rows,
        splat_rows,
        accumulate,
        accumulate_own,
        save_rows,
    )


@intrinsic
def transpose(typingctx, source, at, row, target, there, target_row):
    """Copy a square of as many rows as lanes, transposed, from source to target."""
    count = Vector(source.dtype).lanes

    def generate(context, builder, signature, arguments):
        kind = context.get_value_type(Vector(source.dtype))
        spots = places(builder, arguments, 0, count)
        rows = [read(builder, place, kind, source) for place in spots]
        order = ir.VectorType(ir.IntType(32), count)
        # Interleaving row r with row r + n/2 everywhere, log2 n times over, moves every
        # number to its place.
        mixed = [i // 2 + count * (i % 2) for i in range(2 * count)]
        low, high = (
            ir.Constant(order, mixed[part : part + count]) for part in (0, count)
        )
        for _ in range(count.bit_length() - 1):
            pairs = zip(rows[: count // 2], rows[count // 2 :], strict=True)
            rows = [
                builder.shuffle_vector(one, other, half)
                for one, other in pairs
                for half in (low, high)
            ]
        spots = places(builder, arguments, 3, count)
        for vector, place in zip(rows, spots, strict=True):
            write(builder, vector, place, target)
        return context.get_dummy_value()

    whole = (types.intp, types.intp)
    return types.void(source, *whole, target, *whole), generate
