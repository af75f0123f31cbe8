"""Tell texts outside the training topics by their words: news, recipes, gibberish.

There are two kinds of evidence. Each is a mean over the words of a text, so that it
does not add up with length.

Contrast: how much commoner a word is in general texts, on everything, than in the
training texts, as the log of the two shares' ratio. It tells sentences in common words.
The limit comes from the dev texts: about one in a hundred of them lies past it. Every
label weighs the same in that, so that a label with few texts does not pay for one with
many short and uniform ones.

Surprisal: -log of a word's smoothed share of the training texts, squared, so that words
which training never saw weigh more than many common ones. It tells other languages and
gibberish, which general texts do not have either. Such texts lie far outside, so its
limit is as far as `FAR` standard deviations.

No single word decides, be it a name or a slip of the pen: the highest one counts like
the words of the dev texts on average. So that a few words prove little, every text also
gets `PRIOR_WORDS` such average words.

Words are what the model reads: words, an encoder's word pieces, or three characters in
a row. Of all candidates that were measured on off-topic texts this evidence did best
(docs/refusal.md). Folders of earlier versions have the surprisal alone, with a limit
that one in a hundred dev texts exceeds.
"""

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
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

__all__ = ["OUTSIDE_FILE", "Contrast", "OutsideRule", "fit_outside", "pick_limit"]

OUTSIDE_FILE = "outside.safetensors"
FEW_TEXTS = 30  # with fewer dev texts there is no limit, and nothing is refused
REFUSED_SHARE = 0.01  # of dev texts
FEW_OF_LABEL = 5  # a label with fewer dev texts weighs less than others
NORMAL_QUANTILE = 2.326  # deviations above the mean past which lies that share
PRIOR_WORDS = 2
SMOOTHING = 0.5  # the count of a word that training never saw
TEXTS_AT_ONCE = 4096  # bounds the memory of their units' values
FAR = 3.25  # deviations above the mean of the dev texts' surprisal
STEPS = 16  # a surprisal is stored in sixteenths, as one byte: up to 15.9
MAX_CONTRAST = 5.0  # of a word, either way; stored in sixteenths too
TABLE, CONTRAST = "surprisal", "contrast"


@dataclass(frozen=True)
class Contrast:
    """How much commoner words are in general texts, and the limit of a text's mean."""

    table: NDArray[np.int8]  # (U,), in units of 1 / STEPS
    prior: float  # mean of the dev texts' words
    limit: float  # mean past which a text is outside

    @cached_property
    def values(self) -> NDArray[np.float64]:
        """The contrast (U,) of each unit."""
        return self.table / STEPS


