"""The models behind the paper's displays of connection strengths.

Both are Capsule-B without convolutional capsules, so that the primary capsules, which
stand for n-grams, are routed directly to the categories. Tables 6, A.1 and A.2 show
3-grams (`table6`), table A.3 single words (`table_a3`).
"""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from textcapsules.base.errors import WriteError
from textcapsules.data.example import Corpus
from textcapsules.lab.paper.place import Place
from textcapsules.lab.paper.plan import Cell, Plan, search_corpus
from textcapsules.lab.paper.runs import read
from textcapsules.lab.paper.systems import SYSTEMS, Options
from textcapsules.model.classifier import TextClassifier
from textcapsules.training.run import train

__all__ = [
    "DISPLAYS",
    "check_page",
    "describe_model",
    "display_cell",
    "train_display",
    "without_amendment",
]

DISPLAYS = {"table6": 3, "a3": 1}  # name: n-gram size K1 of its model
SYSTEM, CORPUS = "capsule_b", "reuters-multi"


def display_cell(plan: Plan, name: str, epochs: int | None = None) -> Cell:
    """Return the run that a display needs, with the settings the search has chosen.

    Args:
        plan: the options that all runs have in common.
        name: one of `DISPLAYS`.
        epochs: at most; the plan's if None.
    """
    entry, size = SYSTEMS[SYSTEM], DISPLAYS[name]
    chosen = plan.chosen.get((SYSTEM, search_corpus(entry, CORPUS)), entry.settings[0])
    options: Options = {
        "model": {"conv_capsules": False, "ngram_sizes": (size,)},
        "train": {"select": "accuracy"} | ({"epochs": epochs} if epochs else {}),
    }
    return Cell(
        table=name,
        system=SYSTEM,
        corpus=CORPUS,
        setting=f"K1={size}",
        repeat=0,
        config=plan.config(entry, CORPUS, chosen, options),
    )


def without_amendment(cell: Cell) -> Cell:
    """Return the run of the same model without the amendment of couplings."""
    return replace(cell, config=cell.config.replace(model={"amendment": False}))


def train_display(
    cell: Cell, place: Place, **watch: Any
) -> tuple[TextClassifier, Corpus]:
    """Train the model of a display, and return it with its corpus."""
    config = place.localise(cell.config)
    corpus = read(config.data)
    with tempfile.TemporaryDirectory(prefix="textcapsules-") as folder:
        return train(config, Path(folder) / "model", corpus=corpus, **watch), corpus


def describe_model(classifier: TextClassifier) -> str:
    """Return sentences about how the model of a display was made."""
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


def check_page(page: Path, mark: str) -> None:
    """Refuse to replace a page that this command has not written.

    Args:
        page: the file about to be written.
        mark: words that every page of that name holds.
    """
    if page.exists() and mark not in page.read_text(errors="replace"):
        raise WriteError(
            f"{page} must be a page of this command to be replaced; got another file. "
            "Name another folder with --out."
        )
