"""TF-IDF of words and word pairs, then a linear model: an SVM or logistic regression.

Scores are from 0 to 1: logistic regression's probabilities (of one class among all, or
of each class alone where a text may have several), and for the SVM the logistic
function of the signed distance from each class's plane, a half on the plane itself. A
class without a training text scores zero.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from textcapsules.files import write_tensors
from textcapsules.model.rivals.classic import ClassicSystem
from textcapsules.text.vocabulary import UNK_ID

__all__ = ["TfidfLinear", "ngrams"]

NEVER = -1e4  # a logit whose probability is zero in float32
PAIR = 2**32  # a pair of words is one number; a word alone has 0 in the second place


def ngrams(document: NDArray) -> list[int]:
    """Return the known words of a document, and the pairs of known neighbours.

    >>> [divmod(number, 2**32) for number in ngrams(np.array([5, 7, 1, 5]))]
    [(5, 0), (7, 0), (5, 0), (5, 7)]
    """
    ids = document.astype(np.int64)
    known = ids > UNK_ID
    pairs = (ids[:-1] * PAIR + ids[1:])[known[:-1] & known[1:]]
    return [*(ids[known] * PAIR).tolist(), *pairs.tolist()]


class TfidfLinear(ClassicSystem):
    """Sublinear TF-IDF and one plane a class; scikit-learn fits it, arrays keep it."""

    def __init__(
        self, *, n_classes: int, kind: str, C: float, several: bool, seed: int = 0
    ) -> None:
        """Say what to fit.

        Args:
            n_classes: J.
            kind: `svm` or `lr`.
            C: inverse of the regularisation.
            several: whether a text may have several classes.
            seed: of the SVM's solver.
        """
        self.n_classes, self.kind, self.C = n_classes, kind, C
        self.several, self.seed = several, seed

    def fit(self, documents: Sequence[NDArray], targets: NDArray) -> "TfidfLinear":
        """Learn words, weights and planes."""
        self.vectorizer = new_vectorizer()
        features = self.vectorizer.fit_transform(documents)
        shape = (self.n_classes, features.shape[1])
        self.weight = np.zeros(shape, dtype=np.float32)  # (J, n)
        self.bias = np.full(self.n_classes, NEVER, dtype=np.float32)  # (J,)
        if self.kind == "lr" and not self.several:
            self.fit_together(features, targets.argmax(1))
        else:
            for place in range(self.n_classes):
                self.fit_alone(features, targets[:, place] > 0, place)
        return self

    def fit_together(self, features: Any, classes: NDArray) -> None:
        """Fit one regression over the classes that occur."""
        from sklearn.linear_model import LogisticRegression

        if len(np.unique(classes)) == 1:
            self.bias[classes[0]] = -NEVER
            return
        model = LogisticRegression(C=self.C, max_iter=1000).fit(features, classes)
        # Of two classes there is one plane, for the second; the first is its zero.
        seen = model.classes_[-len(model.coef_) :]
        self.bias[model.classes_] = 0
        self.weight[seen], self.bias[seen] = model.coef_, model.intercept_

    def fit_alone(self, features: Any, is_class: NDArray, place: int) -> None:
        """Fit the plane of one class against the rest."""
        from sklearn.linear_model import LogisticRegression
        from sklearn.svm import LinearSVC

        if is_class.all() or not is_class.any():
            self.bias[place] = -NEVER if is_class.all() else NEVER
            return
        model: Any = LogisticRegression(C=self.C, max_iter=1000)
        if self.kind == "svm":
            model = LinearSVC(C=self.C, max_iter=20_000, random_state=self.seed)
        model.fit(features, is_class)
        self.weight[place], self.bias[place] = model.coef_[0], model.intercept_[0]

    def scores(self, documents: Sequence[NDArray]) -> NDArray[np.float32]:
        """Return every class's score for every document, (N, J)."""
        if not documents:
            return np.zeros((0, self.n_classes), dtype=np.float32)
        features = self.vectorizer.transform(documents)
        logits = torch.from_numpy(features @ self.weight.T + self.bias)  # (N, J)
        alone = self.several or self.kind == "svm"
        return (logits.sigmoid() if alone else logits.softmax(1)).float().numpy()

    def n_parameters(self) -> int:
        """Return the number of weights."""
        return self.weight.size + self.bias.size

    def save(self, path: Path) -> None:
        """Write words, weights and planes as safetensors."""
        numbers: dict[int, int] = self.vectorizer.vocabulary_
        arrays = {
            "ngrams": np.array(sorted(numbers, key=numbers.__getitem__), np.int64),
            "idf": self.vectorizer.idf_,
            "weight": self.weight,
            "bias": self.bias,
        }
        write_tensors(path, {k: torch.from_numpy(v) for k, v in arrays.items()})

    def load(self, path: Path) -> None:
        """Take what `save` wrote."""
        try:
            tensors = load_file(path)
            words, idf = tensors["ngrams"], tensors["idf"]
            self.weight, self.bias = (
                _sized(tensors, "weight", (self.n_classes, len(words))),
                _sized(tensors, "bias", (self.n_classes,)),
            )
        except (SafetensorError, OSError, KeyError) as error:
            raise ValueError(str(error)) from error
        for name in ("idf", "weight", "bias"):
            if not tensors[name].isfinite().all():
                raise ValueError(f"numbers that are not finite in {name!r}")
        places = {number: place for place, number in enumerate(words.tolist())}
        self.vectorizer = new_vectorizer(places)
        self.vectorizer.idf_ = idf.numpy()


def new_vectorizer(vocabulary: dict[int, int] | None = None) -> Any:
    """Return the features' maker; with a vocabulary, it only lacks its weights."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    # Its stubs know no analyzer that is a function; its documentation does.
    analyzer: Any = ngrams
    return TfidfVectorizer(analyzer=analyzer, sublinear_tf=True, vocabulary=vocabulary)


def _sized(tensors: dict[str, Tensor], name: str, shape: tuple[int, ...]) -> NDArray:
    """Return a tensor as an array, if it has the shape."""
    if tuple(tensors[name].shape) != shape:
        raise ValueError(f"{name} of shape {tuple(tensors[name].shape)}, not {shape}")
    return tensors[name].numpy()
