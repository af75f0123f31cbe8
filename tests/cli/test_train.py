import json
from pathlib import Path

import pytest

from textcapsules.classifier import TextClassifier
from textcapsules.training.loop import Trainer
from toy import TINY, refusal, run_cli, toy_file, toy_rows, write_csv


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return toy_file(tmp_path, 24)


def written(path: str) -> int:
    return Path(path).stat().st_mtime_ns


def test_train_tells_the_outcome_and_epochs(source):
    ran = run_cli("train", "--data", source, *TINY, "--epochs", 2, "--out", "m")
    assert ran.code == 0
    assert ran.out.startswith("m: 22 texts, 3 labels; best of 2 epochs is ")
    assert [line[:8] for line in ran.err.splitlines()] == ["epoch 1:", "epoch 2:"]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--task", "multi-label"], "m: 22 texts and 22 joined ones, 3 labels; "),
        (["--task", "multi-label", "--joined", 0], "m: 22 texts, 3 labels; "),
        (["--joined", 0.5], "m: 22 texts and 11 joined ones, 3 labels; "),
    ],
)
def test_train_tells_of_joined_texts(source, flags, told):
    ran = run_cli("train", "--data", source, *TINY, *flags, "--epochs", 1, "--out", "m")
    assert ran.code == 0
    assert ran.out.startswith(told)


def test_train_json_is_the_last_line_and_the_record(source):
    ran = run_cli("train", "--data", source, *TINY, "--out", "m", "--json")
    values = json.loads(ran.out.splitlines()[-1])
    assert values.pop("folder") == "m"
    assert values == TextClassifier.load("m").record
    assert ran.err == ""


def test_default_folder_is_used(source):
    assert run_cli("train", "--data", source, *TINY, "--epochs", 1).code == 0
    assert TextClassifier.load("runs/model").labels.names == ("birds", "cats", "dogs")


def test_file_and_flags_are_combined_and_flags_win(source, tmp_path):
    (tmp_path / "run.toml").write_text(
        'preset = "sabour"\n[train]\nepochs = 3\nseed = 4\n[data]\nlabel_column = "x"\n'
    )
    flags = ["--data", source, "--label-column", "label", *TINY, "--epochs", 1]
    assert run_cli("train", "--config", "run.toml", *flags, "--out", "m").code == 0
    config = TextClassifier.load("m").config
    assert config.preset == "sabour"
    assert config.model.squash == "sabour"
    assert (config.train.epochs, config.train.seed) == (1, 4)
    assert config.model.ngram_sizes == (3, 4, 5)


def test_resume_goes_on_and_tells(source, monkeypatch):
    honest = Trainer.run_epoch

    def killed(self, epoch, on_step):
        if epoch == 2:
            raise RuntimeError("power cut")
        return honest(self, epoch, on_step)

    monkeypatch.setattr(Trainer, "run_epoch", killed)
    with pytest.raises(RuntimeError, match="power cut"):
        run_cli("train", "--data", source, *TINY, "--out", "m")
    monkeypatch.setattr(Trainer, "run_epoch", honest)
    ran = run_cli("train", "--resume", "m", "--json")
    assert ran.code == 0
    assert len(json.loads(ran.out.splitlines()[-1])["epochs"]) == 4
    again = run_cli("train", "--resume", "m", "--json")
    assert again == ran


def test_finished_run_without_its_epochs_is_told(source):
    run_cli("train", "--data", source, *TINY, "--epochs", 1, "--out", "m")
    Path("m/training.json").write_text('{"finished": true}')
    assert "m/training.json must" in refusal("train", "--resume", "m")


BESIDE = [
    ["--epochs", "3"],
    ["--preset", "paper"],
    ["--config", "x.toml"],
    ["--out", "n"],
    ["--overwrite"],
    ["--tensorboard"],
    ["--print-config"],
]


@pytest.mark.parametrize("options", BESIDE, ids=" ".join)
def test_resume_with_other_options_is_refused(source, options):
    assert "resume must stand alone" in refusal("train", "--resume", "m", *options)


def test_run_is_kept_unless_overwrite(source):
    flags = ["train", "--data", source, *TINY, "--epochs", 1, "--out", "m"]
    assert run_cli(*flags).code == 0
    before = written("m/model.safetensors")
    assert "got an earlier run. Pass --resume" in refusal(*flags)
    assert written("m/model.safetensors") == before
    assert run_cli(*flags, "--overwrite").code == 0
    assert written("m/model.safetensors") != before


def test_labels_that_look_like_markup_are_shown_as_they_are(tmp_path):
    names = {"birds": "[red]", "cats": "[/x]", "dogs": ":dog:"}
    rows = [(text, names[label]) for text, label in toy_rows(30)]
    path = write_csv(tmp_path / "[bold]toy.csv", rows)
    for args in (
        ("data", "show", path),
        ("train", "--data", path, *TINY, "--out", tmp_path / "m"),
        ("evaluate", tmp_path / "m", "--data", path),
    ):
        ran = run_cli(*args)
        assert ran.code == 0
        if args[0] != "train":
            assert all(name in ran.out for name in names.values())
            assert "[bold]toy.csv" in ran.out
