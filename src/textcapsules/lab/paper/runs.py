"""One run: train as its options say, judge once on the test texts, tell all of it.

How many words of each corpus's training texts have a vector, and a true one.

A file of vectors may hold estimates beside true vectors (its array `real` tells them
apart). Runs made before files could say so have no such share in their records, so it
is measured once for all and kept beside them.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import nn

from textcapsules.base.files import write_json
from textcapsules.base.sums import read_json
from textcapsules.config import RunConfig
from textcapsules.data.example import Example
from textcapsules.data.load import load_corpus
from textcapsules.inference.evaluate import evaluate_scores
from textcapsules.lab.paper.plan import CORPORA, REUTERS, Cell, Plan, differences
from textcapsules.lab.paper.record import Record
from textcapsules.lab.paper.systems import Options, system
from textcapsules.model.classifier import TextClassifier
from textcapsules.model.score import score_documents
from textcapsules.text.encode import Encoder
from textcapsules.training.prepare import Encoded, Prepared, prepare, target_matrix
from textcapsules.training.run import Measure, train
from textcapsules.training.selection import DevSet

__all__ = ["COVERAGE", "Place", "execute", "measure_coverage", "read_coverage"]

# Two more calibrations, the same for every run: one threshold on joined dev texts of
# unequal parts, and one per label on these and the single dev texts.
AGAIN: dict[str, Options] = {
    "unequal": {
        "train": {
            "calibrate_on": "joined",
            "joined_share": 0.2,
            "thresholds": "one",
        }
    },
    "per_label": {
        "train": {
            "calibrate_on": "single+joined",
            "joined_share": 0.2,
            "thresholds": "per-label",
        }
    },
}
NEVER = 1e9  # seconds between checkpoints: a run here is done again as a whole


@dataclass(frozen=True)
class Place:
    """Where a run finds its texts and does its work."""

    data_dir: str | None
    vectors: str | None
    device: str

    def localise(self, config: RunConfig) -> RunConfig:
        """Return the options with this machine's files and device."""
        vectors = None if config.text.vectors is None else self.vectors
        return config.replace(
            data={"data_dir": self.data_dir},
            text={"vectors": vectors},
            train={"device": self.device, "checkpoint_seconds": NEVER},
        )


def execute(cell: Cell, place: Place) -> Record:
    """Train and judge one run, and return its record."""
    started = time.perf_counter()
    config = place.localise(cell.config)
    corpus = read(config.data)
    measure = epoch_measure(corpus.test) if set(REUTERS) & set(cell.tests) else None
    with tempfile.TemporaryDirectory(prefix="textcapsules-") as folder:
        classifier = train(
            config, Path(folder) / "model", corpus=corpus, measure=measure
        )
    trained = classifier.record
    again = calibrate_again(classifier, corpus.dev) if cell.tests else {}
    test = judge(classifier, corpus.test, cell.tests, again)
    best = trained["epochs"][trained["best_epoch"] - 1]
    facts = trained["corpus"]
    return {
        "key": cell.key,
        "system": cell.system,
        "corpus": "search" if cell.searching else config.data.source,
        "source": config.data.source,
        "fold": config.data.fold,
        "seed": config.train.seed,
        "dev": {
            name: round(value, 6)
            for name, value in best.items()
            if name.startswith("dev_") and name != "dev_seconds"
        },
        "calibration": trained["calibration"],
        **again,
        "test": test,
        "best_epoch": trained["best_epoch"],
        "losses": [round(epoch["loss"], 5) for epoch in trained["epochs"]],
        "labels": list(classifier.labels.names),
        **epochs_measured(trained["epochs"]),
        "options": differences(cell.config),
        "config": portable(classifier.config).to_dict(),
        "texts": trained["texts"],
        "data": {
            "title": facts["title"],
            "sha256": {name: file["sha256"] for name, file in facts["files"].items()},
            "matches_catalogue": facts.get("matches_catalogue"),
            "fingerprint": trained["fingerprint"],
        },
        "vectors": trained["vectors"],
        "parameters": trained["parameters"],
        "seconds": round(time.perf_counter() - started, 2),
        "training_seconds": trained["seconds"],
        "ended": trained["ended"],
        "commit": commit(),
        **{name: trained[name] for name in ("device", "threads", "versions")},
    }


def epoch_measure(examples: Sequence[Example]) -> Measure:
    """Return what gives exact match on the test texts at 0.5 after each epoch.

    A diagnostic: the published figures are of an epoch that nobody chose on dev, so
    the records show how much the epoch alone is worth. Nothing is chosen by it.
    """
    documents: list[NDArray] = []

    def measure(prepared: Prepared, network: nn.Module) -> dict[str, float]:
        if not documents:
            encoder = Encoder(prepared.config, prepared.tokenizer)
            documents.extend(encoder.encode([example.text for example in examples]))
        truth = target_matrix(examples, prepared.corpus.labels) > 0
        right = ((score_documents(network, documents) >= 0.5) == truth).all(1)
        several = truth.sum(1) > 1
        found = {name: right[several] if is_multi(name) else right for name in REUTERS}
        return {name: round(float(each.mean()), 6) for name, each in found.items()}

    return measure


