"""Baselines that are fitted at once, not trained by gradient: TF-IDF and fastText.

`ClassicSystem` is what they have in common. Scores are from 0 to 1.

TF-IDF: features of words and word pairs, then a linear model, an SVM or logistic
regression. Logistic regression scores by its probabilities, of one class among all, or
of each class alone if a text may have several. The SVM scores by the logistic function
of the signed distance from each class's plane, a half on the plane itself. A class
without a training text scores zero.

fastText: its supervised classifier (Joulin et al. 2017), through its own library. It
reads word numbers as words, so that every system sees the same tokens. Its model is the
library's own `.bin`, with a digest beside it. If a text may have several classes, each
has its own logistic output (`ova`), otherwise they share a softmax.
"""

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from textcapsules.base.errors import TextCapsulesError
from textcapsules.base.files import atomic_path, file_sha256, write_tensors, write_text
from textcapsules.model.word_scores import PAIR
from textcapsules.text.vocabulary import UNK_ID

__all__ = [
    "ClassicSystem",
    "FastText",
    "TfidfLinear",
    "new_vectorizer",
    "ngrams",
    "single_words",
]


class ClassicSystem(ABC):
    """A system that reads documents of word numbers and gives scores from 0 to 1."""

    n_classes: int

    @abstractmethod
    def fit(self, documents: Sequence[NDArray], targets: NDArray) -> "ClassicSystem":
        """Learn from documents and their labels, targets (N, J)."""

    @abstractmethod
    def scores(self, documents: Sequence[NDArray]) -> NDArray[np.float32]:
        """Return every class's score for every document, (N, J)."""

    @abstractmethod
    def n_parameters(self) -> int:
        """Return how many numbers were learnt."""

    @abstractmethod
    def save(self, path: Path) -> None:
        """Write what was learnt to one file."""

    @abstractmethod
    def load(self, path: Path) -> None:
        """Read what `save` wrote; any error of the file's format is a ValueError."""


NEVER = -1e4  # a logit whose probability is zero in float32


def single_words(document: NDArray) -> list[int]:
    """Return the known words of a document, as `ngrams` writes them.

    >>> [divmod(number, 2**32) for number in single_words(np.array([5, 1, 7]))]
    [(5, 0), (7, 0)]
    """
    ids = document.astype(np.int64)
    return (ids[ids > UNK_ID] * PAIR).tolist()


def ngrams(document: NDArray) -> list[int]:
    """Return the known words of a document, and the pairs of known neighbours.

    >>> [divmod(number, 2**32) for number in ngrams(np.array([5, 7, 1, 5]))]
    [(5, 0), (7, 0), (5, 0), (5, 7)]
    """
    ids = document.astype(np.int64)
    known = ids > UNK_ID
    pairs = (ids[:-1] * PAIR + ids[1:])[known[:-1] & known[1:]]
    return [*single_words(document), *pairs.tolist()]


