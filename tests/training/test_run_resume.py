"""An interrupted run that goes on."""

from pathlib import Path

import numpy as np
import pytest
import torch

from run_folders import figures, vectors_file, weights
from textcapsules.base.errors import ConfigError, ModelFolderError
from textcapsules.model.classifier import MODEL_FILES, TextClassifier
from textcapsules.training import checkpoint as last_epoch
from textcapsules.training import run
from textcapsules.training.run import resume, train
from toy import tiny_config, toy_rows, write_csv

pytestmark = pytest.mark.slow


class Crash(BaseException):
    """An end after which the program does nothing more."""


def interrupted(
    config,
    folder: Path,
    after: int = 2,
    end: type[BaseException] = KeyboardInterrupt,
    **options,
) -> None:
    """Train and stop, as by Ctrl-C, when an epoch's record is given."""

    def stop(record):
        if record["epoch"] == after:
            raise end

    with pytest.raises(end):
        train(config, folder, on_epoch=stop, **options)


def test_resumed_run_ends_as_the_uninterrupted_one(source, tmp_path):
    config = tiny_config(
        source,
        model={"dropout": 0.2},
        train={"joined": 0.5, "rate_decay": 0.8, "patience": 3, "select": "joined"},
    )
    whole = train(config, tmp_path / "whole")
    interrupted(config, tmp_path / "cut")
    torch.manual_seed(7)
    seen = []
    cut = resume(tmp_path / "cut", on_epoch=lambda record: seen.append(record["epoch"]))
    assert seen == [3, 4]
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")
    assert figures(cut) == figures(whole)
    assert cut.labels == whole.labels
    assert sorted(p.name for p in (tmp_path / "cut").iterdir()) == sorted(MODEL_FILES)


BY_STEP = {"schedule": "cosine", "warmup": 0.3, "average_weights": 0.9}


@pytest.mark.parametrize(
    "changes",
    [
        {"schedule": "linear"},
        {"schedule": "constant", "warmup": 0.6},
        {"weight_decay": 0.1, "vector_rate": 0.5},
        {"average_weights": 0.95, "select": "last"},
        {**BY_STEP, "weight_decay": 0.1, "joined": 0.5, "select": "joined"},
    ],
    ids=str,
)
@pytest.mark.parametrize("after", [1, 3])
def test_resumed_run_has_the_rates_decay_and_average_of_the_whole(
    source, tmp_path, changes, after
):
    config = tiny_config(
        source, text={"vectors": str(vectors_file(tmp_path))}, train=changes
    )
    train(config, tmp_path / "whole")
    interrupted(config, tmp_path / "cut", after=after, end=Crash)
    torch.manual_seed(7)
    resume(tmp_path / "cut")
    same_run(tmp_path / "cut", tmp_path / "whole")


@pytest.mark.parametrize("options", [{}, BY_STEP], ids=["by epoch", "by step"])
@pytest.mark.parametrize("moment", ["step", "epoch", "finish"])
def test_ctrl_c_keeps_every_finished_epoch(
    source, tmp_path, monkeypatch, moment, options
):
    changes = {"checkpoint_seconds": 1e9, "rate_decay": 0.8, "select": "joined"}
    changes |= options
    config = tiny_config(source, model={"dropout": 0.2}, train=changes)
    whole = train(config, tmp_path / "whole")

    def on_step(step):
        if moment == "step" and (step.epoch, step.step) == (2, 1):
            raise KeyboardInterrupt  # the weights are no longer those of epoch 2

    def on_epoch(record):
        if moment == "epoch" and record["epoch"] == 2:
            raise KeyboardInterrupt

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        if moment == "finish":  # the network has the best epoch's weights by then
            patch.setattr(run, "learnt_nothing", stop)
        train(config, tmp_path / "cut", on_step=on_step, on_epoch=on_epoch)
    torch.manual_seed(7)
    seen = []
    cut = resume(tmp_path / "cut", on_epoch=lambda record: seen.append(record["epoch"]))
    assert seen == ([] if moment == "finish" else [3, 4])
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")
    assert figures(cut) == figures(whole)
    assert cut.labels == whole.labels


def test_network_too_large_to_copy_is_not_kept_at_ctrl_c(source, tmp_path, monkeypatch):
    monkeypatch.setattr(last_epoch, "MAX_COPY", 100)
    config = tiny_config(source, train={"checkpoint_seconds": 1e9})
    interrupted(config, tmp_path / "cut")
    assert not (tmp_path / "cut" / "checkpoint.safetensors").exists()
    train(config, tmp_path / "whole")
    resume(tmp_path / "cut")
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")


