"""A model card, the README of a shared model, from the record of its training."""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from textcapsules import __version__
from textcapsules.classifier import TextClassifier
from textcapsules.config import CAPSULES

__all__ = ["dev_figures", "model_card"]

FIGURES = {
    "dev_accuracy": "accuracy",
    "dev_exact_match": "exact match, {on}",
    "dev_micro_f1": "micro F1, {on}",
}

NO_CALIBRATION = {"on": "nothing", "documents": 0, "objective": None}


def model_card(classifier: TextClassifier, repo_id: str, metadata: str) -> str:
    """Return the card as Markdown.

    Args:
        classifier: a trained model with its record.
        repo_id: where it will be found.
        metadata: the YAML that opens the card, fences included.
    """
    record, labels, config = classifier.record, classifier.labels, classifier.config
    calibration = {**NO_CALIBRATION, **record.get("calibration", {})}
    environment = Environment(
        loader=PackageLoader("textcapsules"), undefined=StrictUndefined
    )
    environment.filters["cell"] = as_cell
    return environment.get_template("model_card.md.j2").render(
        metadata=metadata,
        name=repo_id.split("/")[-1],
        repo_id=repo_id,
        version=__version__,
        config=config,
        is_capsule=config.model.architecture in CAPSULES,
        several=labels.task == "multi-label",
        labels=list(zip(labels.names, labels.thresholds, strict=True)),
        calibration=calibration,
        corpus={"files": {}, **record.get("corpus", {})},
        texts=record.get("texts", {}),
        words=record.get("words", classifier.tokenizer.n_words),
        vectors={"file": None, **record.get("vectors", {})},
        figures=[
            (FIGURES[key].format(on=calibration["on"]), value)
            for key, value in dev_figures(record).items()
        ],
        best_epoch=record.get("best_epoch", "unknown"),
        n_epochs=len(record.get("epochs", ())),
        seconds=record.get("seconds", "unknown"),
        device=record.get("device", "an unknown device"),
    )


def dev_figures(record: dict[str, Any]) -> dict[str, float]:
    """Return the development figures of the epoch that was kept."""
    epochs, best = record.get("epochs") or [], record.get("best_epoch")
    kept = next((epoch for epoch in epochs if epoch["epoch"] == best), {})
    return {key: kept[key] for key in FIGURES if key in kept}


def as_cell(value: Any) -> str:
    """Return a value as one cell of a Markdown table, its marks taken literally."""
    text = " ".join(str(value).split())
    for mark in "\\|`*_<>[]":
        text = text.replace(mark, f"\\{mark}")
    return text
