"""What the routing kernels are made of: small matrix products, norms, squashes.

A matrix argument is a pair (flat array, offset of its first number). Paddings are to
whole vectors, of the parents to a multiple of four; they hold zeros, so that no loop
needs a remainder.
"""

import math

from numba import njit

from textcapsules.model.routing.cpu_simd import (
    add,
    divide,
    fma,
    lane_sum,
    lanes,
    load,
    maximum,
    minimum,
    multiply,
    rows_of,
    splat,
    splat_at,
    store,
    subtract,
)

__all__ = [
    "ROWS",
    "SQUASH_CODES",
    "add_lengths_back",
    "compiled",
    "dot_rows",
    "each_times",
    "fill",
    "norm_rows",
    "product",
    "round_up",
    "safe_norm",
    "squash_lengths",
    "squash_rows",
    "squash_rows_back",
    "sum_rows",
]

ROWS = 4  # rows that are computed together, so that no sum waits for itself
SQUASH_CODES = {"none": 0, "norm": 1, "sabour": 2, "released": 3, "exp": 4, "tanh": 5}
NONE, NORM, SABOUR, RELEASED, EXP, TANH = range(6)
SATURATED = 1e9  # as in model.functional

compiled = njit(nogil=True, error_model="numpy")


@compiled
def fill(out, start, n, number):
    """Set out[start : start + n], whole vectors, to a number."""
    x = splat(out, number)
    for i in range(start, start + n, lanes(out)):
        store(out, i, x)


@compiled
def round_up(n, step):
    """Return the multiple of `step` that is n or the next."""
    return (n + step - 1) // step * step


def product_of(count):
    """Return a function that multiplies `count` rows; see `add_product`."""
    load_rows, splat_rows, accumulate, _, save_rows = rows_of(count)

    @njit(inline="always")
    def multiply_rows(left, right, out, o_row, depth, start):
        (a, p, l_row, l_column), (b, q, r_row), (c, o) = left, right, out
        offsets, at = start
        if at >= 0:
            sums = splat_rows(offsets, at)
        else:
            sums = load_rows(c, o, o_row)
        for _ in range(depth):
            sums = accumulate(sums, a, p, l_row, load(b, q))
            p += l_column
            q += r_row
        save_rows(sums, c, o, o_row)

    return multiply_rows


eight_rows, four_rows = product_of(8), product_of(4)


@compiled
def product(left, right, out, o_row, shape, start):
    """Multiply left (rows, depth) with right (depth, columns) and add it to out.

    Args:
        left: its array, offset, and steps to the next row and to the next column.
        right: its array, offset, and step to the next row.
        out: its array and offset.
        o_row: its step to the next row.
        shape: rows, a multiple of four; depth; columns, rounded up to whole vectors.
        start: numbers, one a row, that out starts from, and the offset of the first;
            where that is negative, out starts from what it holds.
    """
    (a, a0, l_row, l_column), (b, b0, r_row), (c, c0) = left, right, out
    rows, depth, columns = shape
    offsets, at = start
    for n in range(0, columns, lanes(c)):
        there = (b, b0 + n, r_row)
        for m in range(0, rows - 4, 8):
            here = (a, a0 + m * l_row, l_row, l_column)
            place = (c, c0 + m * o_row + n)
            origin = (offsets, at + m if at >= 0 else at)
            eight_rows(here, there, place, o_row, depth, origin)
        if rows & 4:
            m = rows - 4
            here = (a, a0 + m * l_row, l_row, l_column)
            place = (c, c0 + m * o_row + n)
            origin = (offsets, at + m if at >= 0 else at)
            four_rows(here, there, place, o_row, depth, origin)


load_four, _, _, accumulate_own, save_four = rows_of(4)


@compiled
def each_times(left, l_row, depth, stack, s_row, start, out, o_row, rows):
    """Set each row of out to start's row plus its row of left times its own matrix.

    The matrices lie in `stack`, `s_row` numbers apart, `o_row` columns each.
    """
    (a, a0), (b, b0), (c, c0), (d, d0) = left, stack, start, out
    for m in range(0, rows, 4):
        for n in range(0, o_row, lanes(d)):
            o, p, q = m * o_row + n, a0 + m * l_row, b0 + m * s_row + n
            sums = load_four(c, c0 + o, o_row)
            for _ in range(depth):
                sums = accumulate_own(sums, a, p, l_row, b, q, s_row)
                p += 1
                q += o_row
            save_four(sums, d, d0 + o, o_row)


@compiled
def safe_norm(values, start, n):
    """Return a norm that neither overflows nor vanishes, as model.functional does."""
    largest = values[start] * 0
    for i in range(start, start + n):
        largest = max(largest, abs(values[i]))
    scale = largest if largest > 0 else largest + 1
    total = largest * 0
    for i in range(start, start + n):
        total += (values[i] / scale) ** 2
    return math.sqrt(total) * scale


