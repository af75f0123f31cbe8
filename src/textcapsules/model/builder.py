"""Turn a configuration into a network: the only place where the two meet."""

import torch
from torch import Tensor, nn

from textcapsules.config import ModelConfig
from textcapsules.errors import ConfigError
from textcapsules.model.capsnet import CapsuleNetwork, NgramBranch
from textcapsules.model.layers import (
    ClassCapsules,
    ConvCapsules,
    NgramConv,
    PrimaryCapsules,
)
from textcapsules.model.routing import RoutingOptions

__all__ = ["build_network", "min_tokens"]


def ngram_sizes(config: ModelConfig) -> tuple[int, ...]:
    """Return K1 of each n-gram network."""
    single = config.architecture == "capsule-a"
    return config.ngram_sizes[:1] if single else config.ngram_sizes


def min_tokens(config: ModelConfig) -> int:
    """Return the tokens that the widest n-gram network needs, K1 + K2 - 1."""
    window = config.conv_window if config.conv_capsules else 1
    return max(ngram_sizes(config)) + (window - 1) * config.stride


def build_network(
    config: ModelConfig,
    *,
    n_words: int,
    n_classes: int,
    max_tokens: int,
    vectors: Tensor | None = None,
) -> CapsuleNetwork:
    """Build the network a configuration describes, with fresh weights.

    Args:
        config: the model's options.
        n_words: size of the vocabulary, padding and unknown included.
        n_classes: the classes, the orphan not counted.
        max_tokens: longest text; it fixes the size of non-shared transforms.
        vectors: (n_words, V) word vectors, copied; drawn where they are not given, as
            when the weights are about to be loaded.
    """
    if max_tokens < min_tokens(config):
        raise ConfigError(
            f"max_tokens must be at least {min_tokens(config)} (K1 + K2 - 1 of the "
            f"widest n-gram network); got {max_tokens}. Raise max_tokens, or lower "
            "ngram_sizes or conv_window."
        )
    if vectors is None:
        vectors = torch.empty(n_words, config.embedding_size).uniform_(-0.25, 0.25)
    embedding = nn.Embedding.from_pretrained(
        vectors.clone(),
        freeze=config.embeddings == "static",
        padding_idx=0 if config.mask_padding else None,
    )
    if config.mask_padding:  # what completes a short text must be zero
        nn.init.zeros_(embedding.weight[0])
    branches = [
        build_branch(config, size, vectors.shape[1], n_classes, max_tokens)
        for size in ngram_sizes(config)
    ]
    return CapsuleNetwork(
        embedding,
        branches,
        n_classes=n_classes,
        dropout=config.dropout,
        average=config.average,
        pad_to=None if config.mask_padding else max_tokens,
    )


def build_branch(
    config: ModelConfig,
    ngram_size: int,
    embedding_size: int,
    n_classes: int,
    max_tokens: int,
) -> NgramBranch:
    """Build the layers of one n-gram size."""
    routed = {
        "capsule_size": config.capsule_size,
        "shared": config.shared,
        "bias": config.transform_bias,
        "initialiser": config.initialiser,
        "options": RoutingOptions(
            config.iterations, config.leaky, config.amendment, config.squash
        ),
    }
    ngrams = NgramConv(
        embedding_size=embedding_size,
        filters=config.filters,
        ngram_size=ngram_size,
        stride=config.stride,
        initialiser=config.initialiser,
    )
    primary = PrimaryCapsules(
        filters=config.filters,
        capsule_types=config.capsule_types,
        capsule_size=config.capsule_size,
        squash=config.squash,
    )
    positions = (max_tokens - ngram_size) // config.stride + 1
    types, conv = config.capsule_types, None
    if config.conv_capsules:
        conv = ConvCapsules(
            window=config.conv_window,
            capsule_types=config.capsule_types,
            n_parents=config.conv_types,
            **routed,
        )
        positions, types = positions - config.conv_window + 1, config.conv_types
    classes = ClassCapsules(
        n_children=positions * types,
        n_parents=n_classes + config.orphan,
        **routed,
    )
    return NgramBranch(ngrams, primary, conv, classes)