def test_resumed_static_vectors_stay(source, tmp_path):
    config = tiny_config(
        source,
        text={"vectors": str(vectors_file(tmp_path))},
        model={"embeddings": "static"},
    )
    train(config, tmp_path / "whole")
    interrupted(config, tmp_path / "cut")
    resume(tmp_path / "cut")
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")


def test_resume_of_a_finished_run_changes_nothing(source, tmp_path):
    folder = tmp_path / "model"
    train(tiny_config(source, train={"epochs": 1}), folder)
    before = {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.iterdir()}
    source.unlink()  # not even the data is needed
    assert resume(folder).record["finished"]
    after = {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.iterdir()}
    assert after == before


def test_unfinished_run_is_no_model_yet(source, tmp_path):
    interrupted(tiny_config(source), tmp_path / "cut")
    with pytest.raises(ModelFolderError, match=r"must hold a finished model.*--resume"):
        TextClassifier.load(tmp_path / "cut")


def test_resume_on_changed_texts_is_refused(source, tmp_path):
    interrupted(tiny_config(source), tmp_path / "cut")
    write_csv(source, toy_rows(60, seed=2))
    with pytest.raises(ModelFolderError, match="must be resumed on the data it was"):
        resume(tmp_path / "cut")
    write_csv(source, toy_rows(60))
    resume(tmp_path / "cut")  # nothing was lost


def test_resume_on_changed_vectors_is_refused(source, tmp_path):
    path = vectors_file(tmp_path)
    config = tiny_config(source, text={"vectors": str(path)})
    interrupted(config, tmp_path / "cut")
    np.savez(path, words=np.array(["cat"]), vectors=np.ones((1, 5), np.float32))
    with pytest.raises(ModelFolderError, match="must be resumed on the data it was"):
        resume(tmp_path / "cut")


@pytest.mark.parametrize("damage", ["cut short", "another file", "another run's"])
def test_damaged_checkpoint_is_told(source, tmp_path, damage):
    interrupted(tiny_config(source), tmp_path / "cut")
    path = tmp_path / "cut" / "checkpoint.safetensors"
    if damage == "cut short":
        path.write_bytes(path.read_bytes()[:-40])
    elif damage == "another file":
        path.write_text("not a checkpoint")
    else:
        other = tiny_config(source, model={"filters": 5})
        interrupted(other, tmp_path / "other")
        path.write_bytes((tmp_path / "other" / path.name).read_bytes())
    with pytest.raises(
        ModelFolderError, match=r"checkpoint.safetensors must be a checkpoint of this"
    ) as caught:
        resume(tmp_path / "cut")
    assert "\n" not in str(caught.value)
    if damage == "another run's":
        assert "got: one of another run. Train again" in str(caught.value)


def test_resume_without_a_run_is_told(tmp_path):
    with pytest.raises(ModelFolderError, match=r"got one without config.json"):
        resume(tmp_path)


def test_resume_without_its_record_is_told(source, tmp_path):
    interrupted(tiny_config(source), tmp_path / "cut")
    (tmp_path / "cut" / "training.json").unlink()
    with pytest.raises(ModelFolderError, match=r"training.json must be a readable"):
        resume(tmp_path / "cut")


def test_interrupted_tensorboard_run_goes_on_logging(source, tmp_path):
    interrupted(tiny_config(source), tmp_path / "cut", tensorboard=True)
    before = len(list((tmp_path / "cut" / "tensorboard").iterdir()))
    resume(tmp_path / "cut")
    assert len(list((tmp_path / "cut" / "tensorboard").iterdir())) == before + 2


LONG = {
    "joined": 0.5,
    "rate_decay": 0.9,
    "patience": 4,
    "select": "joined",
    "epochs": 5,
}


