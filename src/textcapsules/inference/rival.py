"""A model beside a simple rival on the same texts: who is right where.

A model is worth its price only beside what a user would pick instead. Two shares of
right texts differ by chance too, so the texts are counted that one of the two got right
and the other did not: if both were equally good, either would be as likely as a coin.
"""

from typing import Any, NamedTuple

from numpy.typing import NDArray

from textcapsules.inference.evaluate import Evaluation

__all__ = ["RIVAL", "Comparison", "sign_test"]

RIVAL = "TF-IDF + logistic regression"


class Comparison(NamedTuple):
    """A rival's figures, and how often one of the two alone was right."""

    rival: str
    evaluation: Evaluation  # of the rival
    only_model: int  # texts of which the model alone got all labels right
    only_rival: int
    chance: float  # probability of counts as uneven if both were equally good

    @classmethod
    def of(
        cls, evaluation: Evaluation, model: NDArray, rival: NDArray, title: str = RIVAL
    ) -> "Comparison":
        """Compare by whether each text (N,) got all its labels right."""
        wins, losses = int((model & ~rival).sum()), int((rival & ~model).sum())
        return cls(title, evaluation, wins, losses, sign_test(wins, losses))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {**self._asdict(), "evaluation": self.evaluation.to_dict()}


def sign_test(wins: int, losses: int) -> float:
    """Return the probability of counts at least as uneven from a fair coin.

    >>> sign_test(5, 5), sign_test(0, 4)
    (1.0, 0.125)
    """
    from scipy.stats import binomtest

    if not wins + losses:
        return 1.0
    return min(1.0, float(binomtest(wins, wins + losses).pvalue))
