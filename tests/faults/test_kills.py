"""Killed at any moment, or on a full disk, then resumed: the whole run's weights.

Fifty kills in all: one before each change of a file and one in the middle of each
(these are all the states a crash can leave), and twelve at random instants.
"""

import functools
import json
import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from faults.damage import only_line
from run_folders import folder_content
from textcapsules.model.classifier import MODEL_FILES
from toy import TINY, run_cli, spawn, toy_file

HARNESS = Path(__file__).with_name("harness.py")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork"),
]


Cycles = list[dict[str, Any]]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kills")


@pytest.fixture(scope="module")
def flags(base: Path) -> list[str]:
    source = toy_file(base)  # enough for training to warn of nothing
    return ["--data", str(source), *TINY, "--epochs", "3", "--dropout", "0.2"]


@pytest.fixture(scope="module")
def cycles(flags: list[str], base: Path) -> dict[str, Cycles]:
    command = [sys.executable, str(HARNESS), json.dumps(flags), str(base)]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


def check_folders(base: Path, mode: str, count: int) -> None:
    expected = folder_content(base / f"{mode}{count - 1}")
    assert sorted(expected) == sorted(MODEL_FILES)
    for number in range(count):
        assert folder_content(base / f"{mode}{number}") == expected, number


def test_killed_at_any_change_of_a_file_then_resumed_is_the_same(cycles, base):
    *killed, whole = cycles["die"]
    assert whole["first"]["code"] == 0, whole  # it met no more changes and ended well
    assert {each["first"]["code"] for each in killed} == {-signal.SIGKILL}
    assert {each["after"]["code"] for each in killed} == {0}, killed
    # 4 files at the start, 3 checkpoints, 5 files: made, half written, given its name;
    # then the checkpoint is removed, and the lock.
    assert len(killed) == 3 * 12 + 2
    # Of the first two files, and until the second has its name.
    assert [each["begun"] for each in killed].count(False) == 6
    check_folders(base, "die", len(killed) + 1)


def test_killed_at_random_instants_then_resumed_is_the_same(cycles, base):
    results = cycles["random"]
    codes = [each["first"]["code"] for each in results]
    assert set(codes) <= {-signal.SIGKILL, 0}, results
    assert -signal.SIGKILL in codes
    assert {each["after"]["code"] for each in results} == {0}, results
    expected = folder_content(base / "whole")
    for number in range(len(results)):
        assert folder_content(base / f"random{number}") == expected, number


def test_disk_full_at_any_write_is_one_line_and_can_be_resumed(cycles, base):
    *full, whole = cycles["full"]
    assert whole["first"]["code"] == 0, whole
    assert len(full) == 12
    written = []
    for number, each in enumerate(full):
        assert only_line(each["first"]["code"], each["first"]["err"]), each
        match = re.search(r"(\S+) must be writable; got No space", each["first"]["err"])
        assert match, each
        path = Path(match[1])
        assert path.parent == base / f"full{number}"
        written.append(path.name)
        assert each["after"]["code"] == 0, each
    assert written == [
        "training.json",
        "config.json",
        "tokenizer.json",
        "labels.json",
        *["checkpoint.safetensors"] * 3,
        "config.json",
        "tokenizer.json",
        "labels.json",
        "model.safetensors",
        "training.json",
    ]
    check_folders(base, "full", len(full) + 1)


def test_file_limit_of_the_system_is_one_line_and_can_be_resumed(
    flags, cycles, base, tmp_path
):
    folder = tmp_path / "m"
    limit = functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (6000, 6000))
    process = spawn("train", *flags, "--out", folder, preexec_fn=limit)
    _, err = process.communicate(timeout=60)
    assert only_line(process.returncode, err.decode()), err
    assert f"{folder}/checkpoint.safetensors must be writable; got" in err.decode()
    assert run_cli("train", "--resume", folder).code == 0
    assert folder_content(folder) == folder_content(base / "whole")
