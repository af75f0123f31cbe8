"""Killed or interrupted, then `train --resume`; tests/faults has all other moments."""

import signal
import subprocess
import time
from pathlib import Path

import pytest

from run_folders import folder_content
from toy import TINY, run_cli, spawn, toy_file


@pytest.fixture
def flags(tmp_path: Path) -> list[str]:
    source = toy_file(tmp_path, 24)
    return ["--data", str(source), *TINY, "--epochs", "3", "--dropout", "0.2"]


def wait_for(path: Path, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        assert process.poll() is None, "the run ended too early"
        time.sleep(0.005)


def test_killed_process_is_resumed_to_the_same_weights(flags, tmp_path):
    flags = [*flags, "--epochs", "12"]
    cut = spawn("train", *flags, "--out", tmp_path / "cut")
    wait_for(tmp_path / "cut" / "checkpoint.safetensors", cut)
    cut.kill()
    cut.communicate()
    assert cut.returncode == -signal.SIGKILL
    assert not (tmp_path / "cut" / "model.safetensors").exists()
    assert run_cli("train", "--resume", tmp_path / "cut").code == 0
    assert run_cli("train", *flags, "--out", tmp_path / "whole").code == 0
    assert folder_content(tmp_path / "cut") == folder_content(tmp_path / "whole")


def test_ctrl_c_ends_quietly_and_says_how_to_go_on(flags, tmp_path):
    folder = tmp_path / "cut"
    process = spawn("train", *flags, "--epochs", "100000", "--out", folder)
    wait_for(folder / "checkpoint.safetensors", process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    lines = err.decode().splitlines()
    assert not any("Traceback" in line for line in lines)
    assert lines[-1] == f"textcapsules: interrupted. Go on with --resume {folder}."
