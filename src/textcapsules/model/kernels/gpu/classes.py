"""Triton kernels that route long windows in chunks of children, in parallel.

The maths and the states are those of `gpu_conv`. Each iteration is a pass over the
children by programs that own a chunk of them and write partial sums, then a step of the
parents that adds these up, always in the same order.

With few parents the step is *fused* into the next pass: every program of it does the
whole step for itself, which is cheaper than one more launch. With many, the step is a
kernel of its own over tiles of parents, the softmax's maximum and total come from a
pass before the sums, and memory grows with children plus parents, never their product.
"""

from __future__ import annotations

import torch
from torch import Tensor

from textcapsules.model.kernels.gpu.call import (
    Call,
    Gradients,
    new_outputs,
    power_of_two,
    run,
)
from textcapsules.model.kernels.gpu.chunks import (
    gather_children,
    gather_uniform,
    scatter_children,
    scatter_uniform,
    step_kernel,
    unstep_kernel,
)
from textcapsules.model.kernels.gpu.tiles import (
    normalise_children,
    pull_tiles,
    scatter_tiles,
)

# Inside kernels nothing has the type it seems to have.
# pyright: reportInvalidTypeForm=false, reportPossiblyUnboundVariable=false

# Entries of W in one tile of the step's own kernel.
_STEP_TRANSFORM = 4096
# Children, and where parents are tiled also those, in a tile.
_TILE, _PARENTS = 64, 64
_WARPS, _TILED_WARPS = 4, 8
# Of a thread of a normalised backward pass, where W is small: the compiler would take
# 217, and two programs would fit on a multiprocessor where three did.
_REGISTERS = 168
# About three programs for each of an H200's 132 multiprocessors.
_PROGRAMS = 400