def epochs_measured(epochs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the diagnostic of every epoch, nothing where none was made."""
    if "measured" not in epochs[0]:
        return {}
    names = epochs[0]["measured"]
    return {
        "test_by_epoch": {
            name: [epoch["measured"][name] for epoch in epochs] for name in names
        }
    }


# A process does many runs; neighbours are often on the same texts.
read = lru_cache(maxsize=4)(load_corpus)


def portable(config: RunConfig) -> RunConfig:
    """Return the options without the folders of this machine."""
    vectors = config.text.vectors
    return config.replace(
        data={"data_dir": None},
        text={"vectors": None if vectors is None else Path(vectors).name},
    )


def calibrate_again(
    classifier: TextClassifier, dev: Sequence[Example]
) -> dict[str, dict[str, Any]]:
    """Return the further calibrations (`AGAIN`) of a system that gives several labels.

    None for a system of one label, or where dev texts have several themselves.
    """
    if classifier.labels.task != "multi-label":
        return {}
    documents = classifier.encode([example.text for example in dev])
    targets = target_matrix(dev, classifier.labels.names)
    if (targets.sum(1) > 1).any():
        return {}
    scores = score_documents(classifier.network, documents)
    return {
        name: DevSet(
            classifier.config.replace(**options), Encoded(documents, targets)
        ).calibrate(classifier.network, scores)
        for name, options in AGAIN.items()
    }


def judge(
    classifier: TextClassifier,
    examples: Sequence[Example],
    tests: Sequence[str],
    again: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the figures on every test set; they are parts of one list of texts."""
    if not tests:  # a search never looks
        return {}
    names = classifier.labels.names
    targets = target_matrix(examples, names)
    scores = classifier.scores([example.text for example in examples])
    several = targets.sum(1) > 1
    return {
        name: figures(
            classifier,
            *(
                (scores[several], targets[several])
                if is_multi(name)
                else (scores, targets)
            ),
            {
                name: found.get("thresholds", found["threshold"])
                for name, found in again.items()
            },
        )
        for name in tests
    }


def is_multi(test: str) -> bool:
    """Tell whether a test set keeps only texts with several labels."""
    return test == "reuters-multi"


def figures(
    classifier: TextClassifier,
    scores: NDArray,
    targets: NDArray,
    again: Mapping[str, Sequence[float] | float],
) -> dict[str, Any]:
    """Return all figures of one test set, and which texts were right as hex bits.

    Args:
        classifier: a trained model.
        scores: (N, J), its own.
        targets: (N, J).
        again: other thresholds to judge it with, by name: one for all, or one each.
    """
    labels = classifier.labels
    several = labels.task == "multi-label"
    result = evaluate_scores(
        scores, targets, labels.names, labels.thresholds, several=several
    )
    values: dict[str, Any] = {"texts": result.texts}
    if result.single_label is not None and not several:
        top = classifier.decide(scores, multi_label=False)
        right = (top & (targets > 0)).any(1)
        said = {"right": bits(right), "answers": label_sets(top)}
        return values | rounded(result.single_label) | said
    decisions = {
        "half": (result.multi_label_at_half, scores >= 0.5),
        "calibrated": (
            result.multi_label,
            classifier.decide(scores, multi_label=True),
        ),
    }
    for name, least in again.items():
        found = evaluate_scores(scores, targets, labels.names, least, several=True)
        past = scores >= np.asarray(least, dtype=scores.dtype)
        past &= (scores > 0).any(1, keepdims=True)  # as in `TextClassifier.decide`
        decisions[name] = (found.multi_label, past)
    for name, (found, decided) in decisions.items():
        right = (decided == (targets > 0)).all(1)
        said = {"right": bits(right), "answers": label_sets(decided)}
        values[name] = rounded(found) | said
    return values


def rounded(values: Mapping[str, float]) -> dict[str, float]:
    """Return the figures with six decimals."""
    return {name: round(value, 6) for name, value in values.items()}


def bits(right: ArrayLike) -> str:
    """Return one bit a text as hexadecimal digits, the first text leading.

    >>> bits(np.array([True, False, False, False, True]))
    '88'
    """
    return np.packbits(np.asarray(right, dtype=bool)).tobytes().hex()


def label_sets(decided: NDArray[np.bool_]) -> str:
    """Return the labels given to each text (N, J) as hexadecimal digits.

    A text has one digit per four labels, its first label the highest bit.

    >>> label_sets(np.array([[True, False, False, False, False], [False] * 4 + [True]]))
    '8008'
    """
    n_digits = -(-decided.shape[1] // 4)
    packed = np.packbits(decided, axis=1)  # (N, bytes)
    return "".join(row.tobytes().hex()[:n_digits] for row in packed)


@cache
def commit() -> str | None:
    """Return the commit the code is at, `+` where files differ from it.

    A copy apart from its repository is told by TEXTCAPSULES_COMMIT.
    """
    if told := os.environ.get("TEXTCAPSULES_COMMIT"):
        return told
    package = Path(__file__).parents[2]
    try:
        # Fails where the package lies in somebody else's repository.
        git(package, "ls-files", "--error-unmatch", "__init__.py")
        head = git(package, "rev-parse", "--short=12", "HEAD")
        changes = git(package, "status", "--porcelain", "--untracked-files=no", ".")
    except (OSError, subprocess.SubprocessError):
        return None
    return head + ("+" if changes else "")


def git(folder: Path, *words: str) -> str:
    """Return what a git command prints."""
    done = subprocess.run(
        ["git", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=10,
    )
    return done.stdout.strip()


COVERAGE = "vectors.json"


def measure_coverage(place: Place, folder: Path) -> None:
    """Write the shares of all corpora, read as every system with vectors reads them."""
    entry = system("cnn_static")
    shares = {
        name: prepare(place.localise(Plan().config(entry, name))).facts["vectors"]
        for name in CORPORA
    }
    write_json(folder / COVERAGE, {"commit": commit(), "corpora": shares})


def read_coverage(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the shares by corpus, none where they were not measured."""
    path = folder / COVERAGE
    return read_json(path)["corpora"] if path.exists() else {}
