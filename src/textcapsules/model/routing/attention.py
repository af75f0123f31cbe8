r"""Attention routing: parents send queries, children attend to the best match.

Inverted dot-product attention (Tsai et al., 2020) in the form of slot attention
(Locatello et al., 2020), with the paper's leak. Every parent j starts from a query
q_j, which is learnt. With keys k_i and values x_i of the children, each iteration is

    b_ij = k_i · LN(q_j + z_j) / √H         z_j = 0 at first
    c_ij = leaky softmax of b_i over j      competition: the parents share a child
    m_j  = Σ_i c_ij                         the mass that the parent gets
    z_j  = Σ_i c_ij x_i / m_j               its pose, a mean: free of the text's length

LN normalises a vector to mean 0 and deviation 1, with a learnt scale and shift. Masked
children have c_ij = 0. All of it is products of matrices and a softmax, which PyTorch's
libraries do as fast as a kernel of our own would: there is one version.
"""

from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor

from textcapsules.model.functional import coupling_softmax

__all__ = ["Attended", "attend"]

MASS_EPSILON = 1e-4  # added to a mass before division: with no child the pose is zero


class Attended(NamedTuple):
    """What attention returns; the couplings are those that made the poses."""

    poses: Tensor  # z, (B, J, H)
    mass: Tensor  # m, (B, J)
    couplings: Tensor  # c, (B, I, J)


def attend(
    keys: Float[Tensor, "b i h"],
    values: Float[Tensor, "b i h"],
    queries: Float[Tensor, "j h"],
    mask: Bool[Tensor, "b i"],
    normalise: Callable[[Tensor], Tensor],
    *,
    iterations: int = 3,
    leaky: bool = True,
    compete: bool = True,
) -> Attended:
    """Route children to J parents.

    Args:
        keys: k, what the queries are compared with, (B, I, H).
        values: x, what the poses are means of, (B, I, H).
        queries: q, where the parents start from, (J, H).
        mask: (B, I), False where a child is padding and must not vote.
        normalise: LN, of the last axis.
        iterations: how often couplings and poses are computed.
        leaky: whether a child may route to no parent.
        compete: whether the parents share a child; if not, each has a sigmoid.
    """
    if iterations < 1:
        raise ValueError(f"iterations must be at least 1; got {iterations}.")
    scaled = keys / keys.shape[-1] ** 0.5
    inside = mask.unsqueeze(1).to(keys.dtype)  # (B, 1, I)
    normed = normalise(queries).expand(len(keys), -1, -1)  # (B, J, H)
    for left in reversed(range(iterations)):
        logits = normed @ scaled.mT  # b, (B, J, I)
        shares = coupling_softmax(logits, leaky=leaky, compete=compete, dim=1)
        couplings = inside * shares
        mass = couplings.sum(2)  # (B, J)
        poses = couplings @ values / (mass + MASS_EPSILON).unsqueeze(2)  # (B, J, H)
        if left:
            normed = normalise(queries + poses)
    return Attended(poses, mass, couplings.mT)  # type: ignore[possibly-undefined]
