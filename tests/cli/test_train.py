import io
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import typer

from textcapsules.base.progress import epoch_line
from textcapsules.cli.train import offer_resume
from textcapsules.config import ENCODER_PRESETS, preset
from textcapsules.model.classifier import TextClassifier
from textcapsules.training import run
from textcapsules.training.calibrate import THRESHOLD_RULES, Thresholds
from textcapsules.training.loop import Trainer
from tiny_encoder import write_encoder
from toy import TINY, refusal, run_cli, toy_file, toy_rows, write_csv


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return toy_file(tmp_path)


def written(path: str) -> int:
    return Path(path).stat().st_mtime_ns


def test_train_tells_the_outcome_and_epochs(source):
    ran = run_cli("train", "--data", source, *TINY, "--epochs", 2, "--out", "m")
    assert ran.code == 0
    assert ran.out.startswith("m: 54 texts, 3 labels; best of 2 epochs is ")
    assert [line[:8] for line in ran.err.splitlines()] == ["epoch 1:", "epoch 2:"]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--task", "multi-label"], "m: 54 texts, 3 labels; "),
        (
            ["--task", "multi-label", "--joined", 1],
            "m: 54 texts and 54 joined ones, 3 labels; ",
        ),
        (["--joined", 0.5], "m: 54 texts and 27 joined ones, 3 labels; "),
    ],
)
def test_train_tells_of_joined_texts(source, flags, told):
    ran = run_cli("train", "--data", source, *TINY, *flags, "--epochs", 1, "--out", "m")
    assert ran.code == 0
    assert ran.out.startswith(told)


def test_train_tells_what_thresholds_were_chosen_on(source, monkeypatch):
    flags = (*TINY, "--task", "multi-label", "--epochs", 1, "--overwrite")
    for on, told in (
        ("joined", "joined dev documents"),
        ("single+joined", "single and joined dev documents"),
    ):
        args = ("--data", source, *flags, "--calibrate-on", on, "--out", "m")
        ran = run_cli("train", *args)
        least = TextClassifier.load("m").labels.thresholds[0]
        assert f"; threshold {least:.3f} from {told}." in ran.out
        percent = r"\d+\.\d"
        parts = rf"\(single {percent}, joined {percent}\)"
        line = ran.err.splitlines()[0]
        assert re.search(rf"dev exact match {percent} {parts}, {percent} s$", line)
    chosen = Thresholds(np.array([0.25, 0.5, 0.125]), 0.3, 1.0)
    monkeypatch.setitem(THRESHOLD_RULES, "per-label", lambda *_: chosen)
    args = ("--data", source, *flags, "--thresholds", "per-label", "--out", "m")
    told = "; thresholds 0.125 to 0.500 from single and joined dev documents."
    assert told in run_cli("train", *args).out


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
    ["--epochs", "3", "--seed", "1"],
    ["--keep-checkpoint"],
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


