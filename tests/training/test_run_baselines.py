"""Every baseline through the same run: it learns, is saved, and predicts as it did."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from textcapsules.base.errors import ModelFolderError, TextCapsulesError
from textcapsules.config import CHARACTERS, RunConfig
from textcapsules.model.baselines import convolutional as vd_cnn
from textcapsules.model.classifier import TextClassifier
from textcapsules.text import encode
from textcapsules.training import loop as fit
from textcapsules.training.loop import Trainer
from textcapsules.training.run import resume, train
from textcapsules.training.steps import EagerSteps
from toy import refusal, run_cli, tiny_config, toy_rows, without_sums, write_csv

pytestmark = pytest.mark.slow

# A word, or for characters a letter, gives each text away.
TOKENS = {"x": "aaaa bbbb", "y": "1111 2222"}
ROWS = [
    (f"{TOKENS[label]} {filler} {TOKENS[label]}", label)
    for filler in ("the", "of", "and", "to", "in", "is", "it", "as", "at", "by")
    for label in TOKENS
]
AWKWARD = ["", "   ", "💥", "<script>alert(1)</script>", "aaaa", "2222 " * 2000]
NETWORKS: dict[str, dict[str, Any]] = {  # architecture, or kind of it -> options
    "lstm": {},
    "bilstm": {"baseline": {"pooling": "max"}},
    "tree-lstm": {},
    "n-ary": {"baseline": {"tree_kind": "n-ary"}},
    "lr-lstm": {},
    "cnn": {"baseline": {"feature_maps": 8}},
    "cl-cnn": {"train": {"learning_rate": 1e-3}},
    "vd-cnn": {"train": {"learning_rate": 5e-3, "epochs": 12}},
}
CLASSIC: dict[str, dict[str, Any]] = {"tfidf-svm": {}, "tfidf-lr": {}, "fasttext": {}}
SYSTEMS = {**NETWORKS, **CLASSIC}


class ChainParser:
    """Every word's head is the next one: no spaCy needed."""

    def __init__(self, *, keep: bool) -> None:
        del keep

    def __call__(self, documents) -> list[np.ndarray]:
        chains = [np.ones(len(words), np.int32) for words in documents]
        for chain in chains:
            chain[-1:] = 0
        return chains


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHARACTERS, "cl-cnn", 123)
    monkeypatch.setitem(CHARACTERS, "vd-cnn", 64)
    monkeypatch.setattr(vd_cnn, "FEATURES", (8, 16, 32, 64))
    monkeypatch.setattr(vd_cnn, "UNITS", 32)
    monkeypatch.setattr(encode, "DependencyParser", ChainParser)


def options(name: str, folder: Path, **train_options: Any) -> RunConfig:
    source = write_csv(folder / "rows.csv", ROWS)
    given = {key: dict(values) for key, values in SYSTEMS[name].items()}
    small = {"hidden_size": 8, "output_dropout": 0.1}
    given["baseline"] = small | given.get("baseline", {})
    given["train"] = {"epochs": 5, **given.get("train", {}), **train_options}
    given["model"] = {"architecture": "tree-lstm" if name == "n-ary" else name}
    return tiny_config(source, **given)


def check_learnt(model: TextClassifier, folder: Path) -> None:
    texts = [text for text, _ in ROWS]
    scores = model.scores(texts)
    assert scores.min() >= 0
    assert scores.max() <= 1
    expected = [model.labels.names.index(label) for _, label in ROWS]
    assert scores.argmax(1).tolist() == expected
    loaded = TextClassifier.load(folder, "cpu")
    both = [*texts, *AWKWARD]
    np.testing.assert_array_equal(loaded.scores(both), model.scores(both))
    assert (loaded.scores(AWKWARD[:3]) == 0).all()
    assert loaded.record == model.record


@pytest.mark.parametrize("name", SYSTEMS)
def test_system_learns_and_its_folder_predicts_the_same(
    name: str, tmp_path: Path
) -> None:
    model = train(options(name, tmp_path), tmp_path / "model")
    assert model.config.loss.loss == "cross-entropy"
    check_learnt(model, tmp_path / "model")
    losses = [record["loss"] for record in model.record["epochs"]]
    assert len(losses) == (1 if name in CLASSIC else model.config.train.epochs)
    assert min(losses) < 0.69  # what guessing costs, log 2


