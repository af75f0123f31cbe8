"""The demonstration on few tickets: what it writes, and how its baseline is treated."""

import functools
import json
from pathlib import Path

import numpy as np
import pytest

from pages import check_page
from textcapsules.base.errors import WriteError
from textcapsules.data import load, tickets
from textcapsules.lab import demo
from textcapsules.lab.demo import demo_config, joined_set, run_demo, train_baseline
from textcapsules.text.encode import Encoder
from textcapsules.training.calibrate import joined_pairs
from textcapsules.training.prepare import prepare
from textcapsules.training.selection import DevSet


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


def test_demo_writes_model_results_and_report(tmp_path: Path) -> None:
    result = small_demo(tmp_path)
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"model", "results.json", "confusion.png", "report.html"}
    page = check_page(result.report.read_text(encoding="utf-8"))
    assert "synthetic" in page.inside("p", "lead")[0]
    figures = json.loads((tmp_path / "results.json").read_text())
    for corpus, n_texts in (("tickets", 30), ("tickets-multi", 20)):
        assert {s: f["texts"] for s, f in figures[corpus].items()} == {
            "capsules": n_texts,
            "tfidf": n_texts,
        }
    accuracy = result.single["tfidf"].single_label
    assert accuracy is not None
    assert f"{100 * accuracy['accuracy']:.1f}" in page.inside("td")
    assert set(demo.SYSTEMS.values()) <= set(page.inside("th"))
    for title in ("What speaks for each label", "Examples", "Training", "Confusion"):
        assert title in page.inside("h2")
    matrix = result.single["capsules"].confusion
    assert matrix is not None
    assert "true one down" in " ".join(page.inside("p", "note"))
    assert str(matrix.max()) in page.inside("td")


def test_demo_never_replaces_a_report_unless_told(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("mine")
    with pytest.raises(WriteError, match=r"report\.html must not exist yet"):
        small_demo(tmp_path)
    assert (tmp_path / "report.html").read_text() == "mine"
    assert not (tmp_path / "model").exists()
    small_demo(tmp_path, overwrite=True)
    assert (tmp_path / "report.html").read_text() != "mine"


def test_baseline_gets_joined_texts_and_a_threshold_from_dev() -> None:
    corpus = demo.read_tickets("tickets-multi")
    baseline, threshold = train_baseline(corpus)
    scores = baseline.scores([example.text for example in corpus.dev])
    assert scores.shape == (40, len(corpus.labels))
    # As good on the single dev texts and the joined ones together as any threshold.
    texts = [example.text for example in corpus.dev]
    targets = np.array(
        [[name in example.labels for name in corpus.labels] for example in corpus.dev]
    )
    pairs = joined_pairs(targets, 40, 0, by=demo_config().train.joined_by)
    texts += [f"{texts[first]} {texts[second]}" for first, second in pairs]
    truth = np.concatenate([targets, targets[pairs[:, 0]] | targets[pairs[:, 1]]])
    scores = baseline.scores(texts)
    values = [((scores >= t) == truth).all(1).mean() for t in np.unique(scores)[1:]]
    # The search looks at 400 of them.
    assert ((scores >= threshold) == truth).all(1).mean() >= max(values) - 0.02


def test_joined_set_has_two_labels_each_and_keeps_the_singles() -> None:
    texts, targets = ["a", "b", "c"], np.eye(3, dtype=np.float32)
    more, marks = joined_set(texts, targets)
    assert more[:3] == texts
    assert marks[:3].tolist() == targets.tolist()
    assert len(more) == len(marks) == 6
    assert marks[3:].sum(1).tolist() == [2, 2, 2]
    for text, row in zip(more[3:], marks[3:], strict=True):
        assert sorted(text.split()) == [
            t for t, on in zip("abc", row, strict=True) if on
        ]


def test_network_and_baseline_are_calibrated_on_the_same_documents() -> None:
    corpus = demo.read_tickets("tickets-multi")
    config = demo_config().replace(text={"max_tokens": 10_000})  # none is cut
    prepared = prepare(config, corpus)
    dev = DevSet(prepared.config, prepared.dev)
    assert dev.joined is not None
    encoder = Encoder(prepared.config, prepared.tokenizer)
    texts, targets = joined_set(
        [example.text for example in corpus.dev], prepared.dev.targets
    )
    own = [*prepared.dev.documents, *dev.joined.documents]
    assert [ids.tolist() for ids in own] == [
        ids.tolist() for ids in encoder.encode(texts)
    ]
    both = np.concatenate([prepared.dev.targets, dev.joined.targets])
    np.testing.assert_array_equal(both, targets)