def test_texts_cut_are_told_once_with_their_share(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [(f"{text} " * 2, label) for text, label in toy_rows(60)]  # 24 tokens each
    rows[7] = (rows[7][0] * 4, rows[7][1])  # 96
    source = write_csv(tmp_path / "long.csv", rows)
    flags = ["--data", source, *TINY, "--epochs", 1, "--max-tokens", 24]
    ran = run_cli("train", *flags, "--out", "m", "--json")
    cut = {"max_tokens": 24, "texts": 1, "longest": 96}
    share = 72 / (59 * 24 + 96)
    line = (
        "textcapsules: warning: 1 of 60 texts was cut at 24 tokens: 4.8% of all "
        "tokens were not read; the longest text has 96. Train with a higher "
        "--max-tokens to read more."
    )
    values = json.loads(ran.out.splitlines()[-1])
    assert values["cut"].pop("share_dropped") == pytest.approx(share)
    assert values["cut"] == cut
    assert ran.err.splitlines()[0] == line
    other = write_csv(tmp_path / "other.csv", rows[::-1])  # no copy
    for args in (
        ["evaluate", "m", "--data", other],
        ["predict", "m", "--data", source, "--out", "out.csv"],
        ["predict", "m", *(text for text, _ in rows)],
    ):
        ran = run_cli(*args, "--json")
        assert ran.err.splitlines() == [line], args
        values = json.loads(ran.out.splitlines()[-1])
        assert values["cut"].pop("share_dropped") == pytest.approx(share)
        assert values["cut"] == cut


def test_texts_read_whole_are_not_told(source):
    ran = run_cli("train", "--data", source, *TINY, "--out", "m", "--json")
    cut = json.loads(ran.out.splitlines()[-1])["cut"]
    assert cut == {"max_tokens": 400, "texts": 0, "share_dropped": 0.0, "longest": 12}
    assert run_cli("predict", "m", "--data", source).err == ""


def test_epochs_are_added_on_the_command_line(source):
    flags = ["train", "--data", source, *TINY, "--schedule", "constant", "--warmup", 0]
    assert run_cli(*flags, "--epochs", 3, "--out", "whole").code == 0
    kept = ["--epochs", 1, "--out", "m", "--keep-checkpoint"]
    assert run_cli(*flags, *kept).code == 0
    ran = run_cli("train", "--resume", "m", "--epochs", 3, "--json")
    assert ran.code == 0
    assert len(json.loads(ran.out.splitlines()[-1])["epochs"]) == 3
    one, other = (Path(run, "model.safetensors") for run in ("m", "whole"))
    assert one.read_bytes() == other.read_bytes()
    message = refusal("train", "--resume", "whole", "--epochs", 4)
    assert "Train again with --epochs 4 --overwrite, and with --keep-check" in message
    message = refusal("train", "--resume", "whole", "--epochs", 4, "--seed", 1)
    assert "resume must stand alone or with --epochs" in message


def test_epochs_are_not_added_to_a_rate_that_has_fallen(source):
    flags = ["train", "--data", source, *TINY, "--epochs", 1, "--out", "m"]
    assert run_cli(*flags, "--keep-checkpoint").code == 0
    message = refusal("train", "--resume", "m", "--epochs", 3)
    assert "epochs must be 1, as the run was begun: the learning rate" in message


def test_ctrl_c_while_a_line_is_written_does_not_repeat_it(tmp_path, monkeypatch):
    class Stderr(io.StringIO):
        flushes = 0

        def flush(self):
            self.flushes += 1
            if self.flushes == 1:  # the line is out; whoever waits for it may act
                raise KeyboardInterrupt

    stderr = Stderr()
    monkeypatch.setattr(sys, "stderr", stderr)
    figures = {"epoch": 1, "loss": 0.5, "train_seconds": 1.0, "dev_seconds": 0.0}
    (tmp_path / "config.json").touch()
    (tmp_path / "training.json").write_text("{}")
    with pytest.raises(typer.Exit) as ended, offer_resume(tmp_path):
        epoch_line(figures)
    assert ended.value.exit_code == 130
    assert stderr.getvalue().splitlines() == [
        "epoch 1: loss 0.5000, 1.0 s",
        f"textcapsules: interrupted. Go on with --resume {tmp_path}, from the start.",
    ]


def test_ctrl_c_before_an_earlier_run_is_replaced_does_not_offer_it(
    source, monkeypatch
):
    run_cli("train", "--data", source, *TINY, "--epochs", 1, "--out", "m")

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "prepare", stop)
    ran = run_cli("train", "--data", source, *TINY, "--out", "m", "--overwrite")
    assert (ran.code, ran.err) == (130, "textcapsules: interrupted.\n")


@pytest.mark.parametrize(
    ("flags", "file", "expected"),
    [
        ([], "", "best"),
        (["--encoder", "tiny"], "", "encoder-frozen"),
        (["--encoder", "tiny", "--preset", "best"], "", "best"),
        ([], '[text]\nencoder = "tiny"\n', "encoder-frozen"),
        (["--encoder", "tiny"], "[train]\nseed = 3\n", "encoder-frozen"),
        (["--encoder", "tiny"], 'preset = "best"\n', "best"),
    ],
)
def test_an_encoder_brings_its_own_preset(flags, file, expected, tmp_path):
    if file:
        (tmp_path / "run.toml").write_text(file)
        flags = [*flags, "--config", str(tmp_path / "run.toml")]
    ran = run_cli("train", "--data", "tickets", *flags, "--print-config", "--json")
    assert json.loads(ran.out.splitlines()[-1])["preset"] == expected


