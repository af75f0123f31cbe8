"""Two runs never write into one folder at once."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from textcapsules.base.errors import ModelFolderError, WriteError
from textcapsules.inference.estimator import CapsuleClassifier
from textcapsules.model.classifier import MODEL_FILES, TextClassifier
from textcapsules.training.folder import LOCK, check_unlocked, locked
from textcapsules.training.run import resume, train
from toy import TINY, refusal, run_cli, spawn, tiny_config, trained_model

pytestmark = pytest.mark.slow


def test_lock_is_held_once_and_leaves_nothing(tmp_path):
    with locked(tmp_path / "m"):
        holder = json.loads((tmp_path / "m" / LOCK).read_text())
        assert holder["pid"] == os.getpid()
        with pytest.raises(ModelFolderError) as caught, locked(tmp_path / "m"):
            pass
        assert str(caught.value) == (
            f"{tmp_path / 'm'} must not be in use; got another run in it: process "
            f"{holder['pid']} on {holder['host']}, since {holder['since']}. Wait until "
            "it has ended, or name another folder."
        )
        with pytest.raises(ModelFolderError, match="must not be in use"):
            check_unlocked(tmp_path / "m")
    assert list((tmp_path / "m").iterdir()) == []
    with locked(tmp_path / "m"):
        pass


def test_looking_for_a_lock_touches_nothing(tmp_path):
    check_unlocked(tmp_path / "gone")
    check_unlocked(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_file_without_its_process_does_not_block(tmp_path):
    (tmp_path / LOCK).write_text('{"pid": 1, "host": "x", "since": "then"}')
    check_unlocked(tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / LOCK).write_text("half of a hol")
    with locked(tmp_path):
        pass


def test_file_removed_before_it_was_locked_is_taken_again(tmp_path, monkeypatch):
    """Between opening and locking, the run before may end and remove the file."""
    from textcapsules.training import folder as lock

    honest, left = lock.try_lock, [2]

    def late(file):
        if left[0]:
            left[0] -= 1
            (tmp_path / LOCK).unlink()
        return honest(file)

    monkeypatch.setattr(lock, "try_lock", late)
    with locked(tmp_path):
        assert (tmp_path / LOCK).exists()
        with pytest.raises(ModelFolderError), locked(tmp_path):
            pass


def test_place_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").touch()
    message = "file/m must be writable; got Not a"
    with pytest.raises(WriteError, match=message), locked(tmp_path / "file" / "m"):
        pass


@pytest.mark.parametrize("overwrite", [False, True])
def test_run_refuses_a_folder_in_use_and_says_why(source, tmp_path, overwrite):
    folder = tmp_path / "m"
    with locked(folder), pytest.raises(ModelFolderError, match="must not be in use"):
        train(tiny_config(source), folder, overwrite=overwrite)


def test_estimator_does_not_save_into_a_folder_in_use(tmp_path):
    estimator = CapsuleClassifier.of(TextClassifier.load(trained_model()))
    folder = tmp_path / "m"
    with locked(folder), pytest.raises(ModelFolderError, match="must not be in use"):
        estimator.save(folder, overwrite=True)
    estimator.save(folder)
    assert sorted(p.name for p in folder.iterdir()) == sorted(MODEL_FILES)


def wait_for(path: Path) -> None:
    """Wait until another process has made a file."""
    for _ in range(600):
        if path.exists():
            return
        time.sleep(0.1)
    raise AssertionError(f"{path} never came")


def test_second_process_is_refused_and_a_killed_one_does_not_block(source, tmp_path):
    folder = tmp_path / "m"
    flags = ["train", "--data", source, *TINY, "--out", folder]
    first = spawn(*flags, "--epochs", 100_000)
    try:
        wait_for(folder / "checkpoint.safetensors")
        held = f"must not be in use; got another run in it: process {first.pid} on "
        for args in ([], ["--overwrite"]):
            assert held in refusal(*flags, *args)
        assert held in refusal("train", "--resume", folder)
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    assert (folder / LOCK).exists()  # as a killed process leaves it
    assert run_cli(*flags, "--overwrite", "--epochs", 1).code == 0
    assert sorted(p.name for p in folder.iterdir()) == sorted(MODEL_FILES)
    assert resume(folder).record["finished"]