@dataclass(frozen=True)
class OutsideRule:
    """Surprisals and contrasts of the model's words, and the limits of a text's."""

    surprisal: NDArray[np.uint8]  # (U,), in units of 1 / STEPS
    prior: float  # mean squared surprisal of the dev texts' words
    limit: float  # evidence past which a text is outside
    figures: dict[str, Any] = field(default_factory=dict)  # for people: on how many
    contrast: Contrast | None = None  # none in folders of earlier versions

    @cached_property
    def squares(self) -> NDArray[np.float64]:
        """The squared surprisal (U,) of each unit."""
        return (self.surprisal / STEPS) ** 2

    def evidence(
        self,
        documents: Sequence[NDArray],
        tokenizer: TextTokenizer | PieceTokenizer,
    ) -> NDArray[np.float64]:
        """Return the surprisal evidence (N,) that each text lies outside.

        Args:
            documents: the row numbers of each text, unknown words among them.
            tokenizer: gave those numbers.
        """
        units = [text_units(ids, tokenizer) for ids in documents]
        return text_means(units, self.squares, self.prior)

    def outside(
        self,
        documents: Sequence[NDArray],
        tokenizer: TextTokenizer | PieceTokenizer,
    ) -> NDArray[np.bool_]:
        """Return which texts (N,) lie outside; one without a word never does."""
        units = [text_units(ids, tokenizer) for ids in documents]
        is_outside = text_means(units, self.squares, self.prior) > self.limit
        if self.contrast is not None:
            values, prior = self.contrast.values, self.contrast.prior
            is_outside |= text_means(units, values, prior) > self.contrast.limit
        return is_outside & np.array([len(each) > 0 for each in units], dtype=bool)

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers without the table, ready for JSON."""
        numbers = {"limit": self.limit, "prior": self.prior, **self.figures}
        if self.contrast is not None:
            own = {"limit": self.contrast.limit, "prior": self.contrast.prior}
            numbers[CONTRAST] = own
        return numbers

    def save(self, path: Path) -> None:
        """Write one file: the tables, the numbers in its header."""
        import torch

        numbers = {"prior": self.prior, "limit": self.limit, "figures": self.figures}
        tensors = {TABLE: torch.from_numpy(self.surprisal)}
        if self.contrast is not None:
            tensors[CONTRAST] = torch.from_numpy(self.contrast.table)
            numbers |= {CONTRAST: self.to_dict()[CONTRAST]}
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
                table = read_table(file, TABLE, np.uint8, tokenizer)
                contrast = None
                if CONTRAST in numbers:
                    own = read_table(file, CONTRAST, np.int8, tokenizer)
                    contrast = Contrast(own, *read_numbers(numbers[CONTRAST]))
            prior, limit = read_numbers(numbers)
            return cls(table, prior, limit, dict(numbers["figures"]), contrast)
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            reason = " ".join(str(getattr(error, "strerror", None) or error).split())
            raise ModelFolderError(
                f"{path} must hold the surprisals of the model's words and a limit; "
                f"got {reason}. Restore the folder."
            ) from error


def read_table(
    file: Any, name: str, kind: type, tokenizer: TextTokenizer | PieceTokenizer
) -> NDArray[Any]:
    """Return a table with one value per unit of a tokenizer."""
    table = file.get_tensor(name)
    if table.dtype != kind or table.shape != (count_units(tokenizer),):
        raise ValueError(f"{name}: {table.dtype} of shape {table.shape}")
    return table


def read_numbers(values: dict[str, Any]) -> tuple[float, float]:
    """Return prior and limit, if they are numbers."""
    prior, limit = float(values["prior"]), float(values["limit"])
    if not (math.isfinite(prior) and math.isfinite(limit)):
        raise ValueError(f"prior {prior} and limit {limit}")
    return prior, limit


def text_means(
    texts: Sequence[NDArray], values: NDArray[np.float64], prior: float
) -> NDArray[np.float64]:
    """Return the mean value (N,) of each text's units, its highest one left out.

    That one counts as `prior`, and so do `PRIOR_WORDS` more; a text without units has
    `prior`.

    Args:
        texts: the units of each text.
        values: (U,), of every unit.
        prior: the value of an average unit.
    """
    means = np.full(len(texts), prior)
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    n_parts = len(texts) // TEXTS_AT_ONCE + 1
    for rows in np.array_split(np.flatnonzero(lengths), n_parts):
        if len(rows):
            units = np.concatenate([texts[row] for row in rows])
            means[rows] = some_means(values[units], lengths[rows], prior)
    return means


def some_means(
    values: NDArray[np.float64], lengths: NDArray[np.int64], prior: float
) -> NDArray[np.float64]:
    """Return `text_means` of texts that have units, from the values of all of these."""
    firsts = np.cumsum(lengths) - lengths
    # Each sum begins with a zero: so it is rounded like the sum of that text alone.
    places = firsts + np.arange(len(lengths))
    sums = np.add.reduceat(np.insert(values, firsts, 0.0), places)
    average = (1 + PRIOR_WORDS) * prior - np.maximum.reduceat(values, firsts)
    return (sums + average) / (lengths + PRIOR_WORDS)


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
    *,
    general: Sequence[NDArray] = (),
    dev_labels: Sequence[Sequence[str]] | None = None,
) -> OutsideRule | None:
    """Return the rule of a training; None if there are too few dev texts for a limit.

    Args:
        train: the training texts as row numbers, all of them about the topics.
        dev: the dev texts, with their unknown words.
        tokenizer: gave those numbers.
        general: texts on everything; without them the surprisal alone decides.
        dev_labels: of each dev text; by default, all texts weigh the same.
    """
    given = [("",)] * len(dev) if dev_labels is None else dev_labels
    kept = [
        (units, labels)
        for ids, labels in zip(dev, given, strict=True)
        if len(units := text_units(ids, tokenizer))
    ]
    if len(kept) < FEW_TEXTS:
        return None
    texts, labels = zip(*kept, strict=True)
    counts = unit_counts(train, tokenizer)
    surprisal = smoothed_surprisal(counts)
    unlimited = OutsideRule(surprisal, 0.0, math.inf)
    prior = float(np.mean(unlimited.squares[np.concatenate(texts)]))
    evidence = text_means(texts, unlimited.squares, prior)
    if general:
        limit = float(np.mean(evidence) + FAR * np.std(evidence))
        table = contrast_steps(counts, unit_counts(general, tokenizer))
        contrast = Contrast(table, 0.0, math.inf)
        average = float(np.mean(contrast.values[np.concatenate(texts)]))
        means = text_means(texts, contrast.values, average)
        own_limit = pick_limit(means, equal_label_weights(labels))
        contrast = Contrast(table, average, own_limit)
        refused = int(((evidence > limit) | (means > own_limit)).sum())
    else:
        limit, contrast = pick_limit(evidence), None
        refused = int((evidence > limit).sum())
    figures = {
        "texts": len(texts),
        "refused": refused,
        "share": REFUSED_SHARE,
        # Of the dev texts' words, those that training lacks.
        "new_words": float(np.mean(counts[np.concatenate(texts)] == 0)),
    }
    return OutsideRule(surprisal, prior, limit, figures, contrast)


def unit_counts(
    texts: Sequence[NDArray], tokenizer: TextTokenizer | PieceTokenizer
) -> NDArray[np.int64]:
    """Return how often each unit occurs, (U,); unknown words are not counted.

    An unknown word stands for many words, each rarer than any known one.
    """
    counts = np.zeros(count_units(tokenizer), dtype=np.int64)
    for ids in texts:
        np.add.at(counts, text_units(ids, tokenizer), 1)
    if isinstance(tokenizer, PieceTokenizer) or tokenizer.rule != "characters":
        counts[UNK_ID] = 0
    return counts


def smoothed_shares(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return each unit's smoothed share."""
    total = counts.sum() + np.count_nonzero(counts)
    return (counts + SMOOTHING) / max(total, 1)


