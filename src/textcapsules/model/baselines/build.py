"""Build the baselines from options: each gets the few options that it reads."""

from typing import Any

from torch import Tensor, nn

from textcapsules.config import BaselineConfig, ModelConfig
from textcapsules.model.baselines.classic import ClassicSystem, FastText, TfidfLinear
from textcapsules.model.baselines.convolutional import CharCnn, KimCnn, VdCnn
from textcapsules.model.baselines.pooled import LabelAttention, MeanLinear
from textcapsules.model.baselines.recurrent import LrLstm, RecurrentNetwork
from textcapsules.model.baselines.tree_lstm import ChildSumTreeLstm, NaryTreeLstm

__all__ = ["build_character_network", "build_classic", "build_word_network"]

POOLED = {"encoder-linear": MeanLinear, "encoder-attention": LabelAttention}


def build_word_network(
    config: ModelConfig,
    baseline: BaselineConfig,
    embedding: Any,  # of words, or an encoder's states
    *,
    n_classes: int,
    several: bool,
    word_classes: Tensor | None = None,
) -> Any:  # which kind, the configuration decides
    """Build a network over word vectors, or over an encoder's states."""
    output: dict[str, Any] = {
        "n_classes": n_classes,
        "dropout": baseline.output_dropout,
        "several": several,
    }
    if config.architecture == "cnn":
        return KimCnn(
            embedding,
            ngram_sizes=config.ngram_sizes,
            feature_maps=baseline.feature_maps,
            max_norm=baseline.max_norm,
            edges=config.edges,
            **output,
        )
    if config.architecture in POOLED:
        size = embedding.embedding_dim
        return POOLED[config.architecture](embedding, size=size, **output)
    output |= {"hidden_size": baseline.hidden_size}
    if config.architecture == "tree-lstm":
        kind = ChildSumTreeLstm if baseline.tree_kind == "child-sum" else NaryTreeLstm
        return kind(embedding, **output)
    if config.architecture == "lr-lstm":
        return LrLstm(
            embedding,
            word_classes=word_classes,
            strength=baseline.regulariser_weight,
            margin=baseline.regulariser_margin,
            **output,
        )
    return RecurrentNetwork(
        embedding,
        bidirectional=config.architecture == "bilstm",
        pooling=baseline.pooling,
        **output,
    )


def build_character_network(
    architecture: str,
    baseline: BaselineConfig,
    *,
    n_characters: int,
    n_classes: int,
    length: int,
    several: bool,
) -> nn.Module:
    """Build a network over characters."""
    sizes: dict[str, Any] = {
        "n_characters": n_characters,
        "n_classes": n_classes,
        "length": length,
        "several": several,
    }
    if architecture == "vd-cnn":
        return VdCnn(depth=baseline.vd_cnn_depth, **sizes)
    return CharCnn(size=baseline.cl_cnn_size, dropout=baseline.output_dropout, **sizes)


def build_classic(
    architecture: str,
    baseline: BaselineConfig,
    *,
    n_classes: int,
    several: bool,
    seed: int,
) -> ClassicSystem:
    """Build a system that is fitted at once."""
    if architecture == "fasttext":
        return FastText(
            n_classes=n_classes,
            size=baseline.fasttext_size,
            epochs=baseline.fasttext_epochs,
            rate=baseline.fasttext_rate,
            ngrams=baseline.fasttext_ngrams,
            several=several,
            seed=seed,
        )
    return TfidfLinear(
        n_classes=n_classes,
        kind=architecture.removeprefix("tfidf-"),
        C=baseline.tfidf_c,
        several=several,
        seed=seed,
    )
