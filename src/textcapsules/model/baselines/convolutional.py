"""The convolutional baselines: Kim's CNN over words, CL-CNN and VD-CNN over characters.

The CNN of Kim (2014): n-gram features, their maximum over the text, dropout, linear.
Its variants differ only in the embedding: drawn and trained (CNN-rand), given and kept
(CNN-static), given and trained (CNN-non-static). A window counts only if it lies inside
the text, or, with `edges`, reaches over its ends onto zero vectors as in Kim's own
code. A text shorter than the widest window is completed by zero vectors, so that its
scores depend only on the text.

CL-CNN, the character-level CNN of Zhang, Zhao and LeCun (2015): characters are one-hot
vectors read backwards, the last one first; padding, blanks and characters outside the
alphabet are zero. Every text is padded to the same length, as published: the fully
connected layers have a weight for each of the last frames. Frames that see only padding
are all the same, so one is computed and used for all.

VD-CNN, the very deep CNN of Conneau, Schwenk, Barrault and LeCun (2017): character
vectors, one convolution, then stages of 64, 128, 256 and 512 features, the text halved
by max-pooling between them, k-max pooling and three full layers; no shortcuts, which
helped the authors only past 29 layers. Every text is padded to the same length, as
published: what follows its end is then the same in every batch. A text is an image one
pixel high, its features innermost in memory: a GPU's convolutions read that as it lies
(29 layers forward and back, 50 texts, on an H200: 5.0 ms, and 6.6 with positions
innermost).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textcapsules.model.baselines.recurrent import reversal
from textcapsules.model.capsnet import lengthen, widen
from textcapsules.model.layers import NgramConv, edge_width
from textcapsules.model.network import ClassOutput, Network

__all__ = ["DEPTHS", "SIZES", "CharCnn", "KimCnn", "VdCnn", "k_max"]


class KimCnn(Network):
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
        super().__init__(n_classes)
        self.embedding = embedding
        self.max_norm, self.several = max_norm, several
        self.ngrams = nn.ModuleList(
            NgramConv(embedding.embedding_dim, feature_maps, size)
            for size in ngram_sizes
        )
        # Zero vectors before and after a text, for the windows of each width.
        self.edge_widths = [edge_width(size) if edges else 0 for size in ngram_sizes]
        self.ngram_sizes, self.min_tokens = ngram_sizes, max(ngram_sizes)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(feature_maps * len(ngram_sizes), n_classes)

    def forward(self, ids: Tensor, mask: Tensor) -> ClassOutput:
        """Word numbers (B, T) and their mask to the classes' logits."""
        vectors, maxima = self.embedding(ids), []
        for edge, ngrams in zip(self.edge_widths, self.ngrams, strict=True):
            wide = widen(vectors, mask, edge)
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


# Features of a convolution, units of a full layer, and deviation of the first weights.
SIZES = {"small": (256, 1024, 0.05), "large": (1024, 2048, 0.02)}
# Width of each convolution, and of the pooling after it if any (the published table 1).
LAYERS = ((7, 3), (7, 3), (3, 0), (3, 0), (3, 0), (3, 3))
N_FEATURES = 70  # the published alphabet has the hyphen twice: one of them stays empty
# A frame begins FRAME_STEP characters after the one before, and sees FRAME_WIDTH.
FRAME_STEP, FRAME_WIDTH = 27, 123


