"""What every network has, and what it returns.

`Network` holds what training and prediction ask of a network beside its output; a new
network derives from it and changes what does not suit it. `ClassOutput` is the output
of the baselines, in the manner of a capsule network's.
"""

from typing import NamedTuple

from torch import Tensor, nn

from textcapsules.model.layers import WordEmbedding
from textcapsules.model.word_scores import WordScores

__all__ = [
    "EXTRA",
    "PIECES",
    "WORDS",
    "ClassOutput",
    "Network",
    "saved_tensors",
    "word_embedding",
]

EXTRA = "embedding.extra"  # the name of the fixed word vectors in a model folder
PIECES = "embedding.pieces.rows"  # which pieces have vectors beside the states
WORDS = "words."  # before the names of what the words say


class Network(nn.Module):
    """Word or character numbers (B, T) and their mask (B, T) to an output of classes.

    The output has `scores` (B, J) and `lengths`, as `ClassOutput` and `CapsuleOutput`.
    """

    # Whether steps and scoring can be captured in CUDA graphs: not if the host must
    # know what is in a batch.
    capturable: bool = True
    # Lengths of captured steps are rounded up to a multiple of this: few graphs.
    length_step: int = 8
    # Tokens that no text need be padded past: positions after them have no weights.
    most_tokens: int | None = None
    # Whether the texts of a training batch are to be of all lengths, not of like ones.
    mixed_lengths: bool = False
    # A linear model of words whose decisions are added to the scores, if there is one.
    # Training does not see it.
    words: WordScores | None

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.n_classes = n_classes  # J, the orphan not counted
        self.words = None

    def score(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return the scores (B, J) that labels are given by."""
        return self.with_words(self(ids, mask).scores, ids, mask)

    def with_words(self, scores: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
        """Return the network's scores (B, J) with what the words say added."""
        return scores if self.words is None else self.words(scores, ids, mask)

    def constrain(self) -> None:
        """Bring the weights back to where they may be; called after every step."""


class ClassOutput(NamedTuple):
    """Logits of the classes, and what the network adds to the training loss."""

    logits: Tensor  # (B, J)
    penalty: Tensor | None = None  # (), added to the loss in training
    several: bool = False  # whether a text may have several classes

    @property
    def scores(self) -> Tensor:
        """Return probabilities (B, J): of each class alone, or of one among all."""
        return self.logits.sigmoid() if self.several else self.logits.softmax(1)

    def lengths(self, *, orphan: bool) -> Tensor:
        """Return what the loss reads, the logits; no baseline has an orphan."""
        del orphan
        return self.logits


def word_embedding(network: object) -> WordEmbedding | None:
    """Return the embedding of a network over word vectors; others have none."""
    if not isinstance(network, Network):
        return None
    words = (m for m in network.children() if isinstance(m, WordEmbedding))
    return next(words, None)


def saved_tensors(network: Network) -> dict[str, Tensor]:
    """Return all that a model folder must hold of a network."""
    tensors = network.state_dict()
    embedding = word_embedding(network)
    if embedding is not None and len(embedding.extra):
        tensors[EXTRA] = embedding.extra
    return tensors