@compiled
def sum_rows(matrix, row, columns, rows, out):
    """Add each row, lane by lane, to its vector of out; columns are whole vectors."""
    (a, a0), step = matrix, lanes(out)
    for j in range(rows):
        total = load(out, j * step)
        for i in range(a0 + j * row, a0 + j * row + columns, step):
            total = add(total, load(a, i))
        store(out, j * step, total)


@compiled
def norm_rows(matrix, row, n, norms, first):
    """Set norms[first:] to the norms of n rows, padded with zeros."""
    a, a0 = matrix
    for j in range(n):
        total = splat(a, 0.0)
        for h in range(a0 + j * row, a0 + (j + 1) * row, lanes(a)):
            x = load(a, h)
            total = fma(x, x, total)
        square = lane_sum(total)
        # Squares of other norms leave the range of float32, or lose digits at its end.
        if 1e-30 < square < 1e30:
            norms[first + j] = math.sqrt(square)
        else:
            norms[first + j] = safe_norm(a, a0 + j * row, row)


@compiled
def dot_rows(left, right, l_row, r_row, columns, rows, out, first):
    """Add the products of each row of left with its row of right to out[first:]."""
    (a, a0), (b, b0) = left, right
    for j in range(rows):
        total = splat(a, 0.0)
        for h in range(0, columns, lanes(a)):
            total = fma(load(a, a0 + j * l_row + h), load(b, b0 + j * r_row + h), total)
        out[first + j] += lane_sum(total)


@compiled
def squash_lengths(kind, norms, first, n, out):
    """Set out[first:] to f(norm), the lengths of the squashed poses."""
    if kind == EXP or kind == TANH:
        for j in range(first, first + n):
            x = min(norms[j], SATURATED)
            out[j] = math.tanh(x) if kind == TANH else -math.expm1(-x)
        return
    most, one = splat(norms, SATURATED), splat(norms, 1.0)
    half = splat(norms, 0.5)
    for j in range(first, first + n, lanes(norms)):
        x = minimum(most, load(norms, j))
        if kind == NORM:
            x = divide(x, add(one, x))
        elif kind != NONE:
            square = multiply(x, x)
            x = divide(square, add(one if kind == SABOUR else half, square))
        else:
            x = load(norms, j)
        store(out, j, x)


@compiled
def smallest(like):
    """Return the smallest normal number of an array's type."""
    return 1.1754943508222875e-38 if lanes(like) == 16 else 2.2250738585072014e-308


@compiled
def squash_slope(kind, x):
    """Return f'(x)."""
    if kind == NONE:
        return 1.0
    if x > SATURATED:
        return 0.0
    if kind == NORM:
        return 1 / (1 + x) ** 2
    if kind == EXP:
        return math.exp(-x)
    if kind == TANH:
        return 0.0 if x > 300 else 1 / math.cosh(x) ** 2
    shift = 1.0 if kind == SABOUR else 0.5
    return 2 * shift * x / (shift + x * x) ** 2


@compiled
def squash_rows(kind, inputs, row, n, norms, lengths, first, poses):
    """Set the poses to f(norm) times the direction of the inputs."""
    (t, t0), (v, v0) = inputs, poses
    least = splat(norms, smallest(norms))
    for j in range(n):
        norm = maximum(splat_at(norms, first + j), least)
        length = splat_at(lengths, first + j)
        for h in range(j * row, (j + 1) * row, lanes(t)):
            x = load(t, t0 + h)
            store(v, v0 + h, x if kind == NONE else multiply(length, divide(x, norm)))


@compiled
def squash_rows_back(kind, inputs, row, n, norms, lengths, first, d_poses):
    """Turn the gradient of the poses, in place, into that of the inputs.

    dt = f/x dv + (f' - f/x) (e·dv) e with e the direction; 0 where the norm x is 0.
    """
    (t, t0), (g, g0) = inputs, d_poses
    if kind == NONE:
        return
    least = splat(norms, smallest(norms))
    for j in range(n):
        norm = maximum(splat_at(norms, first + j), least)
        along = splat(norms, 0.0)
        for h in range(j * row, (j + 1) * row, lanes(t)):
            along = fma(divide(load(t, t0 + h), norm), load(g, g0 + h), along)
        across = divide(splat_at(lengths, first + j), norm)
        slope = splat(norms, squash_slope(kind, norms[first + j]))
        along = multiply(subtract(slope, across), splat(norms, lane_sum(along)))
        for h in range(j * row, (j + 1) * row, lanes(t)):
            forth = divide(load(t, t0 + h), norm)
            store(g, g0 + h, fma(along, forth, multiply(across, load(g, g0 + h))))


@compiled
def add_lengths_back(inputs, row, n, norms, first, d_lengths, d_first, d_poses):
    """Add the lengths' gradient to the poses': each along its own direction."""
    (t, t0), (g, g0) = inputs, d_poses
    least = splat(norms, smallest(norms))
    for j in range(n):
        norm = maximum(splat_at(norms, first + j), least)
        slope = splat_at(d_lengths, d_first + j)
        for h in range(j * row, (j + 1) * row, lanes(t)):
            forth = divide(load(t, t0 + h), norm)
            store(g, g0 + h, fma(slope, forth, load(g, g0 + h)))
