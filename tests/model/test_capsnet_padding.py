"""Padding never votes: a text's scores are its own, whatever stands beside it."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from textcapsules.config import PRESETS, ModelConfig, preset
from textcapsules.model.builder import build_network
from textcapsules.model.capsnet import CapsuleNetwork
from textcapsules.model.score import score_documents

pytestmark = pytest.mark.slow

SMALL: dict[str, Any] = {
    "embedding_size": 6,
    "filters": 5,
    "capsule_types": 3,
    "capsule_size": 4,
    "conv_types": 2,
}
MAX_TOKENS = 16
NETWORKS: dict[str, dict[str, Any]] = {
    **{name: vars(preset(name).model) for name in PRESETS if name != "released"},
    "own transforms": {"shared": False},
    "own transforms, stride 2": {"shared": False, "stride": 2},
    "edges": {"edges": True},
    "edges, own transforms, stride 2": {"edges": True, "shared": False, "stride": 2},
    "no convolutional capsules": {"conv_capsules": False},
    "poses averaged": {"average": "poses", "squash": "exp"},
}


@cache
def network(name: str, dtype: torch.dtype = torch.float64) -> CapsuleNetwork:
    """Build a network with every bias drawn, so that padding could be heard."""
    changes = vars(preset(name).model) if name == "released" else NETWORKS[name]
    config = ModelConfig(**{**changes, **SMALL})
    torch.manual_seed(3)
    built = build_network(config, n_words=20, n_classes=3, max_tokens=MAX_TOKENS)
    for weight in built.branches.parameters():
        torch.nn.init.normal_(weight, std=0.4)
    return built.to(dtype).eval()


def score(model: CapsuleNetwork, texts: list[list[int]], tokens: int) -> torch.Tensor:
    """Return lengths, orphan included, of texts padded to `tokens`."""
    ids = torch.tensor([text + [0] * (tokens - len(text)) for text in texts])
    mask = torch.tensor([[at < len(text) for at in range(tokens)] for text in texts])
    with torch.inference_mode():
        return model(ids.reshape(-1, tokens), mask.reshape(-1, tokens)).lengths(
            orphan=True
        )


words = st.integers(1, 19)
some_texts = st.lists(st.lists(words, max_size=12), min_size=1, max_size=5)


@pytest.mark.parametrize("name", NETWORKS)
@given(texts=some_texts, further=st.integers(0, 4))
@settings(max_examples=20, deadline=None)
def test_scores_are_the_same_alone_in_a_batch_and_padded_further(
    name: str, texts: list, further: int
) -> None:
    model = network(name)
    longest = max(1, *(len(text) for text in texts))
    together = score(model, texts, longest + further)
    for row, text in enumerate(texts):
        alone = score(model, [text], max(1, len(text)))[0]
        # The same sums of the same numbers, with zeros among them, in float64.
        torch.testing.assert_close(together[row], alone, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NETWORKS)
def test_scores_in_float32_are_the_same_to_five_digits(name: str) -> None:
    model = network(name, torch.float32)
    rng = np.random.default_rng(0)
    documents = [rng.integers(1, 20, n) for n in (0, 1, 2, 3, 4, 5, 7, 9, 12, 16, 16)]
    alone = score_documents(model, documents, batch_size=1)
    for batch_size in (2, 3, 64):
        batched = score_documents(model, documents, batch_size=batch_size)
        np.testing.assert_allclose(batched, alone, atol=1e-5)  # what is promised


@pytest.mark.parametrize("name", NETWORKS)
def test_empty_text_scores_zero_for_every_class(name: str) -> None:
    for tokens in (1, 5, MAX_TOKENS):
        assert (score(network(name), [[], [1, 2]], max(2, tokens))[0] == 0).all()
        assert (score(network(name), [[]], tokens) == 0).all()


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("text", [[5], [5, 6], [5, 6, 7]], ids=len)
def test_short_texts_have_scores_of_their_own(name: str, text: list) -> None:
    model = network(name)
    scores = score(model, [text], len(text))
    assert (scores > 0).all()
    other = score(model, [[*text[:-1], 11]], len(text))
    assert not torch.allclose(scores, other)


def test_given_vectors_cannot_make_padding_vote() -> None:
    vectors = torch.full((20, 6), 0.5)
    built = build_network(
        ModelConfig(**SMALL), n_words=20, n_classes=3, max_tokens=16, vectors=vectors
    ).eval()
    alone, beside = score(built, [[5]], 1), score(built, [[5], [1] * 12], 12)
    torch.testing.assert_close(beside[0], alone[0])
    assert (vectors == 0.5).all()  # the caller's own are left as they were


def test_released_pads_to_max_tokens_so_scores_do_not_depend_on_the_batch() -> None:
    model = network("released")
    texts = [[3, 1, 4], [1, 5, 9, 2, 6, 5, 3, 5], []]
    together = score(model, texts, 8)
    for tokens in (8, 11, MAX_TOKENS):
        for row, text in enumerate(texts):
            alone = score(model, [text], tokens)[0]
            torch.testing.assert_close(together[row], alone, rtol=1e-12, atol=1e-12)


def test_released_lets_padding_vote() -> None:
    model = network("released")
    before = score(model, [[3, 1, 4]], 3)
    assert (score(model, [[]], 1) > 0).all()  # nothing but padding, and yet a score
    row = model.embedding.weight.data[0].clone()
    model.embedding.weight.data[0] += 1
    after = score(model, [[3, 1, 4]], 3)
    model.embedding.weight.data[0] = row  # the network is shared between tests
    assert not torch.allclose(before, after)


def test_released_depends_on_max_tokens_alone() -> None:
    model = network("released")
    before = score(model, [[3, 1, 4]], 3)
    model.pad_to = MAX_TOKENS - 4
    shorter = score(model, [[3, 1, 4]], 3)
    model.pad_to = MAX_TOKENS  # the network is shared between tests
    assert not torch.allclose(before, shorter)
