"""Which models can be explained, by what, and where the n-grams of their phrases lie.

A capsule network tells itself where its capsules went. Of any network over word vectors
the slopes can be taken, and words can be left out of the text of any model of words.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from textcapsules.base.errors import ConfigError
from textcapsules.model.baselines.classic import ClassicSystem
from textcapsules.model.baselines.convolutional import KimCnn
from textcapsules.model.baselines.recurrent import LrLstm, RecurrentNetwork
from textcapsules.model.builder import System
from textcapsules.model.capsnet import CapsuleNetwork, CapsuleOutput
from textcapsules.model.classifier import TextClassifier
from textcapsules.model.layers import AttentionClasses
from textcapsules.model.network import ClassOutput
from textcapsules.reasons.couplings import branches_of

__all__ = [
    "METHODS",
    "NgramPlaces",
    "can_explain",
    "capsule_network",
    "class_scores",
    "device_of",
    "evaluating",
    "explainable_network",
    "methods_of",
    "ngram_places",
]

METHODS = ("couplings", "contributions", "gradient", "integrated", "erasure")
OF_WORDS = (CapsuleNetwork, KimCnn, RecurrentNetwork, LrLstm, ClassicSystem)
PHRASE_SIZE = 3  # words, where a model has no n-grams of its own


class NgramPlaces(NamedTuple):
    """The n-grams of one size: the p-th begins at token first + p · stride."""

    size: int
    stride: int = 1
    first: int = 0  # below 0 if n-grams reach over the text's ends


def can_explain(classifier: TextClassifier) -> bool:
    """Tell whether a model's labels can be explained."""
    return isinstance(classifier.network, OF_WORDS)


def explainable_network(classifier: TextClassifier) -> System:
    """Return the network, and say so if it cannot be explained."""
    if not isinstance(classifier.network, OF_WORDS):
        raise ConfigError(
            "classifier must be a model of words to be explained, not of characters or "
            f"trees; got {type(classifier.network).__name__}. Explain another model."
        )
    return classifier.network


def methods_of(network: System) -> tuple[str, ...]:
    """Return the methods that a model can be explained by, its default first.

    Measured (`faithfulness`), couplings are as faithful as any for capsules and the
    cheapest; the slopes of a CNN, straight between its maxima, are as faithful as
    integrated ones (0.64 and 0.63 comprehensive on tickets), an LSTM's are not (0.51
    and 0.63).
    """
    if isinstance(network, CapsuleNetwork):
        attends = isinstance(branches_of(network)[0].classes, AttentionClasses)
        # A logit of attention is no sum over n-grams.
        return tuple(m for m in METHODS if m != "contributions" or not attends)
    if isinstance(network, ClassicSystem):
        return ("erasure",)
    if isinstance(network, KimCnn):
        return ("gradient", "integrated", "erasure")
    return ("integrated", "gradient", "erasure")


def device_of(network: System) -> torch.device:
    """Return where a model computes."""
    if isinstance(network, ClassicSystem):
        return torch.device("cpu")
    return next(network.parameters()).device


@contextmanager
def evaluating(network: System) -> Iterator[None]:
    """Leave training aside for a while."""
    if isinstance(network, ClassicSystem):
        yield
        return
    was_training = network.training
    network.eval()
    try:
        yield
    finally:
        network.train(was_training)


def capsule_network(classifier: TextClassifier) -> CapsuleNetwork:
    """Return the network, and say so if it has no capsules to be shown."""
    if not isinstance(classifier.network, CapsuleNetwork):
        raise ConfigError(
            "classifier must be a capsule network for its routing to be shown; got "
            f"{type(classifier.network).__name__}. Show another model's."
        )
    return classifier.network


def ngram_places(network: System) -> list[NgramPlaces]:
    """Return where the n-grams of each size lie that phrases are made of."""
    if isinstance(network, CapsuleNetwork):
        return [
            NgramPlaces(branch.ngrams.ngram_size, branch.ngrams.stride, -branch.edge)
            for branch in branches_of(network)
        ]
    if isinstance(network, KimCnn):
        return [
            NgramPlaces(size, first=1 - size if network.edges else 0)
            for size in network.ngram_sizes
        ]
    return [NgramPlaces(PHRASE_SIZE)]


def class_scores(output: CapsuleOutput | ClassOutput) -> Tensor:
    """Return what a decision looks at, (B, E): lengths with the orphan's, or scores."""
    if isinstance(output, CapsuleOutput):
        return output.lengths(orphan=True)
    return output.scores
