"""The very deep CNN of Conneau, Schwenk, Barrault and LeCun (2017), "VD-CNN".

Character vectors, one convolution, then stages of 64, 128, 256 and 512 features, the
text halved by max-pooling between them, k-max pooling and three full layers; no
shortcuts, which the authors found to help only past 29 layers. Every text is padded to
the same length, as published: what follows its end then is the same in every batch.

A text is an image one pixel high, its features innermost in memory: a GPU's
convolutions read that as it lies (29 layers forward and back, 50 texts, on an H200:
5.0 ms, and 6.6 with positions innermost).
"""

from torch import Tensor, nn
from torch.nn import functional as F

from textcapsules.model.rivals.output import ClassOutput

__all__ = ["DEPTHS", "VdCnn", "k_max"]

# Convolutions of each stage; with the first one they make up the depth.
DEPTHS = {9: (2, 2, 2, 2), 17: (4, 4, 4, 4), 29: (10, 10, 4, 4)}
FEATURES = (64, 128, 256, 512)
EMBEDDING_SIZE = 16
K_MAX = 8
UNITS = 2048


class VdCnn(nn.Module):
    """Stages of convolutional blocks over characters, k-max pooling, full layers."""

    # Padding counts in the norms' averages. A batch of like lengths has its own, which
    # are not those of the texts to be judged.
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
        super().__init__()
        self.n_classes, self.length, self.several = n_classes, length, several
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
        del mask  # padding is a character of its own
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
