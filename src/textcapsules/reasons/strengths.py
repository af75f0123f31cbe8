"""One interface to every method: strengths of n-grams and of tokens, for a batch.

Couplings are of n-grams. Each n-gram shares its strength evenly among its tokens, and a
token adds up its shares; so tokens and n-grams have the same sum. All other methods
give strengths of tokens; the strength of an n-gram is then the sum of its tokens'.

Where a linear model of words is added (`model.word_scores`), tokens have their share
of it too. Couplings are the network's alone.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from textcapsules.model.baselines.classic import ClassicSystem
from textcapsules.model.builder import System
from textcapsules.model.capsnet import CapsuleNetwork
from textcapsules.model.network import ClassOutput, Network
from textcapsules.reasons.attributions import (
    document_lengths,
    erase_ngrams,
    faded_words,
    gradient_times_input,
    integrated_gradients,
)
from textcapsules.reasons.couplings import branches_of, connection_strengths, mass
from textcapsules.reasons.methods import (
    NgramPlaces,
    check_usable,
    class_scores,
    ngram_places,
    places_of,
)
from textcapsules.reasons.samples import correct_strengths
from textcapsules.reasons.word_contributions import word_contributions

__all__ = [
    "NgramStrengths",
    "Strengths",
    "by_place",
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
    of_ngrams: bool = False  # whether the method knows n-grams, and no single tokens


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
    check_usable(network, method)
    output: Any = None
    vectors: list[Tensor] = []
    if isinstance(network, ClassicSystem):
        lengths = torch.from_numpy(document_lengths(network, unpadded(ids, mask)))
    elif isinstance(network, CapsuleNetwork):
        with faded_words(network.embedding, 1.0) as vectors:
            output = network(ids, mask, inspect=True)
        lengths = class_scores(network, output, ids, mask)
    else:
        output = network(ids, mask)
        lengths = class_scores(network, output, ids, mask)
    columns = list(range(lengths.shape[1]) if classes is None else classes)
    places = ngram_places(network)
    if method == "couplings":
        assert isinstance(network, CapsuleNetwork)  # `check_usable` has seen to it
        coupled = by_place(network, connection_strengths(network, output))
        values = [each[..., columns] for each in coupled]
        tokens = sum_shares(values, places, mask)
    else:
        tokens = token_strengths(network, ids, mask, method, columns, output, vectors)
        values = [window_sums(tokens, *place) for place in places]
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
        method == "couplings",
    )


def by_place(network: CapsuleNetwork, values: Sequence[Tensor]) -> list[Tensor]:
    """Add up the values (B, P, E) of n-gram networks that read the same n-grams.

    What is left is in the order of `ngram_places`.
    """
    total: dict[NgramPlaces, Tensor] = {}
    for branch, each in zip(branches_of(network), values, strict=True):
        place = places_of(branch)
        total[place] = total[place] + each if place in total else each
    return list(total.values())


def token_strengths(
    network: Any,
    ids: Tensor,
    mask: Tensor,
    method: str,
    columns: Sequence[int],
    output: Any,
    vectors: Sequence[Tensor],
) -> Tensor:
    """Return the strengths (B, T, E) of tokens by a method that has them."""
    if method == "erasure":
        falls = erase_ngrams(network, unpadded(ids, mask), 1, 1)  # (n, E) each
        padded = ids.new_zeros((*ids.shape, len(columns)), dtype=torch.float32)
        for row, fall in zip(padded, falls, strict=True):
            row[: len(fall)] = torch.from_numpy(fall[:, columns])
        return padded * mask.unsqueeze(2)
    if method == "gradient":
        given = gradient_times_input(network, ids, mask, columns)
    elif method == "integrated":
        given = integrated_gradients(network, ids, mask, columns)
    else:
        given = word_contributions(network, output, vectors[0], mask, columns)
    given = given + words_say(network, output, ids, mask, columns)
    if method == "sampled":
        documents = unpadded(ids, mask)
        parts = [
            to_array(row[: len(document)])
            for row, document in zip(given, documents, strict=True)
        ]
        corrected = correct_strengths(network, documents, parts, columns)
        for row, values in zip(given, corrected, strict=True):
            row[: len(values)] = torch.from_numpy(values)
    return given


def words_say(
    network: Network, output: Any, ids: Tensor, mask: Tensor, columns: Sequence[int]
) -> Tensor:
    """Return what tokens say beside the network, in its units, (B, T, E).

    Each token's share in what the words say, times what that is worth to the network: a
    rise of its own score, or of its logit where it has no capsules.
    """
    said = ids.new_zeros((*ids.shape, len(columns)), dtype=torch.float32)
    if network.words is None:
        return said
    share = network.words.decide(ids, mask).share
    worth = network.words.worth(output.scores, share)  # (B, J)
    if isinstance(output, ClassOutput):
        worth = network.words.worth_in_logits(share).expand_as(worth)
    classes = [place for place, column in enumerate(columns) if column < worth.shape[1]]
    named = [columns[place] for place in classes]
    shares = network.words.shares(ids, mask, named)
    said[..., classes] = (shares * worth[:, None, named]).float()
    return said


def to_array(tensor: Tensor) -> NDArray[np.float32]:
    """Bring a tensor to the CPU as an array."""
    return tensor.float().cpu().numpy()


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
