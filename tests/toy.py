"""A toy problem that a tiny network learns in a second, and ways to run the program."""

import atexit
import csv
import functools
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch

from textcapsules.cli import main
from textcapsules.config import RunConfig
from textcapsules.training.run import train

torch.set_num_threads(1)  # more would only wait for each other over so little

TOPICS = {
    "birds": ["bird", "wing", "feather", "nest", "sing", "beak"],
    "cats": ["cat", "purr", "whisker", "kitten", "meow", "claw"],
    "dogs": ["dog", "bark", "puppy", "leash", "wag", "bone"],
}
FILLERS = ["the", "a", "my", "very", "some", "today", "was", "is", "it"]

TINY_MODEL: dict[str, Any] = {
    "architecture": "capsule-a",
    "embedding_size": 8,
    "filters": 4,
    "capsule_types": 2,
    "capsule_size": 4,
    "conv_types": 2,
}
TINY_TRAIN: dict[str, Any] = {
    "epochs": 4,
    "checkpoint_seconds": 0.0,
    "learning_rate": 0.05,
    "batch_size": 6,
    "device": "cpu",
}
# The same on the command line.
TINY = [
    part
    for name, value in {**TINY_MODEL, **TINY_TRAIN}.items()
    for part in (f"--{name.replace('_', '-')}", str(value))
]


def toy_text(topic: str, draw: random.Random) -> str:
    """Return twelve words, about half of them the topic's own."""
    words = (draw.choice(draw.choice([TOPICS[topic], FILLERS])) for _ in range(12))
    return " ".join(words)


def toy_rows(n_rows: int = 60, seed: int = 1) -> list[tuple[str, str]]:
    """Return texts and topics in turn."""
    draw, names = random.Random(seed), list(TOPICS)
    topics = [names[row % len(names)] for row in range(n_rows)]
    return [(toy_text(topic, draw), topic) for topic in topics]


def write_csv(
    path: Path, rows: Iterable[Sequence[Any]], header: Sequence[str] = ("text", "label")
) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def toy_file(folder: Path, n_rows: int = 60) -> Path:
    return write_csv(folder / "toy.csv", toy_rows(n_rows))


def tiny_config(source: Path | str, **sections: dict[str, Any]) -> RunConfig:
    """Return a tiny run on a file, with some fields changed."""
    run = RunConfig().replace(
        data={"source": str(source)}, model=TINY_MODEL, train=TINY_TRAIN
    )
    return run.replace(**sections)


@functools.cache
def trained_model() -> Path:
    """Return the folder of a model trained once for all tests, not to be changed."""
    folder = Path(tempfile.mkdtemp(prefix="textcapsules-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    train(tiny_config(toy_file(folder)), folder / "model")
    return folder / "model"


# For a model that refuses: words of its topics, of no topic, and of no vocabulary.
TOPICAL = "my cat purr and a kitten meow"
OFF_TOPIC = "cat zzz qqq vvv www xxx yyy ppp"


@functools.cache
def refusing_model() -> Path:
    """Return the folder of a toy model with dev texts enough to refuse others."""
    folder = Path(tempfile.mkdtemp(prefix="textcapsules-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    config = tiny_config(toy_file(folder, 360), train={"epochs": 2, "batch_size": 20})
    train(config, folder / "model")
    return folder / "model"


def worded_config(source: Path | str, **train: Any) -> RunConfig:
    """Return a toy run to whose network words and pairs are added."""
    options = {"epochs": 2, "batch_size": 20, "word_scores": "pairs", **train}
    return tiny_config(source, train=options)


@functools.cache
def worded_model() -> Path:
    """Return the folder of a toy model to which words are added."""
    folder = Path(tempfile.mkdtemp(prefix="textcapsules-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    config = worded_config(toy_file(folder, 360))
    train(config, folder / "model", test_reasons=False)
    return folder / "model"


def model_copy(folder: Path) -> Path:
    """Return a copy of the trained model, to be spoilt."""
    return Path(shutil.copytree(trained_model(), folder / "model"))


def without_sums(folder: Path) -> Path:
    """Make a model folder one of an earlier version, whose files may be changed."""
    record = json.loads((folder / "training.json").read_text())
    del record["sha256"]
    (folder / "training.json").write_text(json.dumps(record))
    return folder


class Ran(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


def run_cli(*args: object, stdin: bytes = b"") -> Ran:
    """Run the command line in this process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    argv = ["textcapsules", *map(str, args)]
    given = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    with (
        mock.patch.object(sys, "argv", argv),
        mock.patch.object(sys, "stdin", given),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return Ran(code, *(_written(stream) for stream in (out, err)))


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()


def refusal(*args: object, stdin: bytes = b"") -> str:
    """Run a command that must be refused, and return its one line on stderr."""
    ran = run_cli(*args, stdin=stdin)
    assert ran.code == 2, ran
    lines = ran.err.splitlines()
    assert len(lines) == 1, ran.err
    assert lines[0].startswith("textcapsules: ")
    return lines[0].removeprefix("textcapsules: ")


def spawn(*args: object, **options: Any) -> subprocess.Popen:
    """Start the program as a process of its own."""
    program = "from textcapsules.cli import main; main()"
    command = [sys.executable, "-c", program, *map(str, args)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    # A shell's background job, as a test run may be, has Ctrl-C ignored.
    options.setdefault(
        "preexec_fn", lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **options.pop("env", {})}
    return subprocess.Popen(command, env=environment, **options)
