"""From options to baselines: every option reaches the system that reads it."""

from typing import Any, get_args

import pytest
import torch
from torch import nn

from textcapsules.base.errors import ConfigError
from textcapsules.config import CLASSIC, BaselineConfig, ModelConfig, RunConfig
from textcapsules.model.baselines.classic import FastText, TfidfLinear
from textcapsules.model.baselines.convolutional import KimCnn
from textcapsules.model.baselines.recurrent import LrLstm, RecurrentNetwork
from textcapsules.model.baselines.tree_lstm import ChildSumTreeLstm, NaryTreeLstm
from textcapsules.model.builder import build_system, gives_several

WORDS = ["lstm", "bilstm", "tree-lstm", "lr-lstm", "cnn"]


def build(architecture: str, n_classes: int = 2, **baseline: Any) -> Any:
    torch.manual_seed(0)
    config = RunConfig().replace(
        model={"architecture": architecture, "embedding_size": 6},
        text={"max_tokens": 128},
        baseline={"hidden_size": 5, **baseline},
        loss={"loss": "cross-entropy"},
    )
    return build_system(config, n_words=72, n_classes=n_classes)


def test_every_architecture_is_built() -> None:
    names = get_args(ModelConfig.__annotations__["architecture"])
    kinds = {name: type(build(name)).__name__ for name in names}
    assert kinds == {
        "capsule-a": "CapsuleNetwork",
        "capsule-b": "CapsuleNetwork",
        "lstm": "RecurrentNetwork",
        "bilstm": "RecurrentNetwork",
        "tree-lstm": "ChildSumTreeLstm",
        "lr-lstm": "LrLstm",
        "cnn": "KimCnn",
        "cl-cnn": "CharCnn",
        "vd-cnn": "VdCnn",
        "encoder-linear": "MeanLinear",
        "encoder-attention": "LabelAttention",
        "tfidf-svm": "TfidfLinear",
        "tfidf-lr": "TfidfLinear",
        "fasttext": "FastText",
    }


@pytest.mark.parametrize("architecture", WORDS)
@pytest.mark.parametrize("preset", ["paper", "released"])
def test_padding_of_word_networks_is_always_zero(
    architecture: str, preset: str
) -> None:
    config = RunConfig().replace(
        model={"architecture": architecture, "mask_padding": preset == "paper"}
    )
    network = build_system(config, n_words=9, n_classes=2)
    assert isinstance(network, nn.Module)
    embedding = network.embedding
    assert isinstance(embedding, nn.Embedding)
    assert (embedding.weight[0] == 0).all()
    assert embedding.padding_idx == 0


def test_options_of_the_recurrent_networks() -> None:
    network = build("bilstm", pooling="max", output_dropout=0.25, hidden_size=7)
    assert isinstance(network, RecurrentNetwork)
    assert [lstm.hidden_size for lstm in network.lstms] == [7, 7]
    assert network.pooling == "max"
    assert network.dropout.p == 0.25
    assert len(build("lstm").lstms) == 1


def test_options_of_kims_network() -> None:
    network = build("cnn", feature_maps=4, max_norm=1.5, output_dropout=0.1)
    assert isinstance(network, KimCnn)
    assert network.output.in_features == 3 * 4
    assert (network.max_norm, network.dropout.p) == (1.5, 0.1)


def test_options_of_the_tree_and_linguistic_networks() -> None:
    assert isinstance(build("tree-lstm"), ChildSumTreeLstm)
    assert isinstance(build("tree-lstm", tree_kind="n-ary"), NaryTreeLstm)
    network = build("lr-lstm", regulariser_weight=0.7, regulariser_margin=0.2)
    assert isinstance(network, LrLstm)
    assert (network.strength, network.margin) == (0.7, 0.2)


def test_linguistic_network_is_for_two_classes() -> None:
    with pytest.raises(ConfigError, match="lr-lstm must be 2"):
        build("lr-lstm", n_classes=3)


def test_options_of_the_character_networks() -> None:
    assert build("cl-cnn").full[0].out_features == 1024
    assert build("cl-cnn", cl_cnn_size="large").full[0].out_features == 2048
    assert build("cl-cnn", output_dropout=0.2).full[2].p == 0.2
    counts = [
        sum(isinstance(m, nn.Conv2d) for m in build("vd-cnn", vd_cnn_depth=d).modules())
        for d in (9, 17, 29)
    ]
    assert counts == [9, 17, 29]


def test_options_of_the_classic_systems() -> None:
    system = build("tfidf-svm", tfidf_c=3.0)
    assert isinstance(system, TfidfLinear)
    assert (system.kind, system.C) == ("svm", 3.0)
    assert build("tfidf-lr").kind == "lr"
    given = {"epochs": 3, "rate": 0.2, "ngrams": 3, "size": 6}
    system = build("fasttext", **{f"fasttext_{k}": v for k, v in given.items()})
    assert isinstance(system, FastText)
    names = ("epoch", "lr", "wordNgrams", "dim")
    assert [system.settings[name] for name in names] == [3, 0.2, 3, 6]


@pytest.mark.parametrize("architecture", [*CLASSIC, "lstm"])
@pytest.mark.parametrize(
    ("loss", "task", "joined", "several"),
    [
        ("cross-entropy", "multi-label", 1.0, False),
        ("binary-cross-entropy", "single-label", 0.0, True),
        ("entropy", "single-label", 0.0, True),
        ("margin", "single-label", 0.0, False),
        ("margin", "multi-label", 0.0, True),
        ("spread", "single-label", 0.5, True),
    ],
)
def test_loss_and_task_say_whether_classes_are_alone(
    architecture: str, loss: str, task: str, joined: float, several: bool
) -> None:
    config = RunConfig().replace(
        model={"architecture": architecture},
        loss={"loss": loss},
        train={"task": task, "joined": joined},
    )
    assert gives_several(config) is several
    system = build_system(config, n_words=9, n_classes=2)
    if isinstance(system, FastText):
        assert system.settings["loss"] == ("ova" if several else "softmax")
    else:
        assert isinstance(system, TfidfLinear | RecurrentNetwork)
        assert system.several is several


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("hidden_size", 0),
        ("pooling", "first"),
        ("tree_kind", "binary"),
        ("output_dropout", 1.0),
        ("cl_cnn_size", "huge"),
        ("characters", 122),  # fewer than cl-cnn's one frame
        ("vd_cnn_depth", 10),
        ("vd_cnn_depth", "9"),
        ("tfidf_c", 0.0),
        ("fasttext_rate", 0.0),
        ("fasttext_epochs", 0),
    ],
)
def test_bad_option_is_told(option: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{option} must be .*; got {value!r}"):
        BaselineConfig(**{option: value})