class _Chunks:
    """How one call is cut up, and the launches that its passes share."""

    def __init__(self, call: Call, **constants: bool) -> None:
        self.call, self.fused = call, call.regime == "chunks"
        self.N, self.I = call.windows, call.children
        self.state = call.transform.shape[0] * (call.transform.shape[1] + 1)
        tiles = call.tiles()
        tiles["BJ"] = tiles["BJ"] if self.fused else min(_PARENTS, tiles["BJ"])
        tile = min(_TILE, max(16, power_of_two(self.I)))
        self.parent_tiles = -(-call.transform.shape[0] // tiles["BJ"])
        self.child_tiles = -(-self.I // tile)
        self.each, self.parts = self.cut(tile, self.N * self.parent_tiles)
        # The first pass has one sum for all parents: it may be cut finer.
        self.first_each, self.first_parts = self.cut(tile, self.N)
        self.constants = {
            **call.constants(), **tiles, **constants, "BI": tile, "FUSED": self.fused,
            "num_warps": _WARPS if self.fused else _TILED_WARPS,
            "BS": min(16, max(2, power_of_two(self.first_parts))),
        }  # fmt: skip
        step = max(1, _STEP_TRANSFORM // (tiles["BD"] * tiles["BH"]))
        self.step_tile = min(step, power_of_two(call.transform.shape[0]))
        self.step_tiles = -(-call.transform.shape[0] // self.step_tile)
        # Numbers that a window's Q is the sum of: one per iteration and step's tile.
        self.slopes = call.options.iterations * (1 if self.fused else self.step_tiles)
        small = tiles["BJ"] * tiles["BD"] * tiles["BH"] <= _STEP_TRANSFORM
        limited = self.fused and small and call.gain is not None
        self.registers = _REGISTERS if limited else None

    def cut(self, tile: int, programs: int) -> tuple[int, int]:
        """Return the children of a chunk and the chunks, given programs to each."""
        wanted = min(max(1, _PROGRAMS // programs), self.child_tiles)
        each = tile * -(-self.child_tiles // wanted)
        return each, -(-self.I // each)

    def floats(self, *shape: int) -> Tensor:
        """Return fresh memory on the capsules' device."""
        return torch.empty(*shape, dtype=torch.float32, device=self.call.mask.device)

    def new_parts(self, r: int) -> Tensor:
        """Return memory for a pass's partial states; the first has one for all."""
        if r == 0:
            return self.floats(
                self.N, self.first_parts, self.call.transform.shape[1] + 1
            )
        return self.floats(self.N, self.parts, self.state)

    def launch(self, kernel, grid: tuple[int, ...], *arguments, **constants) -> None:
        """Launch a kernel with those of the constants that it takes."""
        run(kernel, grid, *arguments, **{**self.constants, **constants})

    def launch_step(self, kernel, *arguments, parts: int, r: int) -> None:
        """Launch a kernel of the parents' step over tiles of parents."""
        grid = (self.N, self.step_tiles)
        self.launch(kernel, grid, *arguments, parts, r=r, BJ=self.step_tile)


def forward(call: Call, couplings: bool, save: bool):
    """Return poses, lengths, couplings, totals (or None), and what `backward` needs."""
    poses, lengths, found, totals, sums, pulls = new_outputs(call, couplings, True)
    chunks, R = _Chunks(call, COUPLINGS=couplings), call.options.iterations
    u, w, bias, mask, gain = call.inputs()
    c = poses if found is None else found
    T = sums if totals is None else totals
    norms = chunks.floats(0 if chunks.fused else R - 1, chunks.N, 2, chunks.I)
    grid = (chunks.N, chunks.parts, chunks.parent_tiles)
    parts, axes = chunks.new_parts(0), (*call.axes(), chunks.first_each)
    chunks.launch(
        gather_uniform, (chunks.N, chunks.first_parts), u, mask, c, parts, *axes
    )
    for r in range(1, R):
        before, parts, norm = parts, chunks.new_parts(r), parts
        if not chunks.fused:
            norm = norms[r - 1]
            states = (w, bias, gain, T, sums, pulls, before, poses, lengths)
            chunks.launch_step(step_kernel, *states, parts=before.shape[1], r=r - 1)
            tiles = (chunks.N, chunks.child_tiles)
            ends = (u, mask, pulls, norm, *call.axes())
            chunks.launch(normalise_children, tiles, *ends, r=r)
        chunks.launch(
            gather_children, grid, u, w, bias, mask, gain, c, T, sums,
            pulls, norm, before, parts, *call.axes(), chunks.each, r=r,
        )  # fmt: skip
    states = (w, bias, gain, T, sums, pulls, parts, poses, lengths)
    chunks.launch_step(step_kernel, *states, parts=parts.shape[1], r=R - 1)
    kept = (sums, pulls, norms) if save else (None,) * 3
    return poses, lengths, found, totals, *kept


def backward(call: Call, gradients: Gradients, saved: tuple[Tensor, ...]):
    """Return du of every window's children, the right factors of dW, and Q or None."""
    totals, sums, pulls, norms = saved
    chunks, R = _Chunks(call, **gradients.constants()), call.options.iterations
    u, w, bias, mask, gain = call.inputs()
    dpose, dlength, dcoupling, dtotal = gradients.pointers(sums)
    J, D, H = call.transform.shape
    right = chunks.floats(chunks.N, 2 * R - 1, J, H)
    du = chunks.floats(chunks.N, chunks.I, D)
    slopes = None if totals is None else chunks.floats(chunks.N, chunks.slopes)
    T, Q = (sums, sums) if slopes is None else (totals, slopes)
    dsum, da = chunks.floats(chunks.N, chunks.state), chunks.floats(chunks.N, chunks.I)
    grid = (chunks.N, chunks.parts)
    parts = sums
    for r in range(R - 1, 0, -1):
        before, parts = parts, chunks.new_parts(r)
        if chunks.fused:
            chunks.launch(
                scatter_children, grid, u, w, bias, mask, gain, dpose, dlength,
                dcoupling, T, sums, pulls, right, Q, du, before, parts, *call.axes(),
                chunks.each, r=r, maxnreg=chunks.registers,
            )  # fmt: skip
            continue
        states = (w, bias, gain, dpose, dlength, T, sums, right, Q, before, dsum)
        chunks.launch_step(unstep_kernel, *states, parts=chunks.parts, r=r)
        inputs = (u, mask, dcoupling, pulls, norms[r - 1], dsum)
        some = {"r": r, "DCOUPLING": gradients.couplings is not None and r == R - 1}
        tiles = (chunks.N, chunks.child_tiles)
        chunks.launch(scatter_tiles, tiles, *inputs, du, da, *call.axes(), **some)
        ends = (da, parts, *call.axes(), chunks.each)
        chunks.launch(pull_tiles, (*grid, chunks.parent_tiles), *inputs, *ends, **some)
    if not chunks.fused:
        states = (w, bias, gain, dpose, dlength, T, sums, right, Q, parts, dsum)
        chunks.launch_step(unstep_kernel, *states, parts=chunks.parts, r=0)
    chunks.launch(
        scatter_uniform, (chunks.N, chunks.first_parts), u, w, bias, mask, gain,
        dpose, dlength, dcoupling, dtotal, T, sums, right, Q, du, parts, dsum,
        *call.axes(), chunks.first_each, SLOPES=chunks.slopes,
    )  # fmt: skip
    return du, right, slopes
