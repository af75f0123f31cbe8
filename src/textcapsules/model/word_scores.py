"""What the words of a text say by themselves, weighed against what a network says.

A network reads words in their order and in their sentences, and may miss what a single
rare word says. A linear model of words (TF-IDF with one plane per class) sees nothing
else. With s_j the network's score of class j and z_j the linear model's decision, the
score of the two together is

    p_j = σ(α · logit s_j + β · z_j + γ)

α, β and γ are the same for all classes, and come from dev texts (`training.words`).
A text with few of the linear model's words is judged more by the network alone: with r
the share of its words' weight in a quarter of a typical text's, at most 1,

    p_j = σ((1 - r) · logit s_j + r · (α · logit s_j + β · z_j + γ))

so where no word is known to the linear model, p is the network's score.

z is computed from word numbers on the network's device. In sublinear TF-IDF a word that
occurs c times has the value (1 + log c) · idf, here shared evenly by its occurrences,
and a text's values are divided by their norm, or by that of a typical text if this is
greater: one word by itself does not speak as loud as a whole text. So each occurrence
adds its share to z, and `shares` tells which words spoke for a class.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from textcapsules.text.pieces import FIRST_PIECE
from textcapsules.text.vocabulary import UNK_ID

__all__ = ["CLIP", "FULL", "PAIR", "TINY", "Decided", "Weights", "WordScores"]

PAIR = 2**32  # a pair of words is one number; a word alone has 0 in the second place
TINY = 1e-12  # a norm that every text with a word passes
CLIP = 1e-4  # minimum distance of a score from 0 and 1 before its logit is taken
FULL = 0.25  # words of so much of a typical text's norm count in full


class Weights(NamedTuple):
    """How the network and its words are weighed against each other."""

    network: float  # α
    words: float  # β
    offset: float  # γ


class Found(NamedTuple):
    """The n-grams of a batch: M words, and the M pairs that begin with each of them."""

    places: Tensor  # (B, M), rows of the table; its last one where there is no such row
    values: Tensor  # (B, M), divided by the text's norm; 0 where there is no such row
    share: Tensor  # r, (B, 1): how far they count


class Decided(NamedTuple):
    """What a linear model says of some texts."""

    decisions: Tensor  # z, (B, J)
    share: Tensor  # r, (B, 1)


class WordScores(nn.Module):
    """A linear model of words and pairs of neighbours, beside a network."""

    keys: Tensor
    idf: Tensor
    weight: Tensor
    bias: Tensor
    weighing: Tensor
    marked: Tensor
    least_norm: Tensor

    def __init__(
        self,
        keys: Tensor,
        idf: Tensor,
        weight: Tensor,
        bias: Tensor,
        weighing: Tensor,
        marked: Tensor,
        least_norm: Tensor,
    ) -> None:
        """Keep the tables.

        Args:
            keys: (N,) n-grams in rising order, each one number: see `PAIR`.
            idf: (N,), of each n-gram.
            weight: (N, J).
            bias: (J,).
            weighing: (3,), `Weights`.
            marked: (), the word pieces that have a second number where they begin a
                sentence, which counts as the first; 0 where words are read.
            least_norm: (), what a text's values are divided by at least.
        """
        super().__init__()
        for name, tensor in (
            *(("keys", keys), ("idf", idf), ("weight", weight)),
            *(("bias", bias), ("weighing", weighing), ("marked", marked)),
            ("least_norm", least_norm),
        ):
            self.register_buffer(name, tensor)
        # Known to the host: a captured graph must not wait for the device.
        self.weights = Weights(*weighing.tolist())
        self.n_marked, self.smallest_norm = int(marked), float(least_norm)
        self.has_pairs = bool((keys % PAIR != 0).any())

    @classmethod
    def of(
        cls,
        ngrams: NDArray[np.int64],
        idf: NDArray,
        weight: NDArray,
        bias: NDArray,
        *,
        least_norm: float = TINY,
        n_marked: int = 0,
    ) -> "WordScores":
        """Return the scores of a linear model, which count like the network's.

        Args:
            ngrams: (N,), in any order.
            idf: (N,).
            weight: (J, N).
            bias: (J,).
            least_norm: as above.
            n_marked: as `marked` above.
        """
        order = np.argsort(ngrams)
        return cls(
            torch.from_numpy(ngrams[order]),
            torch.from_numpy(idf[order].astype(np.float32)),
            torch.from_numpy(weight.T[order].astype(np.float32)),
            torch.from_numpy(bias.astype(np.float32)),
            torch.tensor((1.0, 1.0, 0.0)),
            torch.tensor(n_marked),
            torch.tensor(float(least_norm)),
        )

    def weighed(self, weights: Weights) -> "WordScores":
        """Return the same scores with other weights."""
        tensors = {**self.state_dict(), "weighing": torch.tensor(weights)}
        return WordScores(**tensors)

    @classmethod
    def from_tensors(
        cls, tensors: Mapping[str, Tensor], *, n_classes: int
    ) -> "WordScores":
        """Return the scores that a model folder holds, if their shapes agree."""
        names = ("keys", "idf", "weight", "bias", "weighing", "marked", "least_norm")
        if missing := [name for name in names if name not in tensors]:
            raise ValueError(f"words without {', '.join(missing)}")
        n_ngrams = tensors["keys"].numel()
        shapes = ((n_ngrams,), (n_ngrams,), (n_ngrams, n_classes), (n_classes,))
        for name, shape in zip(names, (*shapes, (3,), (), ()), strict=True):
            if tuple(tensors[name].shape) != shape:
                raise ValueError(
                    f"words.{name} of shape {tuple(tensors[name].shape)}, not {shape}"
                )
        for name in ("keys", "marked"):
            if tensors[name].dtype != torch.int64:
                raise ValueError(f"words.{name} that holds no whole numbers")
        if not n_ngrams or (tensors["keys"].diff() <= 0).any():
            raise ValueError("words.keys that do not rise")
        if not tensors["weighing"][0] > 0:
            raise ValueError("words.weighing that leaves the network out")
        if not tensors["least_norm"] > 0:
            raise ValueError("words.least_norm that is not above zero")
        return cls(*(tensors[name] for name in names))

    def forward(self, scores: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
        """Return p (B, J) from a network's scores (B, J) of word numbers (B, T)."""
        alpha, beta, gamma = self.weights
        z, share = self.decide(ids, mask)
        logits = scores.float().clamp(CLIP, 1 - CLIP).logit()
        together = logits + share * ((alpha - 1) * logits + beta * z + gamma)
        return torch.where(share > 0, together.sigmoid(), scores)

    def decide(self, ids: Tensor, mask: Tensor) -> Decided:
        """Return what word numbers (B, T) with their mask (B, T) say."""
        places, values, share = self.find(ids, mask)
        if not ids.shape[1]:  # which `embedding_bag` refuses
            return Decided(self.bias.expand(len(ids), -1), share)
        sums = F.embedding_bag(
            places, self.weight, per_sample_weights=values, mode="sum"
        )
        return Decided(sums + self.bias, share)

    def shares(self, ids: Tensor, mask: Tensor, classes: Sequence[int]) -> Tensor:
        """Return what each word adds to z_j of some classes, (B, T, len(classes)).

        A pair's part is halved between its words.
        """
        T = ids.shape[1]
        places, values, _ = self.find(ids, mask)
        weight = self.weight[:, list(classes)]
        each = weight[places] * values.unsqueeze(2)  # (B, M, J)
        words = each[:, :T]
        if not self.has_pairs:
            return words
        halves = each[:, T:] / 2
        return words + halves + F.pad(halves[:, :-1], (0, 0, 1, 0))

    def worth(self, scores: Tensor, share: Tensor) -> Tensor:
        """Return what z's rising by one is worth to a network of scores s, (B, J).

        It is worth as much as s rising by so much, on the average of the way that s
        has come from an empty text's score.
        """
        kept = scores.float().clamp(CLIP, 1 - CLIP)
        rise = kept.logit() - math.log(CLIP / (1 - CLIP))
        # At the beginning of the way, its slope.
        mean = torch.where(rise > CLIP, (kept - CLIP) / rise, kept * (1 - kept))
        return mean * self.worth_in_logits(share)

    def worth_in_logits(self, share: Tensor) -> Tensor:
        """Return what z's rising by one is worth to the logit of s, as r (B, 1) is."""
        alpha, beta, _ = self.weights
        return share * beta / (1 + share * (alpha - 1))

    def find(self, ids: Tensor, mask: Tensor) -> Found:
        """Return the rows and the values of all n-grams of a batch (B, T)."""
        if self.n_marked:
            begins = ids >= FIRST_PIECE + self.n_marked
            ids = ids - begins * self.n_marked
        ids, known = ids.long(), mask & (ids > UNK_ID)
        keys = ids * PAIR  # (B, T)
        if self.has_pairs:
            # The last word begins no pair.
            following = F.pad(ids[:, 1:], (0, 1))
            is_pair = known & F.pad(known[:, 1:], (0, 1))
            keys = torch.cat([keys, keys + following], 1)
            known = torch.cat([known, is_pair], 1)
        last = len(self.keys) - 1
        places = torch.searchsorted(self.keys, keys).clamp(max=last)
        found = known & (self.keys[places] == keys)
        # Occurrences of the same n-gram in a text: its run among the sorted places.
        apart = torch.where(found, places, last + 1)
        ordered = apart.sort(1).values
        count = torch.searchsorted(ordered, apart, right=True)
        count = (count - torch.searchsorted(ordered, apart)).float()
        whole = (1 + count.log()) * self.idf[places] * found
        norm = (whole.square() / count).sum(1, keepdim=True).sqrt()  # (B, 1)
        divisor = norm.clamp(min=self.smallest_norm)
        share = (norm / (FULL * divisor)).clamp(max=1)
        return Found(places, whole / count / divisor, share)
