"""What a user would pick instead: TF-IDF features and a linear model.

The rival reads text, gives scores between 0 and 1, and is calibrated and judged exactly
like a capsule network.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["TfidfClassifier"]


class TfidfClassifier:
    """TF-IDF of words and word pairs, then one logistic regression over the classes."""

    def __init__(self, *, C: float = 10.0, seed: int = 0) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline

        self.pipeline = make_pipeline(
            TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=1),
            LogisticRegression(C=C, max_iter=1000, random_state=seed),
        )

    def fit(self, texts: Sequence[str], targets: NDArray) -> "TfidfClassifier":
        """Learn from texts with one label each, targets (N, J)."""
        self.n_classes = targets.shape[1]
        self.pipeline.fit(texts, targets.argmax(1))
        return self

    def scores(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return every class's probability for every text, (N, J)."""
        scores = np.zeros((len(texts), self.n_classes), dtype=np.float32)
        scores[:, self.pipeline.classes_] = self.pipeline.predict_proba(texts)
        return scores
