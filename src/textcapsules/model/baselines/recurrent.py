"""The recurrent baselines: LSTM and BiLSTM over word vectors, and LR-LSTM.

Every direction reads a text from its own first word on, padding after the last: the
states of the words never depend on padding, nor a text's scores on its batch. Packed
sequences would do the same, but their lengths must be known on the host, and a training
step would have to wait for them.

LR-LSTM (Qian, Huang, Lei, Zhu 2017) is an LSTM that knows what some words do. At every
word the network predicts a distribution p_t over the classes, of the text read so far.
In training, four regularisers say how p_t follows from its neighbour's:

- after a neutral word it stays as it was (NSR),
- after a sentiment word it is softmax(p + s_c), s_c learned for positive and for
  negative words (SR),
- after a negator or an intensifier x it is softmax(T_x p), T_x learned for each such
  word (NR, IR).

The penalty at t is max(0, D(p_t, what follows from the neighbour) - M), D being the
symmetric Kullback-Leibler divergence, (KL(p, q) + KL(q, p)) / 2. It is summed over the
words and averaged over the batch.

One direction reads from right to left, since negators and intensifiers mostly precede
what they modify; the neighbour is the word read before, and for NR and IR the nearer of
the two. With both directions it is, for all four, the nearer of what either direction
says. Before the first word the distribution is uniform.
"""

import torch
from torch import Tensor, nn

from textcapsules.base.errors import ConfigError
from textcapsules.model.network import ClassOutput, Network
from textcapsules.text.lexicon import INTENSIFIER, NEGATIVE, NEGATOR, POSITIVE
from textcapsules.text.vocabulary import UNK_ID

__all__ = ["LrLstm", "RecurrentNetwork", "last_states", "reversal"]


def reversal(mask: Tensor) -> Tensor:
    """Return the places (B, T) of the words from last to first; padding stays."""
    place = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
    return torch.where(mask, mask.sum(1, keepdim=True) - 1 - place, place)


def last_states(states: Tensor, mask: Tensor) -> Tensor:
    """Return the states (B, H) at the last word read, of states (B, T, H).

    A text without words has read one word of padding.
    """
    last = (mask.sum(1) - 1).clamp(min=0)  # (B,)
    return states[torch.arange(len(states), device=states.device), last]


class RecurrentNetwork(Network):
    """Embedding, one LSTM layer in one or both directions, pooling, linear output."""

    def __init__(
        self,
        embedding: nn.Embedding,
        *,
        hidden_size: int,
        n_classes: int,
        bidirectional: bool,
        pooling: str = "last",
        dropout: float = 0.5,
        several: bool = False,
    ) -> None:
        """Make the layers.

        Args:
            embedding: of V features.
            hidden_size: of each direction.
            n_classes: J.
            bidirectional: read the text backwards too.
            pooling: `last` state of each direction, `mean` or `max` over the words.
            dropout: share of pooled features dropped in training.
            several: whether a text may have several classes.
        """
        super().__init__(n_classes)
        self.embedding = embedding
        self.pooling, self.several = pooling, several
        self.lstms = nn.ModuleList(
            nn.LSTM(embedding.embedding_dim, hidden_size, batch_first=True)
            for _ in range(2 if bidirectional else 1)
        )
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(hidden_size * (1 + bidirectional), n_classes)

    def forward(self, ids: Tensor, mask: Tensor) -> ClassOutput:
        """Word numbers (B, T) and their mask to the classes' logits."""
        vectors = self.embedding(ids)  # (B, T, V)
        back = reversal(mask).unsqueeze(2)  # (B, T, 1)
        parts = []
        for way, lstm in enumerate(self.lstms):
            read = vectors.gather(1, back.expand_as(vectors)) if way else vectors
            parts.append(self.pool(lstm(read)[0], mask))
        pooled = torch.cat(parts, 1)  # (B, S)
        return ClassOutput(self.output(self.dropout(pooled)), several=self.several)

    def pool(self, states: Tensor, mask: Tensor) -> Tensor:
        """Return one vector per text, of one direction's states (B, T, H)."""
        inside = mask.unsqueeze(2)  # (B, T, 1)
        if self.pooling == "mean":
            total = (states * inside).sum(1)
            return total / inside.sum(1).clamp(min=1)
        if self.pooling == "max":
            # A state lies in (-1, 1); where there is no word at all this stays finite.
            return states.masked_fill(~inside, -1.0).amax(1)
        return last_states(states, mask)


N_CLASSES = 2  # what a shift and a flip of sentiment mean is known for two


