"""Vectors for numba, so that the routing kernels keep their sums in registers.

Numba turns scalar loops into vectors only where LLVM can prove that arrays do not
overlap, and it has no arrays on the stack; a tile of eight running sums is neither. So
`Vector` is one LLVM vector of 512 bits (16 float32 or 8 float64), which LLVM splits in
two or four on machines with narrower registers, and the functions below are its
instructions. `rows_of` gives those of several vectors at once, one per row of a matrix:
a product of matrices keeps eight rows of its result in registers while it runs through
the depth.

An array here is a pointer to its numbers: numba's own arrays are seven values each and
counted references, which made the kernels slow to compile. Indices are not checked. The
last functions turn the addresses that a kernel is called with into such pointers.
"""

import math
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as numba_intrinsic
from numba.extending import models, register_model

from textcapsules.model.kernels.cpu.link import merged

__all__ = [
    "Vector",
    "add",
    "divide",
    "exp",
    "fetch_add",
    "fma",
    "lane_sum",
    "lanes",
    "load",
    "maximum",
    "minimum",
    "multiply",
    "pointer",
    "pointers",
    "rows_of",
    "splat",
    "splat_at",
    "store",
    "subtract",
    "transpose",
    "unless_zero",
    "unpack",
]

# An intrinsic's first parameter is numba's, not the caller's: hidden from checkers.
intrinsic: Any = numba_intrinsic
BITS = 512


class Vector(types.Type):
    """As many numbers of one float type as fill the register."""

    def __init__(self, dtype) -> None:
        self.dtype, self.lanes = dtype, BITS // dtype.bitwidth
        super().__init__(name=f"Vector({dtype}, {self.lanes})")


@register_model(Vector)
class VectorModel(models.PrimitiveModel):
    """How numba holds a Vector: as the LLVM value itself."""

    def __init__(self, manager, vector) -> None:
        number = manager.lookup(vector.dtype).get_value_type()
        super().__init__(manager, vector, ir.VectorType(number, vector.lanes))


def repeat(builder, number, vector_type):
    """Return a vector with one number in every lane."""
    empty = ir.Constant(vector_type, ir.Undefined)
    zero = ir.Constant(ir.IntType(32), 0)
    first = builder.insert_element(empty, number, zero)
    order = ir.Constant(ir.VectorType(ir.IntType(32), vector_type.count), None)
    return builder.shuffle_vector(first, empty, order)


def call(builder, name, result, *arguments):
    """Call one of LLVM's own functions, such as llvm.fma, on vectors or numbers."""
    kind = result.element if isinstance(result, ir.VectorType) else result
    bits = "f32" if isinstance(kind, ir.FloatType) else "f64"
    if isinstance(result, ir.VectorType):
        bits = f"v{result.count}{bits}"
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(result, [argument.type for argument in arguments]),
        f"llvm.{name}.{bits}",
    )
    return builder.call(function, arguments)


@intrinsic
def lanes(typingctx, array):
    """Return how many of the array's numbers a vector holds."""
    count = Vector(array.dtype).lanes

    def generate(context, builder, signature, arguments):
        return context.get_constant(types.intp, count)

    return types.intp(array), generate


