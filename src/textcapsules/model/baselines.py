"""What a user would pick instead: TF-IDF features and a linear model.

The rival reads text, gives scores between 0 and 1, and is calibrated and judged exactly
like a capsule network.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["TfidfClassifier"]


class TfidfClassifier:
    """TF-IDF of words and word pairs, then logistic regression.

    Where every text has one label it is one regression over the classes; where some
    have several, one for each class.
    """

    def __init__(self, *, C: float = 10.0) -> None:
        self.C = C

    def fit(self, texts: Sequence[str], targets: NDArray) -> "TfidfClassifier":
        """Learn from texts and their labels, targets (N, J)."""
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
        from sklearn.multiclass import OneVsRestClassifier
        from sklearn.pipeline import make_pipeline

        regression = LogisticRegression(C=self.C, max_iter=1000)
        several = bool((targets.sum(1) > 1).any())
        self.pipeline = make_pipeline(
            TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
            OneVsRestClassifier(regression) if several else regression,
        )
        self.columns = np.arange(targets.shape[1])
        self.pipeline.fit(texts, targets if several else targets.argmax(1))
        self.seen = self.columns if several else self.pipeline.classes_
        return self

    def scores(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return every class's probability for every text, (N, J)."""
        scores = np.zeros((len(texts), len(self.columns)), dtype=np.float32)
        scores[:, self.seen] = self.pipeline.predict_proba(texts)
        return scores
