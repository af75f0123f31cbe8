"""`kill -9` at any moment, then `train --resume`: the weights of the whole run."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from textcapsules.classifier import MODEL_FILES
from toy import TINY, run_cli, spawn, toy_file

# One process imports the program once and forks a child a moment. A child kills itself
# just before the n-th change of the folder: what it was writing stays beside as .tmp.
EVERY_MOMENT = """
import json, os, signal, sys
from pathlib import Path
import torch
import sklearn.metrics, torch._dynamo  # what a first step would import
torch.set_num_threads(1)  # a fork keeps no other threads
from textcapsules.cli import main
from textcapsules.training import run

flags, base = json.loads(sys.argv[1]), Path(sys.argv[2])

def count_down(moment):
    left = [moment]
    def before(change):
        def changed(self, *args, **options):
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return change(self, *args, **options)
        return changed
    Path.replace = before(Path.replace)
    tidy = run.tidy
    def tidied(folder):
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
        return tidy(folder)
    run.tidy = tidied

def child(args, moment=None):
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            if moment is not None:
                count_down(moment)
            sys.argv = ["textcapsules", "train", *args]
            main()
        except SystemExit as end:
            code = end.code or 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

results, moment, code = [], 0, None
while code != 0 and moment < 50:
    folder = base / f"run{moment}"
    code = child([*flags, "--out", str(folder)], moment)
    has_options = (folder / "config.json").exists()
    going_on = ["--resume"] if has_options else [*flags, "--out"]
    after = child([*going_on, str(folder)])
    results.append([code, after, has_options])
    moment += 1
print(json.dumps(results))
"""


def folder_content(folder: Path) -> dict[str, bytes]:
    """Return all files; of training.json only what no clock decides."""
    content = {path.name: path.read_bytes() for path in folder.iterdir()}
    record = json.loads(content["training.json"])
    del record["seconds"], record["ended"], record["sha256"]["training.json"]
    for epoch in record["epochs"]:
        del epoch["train_seconds"], epoch["dev_seconds"]
    content["training.json"] = json.dumps(record).encode()
    return content


@pytest.fixture
def flags(tmp_path: Path) -> list[str]:
    source = toy_file(tmp_path, 24)
    return ["--data", str(source), *TINY, "--epochs", "3", "--dropout", "0.2"]


def test_killed_before_any_change_of_the_folder_then_resumed_is_the_same(
    flags, tmp_path
):
    command = [sys.executable, "-c", EVERY_MOMENT, json.dumps(flags), str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, check=True, text=True)
    *killed, whole = json.loads(ran.stdout.splitlines()[-1])
    assert whole[0] == 0  # the last child met no more changes and ended well
    assert {code for code, _, _ in killed} == {-signal.SIGKILL}
    assert {after for _, after, _ in killed} == {0}
    # 4 files at the start, 3 checkpoints, 5 files, tidying
    assert len(killed) == 13
    assert [has for _, _, has in killed].count(False) == 2  # nothing to resume yet
    expected = folder_content(tmp_path / f"run{len(killed)}")
    assert sorted(expected) == sorted(MODEL_FILES)
    for moment in range(len(killed)):
        assert folder_content(tmp_path / f"run{moment}") == expected, moment


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
