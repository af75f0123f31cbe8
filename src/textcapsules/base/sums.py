"""SHA-256 sums of the files of a model folder, kept in its `training.json`.

That file is written last, so its sums are of files that are there. It holds a sum of
itself too, over its values rather than its bytes. A file that is replaced later, as the
labels are with new thresholds, has two sums meanwhile: a process killed in between
leaves a folder that still checks. Folders of earlier versions have no sums.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from textcapsules.base.errors import ModelFolderError
from textcapsules.base.files import file_sha256, read_regular, write_bytes, write_json

__all__ = [
    "RECORD",
    "check_sums",
    "read_json",
    "read_record",
    "replace_file",
    "write_record",
]

RECORD = "training.json"
KEY = "sha256"  # of the sums, in the record
MAX_BYTES = 1 << 27  # of a JSON file

Sums = Mapping[str, str | list[str]]


def write_record(folder: Path, record: Mapping[str, Any], sums: Sums) -> None:
    """Write `training.json` with the sums of other files, and its own."""
    values = json.loads(json.dumps({**record, KEY: sums}))  # as it will be read
    values[KEY][RECORD] = values_sum(values)
    write_json(folder / RECORD, values)


def read_record(folder: Path) -> tuple[dict[str, Any], Sums]:
    """Return what `write_record` was given, if the record is what was written."""
    path = folder / RECORD
    values = read_json(path)
    sums = values.get(KEY, {})
    if not isinstance(sums, dict) or not all(map(is_sum, sums.values())):
        raise ModelFolderError(
            f"{path} must hold SHA-256 sums; got {sums!r:.40}. Restore the folder."
        )
    own = sums.pop(RECORD, None)
    if own is not None and own != values_sum(values):
        raise changed(path)
    values.pop(KEY, None)
    return values, sums


def check_sums(folder: Path, sums: Sums, names: Iterable[str]) -> None:
    """Refuse a folder in which a named file is not the one that was written."""
    for name in names:
        known = sums.get(name)
        if known is None:
            continue
        try:
            found = file_sha256(folder / name)
        except OSError as error:
            raise ModelFolderError(
                f"{folder / name} must be readable; got {error.strerror}. "
                "Restore the folder."
            ) from error
        if found not in as_list(known):
            raise changed(folder / name)


def replace_file(folder: Path, name: str, content: bytes) -> None:
    """Write a file of the folder and, where its sum is kept, the sum."""
    new = hashlib.sha256(content).hexdigest()
    try:
        record, sums = read_record(folder)
    except ModelFolderError:  # none yet, or none to keep
        record, sums = {}, {}
    known = as_list(sums.get(name, []))
    if known and known != [new]:
        write_record(folder, record, {**sums, name: [*known, new]})
    write_bytes(folder / name, content)
    if known and known != [new]:
        write_record(folder, record, {**sums, name: new})


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object of the model folder."""
    try:
        value = json.loads(read_regular(path, MAX_BYTES).decode())
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelFolderError(
            f"{path} must be a readable JSON file; got {reason}. Restore the folder."
        ) from error
    if not isinstance(value, dict):
        raise ModelFolderError(f"{path} must hold a JSON object; got {value!r:.40}.")
    return value


def values_sum(values: dict[str, Any]) -> str:
    """Return the sum of a record's values, whatever the spaces between them."""
    try:
        content = json.dumps(values, sort_keys=True)
    except RecursionError:
        content = ""
    return hashlib.sha256(content.encode()).hexdigest()


def is_sum(value: Any) -> bool:
    """Tell whether a value may be a sum, or several."""
    return isinstance(value, str) or (
        isinstance(value, list) and all(isinstance(each, str) for each in value)
    )


def as_list(known: str | list[str]) -> list[str]:
    """Return one sum or several as a list."""
    return [known] if isinstance(known, str) else known


def changed(path: Path) -> ModelFolderError:
    """Return the error about a file that is not what was written."""
    return ModelFolderError(
        f"{path} must be as it was written; got another content (its SHA-256 differs). "
        "Restore the folder from a copy, or train anew."
    )
