"""Strengths of tokens from gradients: the usual rivals of reading the couplings.

Gradient times input is x_t · ∂a_j/∂x_t for the word vector x_t: how the length a_j of a
class would change, to first order, if the word faded. Integrated gradients
(Sundararajan et al., 2017) average that gradient along the way from zero vectors to the
text's, so that the strengths add up to a_j(text) - a_j(zero vectors), up to the error
of the sum. A network without capsules has its logit in place of a length: its scores
are flat where it is sure.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

__all__ = ["STEPS", "gradient_times_input", "integrated_gradients"]

STEPS = 16  # points on the way from zero vectors to the text


def gradient_times_input(
    network: nn.Module, ids: Tensor, mask: Tensor, classes: Sequence[int]
) -> Tensor:
    """Return x_t · ∂a_j/∂x_t for every token and some classes, (B, T, len(classes))."""
    return _strengths(network, ids, mask, classes, scales=[1.0])


def integrated_gradients(
    network: nn.Module,
    ids: Tensor,
    mask: Tensor,
    classes: Sequence[int],
    *,
    steps: int = STEPS,
) -> Tensor:
    """Return the strengths along the way from zero, by the midpoint rule."""
    scales = [(step + 0.5) / steps for step in range(steps)]
    return _strengths(network, ids, mask, classes, scales)


@torch.enable_grad()
def _strengths(
    network: nn.Module,
    ids: Tensor,
    mask: Tensor,
    classes: Sequence[int],
    scales: Sequence[float],
) -> Tensor:
    """Return x_t times the mean gradient at scaled word vectors, (B, T, classes)."""
    total = ids.new_zeros((*ids.shape, len(classes)), dtype=torch.float32)
    for scale in scales:
        # cuDNN's LSTM has no backward pass outside training.
        with (
            faded_words(network.get_submodule("embedding"), scale) as words,
            torch.backends.cudnn.flags(enabled=False),
        ):
            output = network(ids, mask)
        (vectors,) = words  # (B, T, V), or longer where padding votes
        lengths = output.lengths(orphan=True)  # (B, E)
        for place, number in enumerate(classes):
            (slopes,) = torch.autograd.grad(
                lengths[:, number].sum(), vectors, retain_graph=True
            )
            strength = (slopes * vectors.detach()).sum(-1) / scale  # (B, T)
            total[..., place] += strength[:, : ids.shape[1]]
    return total * mask.unsqueeze(-1) / len(scales)


@contextmanager
def faded_words(embedding: nn.Module, scale: float) -> Iterator[list[Tensor]]:
    """Scale what an embedding returns, and keep it to be differentiated by."""
    kept: list[Tensor] = []

    def fade(_module: nn.Module, _inputs: tuple, vectors: Tensor) -> Tensor:
        kept.append((vectors.detach() * scale).requires_grad_())
        return kept[-1]

    hook = embedding.register_forward_hook(fade)
    try:
        yield kept
    finally:
        hook.remove()
