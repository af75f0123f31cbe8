"""The figures the paper printed, in percent, as `published.json` holds them."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

__all__ = [
    "TABLE_5_COLUMNS",
    "ablation",
    "accuracy",
    "components",
    "sizes",
    "top_words",
    "transfer",
]

# Our systems that are compared with a system of the paper under another name.
_PAPER_NAMES = {
    "capsule_a_paper": "capsule_a",
    "capsule_b_paper": "capsule_b",
    "capsule_b_non_shared": "capsule_b",
}
TABLE_5_COLUMNS = ("er", "precision", "recall", "f1")


@cache
def figures() -> dict[str, Any]:
    """Return everything the paper published."""
    content = (files("textcapsules.lab.paper") / "published.json").read_text(
        encoding="utf-8"
    )
    return json.loads(content)


def accuracy(system: str, corpus: str) -> float | None:
    """Return a cell of table 1, None if the paper has no such cell.

    >>> accuracy("capsule_b", "ag-news"), accuracy("tfidf_svm", "mr")
    (92.6, None)
    """
    table = figures()["table_1_accuracy"]
    row = table["rows"].get(_PAPER_NAMES.get(system, system))
    name = corpus.replace("-", "_")
    if row is None or name not in table["columns"]:
        return None
    return row[table["columns"].index(name)]


def transfer(system: str, corpus: str, metric: str) -> float | None:
    """Return a cell of table 5.

    >>> transfer("capsule_b", "reuters-multi", "er")
    60.3
    """
    rows = figures()["table_5_multi_label_transfer"]["rows"]
    row = rows.get(_PAPER_NAMES.get(system, system), {}).get(corpus.replace("-", "_"))
    return None if row is None else row[TABLE_5_COLUMNS.index(metric)]


def ablation() -> list[dict[str, Any]]:
    """Return the rows of the ablation table."""
    return figures()["table_ablation_mr"]


def components() -> list[dict[str, Any]]:
    """Return the rows of table A.4."""
    return figures()["table_a4_components_mr"]


def sizes(corpus: str) -> dict[str, str]:
    """Return the counts of a corpus in the paper, empty if the paper has none."""
    return figures()["datasets"].get(corpus.replace("-", "_"), {})


def top_words() -> dict[str, list[str]]:
    """Return the columns of table A.3, strongest first, in lower case.

    >>> top_words()["orphan"][:3]
    ['the', 'and', 'said']
    """
    columns = figures()["table_a3_top_words"]
    return {name: words.split() for name, words in columns.items()}
