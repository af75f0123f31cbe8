"""Build a network from options: only here do layers and options come together."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from textcapsules.base.errors import ConfigError
from textcapsules.config import (
    CAPSULES,
    CHARACTERS,
    CLASSIC,
    BaselineConfig,
    ModelConfig,
    RunConfig,
)
from textcapsules.model.baselines.build import (
    build_character_network,
    build_classic,
    build_word_network,
)
from textcapsules.model.baselines.classic import ClassicSystem
from textcapsules.model.capsnet import CapsuleNetwork, NgramBranch
from textcapsules.model.layers import (
    AttentionLayer,
    CapsuleLayer,
    ConvCapsules,
    JointNgrams,
    NgramConv,
    PrimaryCapsules,
    WordEmbedding,
    edge_width,
)
from textcapsules.model.network import Network
from textcapsules.model.routing import RoutingOptions
from textcapsules.text.encoder import EncoderEmbedding

__all__ = [
    "System",
    "build_network",
    "build_system",
    "gives_several",
    "has_pieces",
    "min_tokens",
    "ngram_sizes",
]

System = Network | ClassicSystem  # everything that scores documents
# A captured step of an encoder takes long to record: fewer lengths than for others.
ENCODER_LENGTH_STEP = 32


class View(NamedTuple):
    """What some n-gram networks read of a text's vectors."""

    numbers: tuple[int, int]  # the first number of a vector, and where they end
    has_peaks: bool
    learns: bool = True  # not the states of a frozen encoder


def ngram_sizes(config: ModelConfig) -> tuple[int, ...]:
    """Return K1 of each n-gram network."""
    single = config.architecture == "capsule-a"
    return config.ngram_sizes[:1] if single else config.ngram_sizes


def min_tokens(config: ModelConfig) -> int:
    """Return the tokens that the widest n-gram network needs, K1 + K2 - 1."""
    window = config.conv_window if config.conv_capsules else 1
    return max(ngram_sizes(config)) + (window - 1) * config.stride


def gives_several(config: RunConfig) -> bool:
    """Tell whether a text may have several classes, or has exactly one among all."""
    if config.loss.loss.endswith("entropy"):
        return config.loss.loss != "cross-entropy"
    return config.train.task == "multi-label" or bool(config.train.joined)


def has_pieces(config: RunConfig) -> bool:
    """Tell whether vectors of pieces stand beside the states of an encoder."""
    model = config.model
    if config.text.encoder is None or model.architecture not in CAPSULES:
        return False
    averages_lengths = model.routing == "dynamic" and model.average == "lengths"
    return averages_lengths and model.piece_size > 0


def build_system(
    config: RunConfig,
    *,
    n_words: int,
    n_classes: int,
    vectors: Tensor | None = None,
    extra: Tensor | None = None,
    word_classes: Tensor | None = None,
    encoder: EncoderEmbedding | None = None,
) -> System:
    """Build what a whole configuration describes, with fresh weights or unfitted.

    The arguments are those of `build_network`.
    """
    several = gives_several(config)
    if config.model.architecture in CLASSIC:
        return build_classic(
            config.model.architecture,
            config.baseline,
            n_classes=n_classes,
            several=several,
            seed=config.train.seed,
        )
    return build_network(
        config.model,
        n_words=n_words,
        n_classes=n_classes,
        max_tokens=config.text.max_tokens,
        vectors=vectors,
        extra=extra,
        baseline=config.baseline,
        several=several,
        word_classes=word_classes,
        encoder=encoder,
    )


def build_network(
    config: ModelConfig,
    *,
    n_words: int,
    n_classes: int,
    max_tokens: int,
    vectors: Tensor | None = None,
    extra: Tensor | None = None,
    baseline: BaselineConfig | None = None,
    several: bool = False,
    word_classes: Tensor | None = None,
    encoder: EncoderEmbedding | None = None,
) -> Any:  # which kind, the configuration decides
    """Build the network a configuration describes, with fresh weights.

    Args:
        config: the model's options.
        n_words: rows that training sets, padding and unknown included.
        n_classes: the classes, the orphan not counted.
        max_tokens: longest text; it fixes the size of non-shared transforms.
        vectors: (n_words, V) word vectors, copied; drawn where they are not given, as
            when the weights are about to be loaded.
        extra: (n_extra, V) float16, fixed vectors of the words numbered from `n_words`.
        baseline: further options of networks that are no capsule networks.
        several: whether a text may have several classes, for those networks.
        word_classes: (n_words,) kinds of words, for the lr-lstm.
        encoder: a pretrained one, in place of word vectors.
    """
    baseline = baseline or BaselineConfig()
    if config.architecture in CHARACTERS:
        return build_character_network(
            config.architecture,
            baseline,
            n_characters=n_words,
            n_classes=n_classes,
            length=max_tokens,
            several=several,
        )
    if encoder is not None:
        embedding = encoder
    else:
        if vectors is None:
            vectors = torch.empty(n_words, config.embedding_size).uniform_(-0.25, 0.25)
        embedding = build_embedding(config, vectors, extra)
    if config.architecture in CAPSULES:
        network = build_capsules(config, embedding, n_classes, max_tokens)
    else:
        network = build_word_network(
            config,
            baseline,
            embedding,
            n_classes=n_classes,
            several=several,
            word_classes=word_classes,
        )
    if encoder is not None:
        network.capturable = encoder.capturable
        network.length_step = ENCODER_LENGTH_STEP
    return network


