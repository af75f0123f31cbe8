"""Killed or interrupted, then `train --resume`; tests/faults has all other moments."""

import signal
import subprocess
import time
from pathlib import Path

import pytest

from run_folders import folder_content
from textcapsules.training.checkpoint import epochs_done
from toy import TINY, run_cli, spawn, toy_file

pytestmark = pytest.mark.slow


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
    done = epochs_done(folder / "checkpoint.safetensors")
    assert lines[-1] == (
        f"textcapsules: interrupted. Go on with --resume {folder}, after epoch {done}."
    )


def test_ctrl_c_long_before_a_checkpoint_keeps_the_epochs(flags, tmp_path):
    folder = tmp_path / "cut"
    flags = [*flags, "--epochs", "100000", "--checkpoint-seconds", "1000"]
    process = spawn("train", *flags, "--out", folder)
    assert process.stderr is not None
    while not process.stderr.readline().startswith(b"epoch 3:"):
        assert process.poll() is None, "the run ended too early"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    lines = err.decode().splitlines()
    done = epochs_done(folder / "checkpoint.safetensors")
    assert done >= 3
    assert lines[-1].endswith(f"Go on with --resume {folder}, after epoch {done}.")
