"""Whose folder is it? A run removes nothing of anyone else's."""

import shutil
from pathlib import Path

from textcapsules.classifier import FASTTEXT_FILE, MODEL_FILES
from textcapsules.errors import ModelFolderError
from textcapsules.files import remove_leftovers, write_error
from textcapsules.sums import read_json
from textcapsules.training.lock import LOCK

__all__ = ["CHECKPOINT", "TENSORBOARD", "check_folder", "clear", "tidy"]

CHECKPOINT = "checkpoint.safetensors"
TENSORBOARD = "tensorboard"
OUR_FILES = (*MODEL_FILES, FASTTEXT_FILE, f"{FASTTEXT_FILE}.sha256")


def check_folder(folder: Path, overwrite: bool) -> None:
    """Never write into a folder that holds anything, unless it is ours to replace."""
    try:
        for part in folder.parts:  # a name too long, below a folder not yet made
            Path(part).exists()
        in_the_way = folder.exists() and not folder.is_dir()
    except OSError as error:
        raise write_error(folder, error) from error
    if in_the_way:
        raise ModelFolderError(f"{folder} must be a folder; got a file.")
    foreign = foreign_files(folder)
    if foreign:
        raise ModelFolderError(
            f"{folder} must be empty or hold an earlier run; got "
            f"{', '.join(foreign[:3])}. Name another folder."
        )
    if (folder / "config.json").exists() and not overwrite:
        raise ModelFolderError(
            f"{folder} must be empty; got an earlier run. Pass --resume to go on with "
            "it, --overwrite to replace it, or name another folder."
        )


def foreign_files(folder: Path) -> list[str]:
    """Return what in a folder no run of ours has written, told by name and content."""
    found = [folder, folder / TENSORBOARD]
    paths = [path for part in found if part.is_dir() for path in part.iterdir()]
    files = [path.relative_to(folder) for path in paths if path != found[1]]
    names = [str(path) for path in files if not is_leftover(path)]
    foreign = [name for name in names if not is_named_as_ours(Path(name))]
    if not foreign and not has_our_mark(folder):
        foreign = names
    return sorted(foreign)


def is_named_as_ours(path: Path) -> bool:
    """Tell a file that a run may have written by its name."""
    if path.parent == Path(TENSORBOARD):
        return path.name.startswith("events.out.tfevents")
    return str(path) in (*OUR_FILES, CHECKPOINT)


def is_leftover(path: Path) -> bool:
    """Tell what a run killed while writing has left."""
    return path.name == LOCK or (path.name.startswith(".") and path.suffix == ".tmp")


def has_our_mark(folder: Path) -> bool:
    """Tell a run of ours: its options, or, killed before those, its record's start."""
    try:
        if (folder / "config.json").exists():
            return "textcapsules" in read_json(folder / "config.json")
        return "fingerprint" in read_json(folder / "training.json")
    except ModelFolderError:
        return False


def clear(folder: Path) -> None:
    """Remove an earlier run's files, and only those; its mark of ours goes last."""
    shutil.rmtree(folder / TENSORBOARD, ignore_errors=True)
    tidy(folder)
    for name in reversed(OUR_FILES):
        (folder / name).unlink(missing_ok=True)


def tidy(folder: Path, *, keep_checkpoint: bool = False) -> None:
    """Remove what only an unfinished run needs, or a killed one has left."""
    if not keep_checkpoint:
        (folder / CHECKPOINT).unlink(missing_ok=True)
    for name in (*OUR_FILES, CHECKPOINT):
        remove_leftovers(folder / name)
