"""The models behind the paper's displays of connection strengths.

Both are Capsule-B without its convolutional capsules, so that the primary capsules,
which stand for n-grams, are routed to the categories directly. Table 6 and its like
(A.1, A.2) show 3-grams, table A.3 single words.
"""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from textcapsules.classifier import TextClassifier
from textcapsules.data.example import Corpus
from textcapsules.reproduce.cell import Cell
from textcapsules.reproduce.plan import Plan, search_corpus
from textcapsules.reproduce.runs import Place, read
from textcapsules.reproduce.systems import Options, system
from textcapsules.training.run import train

__all__ = [
    "DISPLAYS",
    "describe",
    "display_cell",
    "train_display",
    "without_amendment",
]

DISPLAYS = {"table6": 3, "a3": 1}  # and the n-gram size K1 of its model
SYSTEM, CORPUS = "capsule_b", "reuters-multi"


def display_cell(plan: Plan, name: str, epochs: int | None = None) -> Cell:
    """Return the run that a display needs, with the settings the search has chosen.

    Args:
        plan: what all runs have in common.
        name: one of `DISPLAYS`.
        epochs: at most; the plan's if None.
    """
    entry = system(SYSTEM)
    size = DISPLAYS[name]
    chosen = plan.chosen.get((SYSTEM, search_corpus(entry, CORPUS)), entry.settings[0])
    own: Options = {
        "model": {"conv_capsules": False, "ngram_sizes": (size,)},
        "train": {"select": "accuracy"} | ({"epochs": epochs} if epochs else {}),
    }
    return Cell(
        table=name,
        system=SYSTEM,
        corpus=CORPUS,
        setting=f"K1={size}",
        repeat=0,
        config=plan.config(entry, CORPUS, chosen, own),
    )


def without_amendment(cell: Cell) -> Cell:
    """Return the run of a like model whose couplings no capsule's length scales."""
    return replace(cell, config=cell.config.replace(model={"amendment": False}))


def train_display(
    cell: Cell, place: Place, **watch: Any
) -> tuple[TextClassifier, Corpus]:
    """Train a display's model, and return it with its texts."""
    config = place.localise(cell.config)
    corpus = read(config.data)
    with tempfile.TemporaryDirectory(prefix="textcapsules-") as folder:
        return train(config, Path(folder) / "model", corpus=corpus, **watch), corpus


def describe(classifier: TextClassifier) -> str:
    """Say how a display's model was made."""
    record, model = classifier.record, classifier.config.model
    best = record["epochs"][record["best_epoch"] - 1]
    title, _, _ = record["corpus"]["title"].partition(",")
    amended = "amended" if model.amendment else "not amended"
    return (
        f"Capsule-B without convolutional capsules, K1 = {model.ngram_sizes[0]}, "
        f"{model.iterations} iterations of routing, dropout {model.dropout:g}, "
        f"{model.embeddings} vectors, couplings {amended}, seed "
        f"{classifier.config.train.seed}. Trained on the {record['texts']['train']:,} "
        f"training texts of {title} with one label. Epochs: {len(record['epochs'])}; "
        f"kept: the one with the highest dev accuracy, {record['best_epoch']} "
        f"({100 * best['dev_accuracy']:.1f} percent)."
    )
