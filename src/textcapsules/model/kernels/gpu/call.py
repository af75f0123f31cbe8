"""A call of the routing kernels, and the launches that all regimes share."""

from __future__ import annotations

from threading import get_ident
from typing import Any, NamedTuple

import torch
from torch import Tensor

from textcapsules.model.kernels.gpu.maths import jit, tl
from textcapsules.model.routing.reference import RoutingOptions

# In a kernel, names have other types than pyright sees.
# pyright: reportInvalidTypeForm=false, reportPossiblyUnboundVariable=false


# Of `transform_gradient`: enough programs to fill a GPU, each with some tiles of rows.
_ROWS, _ROWS_EACH, _PROGRAMS = 64, 128, 1024
_ADDED = 64  # rows and columns that a program of `add_rows` reads at a time


class Call(NamedTuple):
    """What the forward and backward launches of one call have in common."""

    capsules: Tensor  # (B, P, C, D)
    transform: Tensor  # (J, D, H)
    bias: Tensor | None  # (J, H)
    mask: Tensor  # (B, W, K)
    gain: Tensor | None  # one number; None where weights are not normalised
    options: RoutingOptions
    precision: str
    regime: str

    @property
    def windows(self) -> int:
        """N, windows of the whole batch."""
        return self.mask.shape[0] * self.mask.shape[1]

    @property
    def children(self) -> int:
        """I, children of one window."""
        return self.mask.shape[2] * self.capsules.shape[2]

    def tiles(self) -> dict[str, int]:
        """Return the powers of two that hold J, D and H; a product needs 16 or more."""
        names = zip(("BJ", "BD", "BH"), self.transform.shape, strict=True)
        return {name: max(16, power_of_two(size)) for name, size in names}

    def inputs(self) -> tuple[Tensor, ...]:
        """Return the five tensors; a missing bias or gain is never read."""
        bias = self.transform if self.bias is None else self.bias
        gain = self.transform if self.gain is None else self.gain
        return self.capsules, self.transform, bias, self.mask, gain

    def axes(self) -> tuple[int, ...]:
        """Return P, W, C, I and the mask's strides, as every pass takes them."""
        _, P, C, _ = self.capsules.shape
        return P, self.mask.shape[1], C, self.children, *self.mask.stride()

    def constants(self) -> dict[str, int | bool | str]:
        """Return what kernels are compiled for."""
        o = self.options
        J, D, H = self.transform.shape
        return {
            "J": J, "D": D, "H": H, "R": o.iterations, "LEAKY": o.leaky,
            "AMENDMENT": o.amendment, "SQUASH": o.squash, "BIAS": self.bias is not None,
            "PRECISION": self.precision, "NORMALISE": self.gain is not None,
        }  # fmt: skip


class Gradients(NamedTuple):
    """Gradients of the outputs; None where nothing downstream read them."""

    poses: Tensor | None
    lengths: Tensor | None
    couplings: Tensor | None
    totals: Tensor | None

    def pointers(self, other: Tensor) -> tuple[Tensor, ...]:
        """Return all four, `other` in place of None: it is never read."""
        return tuple(other if g is None else g.contiguous() for g in self)

    def constants(self) -> dict[str, bool]:
        """Return which of them are given."""
        names = ("DPOSE", "DLENGTH", "DCOUPLING", "DTOTAL")
        return {name: g is not None for name, g in zip(names, self, strict=True)}


def power_of_two(size: int) -> int:
    """Return the smallest power of two that is not below `size`."""
    return 1 << max(size - 1, 0).bit_length()


class Launch(NamedTuple):
    """A kernel that is asked for, with its arguments and what it is compiled for."""

    kernel: Any
    arguments: tuple[Any, ...]
    constants: dict[str, Any]


class Asked(NamedTuple):
    """Launches that are noted in place of being made: see `compile.planned`."""

    launches: list[Launch]
    thread: int  # the one whose launches they are

    def notes(self) -> bool:
        """Tell whether this thread's launches are noted."""
        return self.thread == get_ident()


asked: Asked | None = None


