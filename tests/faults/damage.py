"""What can happen to a file: each way takes its path and, for some, another's."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

__all__ = ["DAMAGE", "Damage", "only_line"]

# What to do to a file, with a generator of random numbers and the same file of another
# model, which fits in every shape.
Damage = Callable[[Path, random.Random, Path], object]


def cut(path: Path, draw: random.Random, other: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: draw.randrange(len(content))])


def flip_bit(path: Path, draw: random.Random, other: Path) -> None:
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def change_digit(path: Path, draw: random.Random, other: Path) -> None:
    """Change one digit, so that JSON stays JSON; of other files, any byte."""
    content = bytearray(path.read_bytes())
    digits = [place for place, byte in enumerate(content) if chr(byte) in "123456789"]
    place = draw.choice(digits)
    content[place] = ord(draw.choice(sorted(set("123456789") - {chr(content[place])})))
    path.write_bytes(content)


def fill(path: Path, draw: random.Random, other: Path) -> None:
    path.write_bytes(draw.randbytes(path.stat().st_size))


def take_other(path: Path, draw: random.Random, other: Path) -> None:
    shutil.copyfile(other, path)


def grow(path: Path, draw: random.Random, other: Path) -> None:
    """Make it a hole of a terabyte, which takes no room on the disk."""
    with path.open("wb") as file:
        file.truncate(1 << 40)


def replace_by(make: Callable[[Path], object]) -> Damage:
    def replaced(path: Path, draw: random.Random, other: Path) -> None:
        path.unlink()
        make(path)

    return replaced


DAMAGE: dict[str, Damage] = {
    "cut": cut,
    "one bit": flip_bit,
    "one digit": change_digit,
    "empty": lambda path, *_: path.write_bytes(b""),
    "random bytes": fill,
    "another model's": take_other,
    "missing": lambda path, *_: path.unlink(),
    "a folder": replace_by(Path.mkdir),
    "a pipe": replace_by(os.mkfifo),
    "a device": replace_by(lambda path: path.symlink_to("/dev/null")),
    "endless": grow,
    "deep": lambda path, *_: path.write_text('{"a": ' + "[" * 100_000),
    "deep and closed": lambda path, *_: path.write_text(
        '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}"
    ),
}


def only_line(code: int, err: str) -> bool:
    """Tell whether a command ended with one line for the user and nothing else."""
    lines = err.splitlines()
    return code == 2 and len(lines) == 1 and lines[0].startswith("textcapsules: ")