def read(builder, place, kind, array):
    """Read a vector that is aligned as its numbers are."""
    place = builder.bitcast(place, kind.as_pointer())
    return builder.load(place, align=array.dtype.bitwidth // 8)


def write(builder, vector, place, array):
    """Write a vector that is aligned as its numbers are."""
    place = builder.bitcast(place, vector.type.as_pointer())
    builder.store(vector, place, align=array.dtype.bitwidth // 8)


@intrinsic
def load(typingctx, array, index):
    """Read a vector from array[index:]."""
    vector = Vector(array.dtype)

    def generate(context, builder, signature, arguments):
        place = builder.gep(arguments[0], [arguments[1]])
        return read(builder, place, context.get_value_type(vector), array)

    return vector(array, types.intp), generate


@intrinsic
def store(typingctx, array, index, vector):
    """Write a vector to array[index:]."""

    def generate(context, builder, signature, arguments):
        place = builder.gep(arguments[0], [arguments[1]])
        write(builder, arguments[2], place, array)
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), generate


@intrinsic
def splat_at(typingctx, array, index):
    """Return array[index] in every lane."""
    vector = Vector(array.dtype)

    def generate(context, builder, signature, arguments):
        number = builder.load(builder.gep(arguments[0], [arguments[1]]))
        return repeat(builder, number, context.get_value_type(vector))

    return vector(array, types.intp), generate


@intrinsic
def splat(typingctx, like, number):
    """Return a number in every lane of a vector of the type of `like`."""
    vector = like if isinstance(like, Vector) else Vector(like.dtype)

    def generate(context, builder, signature, arguments):
        cast = context.cast(builder, arguments[1], number, vector.dtype)
        return repeat(builder, cast, context.get_value_type(vector))

    return vector(like, number), generate


@intrinsic
def fma(typingctx, a, b, c):
    """Return a·b + c, rounded once."""

    def generate(context, builder, signature, arguments):
        return call(builder, "fma", context.get_value_type(a), *arguments)

    return a(a, a, a), generate


def on_pairs(instruction):
    """Return a function of two vectors that is one instruction of LLVM."""

    @intrinsic
    def apply(typingctx, a, b):
        def generate(context, builder, signature, arguments):
            return getattr(builder, instruction)(*arguments)

        return a(a, a), generate

    return apply


add, subtract = on_pairs("fadd"), on_pairs("fsub")
multiply, divide = on_pairs("fmul"), on_pairs("fdiv")


def pick(sign):
    """Return a function of two vectors: a where `a sign b`, else b.

    So it is b where either is no number.
    """

    @intrinsic
    def apply(typingctx, a, b):
        def generate(context, builder, signature, arguments):
            picked = builder.fcmp_ordered(sign, *arguments)
            return builder.select(picked, *arguments)

        return a(a, a), generate

    return apply


maximum, minimum = pick(">"), pick("<")


@intrinsic
def unless_zero(typingctx, weight, a):
    """Return a, but 0 in the lanes where the weight is 0, whatever a is there."""

    def generate(context, builder, signature, arguments):
        nothing = ir.Constant(context.get_value_type(a), None)
        silent = builder.fcmp_ordered("==", arguments[0], nothing)
        return builder.select(silent, nothing, arguments[1])

    return a(weight, a), generate


@intrinsic
def zero_below(typingctx, limit, x, a):
    """Return a, but 0 in the lanes where x is below the limit."""

    def generate(context, builder, signature, arguments):
        nothing = ir.Constant(context.get_value_type(a), None)
        below = builder.fcmp_ordered("<", arguments[1], arguments[0])
        return builder.select(below, nothing, arguments[2])

    return a(a, a, a), generate


@intrinsic
def nearest(typingctx, a):
    """Return the nearest whole number of each lane."""

    def generate(context, builder, signature, arguments):
        return call(builder, "roundeven", context.get_value_type(a), *arguments)

    return a(a), generate


@intrinsic
def scale_by_two(typingctx, a, power):
    """Return a·2^power; the power must be whole and 2^power a normal number."""
    bits, mantissa = (32, 23) if a.lanes * 32 == BITS else (64, 52)
    bias = 127 if bits == 32 else 1023

    def generate(context, builder, signature, arguments):
        integers = ir.VectorType(ir.IntType(bits), a.lanes)
        exponent = builder.fptosi(arguments[1], integers)
        exponent = builder.add(exponent, ir.Constant(integers, [bias] * a.lanes))
        shifted = builder.shl(exponent, ir.Constant(integers, [mantissa] * a.lanes))
        scale = builder.bitcast(shifted, context.get_value_type(a))
        return builder.fmul(arguments[0], scale)

    return a(a, a), generate


@intrinsic
def lane_sum(typingctx, a):
    """Return the sum of all lanes, taken in halves: always in the same order."""

    def generate(context, builder, signature, arguments):
        total, count = arguments[0], a.lanes
        while count > 1:
            count //= 2
            indices = ir.VectorType(ir.IntType(32), count)
            low = ir.Constant(indices, list(range(count)))
            high = ir.Constant(indices, list(range(count, 2 * count)))
            total = builder.fadd(
                builder.shuffle_vector(total, total, low),
                builder.shuffle_vector(total, total, high),
            )
        return builder.extract_element(total, ir.Constant(ir.IntType(32), 0))

    return a.dtype(a), generate


# exp(x) = 2^n exp(r), n = x / ln 2 rounded and |r| <= ln 2 / 2; ln 2 in two parts, the
# first so short that n·ln 2 is exact. Taylor's error at the ends is below half an ulp.
LOG2_E = math.log2(math.e)
SINGLE, DOUBLE = 16, 8  # lanes
MINUS_LN2 = {
    SINGLE: (-0.693359375, 2.12194440054690583e-4),
    DOUBLE: (-0.693145751953125, -1.42860682030941723212e-6),
}
LOWEST = {SINGLE: -87.0, DOUBLE: -708.0}  # 2^n stays a normal number
SERIES = tuple(1 / math.factorial(k) for k in range(14))


def constant(kind, number):
    """Return a number in every lane of a vector type."""
    return ir.Constant(kind, [number] * kind.count)


@intrinsic
def exp_constants(typingctx, a):
    """Return the lowest argument and the two parts of -ln 2 as vectors like a."""
    numbers = (LOWEST[a.lanes], *MINUS_LN2[a.lanes])

    def generate(context, builder, signature, arguments):
        kind = context.get_value_type(a)
        parts = [constant(kind, number) for number in numbers]
        return context.make_tuple(builder, signature.return_type, parts)

    return types.UniTuple(a, 3)(a), generate


@intrinsic
def series(typingctx, r):
    """Return Taylor's series of exp at r, as long as the type needs."""
    terms = SERIES[: 8 if r.lanes == SINGLE else 14]

    def generate(context, builder, signature, arguments):
        kind = context.get_value_type(r)
        total = constant(kind, terms[-1])
        for term in terms[-2::-1]:
            total = call(
                builder, "fma", kind, total, arguments[0], constant(kind, term)
            )
        return total

    return r(r), generate


@merged
def exp(x):
    """Return e^x for x <= 0 within 2 ulp, 0 where it is below the normal numbers.

    NaN stays NaN. The zeros must be exact: a parent that no child chooses has no
    direction, and any direction would have a gradient.
    """
    lowest, high, low = exp_constants(x)
    # maximum() takes its second argument where either is NaN.
    y = maximum(lowest, x)
    n = nearest(multiply(y, splat(y, LOG2_E)))
    r = fma(n, low, fma(n, high, y))
    return zero_below(lowest, x, scale_by_two(series(r), n))


def places(builder, arguments, which, count):
    """Return the addresses of array[at + r * row]: three arguments from `which` on."""
    array, at, row = arguments[which : which + 3]
    steps = [builder.mul(row, row.type(r)) for r in range(count)]
    return [builder.gep(array, [builder.add(at, step)]) for step in steps]


class Rows(NamedTuple):
    """Functions on a tuple of vectors, one per row of a matrix.

    load(array, at, row), save(sums, array, at, row): row r is array[at + r * row:].
    zero(array): zeros.  add(sums, others): their sums.
    splat(array, at): array[at + r] in every lane of row r.
    accumulate(sums, array, at, x): add array[at + r * step] times x to row r.
    accumulate_rows(sums, array, at, row, others, there, others_row): add
        array[at + r * row] times the vector others[there + r * others_row:] to row r.
    """

    load: Any
    zero: Any
    add: Any
    splat: Any
    accumulate: Any
    accumulate_rows: Any
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
    def accumulate_rows(typingctx, sums, array, at, row, others, there, others_row):
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

        place = (types.intp, types.intp)
        return sums(sums, array, *place, others, *place), generate

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
        accumulate_rows,
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

    place = (types.intp, types.intp)
    return types.void(source, *place, target, *place), generate


@intrinsic
def pointer(typingctx, address, like):
    """Return an int64 or C pointer as a pointer to numbers like `like`."""
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
    """Return a named tuple of addresses as one of pointers to numbers like `like`."""
    kind = types.CPointer(like)
    result = types.NamedUniTuple(kind, addresses.count, addresses.instance_class)

    def generate(context, builder, signature, arguments):
        numbers = cgutils.unpack_tuple(builder, arguments[0], addresses.count)
        place = context.get_value_type(kind)
        result_pointers = [builder.inttoptr(number, place) for number in numbers]
        return context.make_tuple(builder, signature.return_type, result_pointers)

    return result(addresses, like), generate


@intrinsic
def fetch_add(typingctx, counters, index):
    """Add 1 to counters[index] and return what it was, safe among threads."""

    def generate(context, builder, signature, arguments):
        place = builder.gep(arguments[0], [arguments[1]])
        one = context.get_constant(types.int64, 1)
        return builder.atomic_rmw("add", place, one, ordering="monotonic")

    return types.int64(counters, types.intp), generate
