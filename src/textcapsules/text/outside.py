"""Tell texts outside the training topics by their words: news, recipes, gibberish.

A word that is frequent in the training texts surprises little, a rare one more, one
that they never have most: -log of its smoothed share. The evidence that a text lies
outside is the mean of its words' squared surprisals. A mean does not add up with
length, and squares let the words that training never saw weigh more than many common
ones. No single word decides, be it a name or a slip of the pen: the most surprising one
counts like the words of the dev texts on average. So that a few words prove little,
every text also gets `PRIOR_WORDS` such average words.

The limit comes from the dev texts alone: about one in a hundred of them lies past it.
No text from outside is needed.

Words are what the model reads: words, an encoder's word pieces, or three characters in
a row. Of all candidates that were measured on off-topic texts this evidence did best
(docs/refusal.md).
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from textcapsules.base.errors import ModelFolderError
from textcapsules.base.files import check_regular, write_tensors
from textcapsules.text.pieces import FIRST_PIECE, PieceTokenizer
from textcapsules.text.vocabulary import UNK_ID, TextTokenizer

__all__ = ["OUTSIDE_FILE", "OutsideRule", "fit_outside", "pick_limit"]

OUTSIDE_FILE = "outside.safetensors"
FEW_TEXTS = 30  # with fewer dev texts there is no limit, and nothing is refused
REFUSED_SHARE = 0.01  # of dev texts
NORMAL_QUANTILE = 2.326  # deviations above the mean past which lies that share
PRIOR_WORDS = 2
SMOOTHING = 0.5  # the count of a word that training never saw
STEPS = 16  # a surprisal is stored in sixteenths, as one byte: up to 15.9
TABLE = "surprisal"


@dataclass(frozen=True)
class OutsideRule:
    """Surprisals of the model's words, and the limit of a text's evidence."""

    surprisal: NDArray[np.uint8]  # (U,), in units of 1 / STEPS
    prior: float  # mean squared surprisal of the dev texts' words
    limit: float  # evidence past which a text is outside
    figures: dict[str, Any] = field(default_factory=dict)  # for people: on how many

    @cached_property
    def squares(self) -> NDArray[np.float64]:
        """The squared surprisal (U,) of each unit."""
        return (self.surprisal / STEPS) ** 2

    def evidence(
        self,
        documents: Sequence[NDArray],
        tokenizer: TextTokenizer | PieceTokenizer,
    ) -> NDArray[np.float64]:
        """Return the evidence (N,) that each text lies outside.

        Args:
            documents: the row numbers of each text, unknown words among them.
            tokenizer: gave those numbers.
        """
        evidence = np.full(len(documents), self.prior)
        for row, ids in enumerate(documents):
            squares = self.squares[text_units(ids, tokenizer)]
            if len(squares):
                average = (1 + PRIOR_WORDS) * self.prior - squares.max()
                size = len(squares) + PRIOR_WORDS
                evidence[row] = (squares.sum() + average) / size
        return evidence

    def outside(
        self,
        documents: Sequence[NDArray],
        tokenizer: TextTokenizer | PieceTokenizer,
    ) -> NDArray[np.bool_]:
        """Return which texts (N,) lie outside; one without a word never does."""
        return self.evidence(documents, tokenizer) > self.limit

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers without the table, ready for JSON."""
        return {"limit": self.limit, "prior": self.prior, **self.figures}

    def save(self, path: Path) -> None:
        """Write one file: the surprisals, the numbers in its header."""
        import torch

        numbers = {"prior": self.prior, "limit": self.limit, "figures": self.figures}
        tensors = {TABLE: torch.from_numpy(self.surprisal)}
        write_tensors(path, tensors, {"rule": json.dumps(numbers)})

    @classmethod
    def load(
        cls, path: Path, tokenizer: TextTokenizer | PieceTokenizer
    ) -> "OutsideRule":
        """Read what `save` wrote; refuse what does not fit the model's words."""
        try:
            check_regular(path)
            with safe_open(path, framework="numpy") as file:
                numbers = json.loads((file.metadata() or {})["rule"])
                table = file.get_tensor(TABLE)
            prior, limit = float(numbers["prior"]), float(numbers["limit"])
            if table.dtype != np.uint8 or table.shape != (count_units(tokenizer),):
                raise ValueError(f"{table.dtype} of shape {table.shape}")
            if not (math.isfinite(prior) and math.isfinite(limit)):
                raise ValueError(f"prior {prior} and limit {limit}")
            return cls(table, prior, limit, dict(numbers["figures"]))
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            reason = " ".join(str(getattr(error, "strerror", None) or error).split())
            raise ModelFolderError(
                f"{path} must hold the surprisals of the model's words and a limit; "
                f"got {reason}. Restore the folder."
            ) from error


