"""Which texts a person should look at next, and what the decisions so far are worth.

Most texts come up by how uncertain their labels are: how near the nearest of their
scores is to its threshold. Some are drawn at random, so that what is measured on them
holds for all texts. The random order is that of the texts' SHA-256 sums, the same in
every process; the next text of it that is not decided yet is drawn.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from textcapsules.base.errors import ConfigError, DataError, InputError
from textcapsules.data.reviews import Entry, ReviewLog
from textcapsules.inference.recalibrate import (
    Recalibration,
    fit_reviews,
    reviewed_targets,
    unreviewed,
)
from textcapsules.model.classifier import TextClassifier
from textcapsules.model.score import past
from textcapsules.training.calibrate import logit

__all__ = ["Item", "ReviewQueue", "expected"]

ENOUGH = 5  # reviewed texts, before thresholds are fitted to them
BATCH = 256  # texts scored at a time, so that a progress bar moves


class Item(NamedTuple):
    """A text to decide about."""

    text: str
    scores: NDArray[np.float32]  # (J,)
    proposed: tuple[str, ...]  # the model's labels, strongest first
    is_random: bool  # drawn at random, rather than for its uncertainty


class ReviewQueue:
    """The texts of one review, and the log of what was decided.

    Args:
        classifier: proposes the labels.
        texts: to be reviewed; blank ones are left out, and each is there once.
        log: what was decided before, and is to be decided now.
        random_share: share of the texts that are drawn at random.
        on_texts: called with the number of texts just scored.
    """

    def __init__(
        self,
        classifier: TextClassifier,
        texts: Sequence[str],
        log: ReviewLog,
        *,
        random_share: float = 0.25,
        on_texts: Callable[[int], None] | None = None,
    ) -> None:
        if not 0 < random_share <= 1:
            raise ConfigError(
                f"random-share must be above 0 and at most 1; got {random_share:g}."
            )
        self.classifier, self.log, self.random_share = classifier, log, random_share
        self.texts = [text for text in dict.fromkeys(texts) if text.strip()]
        if not self.texts:
            raise DataError("texts must hold at least one to review; got none.")
        # (N, J), and which texts (N,) the model refuses
        self.scores, self.outside = self.read(self.texts, on_texts)
        self.row = {text: row for row, text in enumerate(self.texts)}
        sums = [hashlib.sha256(as_bytes(text)).digest() for text in self.texts]
        self.random_order = sorted(range(len(sums)), key=sums.__getitem__)
        self.place = {self.texts[row]: k for k, row in enumerate(self.random_order)}
        self.pool = hashlib.sha256(b"".join(sorted(sums))).hexdigest()[:16]
        # The same of texts decided in other reviews.
        self.others: dict[str, tuple[NDArray, np.bool_]] = {}

    def read(
        self, texts: Sequence[str], on_texts: Callable[[int], None] | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return the scores of texts, (N, J), and which are outside the topics."""
        scores, outside = [], []
        for start in range(0, len(texts), BATCH):
            part = texts[start : start + BATCH]
            reading = self.classifier.read(part)
            scores.append(reading.scores)
            outside.append(reading.outside)
            if on_texts is not None:
                on_texts(len(part))
        return np.concatenate(scores), np.concatenate(outside)

    def margins(self) -> NDArray[np.float64]:
        """Return each text's smallest distance of a score from its threshold."""
        limits = logit(np.asarray(self.classifier.labels.thresholds))
        return np.abs(logit(self.scores) - limits).min(1)

    def upcoming(self, n: int = 1, first: str | None = None) -> list[Item]:
        """Return the next texts in order; `first` is one that comes before others."""
        done = set(self.log.decided())
        slot = sum(text in self.row for text in done)
        uncertain = iter(np.argsort(self.margins(), kind="stable").tolist())
        random = iter(self.random_order)
        items: list[Item] = []
        if first in self.row and first not in done:
            done.add(first)
            items.append(self.item(self.row[first]))
            slot += 1
        while len(items) < n and slot < len(self.texts):
            share = self.random_share
            is_random = int((slot + 1) * share) > int(slot * share)
            row = next(
                row
                for row in (random if is_random else uncertain)
                if self.texts[row] not in done
            )
            done.add(self.texts[row])
            items.append(self.item(row, is_random))
            slot += 1
        return items

    def item(self, row: int, is_random: bool = False) -> Item:
        """Return a text with what the model thinks of it now."""
        scores, labels = self.scores[row], self.classifier.labels
        _, thresholds, _, at_least_one = labels
        chosen = past(scores[None], thresholds, at_least_one=at_least_one)[0]
        proposed = self.classifier.names(scores, chosen)
        return Item(self.texts[row], scores, proposed, is_random)

    def decide(self, text: str, labels: Sequence[str]) -> Entry:
        """Log all labels of a text, perhaps none."""
        known = self.classifier.labels.names
        for label in labels:
            if label not in known:
                raise InputError(
                    f"label must be one of {', '.join(known)}; got {label!r:.60}."
                )
        given = [label for label in known if label in set(labels)]
        return self.append("label", text, given)

    def skip(self, text: str) -> Entry:
        """Log that a text is not to be decided."""
        return self.append("skip", text)

    def append(self, action: str, text: str, labels: Sequence[str] = ()) -> Entry:
        """Log a decision about a text of this review."""
        if text not in self.row:
            raise InputError(
                f"text must be one of those to review; got another: {text!r:.40}."
            )
        place = self.place[text]
        return self.log.append(
            action, text=text, labels=tuple(labels), pool=self.pool, place=place
        )

    def counts(self) -> dict[str, int]:
        """Return how many texts are labelled, skipped and left."""
        decided = self.log.decided()
        done = sum(text in self.row for text in decided)
        actions = [entry.action for entry in decided.values()]
        return {
            "reviewed": actions.count("label"),
            "skipped": actions.count("skip"),
            "left": len(self.texts) - done,
        }

    def fit(self) -> Recalibration | None:
        """Return thresholds from all reviewed texts; None while there are too few."""
        reviews = self.log.reviews()
        if len(reviews) < ENOUGH:
            return None
        other = [
            review.text
            for review in reviews
            if review.text not in self.row and review.text not in self.others
        ]
        if other:
            self.others.update(
                zip(other, zip(*self.read(other), strict=True), strict=True)
            )
        readings = [
            (self.scores[self.row[text]], self.outside[self.row[text]])
            if text in self.row
            else self.others[text]
            for text in (review.text for review in reviews)
        ]
        scores, outside = map(np.stack, zip(*readings, strict=True))
        names = self.classifier.labels.names
        targets = reviewed_targets(
            names,
            [review.text for review in reviews],
            [review.labels for review in reviews],
            str(self.log.path),
        )
        is_random = np.array([review.is_random for review in reviews])
        before = unreviewed(self.classifier)
        return fit_reviews(scores, targets, names, before, is_random, outside)


def as_bytes(text: str) -> bytes:
    """Return a text's bytes, also of one that is not valid Unicode."""
    return text.encode("utf-8", "surrogatepass")


def expected(fitted: Recalibration) -> str:
    """Return a sentence: what is expected of new thresholds, and on which texts."""
    before, after = fitted.value_before, fitted.value_after
    low, high = after.exact_match_interval
    return (
        f"all labels right in {after.exact_match:.0%} of the texts ({low:.0%} to "
        f"{high:.0%}) with new thresholds, in {before.exact_match:.0%} with those "
        f"before the review; estimated on {after.texts} texts ({fitted.on})"
    )
