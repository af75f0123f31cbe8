"""Scoring in bulk by captured graphs: the same scores as one batch after the other."""

import gc
from typing import Any

import numpy as np
import pytest
import torch

from random_models import random_words
from textcapsules.config import preset
from textcapsules.model import captured, score
from textcapsules.model.builder import build_network
from textcapsules.model.captured import CapturedScores, captured_scores, cut_batches
from textcapsules.model.layers import set_precision
from textcapsules.model.score import score_documents
from textcapsules.model.word_scores import Weights
from textcapsules.training.steps import GraphSteps
from toy import TINY_MODEL

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def network(device: str = DEVICE, name: str = "paper", **model):
    config = preset(name).replace(model={**TINY_MODEL, **model})
    torch.manual_seed(0)
    made = build_network(config.model, n_words=50, n_classes=3, max_tokens=90)
    return made.to(device).eval()


def texts(n: int = 300, longest: int = 40, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, longest, n)
    return [rng.integers(1, 50, k).astype(np.int32) for k in lengths]


def by_graphs(kept: CapturedScores, model, documents) -> np.ndarray:
    with torch.inference_mode():
        lengths = np.array([len(ids) for ids in documents])
        scores = kept.scores(model, documents, lengths)
    scores[lengths == 0] = 0
    return scores


class FakeGraph:
    """Does what a CUDA graph does: computes again, into the same memory."""

    def __init__(self, compute) -> None:
        self.compute, self.scores, self.replays = compute, compute(), 0

    def replay(self) -> None:
        self.replays += 1
        self.scores.copy_(self.compute())


class FakeCaptures(CapturedScores):
    """Captured scores whose graphs need no GPU."""

    def capture(self, network, texts, tokens) -> Any:
        assert not torch.is_inference_mode_enabled()
        assert not torch.is_grad_enabled()
        graph = FakeGraph(lambda: self.gathered(network, texts, tokens))
        graph.scores.fill_(-7)  # a capture computes nothing
        return graph, graph.scores


@pytest.mark.parametrize(
    ("tokens", "words"), [(64, None), (256, "words"), (8192, "pairs")]
)
def test_graphs_give_the_scores_of_plain_batches(
    monkeypatch, tokens: int, words: str | None
) -> None:
    monkeypatch.setattr(captured, "BATCH_TOKENS", tokens)
    model, documents, kept = network("cpu"), texts(), FakeCaptures()
    if words is not None:
        model.words = random_words(50, 3, pairs=words == "pairs")
    expected = score_documents(model, documents, batch_size=7)
    for _ in range(3):
        found = by_graphs(kept, model, documents)
        np.testing.assert_allclose(found, expected, atol=1e-6)
    assert kept.graphs
    graphs: Any = kept.graphs
    assert all(graph.replays for graph, _ in graphs.values())
    other = texts(113, seed=1)
    expected = score_documents(model, other, batch_size=7)
    np.testing.assert_allclose(by_graphs(kept, model, other), expected, atol=1e-6)


def test_more_words_than_fit_are_scored_in_parts(monkeypatch) -> None:
    monkeypatch.setattr(captured, "WORDS_AT_ONCE", 90)
    monkeypatch.setattr(captured, "TEXTS_AT_ONCE", 11)
    model, documents = network("cpu"), texts(90)
    expected = score_documents(model, documents, batch_size=7)
    found = by_graphs(FakeCaptures(), model, documents)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_weights_changed_in_place_are_read_and_others_make_new_graphs() -> None:
    model, documents, kept = network("cpu"), texts(), FakeCaptures()
    for _ in range(2):
        by_graphs(kept, model, documents)
    before = dict(kept.graphs)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.1)
    expected = score_documents(model, documents, batch_size=7)
    np.testing.assert_allclose(by_graphs(kept, model, documents), expected, atol=1e-6)
    assert kept.graphs == before
    weight = next(model.branches.parameters())
    weight.data = weight.data.clone()
    by_graphs(kept, model, documents)
    assert not kept.graphs
    for _ in range(2):
        by_graphs(kept, model, documents)
    assert kept.graphs
    set_precision(model, "tf32")
    by_graphs(kept, model, documents)
    assert not kept.graphs


def test_words_given_later_make_new_graphs() -> None:
    model, documents, kept = network("cpu"), texts(), FakeCaptures()
    for _ in range(2):
        by_graphs(kept, model, documents)
    alone = by_graphs(kept, model, documents)
    model.words = random_words(50, 3)
    expected = score_documents(model, documents, batch_size=7)
    np.testing.assert_allclose(by_graphs(kept, model, documents), expected, atol=1e-6)
    assert abs(alone - expected).max() > 0.1


