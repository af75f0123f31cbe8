"""SHA-256 sums of the files of a model folder, kept in its `training.json`.

`training.json` is written last, so the files that it has sums of exist. It also holds
its own sum, over its values rather than its bytes. While a file is replaced later, such
as the labels with new thresholds, it has two valid sums: if the process is killed in
between, the folder still passes the check. Folders of earlier versions have no sums.
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
KEY = "sha256"  # where the record holds the sums
MAX_BYTES = 1 << 27  # in a JSON file

Sums = Mapping[str, str | list[str]]


def write_record(folder: Path, record: Mapping[str, Any], sums: Sums) -> None:
    """Write `training.json` with the sums of other files, and its own."""
    values = json.loads(json.dumps({**record, KEY: sums}))  # as it will be read
    values[KEY][RECORD] = values_sum(values)
    write_json(folder / RECORD, values)


def read_record(folder: Path) -> tuple[dict[str, Any], Sums]:
    """Return what `write_record` was given; refuse a record that has changed."""
    path = folder / RECORD
    values = read_json(path)
    sums = values.get(KEY, {})
    if not isinstance(sums, dict) or not all(map(is_sum, sums.values())):
        raise ModelFolderError(
            f"{path} must hold SHA-256 sums; got {sums!r:.40}. Restore the folder."
        )
    expected = sums.pop(RECORD, None)
    if expected is not None and expected != values_sum(values):
        raise changed(path)
    values.pop(KEY, None)
    return values, sums


def check_sums(folder: Path, sums: Sums, names: Iterable[str]) -> None:
    """Refuse a folder in which a named file is not the one that was written."""
    for name in names:
        expected = sums.get(name)
        if expected is None:
            continue
        try:
            actual = file_sha256(folder / name)
        except OSError as error:
            raise ModelFolderError(
                f"{folder / name} must be readable; got {error.strerror}. "
                "Restore the folder."
            ) from error
        if actual not in as_list(expected):
            raise changed(folder / name)


def replace_file(folder: Path, name: str, content: bytes) -> None:
    """Write a file of the folder and, if the record has its sum, the new sum."""
    new = hashlib.sha256(content).hexdigest()
    try:
        record, sums = read_record(folder)
    except ModelFolderError:  # no record yet, or a damaged one
        record, sums = {}, {}
    old = as_list(sums.get(name, []))
    if old and old != [new]:
        write_record(folder, record, {**sums, name: [*old, new]})
    write_bytes(folder / name, content)
    if old and old != [new]:
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
    """Return the sum of a record's values, which does not depend on its layout."""
    try:
        content = json.dumps(values, sort_keys=True)
    except RecursionError:
        content = ""
    return hashlib.sha256(content.encode()).hexdigest()


def is_sum(value: Any) -> bool:
    """Tell whether a value may be a sum, or a list of sums."""
    return isinstance(value, str) or (
        isinstance(value, list) and all(isinstance(each, str) for each in value)
    )


def as_list(sums: str | list[str]) -> list[str]:
    """Return one sum or several as a list."""
    return [sums] if isinstance(sums, str) else sums


def changed(path: Path) -> ModelFolderError:
    """Return the error about a file that has changed since it was written."""
    return ModelFolderError(
        f"{path} must be as it was written; got another content (its SHA-256 differs). "
        "Restore the folder from a copy, or train anew."
    )
