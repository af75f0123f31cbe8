"""What is chosen on the development set: the epoch to keep, and the threshold.

A model that must give several labels is judged on documents with several. Where the
development set has none, they are made by joining two of its documents (`calibrate`).
"""

import math
from functools import cached_property
from typing import Any

import numpy as np

from textcapsules.calibrate import best_threshold, join_documents, joined_pairs
from textcapsules.config import RunConfig
from textcapsules.metrics import highest
from textcapsules.model.builder import System
from textcapsules.model.score import score_documents
from textcapsules.training.prepare import Encoded

__all__ = ["DevSet"]


class DevSet:
    """Development documents, and the multi-label ones made of them."""

    def __init__(self, config: RunConfig, dev: Encoded) -> None:
        self.config, self.dev = config, dev
        if (dev.targets.sum(1) > 1).any():
            self.several, self.source = dev, "dev documents"
        else:
            pairs = joined_pairs(
                dev.targets, len(dev.documents), config.data.split_seed
            )
            joined = join_documents(
                *dev,
                pairs,
                config.text.max_tokens,
                share=config.train.joined_share,
                seed=config.data.split_seed,
            )
            self.several, self.source = Encoded(*joined), "joined dev documents"

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
        accuracy = self.accuracy(network)
        if self.config.train.select != "joined":
            return {"dev_score": accuracy, "dev_accuracy": accuracy}
        chosen = self.calibrate(network)
        name = "dev_" + self.config.train.threshold_for.replace("-", "_")
        return {
            "dev_score": chosen["value"],
            name: chosen["value"],
            "dev_threshold": chosen["threshold"],
            "dev_accuracy": accuracy,
        }

    def accuracy(self, network: System) -> float:
        """Return the share of dev documents whose highest class is one of theirs."""
        top = highest(score_documents(network, self.dev.documents))
        hits = self.dev.targets[np.arange(len(top)), top] * (top >= 0)
        return float(hits.mean())

    def calibrate(self, network: System) -> dict[str, Any]:
        """Return the best threshold on documents with several labels."""
        objective = self.config.train.threshold_for
        if not self.several.documents:  # no two dev documents differ in label
            return {"threshold": 0.5, "value": 0.0, "documents": 0, "on": "nothing"}
        scores = score_documents(network, self.several.documents)
        threshold, value = best_threshold(scores, self.several.targets, objective)
        return {
            "threshold": threshold,
            "value": value,
            "objective": objective,
            "documents": len(scores),
            "on": self.source,
        }
