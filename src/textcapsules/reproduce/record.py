"""One record a run, kept as lines of JSON: `results/<corpus>/<system>.jsonl`.

A file is replaced as a whole, so an interruption never leaves half a record. Every
`.jsonl` below the folder counts, whatever its name: records of several machines are
merged by putting their files together.
"""

import json
from pathlib import Path
from typing import Any

from textcapsules.errors import DataError
from textcapsules.files import remove_leftovers, write_text

__all__ = ["Record", "Records"]

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
        """Return the record of a run, if it has been done."""
        return self.by_key.get(key)

    def unclean(self) -> set[str]:
        """Return the keys of runs made from files that no commit holds."""
        return {
            key
            for key, record in self.by_key.items()
            if (record.get("commit") or "+").endswith("+")
        }

    def add(self, record: Record) -> None:
        """Keep the record of a run."""
        path = self.folder / record["corpus"] / f"{record['system']}.jsonl"
        remove_leftovers(path)
        # Read again: another command may have added runs of the same system.
        before = read_records(path) if path.exists() else []
        kept = [old for old in before if old["key"] != record["key"]]
        write_text(path, "".join(line(each) for each in [*kept, record]))
        self.by_key[record["key"]] = record


def line(record: Record) -> str:
    """Return a record on one line."""
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"


def read_records(path: Path) -> list[Record]:
    """Read a file of records, and name the line that is none."""
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} must be a readable file of records; got {error}. Remove it, and "
            "its runs are done again."
        ) from error
    records = []
    # At line feeds alone: names may hold other marks that Python splits at.
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
