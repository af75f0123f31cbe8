"""fastText's supervised classifier (Joulin et al. 2017), through its own library.

It reads word numbers as words, so that every system sees the same tokens; its model is
the library's own `.bin`, with a digest beside it. Where a text may have several classes
each has its own logistic output (`ova`), elsewhere they share a softmax.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textcapsules.errors import TextCapsulesError
from textcapsules.files import atomic_path, file_sha256, write_text
from textcapsules.model.rivals.classic import ClassicSystem
from textcapsules.text.vocabulary import UNK_ID

__all__ = ["FastText"]

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
            "seed": seed + 1,  # its generator takes 0 for 1
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
        with tempfile.TemporaryDirectory() as folder:  # the library reads files alone
            path = Path(folder) / "train.txt"
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
            self.model = self.library.train_supervised(input=str(path), **self.settings)
        return self

    def scores(self, documents: Sequence[NDArray]) -> NDArray[np.float32]:
        """Return every class's probability for every document, (N, J)."""
        scores = np.zeros((len(documents), self.n_classes), dtype=np.float32)
        for row, words in enumerate(map(as_line, documents)):
            # The library's own `predict` fails with numpy 2; this is what it calls.
            found = self.model.f.predict(f"{words}\n", self.n_classes, 0.0, "strict")
            for probability, label in found:
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

        The library itself does not look: a damaged file ends the whole process.
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
    """Import fastText, an extra."""
    try:
        import fasttext
    except ImportError as error:
        raise TextCapsulesError(
            "fasttext must be installed to train or use a fastText model; got none. "
            "Run `pip install 'textcapsules[baselines]'`."
        ) from error
    return fasttext
