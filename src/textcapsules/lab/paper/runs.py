"""One run: it trains, is evaluated once on the test texts, and leaves a record."""

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from textcapsules.config import RunConfig
from textcapsules.data.example import Corpus, Example
from textcapsules.data.load import load_corpus
from textcapsules.inference.evaluate import evaluate_scores
from textcapsules.lab.paper.heads import EVERY_SYSTEM, encoder_name
from textcapsules.lab.paper.place import Place
from textcapsules.lab.paper.plan import REUTERS, Cell, differences
from textcapsules.lab.paper.records import Record
from textcapsules.lab.paper.regression import fit_regression
from textcapsules.lab.paper.systems import Options
from textcapsules.model.classifier import TextClassifier
from textcapsules.model.network import Network
from textcapsules.model.score import score_documents
from textcapsules.text.encode import Encoder
from textcapsules.text.pieces import PieceTokenizer
from textcapsules.training.prepare import Encoded, Prepared, target_matrix
from textcapsules.training.run import Measure, train
from textcapsules.training.selection import DevSet

__all__ = ["commit", "execute", "read"]

# Two more calibrations of every run: one threshold from joined dev texts of unequal
# parts, and one threshold per label from these and the single dev texts.
MORE_CALIBRATIONS: dict[str, Options] = {
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


def execute(cell: Cell, place: Place) -> Record:
    """Train and evaluate one run, and return its record."""
    started = time.perf_counter()
    config = place.localise(cell.config)
    corpus = read(config.data)
    classifier = fit(cell, config, corpus)
    trained = classifier.record
    more = calibrate_more(classifier, corpus.dev) if cell.tests else {}
    test = evaluate_tests(classifier, corpus.test, cell.tests, more)
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
        **more,
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
        **({"words": trained["word_scores"]} if "word_scores" in trained else {}),
        "seconds": round(time.perf_counter() - started, 2),
        "training_seconds": trained["seconds"],
        "ended": trained["ended"],
        "commit": commit(),
        **{name: trained[name] for name in ("device", "threads", "versions")},
    }


def fit(cell: Cell, config: RunConfig, corpus: Corpus) -> TextClassifier:
    """Train the system of a cell."""
    if EVERY_SYSTEM[cell.system].kind == "regression":
        return fit_regression(config, corpus)
    is_measured = config.text.encoder is None and set(REUTERS) & set(cell.tests)
    with tempfile.TemporaryDirectory(prefix="textcapsules-") as folder:
        return train(
            config,
            Path(folder) / "model",
            corpus=corpus,
            measure=epoch_measure(corpus.test) if is_measured else None,
            test_reasons=False,
            keep_model=False,
        )


def epoch_measure(examples: Sequence[Example]) -> Measure:
    """Return a function that measures exact match on the test texts at 0.5.

    It is a diagnostic after every epoch, by which nothing is chosen: the published
    figures are of an epoch that was not chosen on dev, and the records show how much
    the choice of the epoch matters.
    """
    documents: list[NDArray] = []

    def measure(prepared: Prepared, network: Network) -> dict[str, float]:
        if not documents:
            encoder = Encoder(prepared.config, prepared.tokenizer)
            documents.extend(encoder.encode([example.text for example in examples]))
        truth = target_matrix(examples, prepared.corpus.labels) > 0
        right = ((score_documents(network, documents) >= 0.5) == truth).all(1)
        several = truth.sum(1) > 1
        by_test = {n: right[several] if is_multi(n) else right for n in REUTERS}
        return {name: round(float(each.mean()), 6) for name, each in by_test.items()}

    return measure


