"""Convergence: against routing run with numpy's eyes, and its known first value."""

import math

import numpy as np
import pytest
import torch

from textcapsules.base.errors import ConfigError, DataError
from textcapsules.model.capsnet import CapsuleNetwork
from textcapsules.model.classifier import TextClassifier
from textcapsules.reasons.routing_inspection import convergence, sharpness
from toy import toy_rows, trained_model

TEXTS = [text for text, _ in toy_rows(9, seed=3)]


@pytest.fixture(scope="module")
def classifier() -> TextClassifier:
    return TextClassifier.load(trained_model(), "cpu")


def test_sharpness_by_hand() -> None:
    couplings = torch.tensor([[[0.5, 0.5], [3.0, 1.0], [0.0, 0.0]]])
    mass, strongest, entropy = sharpness(couplings).tolist()
    assert mass == 5
    assert strongest == pytest.approx(1 * 0.5 + 4 * 0.75)
    half = -(0.75 * math.log2(0.75) + 0.25 * math.log2(0.25))
    assert entropy == pytest.approx(1 * 1 + 4 * half)


def test_first_iteration_is_even_and_later_ones_are_sharper(classifier) -> None:
    found = convergence(classifier, TEXTS)
    assert found.trained == classifier.config.model.iterations == 3
    assert len(found.strongest) == len(found.entropy) == 5
    assert found.strongest[0] == pytest.approx(1 / 4)  # three classes and the orphan
    assert found.entropy[0] == pytest.approx(1)
    assert list(found.strongest) == sorted(found.strongest)
    assert list(found.entropy) == sorted(found.entropy, reverse=True)


def test_values_at_the_model_s_own_iterations_are_those_of_its_couplings(
    classifier,
) -> None:
    network = classifier.network
    assert isinstance(network, CapsuleNetwork)
    mass, strongest = 0.0, 0.0
    for ids in classifier.encode(TEXTS):
        tensor = torch.from_numpy(ids.astype(np.int64))[None]
        with torch.inference_mode():
            output = network(tensor, torch.ones_like(tensor).bool(), inspect=True)
        couplings = output.branches[0].classes.couplings[0].double().numpy()
        for row in couplings:
            mass += row.sum()
            strongest += row.max()
    found = convergence(classifier, TEXTS, batch_size=2)
    assert found.strongest[2] == pytest.approx(strongest / mass, rel=1e-4)


def test_texts_without_a_known_word_are_left_out(classifier) -> None:
    alone = convergence(classifier, TEXTS, iterations=2)
    padded = convergence(classifier, [*TEXTS, "", "qqq zzz"], iterations=2)
    assert padded == alone
    assert alone.texts == len(TEXTS)
    with pytest.raises(DataError, match="texts must hold one with a known word"):
        convergence(classifier, ["", "qqq"])


def test_no_iterations_are_refused(classifier) -> None:
    with pytest.raises(ConfigError, match="iterations must be at least 1; got 0"):
        convergence(classifier, TEXTS, iterations=0)


def test_model_is_left_as_it_was(classifier) -> None:
    network = classifier.network
    options = network.branches[0].classes.options
    network.train()
    convergence(classifier, TEXTS, iterations=2)
    assert network.training
    network.eval()
    assert network.branches[0].classes.options == options
    assert not network.branches[0].classes._forward_pre_hooks
