"""Rivals: who is trained for how long, what is measured, and how sure it is."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score

from textcapsules.base.errors import ConfigError, DataError
from textcapsules.config import RunConfig, preset
from textcapsules.data.example import Corpus, Example
from textcapsules.inference import compare as module
from textcapsules.inference.compare import (
    Clock,
    Rival,
    ShorterError,
    TestTexts,
    TooLongError,
    compare,
    list_rivals,
    with_test_texts,
)
from textcapsules.model.classifier import Labels, Reading, TextClassifier
from textcapsules.text.encode import Cuts
from textcapsules.training.loop import Step
from toy import TINY_MODEL, TINY_TRAIN, TOPICS, toy_rows

LABELS = tuple(sorted(TOPICS))


def toy_corpus(n_train: int = 60, n_test: int = 30) -> Corpus:
    train, dev, test = (
        [Example(text, (label,)) for text, label in toy_rows(n, seed)]
        for seed, n in enumerate((n_train, 18, n_test))
    )
    return Corpus("toy", LABELS, train, dev, test, "single-label", "words", {})


def tiny(**sections) -> RunConfig:
    task = {"task": "multi-label", "epochs": 2}
    config = preset("best").replace(
        model={**TINY_MODEL, "joint": False, "ngram_sizes": (1,)},
        train={**TINY_TRAIN, **task},
        baseline={"feature_maps": 4},
    )
    return config.replace(**sections)


def two_rivals(config: RunConfig, encoder: str | None = None) -> list[Rival]:
    """Return the SVM, and a CNN with two settings."""
    linear = config.replace(
        model={"architecture": "tfidf-svm"}, text={"unknown": "keep"}
    )
    network = config.replace(model={"architecture": "cnn"})
    joined = network.replace(train={"joined": 1.0})
    return [Rival("svm", "SVM", [linear]), Rival("cnn", "CNN", [network, joined])]


@pytest.fixture
def few_rivals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "list_rivals", two_rivals)


def test_rivals_have_the_same_data_and_are_calibrated_alike() -> None:
    config = preset("best").replace(train={"task": "multi-label", "seed": 7})
    rivals = list_rivals(config, encoder="some/encoder")
    assert [rival.name for rival in rivals] == [
        "tfidf-svm",
        "cnn",
        "capsules",
        "encoder-linear",
        "encoder-capsules",
    ]
    names = ("task", "seed", "threshold_for", "calibrate_on", "thresholds", "joined_by")
    for rival in rivals:
        for setting in rival.settings:
            assert setting.data == config.data
            for name in names:
                assert getattr(setting.train, name) == getattr(config.train, name)
    for rival in rivals:
        joined = {setting.train.joined for setting in rival.settings}
        is_on_states = rival.name.startswith("encoder")
        assert joined == ({0.0} if is_on_states else {0.0, 1.0})
    alone = list_rivals(config.replace(train={"task": "single-label"}))
    assert {s.train.joined for rival in alone for s in rival.settings} == {0.0}
    assert alone[0].settings[0].baseline.tfidf_c == 1.0
    assert [len(rival.settings) for rival in alone] == [3, 1, 1]


def test_test_texts_are_held_out_of_the_whole_file() -> None:
    corpus = toy_corpus()._replace(test=[])
    config = preset("best")
    split = with_test_texts(config, corpus, 0.25)
    sizes = [len(part) for part in (split.train, split.dev, split.test)]
    assert sizes == [52, 6, 20]  # of 78: a quarter, and a tenth of the rest
    everything = [*split.train, *split.dev, *split.test]
    assert sorted(everything) == sorted([*corpus.train, *corpus.dev])
    kept_dev = with_test_texts(
        config.replace(data={"dev": "dev.csv"}), corpus, fraction=0.25
    )
    assert kept_dev.dev is corpus.dev
    assert len(kept_dev.test) == 15
    assert with_test_texts(config, toy_corpus(), 0.25).test == toy_corpus().test
    with pytest.raises(DataError, match="at least 10 texts"):
        with_test_texts(config, corpus._replace(train=corpus.train[:3], dev=[]), 0.2)


class Guesser(TextClassifier):
    """A model whose scores are drawn by text."""

    def __init__(self) -> None:
        self.network = None  # type: ignore[assignment]
        self.labels = Labels(LABELS, (0.4, 0.5, 0.6), "multi-label")
        self.rule = None
        nothing: Any = SimpleNamespace(cut_ids=lambda texts: ([], Cuts()))
        self.encoder = nothing

    def read(self, texts: Sequence[str]) -> Reading:
        rows = [
            np.random.default_rng(sum(map(ord, t))).random(len(LABELS)) for t in texts
        ]
        scores = np.array(rows, np.float32).reshape(-1, len(LABELS))
        counts = np.ones(len(texts), np.int64)
        return Reading(scores, counts, counts, Cuts(), counts < 1)


@pytest.fixture
def guesser(monkeypatch: pytest.MonkeyPatch) -> Guesser:
    monkeypatch.setattr(module, "encoder_states", lambda network: None)
    return Guesser()


def test_figures_are_those_of_scikit_learn(guesser: Guesser) -> None:
    test = TestTexts(tiny(), toy_corpus(n_test=60))
    assert test.sizes() == {"single": 60, "joined": 60}
    figures = test.figures(test.judge(guesser))
    everything = []
    for name, part in test.parts.items():
        scores = guesser.read(part.texts).scores
        truth = part.targets.astype(bool)
        given = scores >= np.array(guesser.labels.thresholds, np.float32)
        everything.append((given, truth))
        exact = (given == truth).all(1).mean()
        assert figures[name]["exact_match"][0] == pytest.approx(exact)
        f1 = f1_score(truth, given, average="micro")
        assert figures[name]["micro_f1"][0] == pytest.approx(f1)
    scores = guesser.read(test.parts["single"].texts).scores
    hits = test.parts["single"].targets[np.arange(60), scores.argmax(1)]
    assert figures["single"]["accuracy"][0] == pytest.approx(hits.mean())
    given, truth = (np.concatenate(each) for each in zip(*everything, strict=True))
    exact = (given == truth).all(1).mean()
    assert figures["single and joined"]["exact_match"][0] == pytest.approx(exact)
    # The deviation of a share of n independent texts.
    drawn = figures["single"]["accuracy"][1:]
    p = hits.mean()
    assert drawn.std() == pytest.approx(np.sqrt(p * (1 - p) / 60), rel=0.1)


def test_joined_texts_have_both_labels_and_go_with_their_first_text() -> None:
    corpus = toy_corpus(n_test=9)
    test = TestTexts(tiny(), corpus)
    part = test.parts["joined"]
    for text, target, unit in zip(part.texts, part.targets, part.units, strict=True):
        first, second = text.split("\n")
        labels = {e.text: e.labels[0] for e in corpus.test}
        assert first == corpus.test[unit].text
        both = {labels[first], labels[second]}
        assert {LABELS[j] for j in np.flatnonzero(target)} == both
        assert len(both) == 2
    assert sorted(part.units) == list(range(9))


def test_own_texts_with_several_labels_replace_joined_ones() -> None:
    corpus = toy_corpus(n_test=9)
    corpus = corpus._replace(
        test=[*corpus.test, Example("cat dog", ("cats", "dogs"))] * 2
    )
    test = TestTexts(tiny(), corpus)
    assert test.sizes() == {"single": 18, "several": 2}
    assert test.all_name == "single and several"


def test_rivals_are_ranked_and_what_was_tried_is_told(few_rivals, tmp_path) -> None:
    found = compare(tiny(), toy_corpus(), minutes=5, folder=tmp_path / "kept")
    assert (found.judged_on, found.judged_by) == ("single and joined", "exact_match")
    assert found.best.title == "SVM"
    assert [each.n_settings for each in found.results] == [1, 2]
    values = [
        each.figures["single and joined"]["exact_match"] for each in found.results
    ]
    assert values[0].value >= values[1].value
    behind = found.results[1].behind
    assert behind.value == pytest.approx(values[0].value - values[1].value)
    assert behind.low <= behind.value <= behind.high
    assert found.best.behind == (0, 0, 0)
    assert (found.left_out, found.equals()) == (
        {},
        [] if behind.low > 0 else [found.results[1]],
    )
    kept = TextClassifier.load(tmp_path / "kept" / "svm")
    assert kept.labels.names == LABELS
    assert (
        found.to_dict()["results"][0]["config"]["model"]["architecture"] == "tfidf-svm"
    )


def test_networks_are_left_out_where_no_time_is_left(few_rivals) -> None:
    found = compare(tiny(), toy_corpus(), minutes=1e-6)
    assert [each.title for each in found.results] == ["SVM"]
    assert found.left_out == {"CNN": "no time was left for it"}
    assert found.unfair() == ["CNN"]
    with pytest.raises(ConfigError, match="minutes must be above 0"):
        compare(tiny(), toy_corpus(), minutes=0)


def test_single_label_is_judged_by_accuracy(few_rivals) -> None:
    config = tiny(train={"task": "single-label"})
    found = compare(config, toy_corpus(), minutes=5)
    assert (found.judged_on, found.judged_by) == ("single", "accuracy")


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a clock that stands still unless it is set."""
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    return clock