@pytest.mark.parametrize("name", ["bilstm", "cnn", *CLASSIC])
def test_several_labels_come_of_joined_texts(name: str, tmp_path: Path) -> None:
    # Of three labels, so that joined development texts have two and lack one.
    third = [(text.replace("aaaa bbbb", "zzzz"), "z") for text, _ in ROWS[::2]]
    rows = [*ROWS, *third]
    config = options(name, tmp_path, task="multi-label", joined=1.0, epochs=12)
    source = write_csv(tmp_path / "three.csv", rows)
    config = config.replace(data={"source": str(source), "dev_fraction": 0.3})
    model = train(config, tmp_path / "model")
    assert model.config.loss.loss == "binary-cross-entropy"
    assert model.record["calibration"]["on"] == "single and joined dev documents"
    pairs = [(a, b) for a in rows for b in rows[:5] if a[1] != b[1]]
    texts = [f"{a[0]} {b[0]}" for a, b in pairs]
    found = [{*prediction.labels} for prediction in model.predict(texts)]
    expected = [{a[1], b[1]} for a, b in pairs]
    right = [one == other for one, other in zip(found, expected, strict=True)]
    assert np.mean(right) > 0.9
    loaded = TextClassifier.load(tmp_path / "model", "cpu")
    np.testing.assert_array_equal(loaded.scores(texts), model.scores(texts))


def test_best_epoch_brings_its_running_averages(tmp_path, monkeypatch) -> None:
    # The first epoch is made the best; its batch norms must come back with it.
    states = []
    honest = Trainer.run_epoch

    def watched(self, epoch, on_step):
        record = honest(self, epoch, on_step)
        states.append({k: v.clone() for k, v in self.network.state_dict().items()})
        return record

    monkeypatch.setattr(Trainer, "run_epoch", watched)
    scores = iter([1.0, 0.5, 0.2])
    monkeypatch.setattr(
        "textcapsules.training.selection.DevSet.judge",
        lambda *_: {"dev_score": (score := next(scores)), "dev_accuracy": score},
    )
    train(options("vd-cnn", tmp_path, epochs=3), tmp_path / "model")
    saved = load_file(tmp_path / "model" / "model.safetensors")
    assert any("running_mean" in name for name in saved)
    for name, tensor in saved.items():
        assert torch.equal(tensor, states[0][name]), name
    assert any(not torch.equal(saved[name], states[2][name]) for name in saved)


