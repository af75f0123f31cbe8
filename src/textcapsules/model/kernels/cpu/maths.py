"""The algebra of the CPU kernels: small matrix products, norms, squashes.

A matrix argument is a pair (flat array, offset of its first number). Sizes are padded
to whole vectors, the number of parents to a multiple of four; paddings hold zeros, so
that no loop needs a remainder.
"""

import math

from textcapsules.model.kernels.cpu.call import CHUNK_VECTORS
from textcapsules.model.kernels.cpu.link import compiled, merged
from textcapsules.model.kernels.cpu.simd import (
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
    "add_lengths_back",
    "add_logits_product",
    "add_product",
    "dot_rows",
    "each_times",
    "fill",
    "logits_row",
    "norm_rows",
    "round_up",
    "safe_norm",
    "set_product",
    "smallest",
    "squash_lengths",
    "squash_rows",
    "squash_rows_back",
    "sum_rows",
]

NONE, NORM, SABOUR, RELEASED, EXP, TANH = range(6)
SATURATED = 1e9  # as in model.functional


@merged
def fill(out, start, n, number):
    """Set out[start : start + n], whole vectors, to a number."""
    x = splat(out, number)
    for i in range(start, start + n, lanes(out)):
        store(out, i, x)


@merged
def round_up(n, step):
    """Return the multiple of `step` that is n or the next."""
    return (n + step - 1) // step * step


def tile_of(count, step, fresh):
    """Return a function that computes one vector of each of `count` rows."""
    rows = rows_of(count, step)
    load_rows, zero_rows, add_rows = rows.load, rows.zero, rows.add
    splat_rows, accumulate, save_rows = rows.splat, rows.accumulate, rows.save

    # Inlined by numba: as a call, its arguments would go through memory every time.
    @merged
    def tile(left, right, out, start, depth):
        (a, p, l_column), (b, q, r_row), (c, o, o_row) = left, right, out
        offsets, at = start
        sums = splat_rows(offsets, at) if fresh else zero_rows(c)
        for _ in range(depth):
            sums = accumulate(sums, a, p, load(b, q))
            p += l_column
            q += r_row
        if not fresh:  # added last: short sums of short sums lose fewer digits
            sums = add_rows(load_rows(c, o, o_row), sums)
        save_rows(sums, c, o, o_row)

    return tile


def product_of(step, fresh):
    """Return a function that multiplies left (rows, depth) with right (depth, columns).

    Its arguments are those two matrices, the result (added to, or if `fresh`, started
    from one number per row), and rows, a multiple of four, depth and columns, rounded
    up to whole vectors. A matrix is its array, offset and the step to the next row;
    left's step to the next row is `step`, known when compiling, and the one given leads
    to the next column.
    """
    eight_rows, four_rows = tile_of(8, step, fresh), tile_of(4, step, fresh)

    @compiled
    def product(left, right, out, start, shape):
        (a, a0, l_column), (b, b0, r_row), (c, c0, o_row) = left, right, out
        (offsets, at), (rows, depth, columns) = start, shape
        l_row = step(lanes(c))
        for n in range(0, columns, lanes(c)):
            there = (b, b0 + n, r_row)
            for m in range(0, rows - 4, 8):
                here = (a, a0 + m * l_row, l_column)
                place = (c, c0 + m * o_row + n, o_row)
                eight_rows(here, there, place, (offsets, at + m), depth)
            if rows & 4:
                m = rows - 4
                here = (a, a0 + m * l_row, l_column)
                place = (c, c0 + m * o_row + n, o_row)
                four_rows(here, there, place, (offsets, at + m), depth)

    return product


@merged
def one_number(step):
    """Return the step to the next row of a left matrix that is held by columns."""
    return 1


@merged
def logits_row(step):
    """Return the step to the next row of logits: an odd number of vectors.

    So that rows read together do not fall on the same places of the cache.
    """
    return (CHUNK_VECTORS + 1) * step


set_product = product_of(one_number, True)
add_product = product_of(one_number, False)
add_logits_product = product_of(logits_row, False)

four = rows_of(4, one_number)
load_four, accumulate_rows, save_four = four.load, four.accumulate_rows, four.save


@compiled
def each_times(left, l_row, depth, stack, s_row, start, out, o_row, rows):
    """Set each row of out to start's row plus left's row times the row's own matrix.

    The matrices lie in `stack`, `s_row` numbers apart, `o_row` columns each.
    """
    (a, a0), (b, b0), (c, c0), (d, d0) = left, stack, start, out
    for m in range(0, rows, 4):
        for n in range(0, o_row, lanes(d)):
            o, p, q = m * o_row + n, a0 + m * l_row, b0 + m * s_row + n
            sums = load_four(c, c0 + o, o_row)
            for _ in range(depth):
                sums = accumulate_rows(sums, a, p, l_row, b, q, s_row)
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
        # Other squares leave the range of float32, or lose digits at its ends.
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
    if kind in (EXP, TANH):
        for j in range(first, first + n):
            x = min(norms[j], SATURATED)
            out[j] = math.tanh(x) if kind == TANH else -math.expm1(-x)
        return
    largest, one = splat(norms, SATURATED), splat(norms, 1.0)
    half = splat(norms, 0.5)
    for j in range(first, first + n, lanes(norms)):
        x = minimum(largest, load(norms, j))
        if kind == NORM:
            x = divide(x, add(one, x))
        elif kind != NONE:
            square = multiply(x, x)
            x = divide(square, add(one if kind == SABOUR else half, square))
        else:
            x = load(norms, j)
        store(out, j, x)


@merged
def smallest(like):
    """Return the smallest normal number of an array's type."""
    return 1.1754943508222875e-38 if lanes(like) == 16 else 2.2250738585072014e-308


@merged
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
    floor = splat(norms, smallest(norms))
    for j in range(n):
        norm = maximum(splat_at(norms, first + j), floor)
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
    floor = splat(norms, smallest(norms))
    for j in range(n):
        norm = maximum(splat_at(norms, first + j), floor)
        along = splat(norms, 0.0)
        for h in range(j * row, (j + 1) * row, lanes(t)):
            along = fma(divide(load(t, t0 + h), norm), load(g, g0 + h), along)
        ratio = divide(splat_at(lengths, first + j), norm)
        slope = splat(norms, squash_slope(kind, norms[first + j]))
        along = multiply(subtract(slope, ratio), splat(norms, lane_sum(along)))
        for h in range(j * row, (j + 1) * row, lanes(t)):
            unit = divide(load(t, t0 + h), norm)
            store(g, g0 + h, fma(along, unit, multiply(ratio, load(g, g0 + h))))


@compiled
def add_lengths_back(inputs, row, n, norms, first, d_lengths, d_first, d_poses):
    """Add the gradient of the lengths to that of the poses, along their directions."""
    (t, t0), (g, g0) = inputs, d_poses
    floor = splat(norms, smallest(norms))
    for j in range(n):
        norm = maximum(splat_at(norms, first + j), floor)
        slope = splat_at(d_lengths, d_first + j)
        for h in range(j * row, (j + 1) * row, lanes(t)):
            unit = divide(load(t, t0 + h), norm)
            store(g, g0 + h, fma(slope, unit, load(g, g0 + h)))