def run_steps(clock: Clock, now: list[float], n: int, seconds: float, **facts) -> None:
    for step in range(n):
        now[0] += seconds
        clock.after_step(Step(facts.get("epoch", 0), step, 10, 100, 0.5))


def test_training_that_fits_is_left_alone(now) -> None:
    run_steps(Clock(1200.0), now, 100, 1.0)  # 10 epochs of 100 s, and a margin


def test_training_that_takes_too_long_is_shortened(now) -> None:
    with pytest.raises(ShorterError) as shorter:
        run_steps(Clock(600.0), now, 100, 1.0)
    # After 18 s, five epochs of 115 s fit into the rest.
    assert (shorter.value.epochs, shorter.value.planned) == (5, 10)


def test_training_that_cannot_be_shortened_is_refused(now) -> None:
    with pytest.raises(TooLongError) as too_long:
        run_steps(Clock(300.0), now, 100, 1.0)
    assert too_long.value.seconds == pytest.approx(345)
    assert "would take about 345 s more, and 282 s" in too_long.value.reason


def test_first_epoch_on_an_encoder_does_not_count(now) -> None:
    clock = Clock(1000.0, encodes=True)
    run_steps(clock, now, 100, 5.0)
    run_steps(clock, now, 100, 0.1, epoch=1)
    with pytest.raises(TooLongError):
        run_steps(Clock(now[0] + 400, encodes=True), now, 100, 5.0)


def test_training_ends_before_an_epoch_that_would_end_too_late(now) -> None:
    clock = Clock(250.0, is_checked=True)
    now[0] = 100.0
    assert not clock.is_over()
    now[0] = 200.0
    assert clock.is_over()
    assert clock.ended


def test_network_that_overruns_keeps_its_best_epoch(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(
        Clock, "is_over", lambda self: setattr(self, "ended", True) or True
    )
    config = tiny(model={"architecture": "cnn"}, train={"epochs": 5})
    model, note = module.train_for(config, toy_corpus(), tmp_path / "m", 60.0)
    assert note == "stopped after 1 epochs"
    assert len(model.record["epochs"]) == 1
    assert TextClassifier.load(tmp_path / "m").record["finished"]


def test_linear_rival_of_a_model_on_an_encoder_reads_words() -> None:
    config = preset("encoder-frozen").replace(
        text={"encoder": "some/encoder"},
        data={"source": "mine.csv"},
        train={"task": "multi-label", "seed": 7, "thresholds": "per-label"},
    )
    for each in module.linear_settings(config):
        assert (each.preset, each.text.encoder) == ("best", None)
        assert each.data == config.data
        assert (each.train.seed, each.train.thresholds) == (7, "per-label")
