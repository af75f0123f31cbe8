"""A vector type for numba, so that the routing kernels keep their sums in registers.

Numba turns scalar loops into vectors only where LLVM can prove that arrays do not
overlap, and it has no arrays on the stack; a tile of eight running sums is neither. So
`Vector` is one LLVM vector of 512 bits (16 float32 or 8 float64), which LLVM splits in
two or four on machines with narrower registers, and the functions below are its
instructions. An array here is a pointer to its numbers: numba's own arrays are seven
values each and counted references, which made the kernels slow to compile. Indices are
not checked.
"""

import math
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic as numba_intrinsic
from numba.extending import models, register_model

__all__ = [
    "Vector",
    "add",
    "call",
    "divide",
    "exp",
    "fma",
    "intrinsic",
    "lane_sum",
    "lanes",
    "load",
    "maximum",
    "minimum",
    "multiply",
    "read",
    "repeat",
    "splat",
    "splat_at",
    "store",
    "subtract",
    "unless_zero",
    "write",
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
    """Return a vector of one number, again and again."""
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
    """Return a function of two vectors that is one instruction of LLVM's."""

    @intrinsic
    def apply(typingctx, a, b):
        def generate(context, builder, signature, arguments):
            return getattr(builder, instruction)(*arguments)

        return a(a, a), generate

    return apply


add, subtract = on_pairs("fadd"), on_pairs("fsub")
multiply, divide = on_pairs("fmul"), on_pairs("fdiv")


@intrinsic
def maximum(typingctx, a, b):
    """Return the larger of each pair of lanes, b where either is no number."""

    def generate(context, builder, signature, arguments):
        larger = builder.fcmp_ordered(">", *arguments)
        return builder.select(larger, *arguments)

    return a(a, a), generate


@intrinsic
def minimum(typingctx, a, b):
    """Return the smaller of each pair of lanes, b where either is no number."""

    def generate(context, builder, signature, arguments):
        smaller = builder.fcmp_ordered("<", *arguments)
        return builder.select(smaller, *arguments)

    return a(a, a), generate


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
        whole = ir.VectorType(ir.IntType(bits), a.lanes)
        exponent = builder.fptosi(arguments[1], whole)
        exponent = builder.add(exponent, ir.Constant(whole, [bias] * a.lanes))
        shifted = builder.shl(exponent, ir.Constant(whole, [mantissa] * a.lanes))
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


@njit(cache=False, error_model="numpy")
def exp(x):
    """Return e^x for x <= 0 within 2 ulp, 0 where it is below the normal numbers.

    Lanes that are no number stay so. The zeros must be exact: a parent that nobody
    chooses has no direction, and any direction would have a gradient.
    """
    lowest, high, low = exp_constants(x)
    # maximum() takes its second argument where either is NaN.
    y = maximum(lowest, x)
    n = nearest(multiply(y, splat(y, LOG2_E)))
    r = fma(n, low, fma(n, high, y))
    return zero_below(lowest, x, scale_by_two(series(r), n))
