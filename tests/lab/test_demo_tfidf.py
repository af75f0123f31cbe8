"""The baseline reads text and gives a probability a class."""

import numpy as np

from textcapsules.lab.demo import TfidfClassifier

TEXTS = ["red apple", "green apple", "fast car", "slow car", "blue bird", "old bird"]
TARGETS = np.eye(4)[[0, 0, 1, 1, 3, 3]]  # nobody carries class 2


def test_baseline_learns_words_and_gives_probabilities() -> None:
    scores = TfidfClassifier().fit(TEXTS, TARGETS).scores(["apple", "a car", "bird"])
    assert scores.argmax(1).tolist() == [0, 1, 3]
    np.testing.assert_allclose(scores.sum(1), 1, atol=1e-6)  # float32


def test_class_without_a_training_text_scores_zero() -> None:
    scores = TfidfClassifier().fit(TEXTS, TARGETS).scores(["apple", "unseen words"])
    assert scores.shape == (2, 4)
    assert (scores[:, 2] == 0).all()


def test_smaller_c_makes_the_baseline_less_sure() -> None:
    sure = TfidfClassifier(C=100).fit(TEXTS, TARGETS).scores(["red apple"])
    unsure = TfidfClassifier(C=0.01).fit(TEXTS, TARGETS).scores(["red apple"])
    assert sure.max() > unsure.max() + 0.1
