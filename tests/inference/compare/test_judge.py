"""What is measured of a rival, on which texts, and how sure it is."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score

from comparisons import LABELS, tiny, toy_corpus
from textcapsules.data.example import Example
from textcapsules.inference.compare import judge as module
from textcapsules.inference.compare.judge import TestTexts
from textcapsules.model.classifier import Labels, Reading, TextClassifier
from textcapsules.text.encode import Cuts


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
    figures = test.figures([test.judge(guesser)])[0]
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
