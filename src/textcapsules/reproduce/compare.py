"""Is Capsule-B better than a rival by more than chance?

Both are compared on the folds or seeds that they share: their figures by a paired
t-test, and their answers text by text with McNemar's exact test. Folds have different
texts, so all of them count for the latter; seeds share theirs, so only the first does.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textcapsules.data.catalogue import card
from textcapsules.reproduce.board import Board, Name, value_of
from textcapsules.reproduce.markup import NOTHING, chance
from textcapsules.reproduce.record import Record
from textcapsules.reproduce.statistics import mcnemar, paired_t, unpack
from textcapsules.reproduce.systems import SYSTEMS

__all__ = ["HEADER", "NO_CAPSULES", "against_best"]

HEADER = ("system", "rival", "difference", "pairs", "p, paired t", "p, McNemar")
NO_CAPSULES = tuple(name for name, entry in SYSTEMS.items() if entry.kind != "capsule")


def against_best(
    board: Board,
    name: Name,
    setting: str,
    path: tuple[str, ...],
    rivals: Sequence[str] = NO_CAPSULES,
) -> list[str] | None:
    """Compare a figure of a system with that of the best of its rivals.

    Args:
        board: the figures.
        name: the system's.
        setting: of the rivals.
        path: from a test set's figures to the one compared.
        rivals: their names.

    Returns:
        The cells under `HEADER`; None where there is nothing to compare.
    """
    ours = board.runs_with(name, *path)
    found = [
        (shared_score(ours, theirs, name.corpus, path), system, theirs)
        for system in rivals
        if (
            theirs := board.runs_with(
                name._replace(system=system, setting=setting), *path
            )
        )
        and ours.keys() & theirs.keys()
    ]
    if not found:
        return None
    _, system, theirs = max(found, key=lambda each: each[0])
    both = sorted(ours.keys() & theirs.keys())
    values = [
        [value_of(runs[repeat], name.corpus, path) for repeat in both]
        for runs in (ours, theirs)
    ]
    gap = 100 * (np.mean(values[0]) - np.mean(values[1]))
    sides = [answers(runs, name.corpus, path[:-1], both) for runs in (ours, theirs)]
    same_texts = sides[0].shape == sides[1].shape
    by_text = mcnemar(*sides) if same_texts else math.nan
    titles = [SYSTEMS[name.system].title, SYSTEMS[system].title]
    p_value = chance(paired_t(*values))
    texts = chance(by_text) if same_texts else NOTHING
    return [*titles, f"{gap:+.1f}", str(len(both)), p_value, texts]


def shared_score(
    ours: dict[int, Record], theirs: dict[int, Record], corpus: str, path: Sequence[str]
) -> tuple[int, float]:
    """Return how many runs are shared, and their mean: more evidence comes first."""
    both = ours.keys() & theirs.keys()
    values = [value_of(theirs[repeat], corpus, path) for repeat in both]
    return len(both), float(np.mean(values))


def answers(
    runs: dict[int, Record], corpus: str, path: Sequence[str], repeats: Sequence[int]
) -> NDArray[np.bool_]:
    """Return which texts a system had right."""
    pieces = []
    for repeat in repeats if card(corpus).layout == "folds" else repeats[:1]:
        test: Any = runs[repeat]["test"][corpus]
        holder = test
        for key in path:
            holder = holder[key]
        pieces.append(unpack(holder["right"], test["texts"]))
    return np.concatenate(pieces)
