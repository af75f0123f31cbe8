"""The CNN of Kim (2014): n-gram features, their maximum over the text, dropout, linear.

Its variants differ in the embedding alone: drawn and trained (CNN-rand), given and kept
(CNN-static), given and trained (CNN-non-static). A window counts only where it lies
inside the text, or, with `edges`, over its ends on zero vectors as in Kim's own code; a
text shorter than the widest window is completed by zero vectors, so that its scores
depend on the text alone.
"""

import torch
from torch import Tensor, nn

from textcapsules.model.capsnet import lengthen, widen
from textcapsules.model.layers import NgramConv
from textcapsules.model.rivals.output import ClassOutput

__all__ = ["KimCnn"]


class KimCnn(nn.Module):
    """Embedding, convolutions of several widths, max over time, linear output."""

    def __init__(
        self,
        embedding: nn.Embedding,
        *,
        ngram_sizes: tuple[int, ...],
        feature_maps: int,
        n_classes: int,
        dropout: float = 0.5,
        max_norm: float = 3.0,
        edges: bool = False,
        several: bool = False,
    ) -> None:
        """Make the layers.

        Args:
            embedding: of V features.
            ngram_sizes: widths of the windows.
            feature_maps: filters of each width.
            n_classes: J.
            dropout: share of features dropped in training.
            max_norm: longest weight vector of a class (0: any), see `constrain`.
            edges: whether windows reach over a text's ends.
            several: whether a text may have several classes.
        """
        super().__init__()
        self.embedding, self.n_classes = embedding, n_classes
        self.max_norm, self.edges, self.several = max_norm, edges, several
        self.ngrams = nn.ModuleList(
            NgramConv(
                embedding_size=embedding.embedding_dim,
                filters=feature_maps,
                ngram_size=size,
            )
            for size in ngram_sizes
        )
        self.ngram_sizes, self.min_tokens = ngram_sizes, max(ngram_sizes)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(feature_maps * len(ngram_sizes), n_classes)

    def forward(self, ids: Tensor, mask: Tensor) -> ClassOutput:
        """Word numbers (B, T) and their mask to the classes' logits."""
        vectors, maxima = self.embedding(ids), []
        for size, ngrams in zip(self.ngram_sizes, self.ngrams, strict=True):
            wide = widen(vectors, mask, size - 1 if self.edges else 0)
            features, inside = ngrams(*lengthen(*wide, self.min_tokens))  # (B, P, F)
            # Features are rectified, so that zero never wins over a window inside.
            maxima.append((features * inside.unsqueeze(2)).amax(1))  # (B, F)
        pooled = self.dropout(torch.cat(maxima, 1))
        return ClassOutput(self.output(pooled), several=self.several)

    @torch.no_grad()
    def constrain(self) -> None:
        """Shorten the weight vectors that a step has made longer than `max_norm`."""
        if self.max_norm:
            weight = self.output.weight  # (J, features)
            weight.copy_(torch.renorm(weight, p=2, dim=0, maxnorm=self.max_norm))
