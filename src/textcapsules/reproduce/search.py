"""Which of a system's settings the other cells use: the one dev likes best.

Every searched system has the same number of settings. Their runs are judged on dev
alone, on one fold or seed, or by their mean on a few folds; the test texts are not
scored.
"""

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from textcapsules.errors import DataError
from textcapsules.files import write_json
from textcapsules.reproduce.cell import Cell
from textcapsules.reproduce.record import Records
from textcapsules.reproduce.systems import SYSTEMS, Options

__all__ = ["Choices", "choose", "read_choices"]

Choices = dict[tuple[str, str], Options]  # by system and corpus of the search


def choose(
    cells: Sequence[Cell], records: Records, failed: Collection[str], folder: Path
) -> None:
    """Write down the best setting of every system whose search is complete.

    Args:
        cells: the search's.
        records: of the runs that ended well.
        failed: keys of runs that did not, as when a rate makes the loss infinite: they
            are never chosen, and not waited for.
        folder: of the choices.
    """
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.system, cell.corpus), []).append(cell)
    for (name, corpus), group in groups.items():
        settings = [
            [cell.key for cell in group if cell.setting == str(number)]
            for number in range(len(SYSTEMS[name].settings))
        ]
        if not all(
            keys and all(key in failed or key in records for key in keys)
            for keys in settings
        ):
            continue
        scores = [dev_score(keys, records) for keys in settings]
        told = [score for score in scores if score is not None]
        if not told:
            continue
        best = scores.index(max(told))  # of equal ones the first
        write_json(
            folder / f"{name}.{corpus}.json",
            {
                "system": name,
                "corpus": corpus,
                "chosen": best,
                "options": SYSTEMS[name].settings[best],
                "settings": [
                    {"options": options, "dev_score": score, "runs": keys}
                    for options, score, keys in zip(
                        SYSTEMS[name].settings, scores, settings, strict=True
                    )
                ],
            },
        )


def dev_score(keys: Sequence[str], records: Records) -> float | None:
    """Return the mean dev score of a setting's runs, None where one has failed."""
    runs = [records.get(key) for key in keys]
    told = [run["dev"]["dev_score"] for run in runs if run is not None]
    return sum(told) / len(keys) if len(told) == len(keys) else None


def read_choices(folder: Path) -> Choices:
    """Return the settings chosen so far."""
    return dict(_read_choice(path) for path in sorted(folder.glob("*.json")))


def _read_choice(path: Path) -> tuple[tuple[str, str], Options]:
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        options = values["options"]
        if options not in SYSTEMS[values["system"]].settings:
            raise ValueError("a setting that is none of the system's")
        return (values["system"], values["corpus"]), options
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} must hold the setting a search has chosen; got {error!r}. "
            "Remove it, and the search is done again."
        ) from error
