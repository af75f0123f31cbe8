"""Squash, leaky softmax and capsule length: pure functions of tensors.

The letters of shapes, here and everywhere: B batch, T tokens, V embedding size, F
filters, I children, J parents, D size of a child's pose, H size of a parent's pose,
C primary capsule types, P positions, K positions in a window, W windows.

A squash keeps a pose's direction and maps its norm x to a length f(x). All of them but
`none` have f(x) < 1, so that a length can be read as a probability of existence.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = [
    "GPU_SQUASHES",
    "SQUASHES",
    "check_squash",
    "coupling_softmax",
    "leaky_softmax",
    "pose_length",
    "squash",
]

# Norms beyond this are the same to every bounded f in float64, but their squares would
# overflow float32.
_SATURATED = 1e9

# f(x), the length of a squashed pose; table A.4 compares norm, exp, tanh and none. The
# name of a new one also goes into config/sections.py. Kernels that do not have it (CPU:
# SQUASH_CODES, GPU: GPU_SQUASHES) leave it to plain code; an ONNX export refuses it.
SQUASHES: dict[str, Callable[[Tensor], Tensor]] = {
    "norm": lambda x: x / (1 + x),
    "sabour": lambda x: x * x / (1 + x * x),
    "released": lambda x: x * x / (0.5 + x * x),
    "exp": lambda x: -torch.expm1(-x),
    "tanh": torch.tanh,
}
# Those that kernels/gpu/maths.py has; named here, where Triton need not be installed.
GPU_SQUASHES = ("norm", "sabour", "released", "exp", "tanh")


def pose_length(poses: Float[Tensor, "*n d"]) -> Float[Tensor, "*n"]:
    """Return the Euclidean norm of each pose, with gradient zero at zero.

    The poses are scaled by their largest entry first, so that neither huge nor tiny
    ones leave the range of the float type when squared.
    """
    largest = poses.detach().abs().amax(-1, keepdim=True)  # (..., 1)
    scale = torch.where(largest > 0, largest, torch.ones_like(largest))
    return torch.linalg.vector_norm(poses / scale, dim=-1) * scale.squeeze(-1)


def squash(poses: Float[Tensor, "*n d"], kind: str = "norm") -> Float[Tensor, "*n d"]:
    """Return the poses with their norm x replaced by f(x), g in the paper.

    >>> squash(torch.tensor([3.0, 4.0]))
    tensor([0.5000, 0.6667])
    """
    if kind == "none":
        return poses
    check_squash(kind)
    norm = pose_length(poses).unsqueeze(-1)  # (..., 1)
    # The smallest normal number in place of zero: 0 / tiny = 0, and no NaN gradient.
    direction = poses / norm.clamp(min=torch.finfo(poses.dtype).tiny)
    return SQUASHES[kind](norm.clamp(max=_SATURATED)) * direction


def check_squash(kind: str) -> None:
    """Refuse a name of no way to shorten poses."""
    if kind not in (*SQUASHES, "none"):
        names = ", ".join([*SQUASHES, "none"])
        raise ValueError(f"squash must be one of {names}; got {kind!r}.")


def leaky_softmax(logits: Float[Tensor, "*n"], dim: int = -1) -> Float[Tensor, "*n"]:
    """Softmax over the parents and one more, of logit zero, that is then left out.

    So a child may route to no parent: its couplings sum to less than one.
    """
    leak = torch.zeros_like(logits.narrow(dim, 0, 1))
    return torch.softmax(torch.cat([logits, leak], dim), dim).narrow(
        dim, 0, logits.shape[dim]
    )


def coupling_softmax(
    logits: Float[Tensor, "*n"], *, leaky: bool, compete: bool = True, dim: int = -1
) -> Float[Tensor, "*n"]:
    """Leaky or plain softmax over the parents, which lie along `dim`.

    Parents that do not `compete` have a sigmoid each, so that one parent's gain is not
    another's loss. Logits of zero give the same couplings as the softmax.
    """
    if compete:
        return leaky_softmax(logits, dim) if leaky else torch.softmax(logits, dim)
    n_others = logits.shape[dim] if leaky else logits.shape[dim] - 1
    return torch.sigmoid(logits - math.log(n_others) if n_others else logits + math.inf)