def run(kernel, grid: tuple[int, ...], *arguments, num_warps: int = 4, **constants):
    """Launch a kernel with those of the constants that it takes."""
    names = {*kernel.arg_names, "maxnreg", "num_stages"}
    taken = {name: c for name, c in constants.items() if name in names}
    taken["num_warps"] = num_warps
    now = asked  # read once: another thread may end its planning meanwhile
    if now is not None and now.notes():
        now.launches.append(Launch(kernel, tuple(map(stand_in, arguments)), taken))
        return
    kernel[grid](*arguments, **taken)


def stand_in(argument: Any) -> Any:
    """Return a few numbers that a kernel is compiled for as for a tensor's."""
    if not isinstance(argument, Tensor):
        return argument
    start = argument.data_ptr() % 16 // argument.element_size()
    return argument.new_empty(17)[start:]


def new_floats(call: Call, *shape: int) -> Tensor:
    """Return fresh float32 memory on the capsules' device."""
    return torch.empty(*shape, dtype=torch.float32, device=call.capsules.device)


def new_outputs(call: Call, couplings: bool, save: bool):
    """Return memory for poses, lengths, couplings, totals (or None) and states.

    Couplings that are yet to be normalised are float32: they are rounded after that.
    """
    N, R = call.windows, call.options.iterations
    J, D, H = call.transform.shape
    like = {"dtype": call.capsules.dtype, "device": call.capsules.device}
    poses = torch.empty(N, J, H, **like)
    lengths = torch.empty(N, J, **like)
    kept = {**like, "dtype": torch.float32}
    totals = None if call.gain is None else torch.empty(N, **kept)
    some = like if totals is None else kept
    coupled = torch.empty(N, call.children, J, **some) if couplings else None
    # A backward pass reads the states of all iterations; without one, each replaces
    # the last.
    slots = (2 * R - 1, R - 1) if save else (1, 1)
    sums, pulls = (torch.empty(N, each, J * (D + 1), **kept) for each in slots)
    return poses, lengths, coupled, totals, sums, pulls


@jit
def fold_windows(
    du_ptr, out_ptr, P, W, K: tl.constexpr, size, BLOCK: tl.constexpr
):  # fmt: skip
    """Add up what the windows give a position, always in the same order."""
    position = tl.program_id(0).to(tl.int64)
    b, p = position // P, position % P
    x = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)  # type and pose entry
    total = tl.zeros((BLOCK,), tl.float32)
    for k in tl.static_range(K):  # unrolled: no load waits for another
        here = (x < size) & (p >= k) & (p - k < W)
        place = ((b * W + p - k) * K + k) * size + x
        total += tl.load(du_ptr + place, mask=here, other=0.0)
    total = total.to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + position * size + x, total, mask=x < size)


@jit
def transform_gradient(
    left_ptr, right_ptr, out_ptr, rows, rows_each, J: tl.constexpr, D: tl.constexpr,
    H: tl.constexpr, PRECISION: tl.constexpr, BR: tl.constexpr, BD: tl.constexpr,
    BH: tl.constexpr,
):  # fmt: skip
    """Write dW_j and dβ_j of a share of the rows: Σ left ⊗ right, one parent each."""
    j, part = tl.program_id(0), tl.program_id(1).to(tl.int64)
    d, h = tl.arange(0, BD), tl.arange(0, BH)
    dw = tl.zeros((BD, BH), tl.float32)
    dbias = tl.zeros((BH,), tl.float32)
    end = tl.minimum(rows, (part + 1) * rows_each)
    for start in range(part * rows_each, end, BR):
        row = start + tl.arange(0, BR)
        here = row < end
        base = left_ptr + row * (J * (D + 1))
        place = base[:, None] + j * D + d[None, :]
        left = tl.load(place, mask=here[:, None] & (d < D)[None, :], other=0.0)
        scalar = tl.load(base + J * D + j, mask=here, other=0.0)
        place = right_ptr + (row * J + j)[:, None] * H + h[None, :]
        right = tl.load(place, mask=here[:, None] & (h < H)[None, :], other=0.0)
        dw += tl.dot(tl.trans(left), right, input_precision=PRECISION)
        dbias += tl.sum(scalar[:, None] * right, 0)
    out_ptr += part * (J * (D + 1) * H)
    place = (j * D + d)[:, None] * H + h[None, :]
    tl.store(out_ptr + place, dw, mask=(d < D)[:, None] & (h < H)[None, :])
    tl.store(out_ptr + J * D * H + j * H + h, dbias, mask=h < H)