def same_run(one: Path, other: Path) -> None:
    """Two folders hold the same model, options and figures."""
    for name in ("model.safetensors", "labels.json", "config.json", "tokenizer.json"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    assert figures(TextClassifier.load(one)) == figures(TextClassifier.load(other))


@pytest.mark.parametrize("seconds", [0.0, 1e9], ids=["checkpoint", "no checkpoint"])
def test_interrupted_run_with_more_epochs_ends_as_the_longer_run(
    source, tmp_path, seconds
):
    changes = {**LONG, "checkpoint_seconds": seconds}
    config = tiny_config(source, model={"dropout": 0.2}, train=changes)
    train(config, tmp_path / "whole")
    shorter = config.replace(train={"epochs": 3})
    interrupted(shorter, tmp_path / "cut", end=Crash)
    assert (tmp_path / "cut" / "checkpoint.safetensors").exists() == (seconds == 0)
    torch.manual_seed(7)
    resume(tmp_path / "cut", epochs=5)
    same_run(tmp_path / "cut", tmp_path / "whole")


def test_epochs_are_added_to_a_finished_run_that_kept_its_checkpoint(source, tmp_path):
    config = tiny_config(source, model={"dropout": 0.2}, train=LONG)
    train(config, tmp_path / "whole")
    shorter = config.replace(train={"epochs": 2, "checkpoint_seconds": 1e9})
    train(shorter, tmp_path / "m", keep_checkpoint=True)
    assert resume(tmp_path / "m").record["finished"]  # which keeps it too
    before = weights(tmp_path / "m")

    def stop(record):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resume(tmp_path / "m", epochs=5, on_epoch=stop)
    assert weights(tmp_path / "m") == before
    with pytest.raises(ModelFolderError, match="must hold a finished model"):
        TextClassifier.load(tmp_path / "m")
    resume(tmp_path / "m")  # the number of epochs was kept
    found = TextClassifier.load(tmp_path / "m")
    assert found.config.train.epochs == 5
    assert weights(tmp_path / "m") == weights(tmp_path / "whole")
    assert figures(found) == figures(TextClassifier.load(tmp_path / "whole"))
    assert found.labels == TextClassifier.load(tmp_path / "whole").labels
    assert (tmp_path / "m" / "checkpoint.safetensors").exists()


def test_finished_run_without_checkpoint_says_what_to_do(source, tmp_path):
    train(tiny_config(source, train={"epochs": 1}), tmp_path / "m")
    before = {p.name: p.read_bytes() for p in (tmp_path / "m").iterdir()}
    with pytest.raises(
        ModelFolderError, match=r"has removed it\. Train again with --epochs 3 --overw"
    ):
        resume(tmp_path / "m", epochs=3)
    assert {p.name: p.read_bytes() for p in (tmp_path / "m").iterdir()} == before
    assert resume(tmp_path / "m", epochs=1).record["finished"]  # as it is


def test_fewer_epochs_than_were_done_are_refused(source, tmp_path):
    interrupted(tiny_config(source), tmp_path / "cut", after=3)
    with pytest.raises(
        ConfigError, match="at least the 3 that the run has done; got 2"
    ):
        resume(tmp_path / "cut", epochs=2)
    assert TextClassifier.load(resumed(tmp_path / "cut")).config.train.epochs == 4


def resumed(folder: Path) -> Path:
    resume(folder)
    return folder


@pytest.mark.parametrize(
    "changes",
    [{"schedule": "cosine"}, {"schedule": "linear"}, {"warmup": 0.1}],
    ids=str,
)
def test_begun_run_whose_rate_follows_its_length_takes_no_other_epochs(
    source, tmp_path, changes
):
    config = tiny_config(source, train=changes)
    interrupted(config, tmp_path / "cut")
    message = r"epochs must be 4, .*; got 5\. Leave out --epochs, or train again with "
    with pytest.raises(ConfigError, match=message):
        resume(tmp_path / "cut", epochs=5)
    resume(tmp_path / "cut", epochs=4)  # the same
    train(config, tmp_path / "whole")
    same_run(tmp_path / "cut", tmp_path / "whole")


def test_run_that_has_made_no_step_takes_other_epochs(source, tmp_path):
    config = tiny_config(source, train={"schedule": "linear"})
    interrupted(
        config.replace(train={"epochs": 2, "checkpoint_seconds": 1e9}),
        tmp_path / "cut",
        after=1,
        end=Crash,
    )
    resume(tmp_path / "cut", epochs=4)
    train(config, tmp_path / "whole")
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")


def test_averaged_run_is_given_more_epochs(source, tmp_path):
    config = tiny_config(source, train={**LONG, "average_weights": 0.9})
    train(config, tmp_path / "whole")
    interrupted(config.replace(train={"epochs": 3}), tmp_path / "cut")
    resume(tmp_path / "cut", epochs=5)
    same_run(tmp_path / "cut", tmp_path / "whole")


def test_system_fitted_in_one_pass_takes_no_epochs(source, tmp_path):
    config = tiny_config(source, model={"architecture": "tfidf-lr"})
    train(config, tmp_path / "m")
    with pytest.raises(ConfigError, match="epochs must be left out for tfidf-lr"):
        resume(tmp_path / "m", epochs=9)