@pytest.mark.parametrize(("name", "mixed"), [("cnn", 0), ("cl-cnn", 0), ("vd-cnn", 8)])
def test_texts_of_like_length_share_a_batch_unless_it_is_normed(
    name: str, mixed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    honest = EagerSteps.run

    def watched(self, documents, targets, batches, epoch):
        lengths = np.array([len(ids) for ids in documents])
        seen.extend(len({*lengths[rows]}) > 1 for rows in batches)
        return honest(self, documents, targets, batches, epoch)

    monkeypatch.setattr(EagerSteps, "run", watched)
    source = write_csv(tmp_path / "two.csv", [("aa", "x"), ("bb " * 9, "y")] * 32)
    config = options(name, tmp_path, epochs=1, batch_size=4)
    config = config.replace(data={"source": str(source), "dev_fraction": 0.5})
    train(config, tmp_path / "model")
    assert len(seen) == 8
    assert sum(seen) >= mixed - 2  # of eight drawn batches one in eight is of one kind
    assert mixed or not any(seen)


@pytest.mark.parametrize("name", ["bilstm", "tree-lstm", "vd-cnn"])
def test_interrupted_run_ends_with_the_same_weights(
    name, tmp_path, monkeypatch
) -> None:
    config = options(name, tmp_path, epochs=2)
    train(config, tmp_path / "whole")
    honest = Trainer.run_epoch

    def killed(self, epoch, on_step):
        if epoch == 1:
            raise RuntimeError("power cut")
        return honest(self, epoch, on_step)

    monkeypatch.setattr(Trainer, "run_epoch", killed)
    with pytest.raises(RuntimeError, match="power cut"):
        train(config, tmp_path / "cut")
    monkeypatch.setattr(Trainer, "run_epoch", honest)
    resume(tmp_path / "cut")
    whole, cut = (
        load_file(tmp_path / part / "model.safetensors") for part in ("whole", "cut")
    )
    assert all(torch.equal(whole[key], cut[key]) for key in whole)


def test_interrupted_fit_is_fitted_again(tmp_path, monkeypatch) -> None:
    config = options("tfidf-lr", tmp_path)

    def killed(*_: Any) -> Any:
        raise RuntimeError("power cut")

    with monkeypatch.context() as patched:
        patched.setattr("textcapsules.training.run.fit_system", killed)
        with pytest.raises(RuntimeError, match="power cut"):
            train(config, tmp_path / "cut")
    with pytest.raises(ModelFolderError, match="finished model; got a run broken off"):
        TextClassifier.load(tmp_path / "cut")
    check_learnt(resume(tmp_path / "cut"), tmp_path / "cut")


def test_kims_weights_are_short_after_every_step(tmp_path: Path) -> None:
    config = options("cnn", tmp_path).replace(
        baseline={"max_norm": 0.5}, train={"learning_rate": 0.5}
    )
    train(config, tmp_path / "model")
    weight = load_file(tmp_path / "model" / "model.safetensors")["output.weight"]
    assert weight.norm(dim=1).max() <= 0.5 + 1e-5


def test_folder_of_fasttext_has_its_own_file_and_gives_way(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    train(options("fasttext", tmp_path), folder)
    assert {"model.bin", "config.json"} <= {path.name for path in folder.iterdir()}
    assert not (folder / "model.safetensors").exists()
    train(options("tfidf-lr", tmp_path), folder, overwrite=True)
    assert not (folder / "model.bin").exists()
    check_learnt(TextClassifier.load(folder), folder)


@pytest.mark.parametrize(
    ("name", "file"), [("fasttext", "model.bin"), ("tfidf-lr", "model.safetensors")]
)
def test_damaged_weights_are_told(tmp_path: Path, name: str, file: str) -> None:
    folder = tmp_path / "model"
    train(options(name, tmp_path), folder)
    (folder / file).write_bytes(b"rubbish" * 9)
    with pytest.raises(ModelFolderError, match=f"{file} must hold the weights"):
        TextClassifier.load(folder)


def test_missing_fasttext_leaves_an_earlier_run_alone(tmp_path, monkeypatch) -> None:
    folder = tmp_path / "model"
    train(options("tfidf-lr", tmp_path), folder)
    monkeypatch.setitem(sys.modules, "fasttext", None)
    with pytest.raises(TextCapsulesError, match=r"textcapsules\[baselines\]"):
        train(options("fasttext", tmp_path), folder, overwrite=True)
    check_learnt(TextClassifier.load(folder), folder)


@pytest.mark.parametrize("former", [None, "rival"])
def test_model_folder_of_before_the_section_baseline_still_loads(
    former: str | None, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    source = write_csv(tmp_path / "toy.csv", toy_rows(24))
    model = train(tiny_config(source, train={"epochs": 1}), folder)
    values = json.loads((folder / "config.json").read_text())
    options = values.pop("baseline")
    if former:
        values[former] = options
    (folder / "config.json").write_text(json.dumps(values))
    texts = [text for text, _ in toy_rows(5)]
    loaded = TextClassifier.load(without_sums(folder), "cpu")
    np.testing.assert_array_equal(loaded.scores(texts), model.scores(texts))
    assert loaded.config == model.config


def test_log_loss_by_hand() -> None:
    scores = np.array([[0.5, 0.25], [0.1, 0.9]])
    targets = np.array([[1.0, 0.0], [0.0, 1.0]])
    one = -(np.log(0.5) + np.log(0.9)) / 2
    assert fit.log_loss(scores, targets, several=False) == pytest.approx(one)
    rest = -(np.log(0.75) + np.log(0.9)) / 2
    assert fit.log_loss(scores, targets, several=True) == pytest.approx(one + rest)


def test_verbs_train_evaluate_and_predict_a_baseline(tmp_path: Path) -> None:
    source, folder = write_csv(tmp_path / "rows.csv", ROWS), tmp_path / "model"
    flags = ["--architecture", "tfidf-svm", "--tfidf-c", 2, "--device", "cpu"]
    ran = run_cli("train", "--data", source, *flags, "--out", folder, "--json")
    assert ran.code == 0, ran.err
    record = json.loads(ran.out.splitlines()[-1])
    assert record["best_epoch"] == len(record["epochs"]) == 1
    assert record["parameters"] > 0
    ran = run_cli("evaluate", folder, "--data", source, "--json")
    figures = json.loads(ran.out.splitlines()[-1])
    assert figures["single_label"]["accuracy"] == 1
    ran = run_cli("predict", folder, "1111 2222")
    assert json.loads(ran.out.splitlines()[0])["predicted"] == ["y"]
    assert TextClassifier.load(folder).config.baseline.tfidf_c == 2.0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--architecture", "rnn"], "architecture must be one of 'capsule-a'"),
        (["--vd-cnn-depth", "10"], "vd_cnn_depth must be one of 9, 17, 29; got '10'"),
        (["--architecture", "lr-lstm"], "n_classes of lr-lstm must be 2"),
        (["--architecture", "cnn", "--rule", "characters"], "rule must be a rule of"),
    ],
)
def test_bad_flags_are_told(tmp_path: Path, flags: list[str], message: str) -> None:
    source = write_csv(tmp_path / "toy.csv", toy_rows(24))
    out = tmp_path / "model"
    assert message in refusal("train", "--data", source, *flags, "--out", out)
    assert not out.exists()


def test_depth_is_a_number_on_the_command_line() -> None:
    flags = ["--vd-cnn-depth", "17", "--print-config", "--json"]
    ran = run_cli("train", *flags)
    assert json.loads(ran.out.splitlines()[-1])["baseline"]["vd_cnn_depth"] == 17