class LrLstm(Network):
    """Words to classes, with a penalty in training."""

    word_classes: Tensor  # (W,), part of a saved model: loading one needs no lexicon

    def __init__(
        self,
        embedding: nn.Embedding,
        *,
        hidden_size: int,
        n_classes: int,
        dropout: float = 0.5,
        several: bool = False,
        word_classes: Tensor | None = None,
        bidirectional: bool = False,
        strength: float = 0.5,
        margin: float = 0.5,
        decay: float = 1e-4,
    ) -> None:
        """Build the network.

        Args:
            embedding: word vectors.
            hidden_size: of each direction.
            n_classes: must be 2.
            dropout: before the output layer.
            several: whether a text may have several classes.
            word_classes: (n_words,), of `textcapsules.text.lexicon`; None where they
                are about to be loaded with the weights.
            bidirectional: read from both ends.
            strength: alpha, the weight of the regularisers.
            margin: M, the divergence that costs nothing.
            decay: beta, the weight of the squared norm of all but the word vectors.
        """
        if n_classes != N_CLASSES:
            raise ConfigError(
                f"n_classes of lr-lstm must be 2, as sentiment has; got {n_classes}. "
                "Use another architecture for this corpus."
            )
        super().__init__(n_classes)
        self.embedding = embedding
        self.several = several
        self.strength, self.margin, self.decay = strength, margin, decay
        directions = 2 if bidirectional else 1
        self.lstms = nn.ModuleList(
            nn.LSTM(embedding.embedding_dim, hidden_size, batch_first=True)
            for _ in range(directions)
        )
        self.classes = nn.ModuleList(
            nn.Linear(hidden_size, n_classes) for _ in range(directions)
        )
        self.dropout = nn.Dropout(dropout)
        if word_classes is None:
            word_classes = torch.zeros(embedding.num_embeddings, dtype=torch.int8)
        self.register_buffer("word_classes", word_classes.to(torch.int8))
        # Both begin as in the authors' code. One row per word, so that the shape does
        # not depend on the lexicon; only negators and intensifiers have theirs read.
        self.transforms = nn.Parameter(first_transforms(word_classes))  # T, (W, J, J)
        # s of positive and of negative words, the second class being the positive one.
        self.shifts = nn.Parameter(torch.tensor([[-0.5, 0.5], [0.5, -0.5]]))

    def forward(self, ids: Tensor, mask: Tensor) -> ClassOutput:
        """Word numbers (B, T) and their mask to logits, and the penalty in training."""
        lengths = mask.sum(1)  # (B,)
        backwards = reversal(mask)  # (B, T)
        ways = [backwards] if len(self.lstms) == 1 else [None, backwards]
        votes, costs = [], []
        for lstm, classes, way in zip(self.lstms, self.classes, ways, strict=True):
            read = ids if way is None else ids.gather(1, way)  # in the order of reading
            states, _ = lstm(self.embedding(read))  # (B, T, H)
            last = last_states(states, mask) * (lengths > 0).unsqueeze(1)  # (B, H)
            votes.append(classes(self.dropout(last)))  # (B, J)
            if self.training:
                # Words whose vectors are fixed have no row here: they are neutral.
                known = read.where(read < len(self.word_classes), UNK_ID)
                cost = self.costs(classes(states).log_softmax(2), known, lengths)
                costs.append(cost if way is None else cost.gather(1, way))
        penalty = None
        if self.training:
            nearest = torch.stack(costs).amin(0)  # (B, T), in the order of the text
            penalty = self.strength * (nearest * mask).sum() / len(ids)
            penalty = penalty + self.decay / 2 * self.squared_norm()
        return ClassOutput(torch.stack(votes).sum(0), penalty, self.several)

    def costs(self, log_p: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
        """Return the regularisers' cost at every word (B, T), in one reading order."""
        uniform = log_p.new_zeros(len(log_p), 1, N_CLASSES).log_softmax(2)
        before = torch.cat([uniform, log_p[:, :-1]], 1)  # (B, T, J)
        cost = self.distance(log_p, self.follow(before, ids))
        if len(self.lstms) > 1:  # the other direction has the other neighbour
            return cost
        after = torch.cat([log_p[:, 1:], uniform], 1)
        other = self.distance(log_p, self.follow(after, ids))
        has_next = (
            torch.arange(1, ids.shape[1] + 1, device=ids.device) < lengths[:, None]
        )
        may_choose = has_next & (self.word_classes[ids] >= NEGATOR)  # (B, T)
        return torch.where(may_choose, torch.minimum(cost, other), cost)

    def follow(self, log_q: Tensor, ids: Tensor) -> Tensor:
        """Return what the words make of neighbouring distributions, all in logs."""
        kinds, q = self.word_classes[ids], log_q.exp()  # (B, T), (B, T, J)
        shift = torch.where((kinds == POSITIVE).unsqueeze(2), *self.shifts)
        shifted = (q + shift).log_softmax(2)
        turned = torch.einsum("btjk,btk->btj", self.transforms[ids], q).log_softmax(2)
        is_sentiment = (kinds == POSITIVE) | (kinds == NEGATIVE)
        is_shifter = (kinds == NEGATOR) | (kinds == INTENSIFIER)
        followed = torch.where(is_sentiment.unsqueeze(2), shifted, log_q)
        return torch.where(is_shifter.unsqueeze(2), turned, followed)

    def distance(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        """Return the divergence (B, T) past the margin."""
        divergence = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(2) / 2
        return (divergence - self.margin).clamp(min=0)

    def squared_norm(self) -> Tensor:
        """Return the sum of the squares of all parameters but the word vectors."""
        vectors = self.embedding.weight
        others = [p.square().sum() for p in self.parameters() if p is not vectors]
        return torch.stack(others).sum()


def first_transforms(word_classes: Tensor) -> Tensor:
    """Return T of every word: a negator reverses p, an intensifier sharpens it."""
    transforms = torch.zeros(len(word_classes), N_CLASSES, N_CLASSES)
    transforms[word_classes == NEGATOR] = torch.tensor([[-1.0, 1.0], [1.0, -1.0]])
    transforms[word_classes == INTENSIFIER] = torch.tensor([[2.0, -1.0], [-1.0, 2.0]])
    return transforms
