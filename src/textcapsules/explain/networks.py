"""Which networks can be explained, and where the n-grams of their phrases lie.

A capsule network tells itself where its capsules went. Of any network over word vectors
the slopes can be taken, and words can be left out of its text.
"""

from typing import NamedTuple

from torch import Tensor, nn

from textcapsules.classifier import TextClassifier
from textcapsules.errors import ConfigError
from textcapsules.explain.routes import branches_of
from textcapsules.model.capsnet import CapsuleNetwork, CapsuleOutput
from textcapsules.model.rivals.kim import KimCnn
from textcapsules.model.rivals.lr_lstm import LrLstm
from textcapsules.model.rivals.output import ClassOutput
from textcapsules.model.rivals.recurrent import RecurrentNetwork

__all__ = [
    "NgramPlaces",
    "can_explain",
    "capsule_network",
    "class_scores",
    "explainable_network",
    "ngram_places",
]

WORD_NETWORKS = (CapsuleNetwork, KimCnn, RecurrentNetwork, LrLstm)
PHRASE_SIZE = 3  # words, where a network has no n-grams of its own


class NgramPlaces(NamedTuple):
    """The n-grams of one size: the p-th begins at token first + p · stride."""

    size: int
    stride: int = 1
    first: int = 0  # below 0 if n-grams reach over the text's ends


def can_explain(classifier: TextClassifier) -> bool:
    """Tell whether a model's labels can be explained."""
    return isinstance(classifier.network, WORD_NETWORKS)


def explainable_network(classifier: TextClassifier) -> nn.Module:
    """Return the network, and say so if it cannot be explained."""
    if not isinstance(classifier.network, WORD_NETWORKS):
        raise ConfigError(
            "classifier must be a network over word vectors to be explained, capsules, "
            f"CNN or LSTM; got {type(classifier.network).__name__}. Explain another "
            "model."
        )
    return classifier.network


def capsule_network(classifier: TextClassifier) -> CapsuleNetwork:
    """Return the network, and say so if it has no capsules to be shown."""
    if not isinstance(classifier.network, CapsuleNetwork):
        raise ConfigError(
            "classifier must be a capsule network for its routing to be shown; got "
            f"{type(classifier.network).__name__}. Show another model's."
        )
    return classifier.network


def ngram_places(network: nn.Module) -> list[NgramPlaces]:
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
