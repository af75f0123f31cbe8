"""The character-level CNN of Zhang, Zhao and LeCun (2015), "CL-CNN".

Characters are one-hot vectors read backwards, the latest first; padding, blanks and
characters outside the alphabet are zero. Every text is padded to the same length, as
published: the fully connected layers have a weight for each of the last frames. Frames
that see padding alone are all the same, so one is computed and stands for them.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textcapsules.model.rivals.output import ClassOutput

__all__ = ["SIZES", "CharCnn", "backwards"]

# Features of a convolution, units of a full layer, and deviation of the first weights.
SIZES = {"small": (256, 1024, 0.05), "large": (1024, 2048, 0.02)}
# Width of each convolution, and of the pooling after it if any (the published table 1).
LAYERS = ((7, 3), (7, 3), (3, 0), (3, 0), (3, 0), (3, 3))
N_FEATURES = 70  # the published alphabet has the hyphen twice: one of them stays empty
# A frame begins FRAME_STEP characters after the one before, and sees FRAME_WIDTH.
FRAME_STEP, FRAME_WIDTH = 27, 123


class CharCnn(nn.Module):
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
        super().__init__()
        self.n_classes, self.length, self.several = n_classes, length, several
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
        n_spoken = max(-(-ids.shape[1] // FRAME_STEP), 1)  # frames with a character
        n_silent = self.n_frames - n_spoken
        read = self.length
        if n_silent > 0:
            read = (n_spoken - 1) * FRAME_STEP + FRAME_WIDTH
        ids = F.pad(backwards(ids, mask), (0, read - ids.shape[1]))
        quantised = self.one_hot[ids].transpose(1, 2)  # (B, 70, read)
        frames = self.convolutions(quantised)  # (B, features, frames)
        if n_silent > 0:
            silence = quantised.new_zeros(1, N_FEATURES, FRAME_WIDTH)
            silent = self.convolutions(silence)  # (1, features, 1)
            frames = torch.cat([frames, silent.expand(len(ids), -1, n_silent)], 2)
        return ClassOutput(self.full(frames.flatten(1)), several=self.several)


def backwards(ids: Tensor, mask: Tensor) -> Tensor:
    """Return the tokens of each row (B, T) in reverse, padding still on the right."""
    order = torch.arange(ids.shape[1], device=ids.device)
    places = mask.sum(1, keepdim=True) - 1 - order
    return ids.gather(1, places.clamp(min=0)) * mask