def epochs_measured(epochs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the diagnostic of every epoch; nothing where it was not measured."""
    if "measured" not in epochs[0]:
        return {}
    names = epochs[0]["measured"]
    return {
        "test_by_epoch": {
            name: [epoch["measured"][name] for epoch in epochs] for name in names
        }
    }


# A process does many runs, often on the same texts one after another.
read = lru_cache(maxsize=4)(load_corpus)


def portable(config: RunConfig) -> RunConfig:
    """Return the options without the folders of this machine."""
    text = config.text
    return config.replace(
        data={"data_dir": None},
        text={
            "vectors": None if text.vectors is None else Path(text.vectors).name,
            "encoder": None if text.encoder is None else encoder_name(text.encoder),
        },
    )


def calibrate_more(
    classifier: TextClassifier, dev: Sequence[Example]
) -> dict[str, dict[str, Any]]:
    """Return the further calibrations of a system that gives several labels.

    There are none for a system of one label, or if dev texts have several labels.
    """
    if classifier.labels.task != "multi-label":
        return {}
    documents = classifier.encode([example.text for example in dev])
    targets = target_matrix(dev, classifier.labels.names)
    if (targets.sum(1) > 1).any():
        return {}
    scores = score_documents(classifier.network, documents)
    tokenizer = classifier.tokenizer
    n_pieces = tokenizer.n_marked if isinstance(tokenizer, PieceTokenizer) else None
    return {
        name: DevSet(
            classifier.config.replace(**options),
            Encoded(documents, targets),
            n_pieces=n_pieces,
        ).calibrate(classifier.network, scores)
        for name, options in MORE_CALIBRATIONS.items()
    }


def evaluate_tests(
    classifier: TextClassifier,
    examples: Sequence[Example],
    tests: Sequence[str],
    more: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the figures on every test set, each a part of the same list of texts."""
    if not tests:  # a search never scores test texts
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
                calibration: chosen.get("thresholds", chosen["threshold"])
                for calibration, chosen in more.items()
            },
        )
        for name in tests
    }


def is_multi(test: str) -> bool:
    """Return whether a test set has only texts with several labels."""
    return test == "reuters-multi"


def figures(
    classifier: TextClassifier,
    scores: NDArray,
    targets: NDArray,
    more: Mapping[str, Sequence[float] | float],
) -> dict[str, Any]:
    """Return all figures of one test set, its right texts and its answers.

    Args:
        classifier: a trained model.
        scores: (N, J), the model's.
        targets: (N, J).
        more: further thresholds by name, one for all labels or one per label.
    """
    labels = classifier.labels
    several = labels.task == "multi-label"
    result = evaluate_scores(
        scores, targets, labels.names, labels.thresholds, several=several
    )
    values: dict[str, Any] = {"texts": result.texts}
    if result.single_label is not None and not several:
        decided = classifier.decide(scores, multi_label=False)
        right = (decided & (targets > 0)).any(1)
        answers = {"right": bits(right), "answers": label_sets(decided)}
        return values | rounded(result.single_label) | answers
    decisions = {
        "half": (result.multi_label_at_half, scores >= 0.5),
        "calibrated": (
            result.multi_label,
            classifier.decide(scores, multi_label=True),
        ),
    }
    for name, thresholds in more.items():
        again = evaluate_scores(scores, targets, labels.names, thresholds, several=True)
        decided = scores >= np.asarray(thresholds, dtype=scores.dtype)
        decided &= (scores > 0).any(1, keepdims=True)  # as in `TextClassifier.decide`
        decisions[name] = (again.multi_label, decided)
    for name, (measured, decided) in decisions.items():
        right = (decided == (targets > 0)).all(1)
        answers = {"right": bits(right), "answers": label_sets(decided)}
        values[name] = rounded(measured) | answers
    return values


def rounded(values: Mapping[str, float]) -> dict[str, float]:
    """Return the figures with six decimals."""
    return {name: round(value, 6) for name, value in values.items()}


def bits(right: ArrayLike) -> str:
    """Return one bit per text as hexadecimal digits, the first text's bit highest.

    >>> bits(np.array([True, False, False, False, True]))
    '88'
    """
    return np.packbits(np.asarray(right, dtype=bool)).tobytes().hex()


def label_sets(decided: NDArray[np.bool_]) -> str:
    """Return the labels given to each text (N, J) as hexadecimal digits.

    A text has one digit per four labels; the first label is the highest bit.

    >>> label_sets(np.array([[True, False, False, False, False], [False] * 4 + [True]]))
    '8008'
    """
    n_digits = -(-decided.shape[1] // 4)
    packed = np.packbits(decided, axis=1)  # (N, bytes)
    return "".join(row.tobytes().hex()[:n_digits] for row in packed)


@cache
def commit() -> str | None:
    """Return the commit of the code, with `+` if files differ from it.

    TEXTCAPSULES_COMMIT names it for a copy outside its repository.
    """
    if named := os.environ.get("TEXTCAPSULES_COMMIT"):
        return named
    package = Path(__file__).parents[2]
    try:
        # Fails if the package lies in somebody else's repository.
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