def count_units(tokenizer: TextTokenizer | PieceTokenizer) -> int:
    """Return how many different units texts can have."""
    if isinstance(tokenizer, PieceTokenizer):
        return FIRST_PIECE + tokenizer.n_pieces
    if tokenizer.rule == "characters":
        return tokenizer.n_words**3
    return tokenizer.n_words


def text_units(
    ids: NDArray, tokenizer: TextTokenizer | PieceTokenizer
) -> NDArray[np.int32] | NDArray[np.int64]:
    """Return the units of a text, whose surprisals are its evidence.

    A piece is the same at the beginning of a sentence and inside it. Single characters
    say little, so three in a row are one unit.
    """
    if isinstance(tokenizer, PieceTokenizer):
        return np.where(
            ids >= FIRST_PIECE + tokenizer.n_pieces, ids - tokenizer.n_pieces, ids
        )
    if tokenizer.rule == "characters":
        n, ids = tokenizer.n_words, ids.astype(np.int64)
        return (ids[:-2] * n + ids[1:-1]) * n + ids[2:]
    return ids


def fit_outside(
    train: Sequence[NDArray],
    dev: Sequence[NDArray],
    tokenizer: TextTokenizer | PieceTokenizer,
) -> OutsideRule | None:
    """Return the rule of a training; None if there are too few dev texts for a limit.

    Args:
        train: the training texts as row numbers, all of them about the topics.
        dev: the dev texts, with their unknown words.
        tokenizer: gave those numbers.
    """
    dev = [ids for ids in dev if len(text_units(ids, tokenizer))]
    if len(dev) < FEW_TEXTS:
        return None
    counts = np.zeros(count_units(tokenizer), dtype=np.int64)
    for ids in train:
        np.add.at(counts, text_units(ids, tokenizer), 1)
    if isinstance(tokenizer, PieceTokenizer) or tokenizer.rule != "characters":
        counts[UNK_ID] = 0  # stands for many words, each rarer than any known one
    surprisal = smoothed_surprisal(counts)
    units = np.concatenate([text_units(ids, tokenizer) for ids in dev])
    unlimited = OutsideRule(surprisal, 0.0, math.inf)
    prior = float(np.mean(unlimited.squares[units]))
    evidence = replace(unlimited, prior=prior).evidence(dev, tokenizer)
    limit = pick_limit(evidence)
    refused = int((evidence > limit).sum())
    figures = {"texts": len(dev), "refused": refused, "share": REFUSED_SHARE}
    return OutsideRule(surprisal, prior, limit, figures)


def smoothed_surprisal(counts: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return -log of each unit's smoothed share, in units of 1 / STEPS.

    >>> smoothed_surprisal(np.array([0, 2, 5])) / STEPS  # of 9 = 7 words + 2 kinds
    array([2.875, 1.25 , 0.5  ])
    """
    total = counts.sum() + np.count_nonzero(counts)
    shares = (counts + SMOOTHING) / max(total, 1)
    steps = np.round(-np.log(shares) * STEPS)
    return np.clip(steps, 0, 255).astype(np.uint8)


def pick_limit(evidence: NDArray) -> float:
    """Return the evidence that about one of a hundred such texts exceeds.

    A hundred texts or more tell it by themselves. Of fewer, the highest is too low a
    limit, so it is also at least what a normal distribution would have there.

    >>> pick_limit(np.arange(200.0))
    197.0
    """
    rank = math.ceil((1 - REFUSED_SHARE) * len(evidence))
    limit = float(np.sort(evidence)[rank - 1])
    if len(evidence) >= 1 / REFUSED_SHARE:
        return limit
    spread = float(np.std(evidence, ddof=1))
    return max(limit, float(np.mean(evidence)) + NORMAL_QUANTILE * spread)