def build_embedding(
    config: ModelConfig, vectors: Tensor, extra: Tensor | None
) -> WordEmbedding:
    """Return an embedding of copied vectors, its padding zero unless padding votes."""
    is_masked = config.mask_padding or config.architecture not in CAPSULES
    embedding = WordEmbedding.from_pretrained(
        vectors.clone(),
        freeze=config.embeddings == "static",
        padding_idx=0 if is_masked else None,
    )
    if is_masked:  # what completes a short text must be zero
        nn.init.zeros_(embedding.weight[0])
    if extra is not None:
        if extra.shape[1:] != vectors.shape[1:]:
            raise ValueError("fixed word vectors must be as long as the trained ones.")
        embedding.extra = extra
    return embedding


def build_capsules(
    config: ModelConfig,
    embedding: nn.Embedding | EncoderEmbedding,
    n_classes: int,
    max_tokens: int,
) -> CapsuleNetwork:
    """Build the n-gram networks over an embedding."""
    if max_tokens < min_tokens(config):
        raise ConfigError(
            f"max_tokens must be at least {min_tokens(config)} (K1 + K2 - 1 of the "
            f"widest n-gram network); got {max_tokens}. Raise max_tokens, or lower "
            "ngram_sizes or conv_window."
        )
    if config.routing == "attention" and config.average == "poses":
        raise ConfigError(
            "average must be lengths where routing is attention, whose poses have "
            "none; got 'poses'. Leave out --average."
        )
    size, sizes = embedding.embedding_dim, ngram_sizes(config)
    pieces = embedding.pieces if isinstance(embedding, EncoderEmbedding) else None
    end = size if pieces is None else size - pieces.size  # of an encoder's states
    grouped = [sizes] if config.joint else [(one,) for one in sizes]
    learns = not isinstance(embedding, EncoderEmbedding) or embedding.learns
    views = [View((0, end), config.peaks, learns)]
    if pieces is not None:  # by themselves they always have peaks
        views.append(View((end, size), has_peaks=True))
    branches, shares = [], []
    for view in views:
        kinds = (False, True) if view.has_peaks else (False,)
        built = [
            build_branch(config, together, view, n_classes, max_tokens, peaks=peaks)
            for peaks in kinds
            for together in grouped
        ]
        branches += built
        shares += [1 / len(built) / len(views)] * len(built)
    network = CapsuleNetwork(
        embedding,
        branches,
        n_classes=n_classes,
        dropout=config.dropout,
        word_dropout=config.word_dropout,
        average=config.average,
        pad_to=None if config.mask_padding else max_tokens,
        shares=None if pieces is None else shares,
    )
    if not config.shared:  # a transform for each position up to there
        network.most_tokens = max_tokens
    return network


def build_branch(
    config: ModelConfig,
    sizes: tuple[int, ...],
    view: View,
    n_classes: int,
    max_tokens: int,
    *,
    peaks: bool = False,
) -> NgramBranch:
    """Build the layers of one n-gram network, of one size or of several joined."""
    ngrams = build_ngrams(config, sizes, view.numbers[1] - view.numbers[0])
    primary = PrimaryCapsules(
        config.filters * len(sizes),
        config.capsule_size,
        config.capsule_types,
        squash=config.squash,
    )
    edge = edge_width(max(sizes), joint=config.joint) if config.edges else 0
    positions = (max_tokens + 2 * edge - max(sizes)) // config.stride + 1
    types, conv = config.capsule_types, None
    if peaks:
        positions = 1
    elif config.conv_capsules:
        conv = ConvCapsules(
            config.capsule_size,
            config.capsule_size,
            config.conv_types,
            window=config.conv_window,
            in_types=None if config.shared else config.capsule_types,
            **routed_settings(config),
        )
        positions, types = positions - config.conv_window + 1, config.conv_types
    return NgramBranch(
        ngrams,
        primary,
        conv,
        build_classes(config, n_classes, positions * types),
        config.capsule_dropout,
        config.feature_dropout,
        edge=edge,
        peaks=peaks,
        numbers=view.numbers,
        learns_below=view.learns,
    )


def build_ngrams(
    config: ModelConfig, sizes: tuple[int, ...], embedding_size: int
) -> NgramConv | JointNgrams:
    """Build the convolution over words."""
    how: dict[str, Any] = {"stride": config.stride, "initialiser": config.initialiser}
    if len(sizes) == 1:
        return NgramConv(embedding_size, config.filters, sizes[0], **how)
    return JointNgrams(embedding_size, config.filters, sizes, **how)


def build_classes(
    config: ModelConfig, n_classes: int, n_children: int
) -> CapsuleLayer | AttentionLayer:
    """Build the layer of the classes."""
    if config.routing == "attention":
        return AttentionLayer(
            config.capsule_size,
            config.capsule_size,
            n_classes,
            orphan=config.orphan,
            iterations=config.iterations,
            leaky=config.leaky,
            compete=config.compete,
        )
    return CapsuleLayer(
        config.capsule_size,
        config.capsule_size,
        n_classes + config.orphan,
        n_in=None if config.shared else n_children,
        **routed_settings(config),
    )


def routed_settings(config: ModelConfig) -> dict[str, Any]:
    """Return what both layers of dynamic routing have in common."""
    return {
        "bias": config.transform_bias,
        "initialiser": config.initialiser,
        "transform_gain": config.transform_gain,
        "routing_gain": config.routing_gain,
        "learn_gain": config.learn_gain,
        "options": RoutingOptions(
            config.iterations,
            config.leaky,
            config.amendment,
            config.squash,
            config.normalise,
            config.compete,
        ),
    }
