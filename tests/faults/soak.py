"""Kill trainings and damage files for as long as asked, with real processes.

    python tests/faults/soak.py --seconds 3600 [--seed N]

Each round has a seed, printed first: run it again with `--seed N --rounds 1`. A round
trains a tiny model, kills it at random instants until it has ended, and compares the
model with that of an uninterrupted run; then it damages one file of the model, or of a
broken-off run, and asks for the same result or for one line and exit 2. The first
failure ends everything, and what it has left is kept.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # as pytest does

from faults.damage import DAMAGE, only_line
from run_folders import folder_content
from textcapsules.model.classifier import MODEL_FILES
from toy import TINY, spawn, toy_file

TEXTS = ("my cat purr", "the dog bark", "a bird sing and a dog bark")
EPOCHS = 12  # long enough to be killed often


class FaultError(Exception):
    """Something that must never happen has."""


def say(message: str) -> None:
    sys.stdout.write(f"{message}\n")
    sys.stdout.flush()


def finish(process: subprocess.Popen, seconds: float = 300) -> tuple[int, str, str]:
    """Wait for a process and return how it ended and what it said."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as error:
        process.kill()
        raise FaultError("a command hangs") from error
    if b"Traceback" in err:
        raise FaultError(f"a traceback: {err.decode()}")
    return process.returncode, out.decode(), err.decode()


def train(folder: Path, source: Path, seed: int) -> subprocess.Popen:
    """Start a training, or go on with it where it has left its options."""
    if (folder / "config.json").exists():
        return spawn("train", "--resume", folder)
    flags = [*TINY, "--epochs", EPOCHS, "--seed", seed, "--dropout", 0.2]
    return spawn("train", "--data", source, *flags, "--out", folder)


def whole_run(folder: Path, source: Path, seed: int) -> float:
    """Train without a fault and return how long it took."""
    started = time.monotonic()
    code, _, err = finish(train(folder, source, seed))
    if code:
        raise FaultError(f"a training failed: {err}")
    return time.monotonic() - started


def killed_run(
    folder: Path, source: Path, seed: int, draw: random.Random, usual: float
) -> int:
    """Train with kills at random instants until it ends; return how many there were."""
    kills = 0
    while True:
        process = train(folder, source, seed)
        try:
            process.wait(draw.uniform(0.3, 1.3) * usual)
        except subprocess.TimeoutExpired:
            process.kill()
            kills += 1
        code, _, err = finish(process)
        if code == 0:
            return kills
        if code != -9:
            raise FaultError(f"exit {code}: {err}")


def predicted(folder: Path) -> str | None:
    """Return what `predict` prints, or None where it refuses in one line."""
    ran = finish(spawn("predict", folder, *TEXTS, "--scores", "--device", "cpu"))
    if ran[0] == 0:
        return ran[1]
    if not only_line(ran[0], ran[2]):
        raise FaultError(f"exit {ran[0]}: {ran[2]}")
    return None


def damaged_model(base: Path, draw: random.Random) -> str:
    """Damage a file of a copy of a model: the same scores, or a refusal."""
    folder = base / "damaged"
    shutil.copytree(base / "whole", folder)
    name, way = draw.choice(MODEL_FILES), draw.choice(list(DAMAGE))
    DAMAGE[way](folder / name, draw, base / "other" / name)
    found = predicted(folder)
    if found not in (None, predicted(base / "whole")):
        raise FaultError(f"other scores after {name} was damaged: {way}")
    return f"{name}, {way}: {'the same' if found else 'refused'}"


def damaged_run(base: Path, source: Path, draw: random.Random, usual: float) -> str:
    """Damage a file of a broken-off run: the same weights, or a refusal."""
    folder = base / "cut"
    process = train(folder, source, 0)
    try:
        process.wait(draw.uniform(0.6, 1.0) * usual)
    except subprocess.TimeoutExpired:
        process.kill()
    finish(process)
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    known = [name for name in names if not name.startswith(".")]
    if "config.json" not in known or not (folder / "training.json").exists():
        return "killed before there was a run"
    name, way = draw.choice(sorted(known)), draw.choice(list(DAMAGE))
    other = base / "other" / name
    DAMAGE[way](
        folder / name, draw, other if other.exists() else folder / "config.json"
    )
    code, _, err = finish(spawn("train", "--resume", folder))
    if code == 0:
        one, other = (each / "model.safetensors" for each in (folder, base / "whole"))
        if one.read_bytes() != other.read_bytes():
            raise FaultError(f"other weights after {name} was damaged: {way}")
    elif not only_line(code, err):
        raise FaultError(f"exit {code}: {err}")
    return f"run's {name}, {way}: {'the same' if code == 0 else 'refused'}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill trainings and damage files.")
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, help="of the first round; drawn without")
    parser.add_argument("--rounds", type=int, default=0, help="at most; 0: no limit")
    asked = parser.parse_args()
    first = random.SystemRandom().randrange(10**9) if asked.seed is None else asked.seed
    os.environ["OMP_NUM_THREADS"] = "1"
    base = Path(tempfile.mkdtemp(prefix="textcapsules-soak-"))
    source = toy_file(base)
    usual = whole_run(base / "whole", source, 0)
    whole_run(base / "other", source, 1)
    expected, number, kills = folder_content(base / "whole"), 0, 0
    end = time.monotonic() + asked.seconds
    while time.monotonic() < end and number < (asked.rounds or number + 1):
        seed = first + number
        say(f"round {number}, seed {seed}")
        draw = random.Random(seed)
        try:
            kills += killed_run(base / "killed", source, 0, draw, usual)
            if folder_content(base / "killed") != expected:
                raise FaultError("a killed run ended with another model")
            say(f"  {damaged_model(base, draw)}")
            say(f"  {damaged_run(base, source, draw, usual)}")
        except FaultError as error:
            say(f"failed with seed {seed}: {error}\nkept: {base}")
            sys.exit(1)
        for name in ("killed", "damaged", "cut"):
            shutil.rmtree(base / name, ignore_errors=True)
        number += 1
    shutil.rmtree(base)
    say(f"{number} rounds, {kills} kills, no failure")


if __name__ == "__main__":
    main()
