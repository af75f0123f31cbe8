"""What is chosen on the development set: the epoch to keep, and the thresholds.

A model that must give several labels is judged on documents with several. Where the
development set has none, they are made by joining two of its documents (`calibrate`),
and the single ones stand beside them: on joined documents alone, the threshold of a
network that was never shown two labels comes out far too low.
"""

import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textcapsules.config import RunConfig
from textcapsules.model.builder import System
from textcapsules.model.score import highest, score_documents
from textcapsules.training.calibrate import (
    best_threshold,
    join_documents,
    joined_pairs,
    judge_decisions,
    label_thresholds,
)
from textcapsules.training.prepare import Encoded

__all__ = ["DevSet"]


class DevSet:
    """Development documents, and the multi-label ones made of them."""

    def __init__(self, config: RunConfig, dev: Encoded) -> None:
        self.config, self.dev = config, dev
        self.joined: Encoded | None = None  # where some of dev have several labels
        if (dev.targets.sum(1) > 1).any():
            self.source = "dev documents"
            return
        pairs = joined_pairs(
            dev.targets,
            len(dev.documents),
            config.data.split_seed,
            by=config.train.joined_by,
        )
        joined = join_documents(
            *dev,
            pairs,
            config.text.max_tokens,
            share=config.train.joined_share,
            seed=config.data.split_seed,
        )
        self.joined = Encoded(*joined)
        self.source = {
            "joined": "joined dev documents",
            "single+joined": "single and joined dev documents",
        }[config.train.calibrate_on]

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
        """Accuracy that such guessing may reach by chance: two deviations up.

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
        """Return an epoch's dev figures; `dev_score` is what selection looks at."""
        scores = score_documents(network, self.dev.documents)
        accuracy = self.accuracy(scores)
        if self.config.train.select != "joined":
            return {"dev_score": accuracy, "dev_accuracy": accuracy}
        chosen = self.calibrate(network, scores)
        name = "dev_" + self.config.train.threshold_for.replace("-", "_")
        parts = {
            key.replace("value", name): value
            for key, value in chosen.items()
            if key.startswith("value_")
        }
        return {
            "dev_score": chosen["value"],
            name: chosen["value"],
            **parts,
            "dev_threshold": chosen["threshold"],
            "dev_accuracy": accuracy,
        }

    def accuracy(self, scores: NDArray) -> float:
        """Return the share of dev documents whose highest class is one of theirs."""
        top = highest(scores)
        hits = self.dev.targets[np.arange(len(top)), top] * (top >= 0)
        return float(hits.mean())

    def calibrate(
        self, network: System, scores: NDArray | None = None
    ) -> dict[str, Any]:
        """Return the best thresholds, and what they are worth.

        `threshold` is for all labels; where they have one each, those are `thresholds`,
        and `threshold` is what a label without a text has. `value` is the objective on
        all documents used, `value_single` and `value_joined` (`value_several` where dev
        has documents with several labels) on each part.

        Args:
            network: what is calibrated.
            scores: of the dev documents, where they are known.
        """
        train = self.config.train
        # No two dev documents differ in label: one threshold is as good as another.
        if self.joined is not None and not self.joined.documents:
            return {"threshold": 0.5, "value": 0.0, "documents": 0, "on": "nothing"}
        if scores is None:
            scores = score_documents(network, self.dev.documents)
        parts = self.parts(network, scores)
        names = ["joined"] if self.source == "joined dev documents" else list(parts)
        used, targets = (
            np.concatenate(each)
            for each in zip(*(parts[name] for name in names), strict=True)
        )
        found: dict[str, Any] = {}
        if train.thresholds == "per-label":
            least, threshold, value = label_thresholds(
                used, targets, train.threshold_for
            )
            found["thresholds"] = least.tolist()
        else:
            least, value = best_threshold(used, targets, train.threshold_for)
            threshold = least
        worth = {
            f"value_{name}": judge_decisions(*part, least, train.threshold_for)
            for name, part in parts.items()
        }
        return {
            "threshold": threshold,
            **found,
            "value": value,
            **worth,
            "objective": train.threshold_for,
            "documents": len(used),
            "on": self.source,
        }

    def parts(
        self, network: System, scores: NDArray
    ) -> dict[str, tuple[NDArray, NDArray]]:
        """Return scores and labels of the single documents and of the others."""
        targets = self.dev.targets
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
