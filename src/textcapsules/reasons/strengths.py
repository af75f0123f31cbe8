"""One interface to every method: strengths of n-grams and of tokens, for a batch.

Couplings, contributions and erasure give strengths of n-grams. Each n-gram shares its
strength evenly among its tokens, and a token adds up its shares; so tokens and n-grams
have the same sum. Gradients give strengths of tokens; the strength of an n-gram is then
the sum of its tokens'.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from textcapsules.model.baselines.classic import ClassicSystem
from textcapsules.model.builder import System
from textcapsules.model.capsnet import CapsuleNetwork
from textcapsules.reasons.attributions import (
    document_lengths,
    erase_ngrams,
    gradient_times_input,
    integrated_gradients,
)
from textcapsules.reasons.couplings import connection_strengths, contributions, mass
from textcapsules.reasons.methods import (
    NgramPlaces,
    class_scores,
    ngram_places,
    settle_method,
)

__all__ = [
    "NgramStrengths",
    "Strengths",
    "find_strengths",
]


class NgramStrengths(NamedTuple):
    """How strongly every n-gram of one size speaks for every class."""

    size: int
    stride: int
    values: NDArray[np.float32]  # (B, P, E)
    # The token where the first n-gram begins, below 0 if n-grams reach over the text's
    # ends; the n-gram p begins at first + p · stride.
    first: int = 0


class Strengths(NamedTuple):
    """How strongly n-grams and tokens speak for every class, the orphan last."""

    lengths: NDArray[np.float32]  # (B, classes and orphan)
    ngrams: tuple[NgramStrengths, ...]  # one per size
    tokens: NDArray[np.float32]  # (B, T, E)
    leak: NDArray[np.float32] | None  # (B,); None without capsules
    orphan_share: NDArray[np.float32] | None  # (B,)


@torch.no_grad()
def find_strengths(
    network: System,
    ids: Tensor,
    mask: Tensor,
    method: str,
    classes: Sequence[int] | None = None,
) -> Strengths:
    """Explain a batch (B, T) of a network in evaluation mode.

    Args:
        network: the model.
        ids: word numbers, (B, T).
        mask: where there are words, (B, T).
        method: one of `METHODS`.
        classes: the columns E of the strengths; all, the orphan last, if None.
    """
    method = settle_method(network, method)
    output: Any = None
    if isinstance(network, ClassicSystem):
        lengths = torch.from_numpy(document_lengths(network, unpadded(ids, mask)))
    else:
        options = {"inspect": True} if isinstance(network, CapsuleNetwork) else {}
        output = network(ids, mask, **options)
        lengths = class_scores(output)
    columns = range(lengths.shape[1]) if classes is None else classes
    places = ngram_places(network)
    if method in ("gradient", "integrated"):
        assert isinstance(network, nn.Module)  # a classic system has no gradients
        find = gradient_times_input if method == "gradient" else integrated_gradients
        tokens = find(network, ids, mask, columns)  # (B, T, E)
        values = [window_sums(tokens, *place) for place in places]
    else:
        values = ngram_strengths(network, ids, mask, method, output, places)
        if classes is not None:
            values = [each[..., list(classes)] for each in values]
        tokens = sum_shares(values, places, mask)
    shares = mass(network, output) if isinstance(network, CapsuleNetwork) else None
    return Strengths(
        to_array(lengths),
        tuple(
            NgramStrengths(place.size, place.stride, to_array(each), place.first)
            for place, each in zip(places, values, strict=True)
        ),
        to_array(tokens),
        None if shares is None else to_array(shares.leak),
        None if shares is None else to_array(shares.orphan),
    )


def to_array(tensor: Tensor) -> NDArray[np.float32]:
    """Bring a tensor to the CPU as an array."""
    return tensor.float().cpu().numpy()


def ngram_strengths(
    network: Any,
    ids: Tensor,
    mask: Tensor,
    method: str,
    output: Any,
    places: Sequence[NgramPlaces],
) -> list[Tensor]:
    """Return the strengths (B, P, E) of n-grams, one tensor per size."""
    if method == "couplings":
        return connection_strengths(output)
    if method == "contributions":
        return contributions(network, output)
    strengths = []
    for place in places:
        falls = erase_ngrams(network, unpadded(ids, mask), *place)
        padded = pad_sequence([torch.from_numpy(fall) for fall in falls], True)
        strengths.append(padded.to(ids.device) / len(places))
    return strengths


def unpadded(ids: Tensor, mask: Tensor) -> list[NDArray]:
    """Return the documents of a batch."""
    return [row[inside].cpu().numpy() for row, inside in zip(ids, mask, strict=True)]


def window_sums(tokens: Tensor, size: int, stride: int, first: int) -> Tensor:
    """Return the sum of every n-gram's tokens, (B, T, E) to (B, P, E)."""
    missing = max(size - tokens.shape[1], 0) if first == 0 else -first
    padded = F.pad(tokens, (0, 0, -first, missing))
    return padded.unfold(1, size, stride).sum(-1)


def sum_shares(
    values: Sequence[Tensor], places: Sequence[NgramPlaces], mask: Tensor
) -> Tensor:
    """Share every n-gram's strength among its tokens in the text, (B, T, E).

    Args:
        values: strengths (B, P, E) of n-grams, one tensor per size.
        places: size, stride and first token of each size.
        mask: where there are words, (B, T).
    """
    (B, T), E = mask.shape, values[0].shape[2]
    n_tokens = mask.sum(1, keepdim=True)  # (B, 1)
    total = values[0].new_zeros(B, T, E)
    for ngrams, (size, stride, first) in zip(values, places, strict=True):
        P = ngrams.shape[1]
        starts = first + torch.arange(P, device=mask.device) * stride  # (P,)
        begins = starts.clamp(min=0)
        n_inside = (torch.minimum(starts + size, n_tokens) - begins).clamp(min=1)
        shares = ngrams / n_inside.unsqueeze(2)  # (B, P, E)
        reach = (P - 1) * stride
        tokens = ngrams.new_zeros(B, reach + size, E)  # from token `first` on
        for place in range(size):
            inside = (starts + place >= 0) & (starts + place < n_tokens)  # (B, P)
            tokens[:, place : place + reach + 1 : stride] += shares * inside.unsqueeze(
                2
            )
        tokens = tokens[:, -first : T - first]
        total[:, : tokens.shape[1]] += tokens
    return total
