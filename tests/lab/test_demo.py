"""The demonstration on few tickets: what it writes, and how its baseline is trained."""

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pages import check_page
from textcapsules.base.errors import WriteError
from textcapsules.config import RunConfig, default_preset
from textcapsules.data import load, tickets
from textcapsules.inference.compare import rivals
from textcapsules.inference.compare.rivals import linear_rival
from textcapsules.lab import demo
from textcapsules.lab.demo import demo_config, run_demo
from textcapsules.text import encoder_files
from textcapsules.text.vocabulary import UNK_ID
from textcapsules.training.join import joined_pairs
from textcapsules.training.prepare import prepare
from textcapsules.training.run import train
from textcapsules.training.selection import DevSet
from tiny_encoder import write_encoder
from toy import run_cli

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def few_tickets(monkeypatch: pytest.MonkeyPatch) -> None:
    few = functools.partial(
        tickets.read_tickets, n_train=120, n_dev=40, n_test=30, n_multi=20
    )
    monkeypatch.setattr(demo, "read_tickets", few)
    monkeypatch.setattr(load, "read_tickets", few)


def small_demo(folder: Path, **settings):
    config = demo_config().replace(
        model={"embedding_size": 8, "capsule_types": 2, "capsule_size": 4},
        train={"epochs": 1},
    )
    return run_demo(folder, config=config, **settings)


def test_demo_on_an_encoder_has_a_linear_layer_beside_it(tmp_path: Path) -> None:
    encoder = write_encoder(tmp_path / "tiny")
    config = demo_config(str(encoder)).replace(
        model={"filters": 8, "capsule_types": 2, "capsule_size": 4},
        train={"epochs": 1},
    )
    result = run_demo(tmp_path / "demo", config=config)
    # So small an encoder tells little, and words are added to both networks.
    assert result.titles == {
        "capsules": "capsule network on tiny, with words",
        "linear": "linear layer on tiny, with words",
        "tfidf": "TF-IDF + logistic regression",
    }
    assert set(result.multi) == set(result.titles)


def test_demo_takes_the_encoder_that_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[RunConfig] = []

    def keep(folder: Path, *, config: RunConfig, **settings: Any) -> None:
        trained.append(config)
        raise WriteError("enough")

    monkeypatch.setattr(demo, "run_demo", keep)
    for installed in (True, False):
        monkeypatch.setattr(encoder_files, "is_installed", lambda _, it=installed: it)
        for flags in ([], ["--no-encoder"], ["--encoder", "other"]):
            run_cli("demo", "--out", tmp_path, *flags)
    names = [config.text.encoder for config in trained]
    assert names == ["all-MiniLM-L6-v2", None, "other", None, None, "other"]
    presets = [config.preset for config in trained]
    assert presets == [default_preset(name) for name in names]
    both = run_cli("demo", "--no-encoder", "--encoder", "other")
    assert both.code == 2 and "encoder must be left out with --no-encoder" in both.err
    assert len(trained) == 6


def test_demo_writes_model_results_and_report(tmp_path: Path) -> None:
    result = small_demo(tmp_path)
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"model", "results.json", "confusion.png", "report.html"}
    page = check_page(result.report.read_text(encoding="utf-8"))
    assert "synthetic" in page.inside("p", "lead")[1]
    figures = json.loads((tmp_path / "results.json").read_text())
    for corpus, n_texts in (("tickets", 30), ("tickets-multi", 20)):
        assert {s: f["texts"] for s, f in figures[corpus].items()} == {
            "capsules": n_texts,
            "tfidf": n_texts,
        }
    accuracy = result.single["tfidf"].single_label
    assert accuracy is not None
    assert f"{100 * accuracy['accuracy']:.1f}" in page.inside("td")
    assert set(result.titles.values()) <= set(page.inside("th"))
    for title in (
        "In short",
        "Which phrases speak for each label",
        "Examples",
        "The training texts",
    ):
        assert title in page.inside("h2")
    matrix = result.single["capsules"].confusion
    assert matrix is not None
    assert "one row per true label" in " ".join(page.inside("p", "note"))
    assert str(matrix.max()) in page.inside("td")


def test_demo_replaces_a_report_only_with_overwrite(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("mine")
    with pytest.raises(WriteError, match=r"report\.html must not exist yet"):
        small_demo(tmp_path)
    assert (tmp_path / "report.html").read_text() == "mine"
    assert not (tmp_path / "model").exists()
    small_demo(tmp_path, overwrite=True)
    assert (tmp_path / "report.html").read_text() != "mine"


def test_dev_chooses_the_thresholds_of_the_baseline() -> None:
    corpus = demo.read_tickets("tickets-multi")
    baseline = linear_rival(corpus, demo_config())
    # No common threshold is better on the single and the joined dev texts together.
    texts = [example.text for example in corpus.dev]
    targets = np.array(
        [[name in example.labels for name in corpus.labels] for example in corpus.dev]
    )
    pairs = joined_pairs(targets, 40, 0, by=demo_config().train.joined_by)
    texts += [f"{texts[first]} {texts[second]}" for first, second in pairs]
    truth = np.concatenate([targets, targets[pairs[:, 0]] | targets[pairs[:, 1]]])
    scores = baseline.scores(texts)
    values = [((scores >= t) == truth).all(1).mean() for t in np.unique(scores)[1:]]
    # The calibration tries 400 thresholds.
    thresholds = np.array(baseline.labels.thresholds, scores.dtype)
    chosen = ((scores >= thresholds) == truth).all(1).mean()
    assert chosen >= max(values) - 0.02
    assert chosen == pytest.approx(baseline.record["calibration"]["value"])


def test_dev_chooses_the_best_of_six_baselines(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = []

    def train_and_keep(config, folder, **settings):
        trained.append(train(config, folder, **settings))
        return trained[-1]

    monkeypatch.setattr(rivals, "train", train_and_keep)
    baseline = linear_rival(demo.read_tickets("tickets-multi"), demo_config())
    offered = [
        (each.config.train.joined, each.config.baseline.tfidf_c) for each in trained
    ]
    assert offered == [(j, c) for j in (0.0, 1.0) for c in (1.0, 10.0, 100.0)]
    values = [each.record["calibration"]["value"] for each in trained]
    assert baseline is trained[values.index(max(values))]


def test_network_and_baseline_are_calibrated_on_the_same_documents() -> None:
    corpus = demo.read_tickets("tickets-multi")
    dev_sets = []
    for config in (demo_config(), linear_rival(corpus, demo_config()).config):
        prepared = prepare(config, corpus)
        dev = DevSet(prepared.config, prepared.dev)
        assert dev.source == "single and joined dev documents"
        assert dev.joined is not None
        documents = [*prepared.dev.documents, *dev.joined.documents]
        known = [ids[ids != UNK_ID].tolist() for ids in documents]
        dev_sets.append((known, prepared.dev.targets.tolist(), dev.joined.targets))
    network, baseline = dev_sets
    assert network[:2] == baseline[:2]
    np.testing.assert_array_equal(network[2], baseline[2])