def contrast_steps(
    counts: NDArray[np.int64], general: NDArray[np.int64]
) -> NDArray[np.int8]:
    """Return the log of the general texts' share by the training texts', in steps.

    >>> contrast_steps(np.array([0, 2, 5]), np.array([3, 2, 0])) / STEPS
    array([ 2.1875,  0.25  , -2.125 ])
    """
    ratio = np.log(smoothed_shares(general)) - np.log(smoothed_shares(counts))
    ratio = np.clip(ratio, -MAX_CONTRAST, MAX_CONTRAST)
    return np.round(ratio * STEPS).astype(np.int8)


def equal_label_weights(labels: Sequence[Sequence[str]]) -> NDArray[np.float64]:
    """Return weights (N,) of texts such that labels weigh the same, small ones less.

    A label with fewer texts than `FEW_OF_LABEL` has too few to speak for it.

    >>> equal_label_weights([("a",)] * 20 + [("b",)] * 10 + [("c",)])[[0, 20, 30]] * 20
    array([1., 2., 4.])
    """
    sizes = Counter(label for each in labels for label in each)
    return np.array(
        [
            sum(1 / max(sizes[label], FEW_OF_LABEL) for label in each) / len(each)
            for each in labels
        ]
    )


def smoothed_surprisal(counts: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return -log of each unit's smoothed share, in units of 1 / STEPS.

    >>> smoothed_surprisal(np.array([0, 2, 5])) / STEPS  # of 9 = 7 words + 2 kinds
    array([2.875, 1.25 , 0.5  ])
    """
    steps = np.round(-np.log(smoothed_shares(counts)) * STEPS)
    return np.clip(steps, 0, 255).astype(np.uint8)


def pick_limit(evidence: NDArray, weights: NDArray | None = None) -> float:
    """Return the evidence that about one of a hundred such texts exceeds.

    A hundred texts or more tell it by themselves. Of fewer, the highest is too low a
    limit, so it is also at least what a normal distribution would have there.

    Args:
        evidence: (N,).
        weights: (N,), of the texts; by default all the same.

    >>> pick_limit(np.arange(200.0))
    197.0
    """
    if weights is None:
        weights = np.ones(len(evidence))
    order = np.argsort(evidence, kind="stable")
    above = 1 - np.cumsum(weights[order]) / weights.sum()
    limit = float(evidence[order][np.argmax(above <= REFUSED_SHARE + 1e-9)])
    if len(evidence) >= 1 / REFUSED_SHARE:
        return limit
    spread = float(np.std(evidence, ddof=1))
    return max(limit, float(np.mean(evidence)) + NORMAL_QUANTILE * spread)