def test_words_of_another_weight_make_new_graphs() -> None:
    model, documents, kept = network("cpu"), texts(), FakeCaptures()
    words = model.words = random_words(50, 3)
    for _ in range(2):
        by_graphs(kept, model, documents)
    assert kept.graphs
    model.words = words.weighed(Weights(0.2, 2.0, 0.0))
    model.words.weighing = words.weighing  # memory that is used again
    by_graphs(kept, model, documents)
    assert not kept.graphs


@pytest.mark.parametrize("name", ["paper", "best"])
def test_padding_needs_no_position_that_has_no_weights(name: str) -> None:
    model, kept = network("cpu", name, shared=False), FakeCaptures()
    documents = [*texts(), np.full(90, 7, dtype=np.int32)]
    expected = score_documents(model, documents, batch_size=7)
    for _ in range(3):
        found = by_graphs(kept, model, documents)
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_failed_capture_leaves_plain_batches(caplog) -> None:
    class Fails(CapturedScores):
        attempts = 0

        def capture(self, network, texts, tokens) -> Any:
            self.attempts += 1
            raise RuntimeError("not permitted when stream is capturing\nmore")

    model, documents, kept = network("cpu"), texts(), Fails()
    expected = score_documents(model, documents, batch_size=7)
    for _ in range(4):
        found = by_graphs(kept, model, documents)
        np.testing.assert_allclose(found, expected, atol=1e-6)
    assert kept.attempts == 1
    assert caplog.text.count("not permitted when stream is capturing") == 1


def test_batches_hold_every_text_once_and_have_few_shapes() -> None:
    rng = np.random.default_rng(0)
    lengths = np.sort(rng.integers(0, 3000, 5000))
    cuts = cut_batches(lengths, 8)
    assert cuts[0].stop == 5000
    assert cuts[-1].start == 0
    for cut, later in zip(cuts, [*cuts[1:], None], strict=True):
        assert later is None or cut.start == later.stop
        assert 0 < cut.stop - cut.start <= cut.texts
        longest = int(lengths[cut.stop - 1])
        assert longest <= cut.tokens <= longest * 9 / 8 + 8
        assert cut.texts * cut.tokens <= captured.BATCH_TOKENS or later is None
    assert len({cut[2:] for cut in cuts}) <= 16 + 8 * 5
    assert cut_batches(np.array([], dtype=int), 8) == []


def test_few_texts_a_cpu_and_a_named_batch_size_are_scored_as_before(
    monkeypatch,
) -> None:
    asked = []
    monkeypatch.setattr(score, "captured_scores", lambda _: asked.append(1))
    model = network()
    score_documents(model, texts(20))
    score_documents(model, texts(), batch_size=16)
    score_documents(network("cpu"), texts())
    assert not asked


def test_graphs_are_kept_as_long_as_their_network() -> None:
    model = network("cpu")
    kept = captured_scores(model)
    assert captured_scores(model) is kept
    assert captured_scores(network("cpu")) is not kept
    n_kept = len(captured._kept)
    del model
    gc.collect()
    assert len(captured._kept) < n_kept


def test_a_dry_run_before_changes_nothing() -> None:
    model, documents, kept = network("cpu"), texts(), FakeCaptures()
    expected = score_documents(model, documents, batch_size=7)
    with torch.inference_mode():
        kept.look_at(model, ())
        kept.dry_run(model, np.sort([len(ids) for ids in documents]))
    for _ in range(3):
        found = by_graphs(kept, model, documents)
        np.testing.assert_allclose(found, expected, atol=1e-6)


@needs_gpu
def test_a_gpu_trains_by_graphs_after_scoring_by_graphs() -> None:
    scored = network()
    for _ in range(3):
        score_documents(scored, texts())
    config = preset("paper").replace(model={**TINY_MODEL, "dropout": 0.5})
    documents = [ids for ids in texts(64) if len(ids)]
    targets = np.eye(3, dtype=np.float32)[[len(ids) % 3 for ids in documents]]
    trained = build_network(config.model, n_words=50, n_classes=3, max_tokens=90)
    steps = GraphSteps(config, trained.to("cuda"), torch.device("cuda"))
    batches = [np.arange(25)] * 4
    assert all(x.isfinite() for x in steps.run(documents, targets, batches, 0))
    assert steps.graphs


@needs_gpu
@pytest.mark.parametrize("name", ["paper", "best", "released"])
def test_a_gpu_scores_as_before_by_its_graphs(name: str) -> None:
    model, documents = network(name=name), texts(700, 90)
    expected = score_documents(model, documents, batch_size=100)
    found = score_documents(model, documents)
    for _ in range(2):
        np.testing.assert_allclose(found, expected, atol=2e-6)
        found = score_documents(model, documents)
    np.testing.assert_allclose(found, expected, atol=2e-6)
    assert captured_scores(model).graphs
    assert not captured_scores(model).refused
    again = score_documents(model, documents)
    assert (again == found).all()
