"""Which model can be explained by which method, and where its n-grams lie.

A capsule network knows where its capsules went. Gradients can be taken of any network
over word vectors, and words can be deleted from the text of any model of words.

The default is the method that was found most faithful on dev texts when the model was
trained (`choice`), which the model's record keeps.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from textcapsules.base.errors import ConfigError
from textcapsules.model.baselines.classic import ClassicSystem
from textcapsules.model.baselines.convolutional import KimCnn
from textcapsules.model.baselines.pooled import LabelAttention, MeanLinear
from textcapsules.model.baselines.recurrent import LrLstm, RecurrentNetwork
from textcapsules.model.builder import System
from textcapsules.model.capsnet import CapsuleNetwork, CapsuleOutput, NgramBranch
from textcapsules.model.classifier import TextClassifier
from textcapsules.model.network import ClassOutput, Network
from textcapsules.reasons.couplings import branches_of
from textcapsules.text.batch import Batch, make_batch

__all__ = [
    "METHODS",
    "NgramPlaces",
    "batch_for",
    "can_explain",
    "capsule_network",
    "check_method",
    "check_usable",
    "class_scores",
    "default_method",
    "device_of",
    "evaluating",
    "explainable_network",
    "methods_of",
    "ngram_places",
    "places_of",
    "settle_method",
]

METHODS = (
    *("contributions", "couplings", "gradient", "sampled"),
    *("integrated", "erasure"),
)
MODELS_OF_WORDS = (
    CapsuleNetwork,
    KimCnn,
    RecurrentNetwork,
    LrLstm,
    MeanLinear,
    LabelAttention,
    ClassicSystem,
)
PHRASE_SIZE = 3  # words, where a model has no n-grams of its own


class NgramPlaces(NamedTuple):
    """The n-grams of one size: the p-th begins at token first + p · stride."""

    size: int
    stride: int = 1
    first: int = 0  # below 0 if n-grams reach over the text's ends


def can_explain(classifier: TextClassifier) -> bool:
    """Tell whether a model's labels can be explained."""
    return isinstance(classifier.network, MODELS_OF_WORDS)


def explainable_network(classifier: TextClassifier) -> System:
    """Return the network; raise an error if it cannot be explained."""
    if not isinstance(classifier.network, MODELS_OF_WORDS):
        raise ConfigError(
            "classifier must be a model of words to be explained, not of characters or "
            f"trees; got {type(classifier.network).__name__}. Explain another model."
        )
    return classifier.network


def methods_of(network: System) -> tuple[str, ...]:
    """Return the methods that a model can be explained by.

    The first is the default of a model whose record names none.
    """
    if isinstance(network, CapsuleNetwork):
        return METHODS
    if isinstance(network, ClassicSystem):
        return ("erasure",)
    if isinstance(network, KimCnn):
        return ("gradient", "integrated", "erasure")
    return ("integrated", "gradient", "erasure")


def default_method(classifier: TextClassifier) -> str:
    """Return the method that proved most faithful in training, where it was measured.

    Raises an error if the model cannot be explained.
    """
    usable = methods_of(explainable_network(classifier))
    measured = classifier.record.get("reasons")
    method = measured.get("method") if isinstance(measured, dict) else None
    return method if method in usable else usable[0]


def check_method(method: str) -> None:
    """Refuse a method that does not exist."""
    if method not in METHODS:
        raise ConfigError(
            f"method must be one of {', '.join(METHODS)}; got {method!r}."
        )


def settle_method(classifier: TextClassifier, method: str | None) -> str:
    """Return the method asked for, if it suits the model, or the model's default."""
    if method is None:
        return default_method(classifier)
    check_usable(explainable_network(classifier), method)
    return method


def check_usable(network: System, method: str) -> None:
    """Refuse a method that does not exist, or does not suit the model."""
    check_method(method)
    usable = methods_of(network)
    if method not in usable:
        raise ConfigError(
            f"method must be {'one of ' * (len(usable) > 1)}{', '.join(usable)} for "
            f"{type(network).__name__}; got {method!r}."
        )


def device_of(network: System) -> torch.device:
    """Return where a model computes."""
    if isinstance(network, ClassicSystem):
        return torch.device("cpu")
    return next(network.parameters()).device


def batch_for(
    network: System, documents: Sequence[NDArray], rows: Sequence[int] | NDArray
) -> Batch:
    """Put the documents at `rows` together, without targets, on the model's device."""
    targets = np.zeros((len(documents), 0), dtype=np.float32)
    return make_batch(documents, targets, rows).to(device_of(network))


@contextmanager
def evaluating(network: System) -> Iterator[None]:
    """Put a network into evaluation mode for a while."""
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
    """Return the network; raise an error if it has no capsules to be shown."""
    if not isinstance(classifier.network, CapsuleNetwork):
        raise ConfigError(
            "classifier must be a capsule network for its routing to be shown; got "
            f"{type(classifier.network).__name__}. Show another model's."
        )
    return classifier.network


def ngram_places(network: System) -> list[NgramPlaces]:
    """Return, for each n-gram size, where the n-grams lie that phrases are made of."""
    if isinstance(network, CapsuleNetwork):
        return list(dict.fromkeys(map(places_of, branches_of(network))))
    if isinstance(network, KimCnn):
        return [
            NgramPlaces(size, first=-edge)
            for size, edge in zip(network.ngram_sizes, network.edge_widths, strict=True)
        ]
    return [NgramPlaces(PHRASE_SIZE)]


def places_of(branch: NgramBranch) -> NgramPlaces:
    """Return where the n-grams of one network lie."""
    return NgramPlaces(branch.ngrams.ngram_size, branch.ngrams.stride, -branch.edge)


def class_scores(
    network: Network, output: CapsuleOutput | ClassOutput, ids: Tensor, mask: Tensor
) -> Tensor:
    """Return what a decision reads, (B, E): lengths with the orphan's, or scores.

    Args:
        network: the model.
        output: of the batch.
        ids: its word numbers, (B, T).
        mask: where there are words, (B, T).
    """
    is_routed = isinstance(output, CapsuleOutput)
    own = output.lengths(orphan=True) if is_routed else output.scores
    classes, orphan = own.tensor_split([network.n_classes], dim=1)
    return torch.cat([network.with_words(classes, ids, mask), orphan], 1)