class CharCnn(Network):
    """Six convolutions, three of them pooled, and three full layers."""

    length_step = 4 * FRAME_STEP  # few captured steps for all lengths
    one_hot: Tensor  # (n_characters, 70)

    def __init__(
        self,
        *,
        n_characters: int,
        n_classes: int,
        length: int,
        first_character: int = 3,
        size: str = "small",
        dropout: float = 0.5,
        several: bool = False,
    ) -> None:
        """Make the layers.

        Args:
            n_characters: rows of the vocabulary.
            n_classes: J.
            length: characters every text is cut or padded to; published are 1014.
            first_character: rows before this one (padding, unknown, blank) are zero.
            size: `small` or `large`.
            dropout: share of units dropped after each full layer in training.
            several: whether a text may have several classes.
        """
        super().__init__(n_classes)
        self.length, self.several = length, several
        features, units, deviation = SIZES[size]
        known = n_characters - first_character
        one_hot = F.pad(torch.eye(known), (0, N_FEATURES - known, first_character, 0))
        self.register_buffer("one_hot", one_hot, persistent=False)
        layers: list[nn.Module] = []
        frames, width = length, N_FEATURES
        for kernel, pool in LAYERS:
            layers += [nn.Conv1d(width, features, kernel), nn.ReLU()]
            frames, width = frames - kernel + 1, features
            if pool:
                layers.append(nn.MaxPool1d(pool))
                frames //= pool
        self.convolutions = nn.Sequential(*layers)
        self.n_frames = frames
        self.full = nn.Sequential(
            nn.Linear(frames * features, units),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(units, units),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(units, n_classes),
        )
        for layer in [*self.convolutions, *self.full]:
            if isinstance(layer, nn.Conv1d | nn.Linear):
                nn.init.normal_(layer.weight, 0.0, deviation)
                nn.init.zeros_(layer.bias)  # type: ignore[arg-type]

    def forward(self, ids: Tensor, mask: Tensor) -> ClassOutput:
        """Character numbers (B, T) and their mask to the classes' logits."""
        ids, mask = ids[:, : self.length], mask[:, : self.length]
        n_written = max(-(-ids.shape[1] // FRAME_STEP), 1)  # frames with a character
        n_empty = self.n_frames - n_written
        read = self.length
        if n_empty > 0:
            read = (n_written - 1) * FRAME_STEP + FRAME_WIDTH
        backwards = ids.gather(1, reversal(mask)) * mask  # (B, T)
        ids = F.pad(backwards, (0, read - ids.shape[1]))
        quantised = self.one_hot[ids].transpose(1, 2)  # (B, 70, read)
        frames = self.convolutions(quantised)  # (B, features, frames)
        if n_empty > 0:
            padding = quantised.new_zeros(1, N_FEATURES, FRAME_WIDTH)
            empty = self.convolutions(padding)  # (1, features, 1)
            frames = torch.cat([frames, empty.expand(len(ids), -1, n_empty)], 2)
        return ClassOutput(self.full(frames.flatten(1)), several=self.several)


# Convolutions of each stage; with the first one they make up the depth.
DEPTHS = {9: (2, 2, 2, 2), 17: (4, 4, 4, 4), 29: (10, 10, 4, 4)}
FEATURES = (64, 128, 256, 512)
EMBEDDING_SIZE = 16
K_MAX = 8
UNITS = 2048


class VdCnn(Network):
    """Stages of convolutional blocks over characters, k-max pooling, full layers."""

    # Padding counts in the averages of the batch norms. Those of a batch of similar
    # lengths would be unlike those of the texts to be scored.
    mixed_lengths = True

    def __init__(
        self,
        *,
        n_characters: int,
        n_classes: int,
        length: int,
        depth: int = 9,
        several: bool = False,
    ) -> None:
        """Make the layers.

        Args:
            n_characters: rows of the vocabulary, padding the first.
            n_classes: J.
            length: characters every text is cut or padded to; published are 1024.
            depth: convolutional layers, 9, 17 or 29.
            several: whether a text may have several classes.
        """
        super().__init__(n_classes)
        self.length, self.several = length, several
        self.length_step = length  # one captured step for all
        self.embedding = nn.Embedding(n_characters, EMBEDDING_SIZE)
        layers = [convolution(EMBEDDING_SIZE, FEATURES[0], bias=True)]
        width = FEATURES[0]
        for features, n_layers in zip(FEATURES, DEPTHS[depth], strict=True):
            if features > FEATURES[0]:  # twice the features, half the positions
                layers.append(nn.MaxPool2d((1, 3), stride=(1, 2), padding=(0, 1)))
            for _ in range(n_layers):
                # The norm that follows has a bias of its own.
                layers.append(convolution(width, features, bias=False))
                layers += [nn.BatchNorm2d(features), nn.ReLU()]
                width = features
        self.convolutions = nn.Sequential(*layers)
        self.full = nn.Sequential(
            nn.Linear(width * K_MAX, UNITS),
            nn.ReLU(),
            nn.Linear(UNITS, UNITS),
            nn.ReLU(),
            nn.Linear(UNITS, n_classes),
        )
        for layer in self.convolutions:
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")

    def forward(self, ids: Tensor, mask: Tensor) -> ClassOutput:
        """Character numbers (B, T), 0 where `mask` is False, to the classes' logits."""
        del mask  # padding is one of the characters
        ids = ids[:, : self.length]
        ids = F.pad(ids, (0, self.length - ids.shape[1]))
        vectors = self.embedding(ids).unsqueeze(1)  # (B, 1, length, 16)
        image = vectors.permute(0, 3, 1, 2)  # (B, 16, 1, length) and not moved
        features = self.convolutions(image).squeeze(2)  # (B, 512, length / 8)
        pooled = k_max(features, K_MAX).flatten(1)  # (B, 512 * K_MAX)
        return ClassOutput(self.full(pooled), several=self.several)


def convolution(width: int, features: int, *, bias: bool) -> nn.Module:
    """Return a convolution over three characters that keeps the length."""
    return nn.Conv2d(width, features, (1, 3), padding=(0, 1), bias=bias)


def k_max(features: Tensor, k: int) -> Tensor:
    """Return the k largest of each row (B, F, T), in the order they stand in.

    >>> from torch import tensor
    >>> k_max(tensor([[[1.0, 5.0, 2.0, 4.0]]]), 2).tolist()
    [[[5.0, 4.0]]]
    """
    places = features.topk(k, dim=2).indices.sort(dim=2).values  # (B, F, k)
    return features.gather(2, places)