def test_the_preset_of_encoders_needs_one(source):
    for name in ENCODER_PRESETS:
        message = refusal("train", "--data", source, "--preset", name)
        assert f"encoder must be given for the preset {name}; got none" in message


def test_the_texts_decide_about_an_encoder(source, tmp_path, monkeypatch):
    tiny = str(write_encoder(tmp_path / "tiny"))
    monkeypatch.setenv("TEXTCAPSULES_ENCODER", tiny)
    quick = ["--epochs", 1, "--filters", 4, "--capsule-types", 2, "--capsule-size", 4]
    plain = ["--data", source, *quick, "--out", "m", "--overwrite"]
    ran = run_cli("train", *plain)
    assert ran.code == 0, ran.err
    assert f"The pretrained encoder {tiny} read the texts: the variable" in ran.out
    assert TextClassifier.load("m").config.preset == "encoder-frozen"
    ran = run_cli("train", *plain, "--encoder", "none")
    assert "encoder" not in ran.out
    assert TextClassifier.load("m").config.text.encoder is None
    monkeypatch.setenv("TEXTCAPSULES_ENCODER", "none")
    ran = run_cli("train", *plain)
    assert "Trained on words alone: the variable TEXTCAPSULES_ENCODER" in ran.out


@pytest.mark.parametrize(
    "flags",
    [
        ["--preset", "best"],
        ["--unknown", "keep"],
        ["--embedding-size", 8],
        ["--architecture", "cnn"],
        ["--encoder", "none"],
    ],
)
def test_options_of_words_are_on_words(flags):
    ran = run_cli("train", "--data", "tickets", *flags, "--print-config", "--json")
    assert json.loads(ran.out.splitlines()[-1])["text"]["encoder"] is None


def printed(*flags):
    ran = run_cli("train", "--data", "tickets", *flags, "--print-config", "--json")
    return json.loads(ran.out.splitlines()[-1])


def test_options_that_are_given_win_on_an_encoder_too(tmp_path, monkeypatch):
    monkeypatch.setenv("TEXTCAPSULES_ENCODER", "some/encoder")
    best = preset("best").model.filters
    values = printed("--filters", best, "--epochs", 3)
    assert (values["preset"], values["text"]["encoder"]) == (
        "encoder-frozen",
        "some/encoder",
    )
    assert (values["model"]["filters"], values["train"]["epochs"]) == (best, 3)
    # A file counts as flags do, and what is printed runs as it is printed.
    file = tmp_path / "run.toml"
    file.write_text(f"[model]\nfilters = {best}\n[train]\nepochs = 3\n")
    assert printed("--config", file) == values
    file.write_text('[text]\nencoder = "none"\n')
    assert printed("--config", file)["text"]["encoder"] is None
    file.write_text(run_cli("train", "--filters", best, "--print-config").out)
    assert printed("--config", file)["model"] == values["model"]
    assert printed("--config", file)["text"] == values["text"]


def test_a_preset_of_encoders_takes_the_one_that_suits_the_texts(monkeypatch):
    monkeypatch.setenv("TEXTCAPSULES_ENCODER", "some/encoder")
    values = printed("--preset", "encoder")
    assert values["preset"] == "encoder"
    assert values["text"]["encoder"] == "some/encoder"


def test_train_says_if_it_cannot_tell_texts_outside_the_topics(source):
    args = ["--data", source, *TINY, "--epochs", 1, "--out", "m", "--overwrite"]
    told = "Texts outside the topics will get labels too: 6 dev texts are too few"
    assert told in run_cli("train", *args, "--task", "multi-label").out
    assert told not in run_cli("train", *args).out
    assert (
        told not in run_cli("train", *args, "--task", "multi-label", "--no-refuse").out
    )
