"""What is kept of runs: their records, and the settings that searches have chosen.

A record is one line of JSON in `results/<corpus>/<system>.jsonl`. A file is replaced as
a whole, so that an interruption never leaves half a record. Every `.jsonl` below the
folder is read, whatever its name: to merge the records of several machines, put their
files together.

A search has the same number of settings for every system, and chooses the one with the
highest dev score, on one fold or seed, or in the mean of a few folds. Test texts are
not scored.
"""

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from textcapsules.base.errors import DataError
from textcapsules.base.files import remove_leftovers, write_json, write_text
from textcapsules.config import current_sections
from textcapsules.lab.paper.heads import EVERY_SYSTEM
from textcapsules.lab.paper.plan import Cell, search_place
from textcapsules.lab.paper.systems import Options

__all__ = ["Choices", "Record", "Records", "choose", "read_choices"]

Record = dict[str, Any]
NEEDED = ("key", "system", "corpus", "test", "dev")


class Records:
    """All finished runs of a folder, by key."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.by_key: dict[str, Record] = {}
        for path in sorted(self.folder.rglob("*.jsonl")):
            for record in read_records(path):
                self.by_key[record["key"]] = record

    def __contains__(self, key: str) -> bool:
        return key in self.by_key

    def get(self, key: str) -> Record | None:
        """Return the record of a run, None if it has not been done."""
        return self.by_key.get(key)

    def encoders(self) -> list[str]:
        """Return the names of all encoders that have records of test texts."""
        names = {
            encoder_of(record) for record in self.by_key.values() if record["test"]
        }
        return sorted(name for name in names if name is not None)

    def of_encoder(self, *names: str | None) -> list[Record]:
        """Return the records of some encoders."""
        return [each for each in self.by_key.values() if encoder_of(each) in names]

    def unclean(self) -> set[str]:
        """Return the keys of runs whose code was at no commit."""
        return {
            key
            for key, record in self.by_key.items()
            if (record.get("commit") or "+").endswith("+")
        }

    def add(self, record: Record) -> None:
        """Write the record of a run, in place of an earlier one."""
        path = self.folder / record["corpus"] / f"{record['system']}.jsonl"
        remove_leftovers(path)
        # Read again: another command may have added records of the same system.
        before = read_records(path) if path.exists() else []
        kept = [old for old in before if old["key"] != record["key"]]
        write_text(path, "".join(line(each) for each in [*kept, record]))
        self.by_key[record["key"]] = record


def encoder_of(record: Record) -> str | None:
    """Return the name of the encoder that a run stood on."""
    return record.get("options", {}).get("text.encoder")


def line(record: Record) -> str:
    """Return a record on one line."""
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"


def read_records(path: Path) -> list[Record]:
    """Read a file of records; the error names a line that is not a record."""
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} must be a readable file of records; got {error}. Remove it, and "
            "its runs are done again."
        ) from error
    records = []
    # Split at line feeds alone: `splitlines` splits at characters that names may have.
    lines = content.removesuffix("\n").split("\n") if content else []
    for number, text in enumerate(lines, 1):
        try:
            record = json.loads(text)
        except ValueError:
            record = text
        if not isinstance(record, dict) or any(key not in record for key in NEEDED):
            raise DataError(
                f"{path} must hold the record of a run in every line; got "
                f"{text[:40]!r} in line {number}. Remove the line, and the run is "
                "done again."
            )
        records.append(record)
    return records


Choices = dict[tuple[str, str], Options]  # by system and place of the search


def choose(
    cells: Sequence[Cell], records: Records, failed: Collection[str], folder: Path
) -> None:
    """Write the best setting of every system whose search is complete.

    Args:
        cells: all cells of the search.
        records: those of the finished runs.
        failed: keys of failed runs, for example with an infinite loss. Their settings
            are never chosen, and the search is complete without them.
        folder: where the choices are written.
    """
    groups: dict[tuple[str, str, str | None], list[Cell]] = {}
    for cell in cells:
        key = (cell.system, cell.corpus, cell.config.text.encoder)
        groups.setdefault(key, []).append(cell)
    for (name, corpus, encoder), group in groups.items():
        settings = [
            [cell.key for cell in group if cell.setting == str(number)]
            for number in range(len(EVERY_SYSTEM[name].settings))
        ]
        if not all(
            keys and all(key in failed or key in records for key in keys)
            for keys in settings
        ):
            continue
        scores = [dev_score(keys, records) for keys in settings]
        known = [score for score in scores if score is not None]
        if not known:
            continue
        best = scores.index(max(known))  # the first of equal ones
        write_json(
            folder / f"{name}.{search_place(corpus, encoder)}.json",
            {
                "system": name,
                "corpus": corpus,
                **({} if encoder is None else {"encoder": encoder}),
                "chosen": best,
                "options": EVERY_SYSTEM[name].settings[best],
                "settings": [
                    {"options": options, "dev_score": score, "runs": keys}
                    for options, score, keys in zip(
                        EVERY_SYSTEM[name].settings, scores, settings, strict=True
                    )
                ],
            },
        )


def dev_score(keys: Sequence[str], records: Records) -> float | None:
    """Return the mean dev score of a setting's runs, None if a run has failed."""
    runs = [records.get(key) for key in keys]
    scores = [run["dev"]["dev_score"] for run in runs if run is not None]
    return sum(scores) / len(keys) if len(scores) == len(keys) else None


def read_choices(folder: Path) -> Choices:
    """Return the settings chosen so far."""
    return dict(_read_choice(path) for path in sorted(folder.glob("*.json")))


def _read_choice(path: Path) -> tuple[tuple[str, str], Options]:
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        options = current_sections(values["options"])
        if options not in EVERY_SYSTEM[values["system"]].settings:
            raise ValueError("a setting that is none of the system's")
        place = search_place(values["corpus"], values.get("encoder"))
        return (values["system"], place), options
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} must hold the setting a search has chosen; got {error!r}. "
            "Remove it, and the search is done again."
        ) from error
