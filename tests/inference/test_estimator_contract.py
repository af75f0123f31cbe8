"""scikit-learn's own checks of an estimator.

They feed matrices of numbers, which are no texts: scikit-learn leaves an estimator of
texts out altogether. So the numbers are told in words here, a word a column and value,
and what is checked is `CapsuleClassifier` behind that reading.
"""

from typing import Any

import numpy as np
import pytest
from sklearn.utils import Tags
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import validate_data

from textcapsules import CapsuleClassifier
from toy import TINY_MODEL

pytestmark = pytest.mark.slow


class OnNumbers(CapsuleClassifier):
    """Reads rows of numbers as texts such as "a3 b-1", in half units."""

    def fit(self, X: Any, y: Any) -> "OnNumbers":
        validate_data(self, X)
        super().fit(X, y)
        return self

    def _read_texts(self, X: Any) -> list[str]:
        rows = np.rint(2 * validate_data(self, X, reset=False)).astype(int)
        return [
            " ".join(f"c{j}{'m' if v < 0 else 'p'}{abs(v)}" for j, v in enumerate(row))
            for row in rows
        ]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.string = True, False
        tags.input_tags.one_d_array = False
        return tags


@parametrize_with_checks(
    [
        OnNumbers(
            preset="paper",
            epochs=5,
            batch_size=16,
            learning_rate=0.1,
            device="cpu",
            options={**TINY_MODEL, "ngram_sizes": (1,), "conv_capsules": False},
        )
    ],
)
def test_scikit_learn_check(estimator: Any, check: Any) -> None:
    check(estimator)