class TfidfLinear(ClassicSystem):
    """Sublinear TF-IDF and one plane per class, fitted by scikit-learn."""

    def __init__(
        self,
        *,
        n_classes: int,
        kind: str,
        C: float,
        several: bool,
        seed: int = 0,
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
        return self.fit_features(self.vectorizer.fit_transform(documents), targets)

    def fit_features(self, features: Any, targets: NDArray) -> "TfidfLinear":
        """Learn weights and planes from the features (N, n) of documents."""
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
        """Read what `save` wrote."""
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


def new_vectorizer(
    vocabulary: dict[int, int] | None = None,
    *,
    pairs: bool = True,
    most: int | None = None,
) -> Any:
    """Return what makes the features; with a vocabulary, only weights are missing.

    Args:
        vocabulary: numbers of the n-grams, if they are known.
        pairs: read pairs of neighbouring words beside single ones.
        most: words and pairs that are read, the most frequent; None: all.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    # Its stubs know no analyzer that is a function; its documentation does.
    analyzer: Any = ngrams if pairs else single_words
    return TfidfVectorizer(
        analyzer=analyzer, sublinear_tf=True, vocabulary=vocabulary, max_features=most
    )


def _sized(tensors: dict[str, Tensor], name: str, shape: tuple[int, ...]) -> NDArray:
    """Return a tensor as an array, if it has the shape."""
    if tuple(tensors[name].shape) != shape:
        raise ValueError(f"{name} of shape {tuple(tensors[name].shape)}, not {shape}")
    return tensors[name].numpy()


LABEL = "__label__"
BUCKETS = 500_000  # rows shared by all n-grams of two words or more


class FastText(ClassicSystem):
    """Averaged vectors of words and word n-grams, and a linear output."""

    def __init__(
        self,
        *,
        n_classes: int,
        size: int,
        epochs: int,
        rate: float,
        ngrams: int,
        several: bool,
        seed: int = 0,
    ) -> None:
        """Say what to fit.

        Args:
            n_classes: J.
            size: of the word vectors.
            epochs: passes over the documents.
            rate: learning rate at the start.
            ngrams: longest word n-gram.
            several: whether a text may have several classes.
            seed: of the vectors and the order.
        """
        self.n_classes, self.seed = n_classes, seed
        self.library = fasttext_library()
        self.settings: dict[str, Any] = {
            "dim": size,
            "epoch": epochs,
            "lr": rate,
            "wordNgrams": ngrams,
            "loss": "ova" if several else "softmax",
            "bucket": BUCKETS if ngrams > 1 else 0,
            "minCount": 1,
            "seed": seed + 1,  # its generator treats 0 as 1
            "thread": 1,  # several would overwrite each other in no fixed order
            "verbose": 0,
        }

    def fit(self, documents: Sequence[NDArray], targets: NDArray) -> "FastText":
        """Learn from documents with at least one known word."""
        lines = [
            " ".join([*(f"{LABEL}{place}" for place in np.flatnonzero(row)), words])
            for words, row in zip(map(as_line, documents), targets, strict=True)
            if words
        ]
        # It reads them in the order given, and forgets one class while it sees another.
        np.random.default_rng(self.seed).shuffle(lines)
        with tempfile.TemporaryDirectory() as folder:  # the library reads only files
            path = Path(folder) / "train.txt"
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
            self.model = self.library.train_supervised(input=str(path), **self.settings)
        return self

    def scores(self, documents: Sequence[NDArray]) -> NDArray[np.float32]:
        """Return every class's probability for every document, (N, J)."""
        scores = np.zeros((len(documents), self.n_classes), dtype=np.float32)
        for row, words in enumerate(map(as_line, documents)):
            # The library's own `predict` fails with numpy 2; this is what it calls.
            pairs = self.model.f.predict(f"{words}\n", self.n_classes, 0.0, "strict")
            for probability, label in pairs:
                scores[row, int(label.removeprefix(LABEL))] = probability
        return scores.clip(0, 1)  # rounding leaves it a little past 1

    def n_parameters(self) -> int:
        """Return the number of weights, rows of n-grams included."""
        dictionary = len(self.model.f.getVocab("strict")[0])
        rows = dictionary + self.settings["bucket"] + self.n_classes
        return rows * self.settings["dim"]

    def save(self, path: Path) -> None:
        """Write the library's own file, and beside it what `sha256sum -c` checks."""
        with atomic_path(path) as temporary:
            self.model.save_model(str(temporary))
            write_text(digest_file(path), f"{file_sha256(temporary)}  {path.name}\n")

    def load(self, path: Path) -> None:
        """Read the library's own file, if it is what was written.

        The library itself does not check: a damaged file ends the whole process.
        """
        try:
            digest = digest_file(path).read_text(encoding="ascii").split()[0]
        except (OSError, ValueError, IndexError) as error:
            raise ValueError(f"no digest of it, {digest_file(path).name}") from error
        if digest != file_sha256(path):
            raise ValueError("a content that is not what was written")
        try:
            # Not `load_model`, which prints a warning about itself.
            self.model = self.library.FastText._FastText(model_path=str(path))
        except (ValueError, RuntimeError, MemoryError) as error:
            raise ValueError(str(error)) from error
        known = {f"{LABEL}{place}" for place in range(self.n_classes)}
        if not set(self.model.labels) <= known:
            raise ValueError(f"labels of another model, {self.model.labels[:3]}")


def digest_file(path: Path) -> Path:
    """Return where the digest of a model file stands."""
    return path.with_name(f"{path.name}.sha256")


def as_line(document: NDArray) -> str:
    """Return the numbers of a document's known words as fastText reads words."""
    return " ".join(map(str, document[document > UNK_ID].tolist()))


def fasttext_library() -> Any:
    """Import fastText, an optional dependency."""
    try:
        import fasttext
    except ImportError as error:
        raise TextCapsulesError(
            "fasttext must be installed to train or use a fastText model; got none. "
            "Run `pip install 'textcapsules[baselines]'`."
        ) from error
    return fasttext
