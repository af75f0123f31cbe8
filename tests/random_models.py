"""Classifiers with random weights, every option of the architecture among them."""

from typing import Any

import numpy as np
import torch

from textcapsules.config import RunConfig
from textcapsules.model.builder import build_network
from textcapsules.model.capsnet import CapsuleNetwork
from textcapsules.model.classifier import Labels, TextClassifier
from textcapsules.model.word_scores import PAIR, Weights, WordScores
from textcapsules.reasons.methods import capsule_network
from textcapsules.text.vocabulary import PAD, UNK, TextTokenizer

THRESHOLD = 0.36
WORDS = [f"w{number}" for number in range(20)]
SMALL: dict[str, Any] = {
    "architecture": "capsule-b",
    "ngram_sizes": (2, 3),
    "embedding_size": 5,
    "filters": 6,
    "capsule_types": 3,
    "capsule_size": 4,
    "conv_types": 2,
}
# What can differ in how capsules are routed, one thing at a time.
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "three-layers": {},
    "two-layers": {"conv_capsules": False},
    "capsule-a": {"architecture": "capsule-a"},
    "no-orphan": {"orphan": False},
    "not-leaky": {"leaky": False},
    "not-amended": {"amendment": False},
    "stride-2": {"stride": 2},
    "stride-2-two-layers": {"stride": 2, "conv_capsules": False},
    "not-shared": {"shared": False},
    "not-shared-two-layers": {"shared": False, "conv_capsules": False},
    "no-bias": {"transform_bias": False},
    "no-bias-not-shared": {"transform_bias": False, "shared": False},
    "mean-poses": {"average": "poses"},
    "mean-poses-two-layers": {"average": "poses", "conv_capsules": False},
    "padding-votes": {"mask_padding": False, "stride": 2, "leaky": False},
    "edges": {"edges": True},
    "edges-two-layers-stride-2": {"edges": True, "conv_capsules": False, "stride": 2},
    "edges-not-shared": {"edges": True, "shared": False},
    "normalised": {"normalise": "total"},
    "normalised-two-layers": {"normalise": "total", "conv_capsules": False},
    "normalised-not-amended": {"normalise": "total", "amendment": False},
    "normalised-not-shared": {"normalise": "total", "shared": False},
    "joint": {"joint": True, "ngram_sizes": (2, 5)},
    "joint-edges": {"joint": True, "ngram_sizes": (3, 4, 5), "edges": True},
    "joint-stride-2": {"joint": True, "ngram_sizes": (1, 4), "stride": 2},
    "joint-normalised": {
        "joint": True,
        "normalise": "total",
        "conv_capsules": False,
        "edges": True,
    },
    "attention": {"routing": "attention"},
    "attention-two-layers": {"routing": "attention", "conv_capsules": False},
    "attention-no-orphan": {"routing": "attention", "orphan": False, "leaky": False},
    "attention-joint": {"routing": "attention", "joint": True, "edges": True},
    "peaks": {"peaks": True},
    "peaks-mean-poses-stride-2": {"peaks": True, "average": "poses", "stride": 2},
    "peaks-not-shared": {"peaks": True, "shared": False, "conv_capsules": False},
    "peaks-attention": {"peaks": True, "routing": "attention"},
    "peaks-joint": {
        "peaks": True,
        "joint": True,
        "normalise": "total",
        "conv_capsules": False,
        "edges": True,
    },
    "unigrams": {"ngram_sizes": (1,), "conv_capsules": False},
}


def random_classifier(
    words: list[str] = WORDS,
    *,
    labels: tuple[str, ...] = ("red", "green", "blue"),
    task: str = "multi-label",
    max_tokens: int = 16,
    **model: Any,
) -> TextClassifier:
    """Return a small classifier in double precision, with biases that matter."""
    run = RunConfig().replace(
        text={"max_tokens": max_tokens, "rule": "words"}, model={**SMALL, **model}
    )
    tokenizer = TextTokenizer([PAD, UNK, *words], rule="words")
    torch.manual_seed(3)
    network = build_network(
        run.model,
        n_words=tokenizer.n_words,
        n_classes=len(labels),
        max_tokens=max_tokens,
    )
    assert isinstance(network, CapsuleNetwork)
    network.double().eval()
    for name, weight in network.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(weight, std=0.4)
    with torch.no_grad():
        network.embedding.weight[2:] *= 6
    thresholds = (THRESHOLD,) * len(labels)
    return TextClassifier(run, tokenizer, Labels(labels, thresholds, task), network)


def random_network(**model: Any) -> CapsuleNetwork:
    """Return the network of such a classifier."""
    return capsule_network(random_classifier(**model))


def random_words(
    n_rows: int,
    n_classes: int,
    *,
    pairs: bool = True,
    weights: tuple[float, float, float] = (0.7, 1.2, 0.3),
) -> WordScores:
    """Return what words say at random, of all rows and three quarters of the pairs."""
    draw = np.random.default_rng(0)
    first, second = np.divmod(np.arange(2 * n_rows, n_rows**2), n_rows)
    is_pair = (second > 1) & pairs & (draw.random(len(first)) < 0.75)
    ngrams = (first * PAIR + second)[is_pair | (second == 0)]
    shape = n_classes, len(ngrams)
    words = WordScores.of(
        ngrams,
        draw.uniform(1, 3, len(ngrams)),
        draw.normal(size=shape),
        draw.normal(size=n_classes),
    )
    return words.weighed(Weights(*weights))
