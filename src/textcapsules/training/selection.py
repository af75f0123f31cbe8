"""Choose on the development set which epoch to keep, and calibrate its thresholds.

A model that must give several labels is judged on documents with several labels. A dev
set that has none gets them by joining two of its documents (`join`). The single ones
are used too: on joined documents alone, the threshold of a network that was never shown
two labels comes out far too low. How scores become thresholds is in `calibrate`.
"""

import math
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textcapsules.config import RunConfig
from textcapsules.model.builder import System
from textcapsules.model.score import highest, score_documents
from textcapsules.training.calibrate import (
    THRESHOLD_RULES,
    UNCALIBRATED,
    judge_decisions,
)
from textcapsules.training.join import draw_joined
from textcapsules.training.metrics import log_loss
from textcapsules.training.prepare import Encoded

__all__ = ["DevSet"]

MANY_TEXTS = 200  # dev texts, of which two epochs rarely have equally many right

Parts = dict[str, tuple[NDArray, NDArray]]  # scores and labels, by kind of document


class DevSet:
    """Development documents, and the joined ones made of them."""

    def __init__(
        self, config: RunConfig, dev: Encoded, *, n_pieces: int | None = None
    ) -> None:
        """Join documents if none has several labels; see `join.join_documents`."""
        self.config, self.dev = config, dev
        self.joined: Encoded | None = None  # made if no document has several labels
        if (dev.targets.sum(1) > 1).any():
            self.source = "dev documents"
            return
        seed = config.data.split_seed
        n_joined = len(dev.documents)
        self.joined = draw_joined(config, dev, n_joined, seed, seed, n_pieces=n_pieces)
        self.source = {
            "joined": "joined dev documents",
            "single+joined": "single and joined dev documents",
        }[config.train.calibrate_on]

    @property
    def documents(self) -> list[NDArray]:
        """Return all documents that are scored: the single ones and the joined."""
        joined = [] if self.joined is None else self.joined.documents
        return [*self.dev.documents, *joined]

    @property
    def gives_several(self) -> bool:
        """Tell whether labels are given by thresholds rather than by the highest."""
        train = self.config.train
        return train.task == "multi-label" or train.select == "joined"

    @cached_property
    def calibration_texts(self) -> Encoded:
        """The documents that the thresholds are chosen on, and their labels."""
        if self.joined is None:
            return self.dev
        if self.config.train.calibrate_on == "joined":
            return self.joined
        targets = np.concatenate([self.dev.targets, self.joined.targets])
        return Encoded(self.documents, targets)

    def objective(self, scores: NDArray, targets: NDArray) -> float:
        """Return what a model is chosen by: the best thresholds' value, or accuracy."""
        if not self.gives_several:
            return share_of_hits(scores, targets)
        train = self.config.train
        return THRESHOLD_RULES[train.thresholds](
            scores, targets, train.threshold_for
        ).value

    @cached_property
    def majority_share(self) -> float:
        """Accuracy on dev of always giving the commonest label.

        >>> from textcapsules.config import preset
        >>> dev = Encoded([np.array([1])] * 100, np.eye(2)[[0] * 50 + [1] * 50])
        >>> DevSet(preset("paper"), dev).majority_share
        0.5
        """
        return float(self.dev.targets.mean(0).max()) if len(self.dev.targets) else 0.0

    @cached_property
    def majority_limit(self) -> float:
        """Accuracy that such guessing may reach by chance: two deviations higher.

        >>> from textcapsules.config import preset
        >>> dev = Encoded([np.array([1])] * 100, np.eye(2)[[0] * 50 + [1] * 50])
        >>> DevSet(preset("paper"), dev).majority_limit
        0.6
        """
        if not len(self.dev.targets):
            return 0.0
        share = self.majority_share
        return share + 2 * math.sqrt(share * (1 - share) / len(self.dev.targets))

    def judge(self, network: System) -> dict[str, float]:
        """Return an epoch's dev figures; the best `dev_score` decides what is kept.

        Where several epochs have it, `dev_loss` decides, the log-loss of the labels of
        single and joined documents: on the single ones alone, a network that is sure
        of one label and blind to a second could seem best. Where accuracy decides, it
        is only there if dev is small, since equal accuracies are rare elsewhere.
        """
        scores = score_documents(network, self.dev.documents)
        accuracy = self.accuracy(scores)
        by_accuracy = self.config.train.select != "joined"
        figures = {"dev_score": accuracy, "dev_accuracy": accuracy}
        if by_accuracy and len(scores) > MANY_TEXTS:
            return figures
        parts = self.parts(network, scores)
        figures["dev_loss"] = log_loss(*joined_up(parts.values()), several=True)
        if by_accuracy:
            return figures
        chosen = self.calibrate(network, scores, parts)
        name = "dev_" + self.config.train.threshold_for.replace("-", "_")
        values = {
            key.replace("value", name): value
            for key, value in chosen.items()
            if key.startswith("value_")
        }
        return {
            **figures,
            "dev_score": chosen["value"],
            name: chosen["value"],
            **values,
            "dev_threshold": chosen["threshold"],
        }

    def accuracy(self, scores: NDArray) -> float:
        """Return the share of dev documents whose highest class is one of theirs."""
        return share_of_hits(scores, self.dev.targets)

    def calibrate(
        self,
        network: System,
        scores: NDArray | None = None,
        parts: Parts | None = None,
    ) -> dict[str, Any]:
        """Return the best thresholds, and the objective that they reach.

        `threshold` is for all labels. If each label has its own, those are
        `thresholds`, and `threshold` is that of a label without a text. `value` is the
        objective on all documents used; `value_single` and `value_joined` are those of
        each part (`value_several` if dev has documents with several labels).

        Args:
            network: the system to calibrate.
            scores: its scores of the dev documents, if they are known.
            parts: the same of all documents, if they are known.
        """
        train = self.config.train
        # No two dev documents differ in label: no threshold is better than another.
        if self.joined is not None and not self.joined.documents:
            nothing = {"value": 0.0, "documents": 0, "on": "nothing"}
            return {"threshold": UNCALIBRATED, **nothing}
        if scores is None:
            scores = score_documents(network, self.dev.documents)
        if parts is None:
            parts = self.parts(network, scores)
        names = ["joined"] if self.source == "joined dev documents" else list(parts)
        used, targets = joined_up(parts[name] for name in names)
        rule = THRESHOLD_RULES[train.thresholds]
        chosen = rule(used, targets, train.threshold_for)
        per_label = train.thresholds != "one"
        values = {
            f"value_{name}": judge_decisions(*part, chosen.each, train.threshold_for)
            for name, part in parts.items()
        }
        return {
            "threshold": chosen.common,
            **({"thresholds": chosen.each.tolist()} if per_label else {}),
            "value": chosen.value,
            **values,
            "objective": train.threshold_for,
            "documents": len(used),
            "on": self.source,
        }

    def parts(self, network: System, scores: NDArray) -> Parts:
        """Return scores and labels of the single documents and of the others."""
        targets = self.dev.targets
        if self.joined is not None and not self.joined.documents:
            return {"single": (scores, targets)}
        if self.joined is not None:
            joined = score_documents(network, self.joined.documents)
            return {
                "single": (scores, targets),
                "joined": (joined, self.joined.targets),
            }
        several = targets.sum(1) > 1
        return {
            name: (scores[rows], targets[rows])
            for name, rows in (("single", ~several), ("several", several))
            if rows.any()
        }


def joined_up(parts: Iterable[tuple[NDArray, NDArray]]) -> tuple[NDArray, NDArray]:
    """Return scores (N, J) and labels (N, J) of all parts."""
    scores, targets = zip(*parts, strict=True)
    return np.concatenate(scores), np.concatenate(targets)


def share_of_hits(scores: NDArray, targets: NDArray) -> float:
    """Return the share of documents (N, J) whose highest class is one of theirs."""
    top = highest(scores)
    hits = targets[np.arange(len(top)), top] * (top >= 0)
    return float(hits.mean())