@jit
def add_rows(
    part_ptr, out_ptr, rows, columns, more_rows, more_columns, turned,
    K: tl.constexpr, F: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Add up the rows of a matrix, and of another that follows it in memory.

    The first `turned` columns, (V, K, F), are written as (F, V, K).
    """
    tile, tiles = tl.program_id(0), tl.cdiv(columns, BC)
    second = tile >= tiles
    part_ptr += tl.where(second, rows.to(tl.int64) * columns, 0)
    out_ptr += tl.where(second, columns, 0)
    x = tl.where(second, tile - tiles, tile) * BC + tl.arange(0, BC)
    turned = tl.where(second, 0, turned)
    rows = tl.where(second, more_rows, rows)
    columns = tl.where(second, more_columns, columns)
    total = tl.zeros((BR, BC), tl.float32)
    for start in range(0, rows, BR):
        row = start + tl.arange(0, BR)
        place = row[:, None].to(tl.int64) * columns + x[None, :]
        inside = (row < rows)[:, None] & (x < columns)[None, :]
        total += tl.load(part_ptr + place, mask=inside, other=0.0)
    v, k, f = x // (K * F), x // F % K, x % F
    place = tl.where(x < turned, (f * (turned // (K * F)) + v) * K + k, x)
    tl.store(out_ptr + place, tl.sum(total, 0), mask=x < columns)


def sum_rows(
    parts: Tensor,
    shape: tuple[int, int],
    more: tuple[int, int] = (0, 0),
    turned: tuple[int, int, int] = (0, 1, 1),
) -> Tensor:
    """Return the sums over the rows of one or two matrices, side by side.

    Args:
        parts: all entries of the first matrix, then all of the second.
        shape: rows and columns of the first.
        more: rows and columns of the second.
        turned: V, K and F, if the first columns are (V, K, F) and wanted as (F, V, K).
    """
    out = parts.new_empty(shape[1] + more[1])
    programs = sum(-(-columns // _ADDED) for _, columns in (shape, more))
    V, K, F = turned
    tiles = {"K": K, "F": F, "BR": _ADDED, "BC": _ADDED}
    run(add_rows, (programs,), parts, out, *shape, *more, V * K * F, **tiles)
    return out


def fold(call: Call, du: Tensor) -> Tensor:
    """Return the capsules' gradient from that of every window's children."""
    B, P, C, D = call.capsules.shape
    _, W, K = call.mask.shape
    if W == 1:
        return du.view_as(call.capsules).to(call.capsules.dtype)
    out = torch.empty_like(call.capsules)
    block = min(1024, power_of_two(C * D))
    grid = (B * P, -(-C * D // block))
    run(fold_windows, grid, du, out, P, W, K, C * D, BLOCK=block)
    return out


def reduce_transform(call: Call, left: Tensor, right: Tensor):
    """Return dW and dβ: what the iterations of all windows add up to."""
    J, D, H = call.transform.shape
    rows = left.shape[0] * left.shape[1]
    each = max(_ROWS_EACH, -(-rows * J // _PROGRAMS))
    each = -(-each // _ROWS) * _ROWS  # whole tiles
    parts = -(-rows // each)
    out = torch.empty(parts, J * (D + 1) * H, dtype=torch.float32, device=left.device)
    constants = {**call.constants(), **call.tiles(), "BR": _ROWS}
    run(transform_gradient, (J, parts), left, right, out, rows, each, **constants)
    total = sum_rows(out, (parts, out.shape[1])) if parts > 1 else out[0]
    dtransform, dbias = total.split([J * D * H, J * H])
    like = call.transform if call.bias is None else call.bias
    dtransform = dtransform.view(J, D, H).to(call.transform.dtype)
    return dtransform, dbias.view(J, H).to(like.dtype)
