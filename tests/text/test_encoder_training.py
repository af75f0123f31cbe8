"""An encoder that learns: the same states as a frozen one, and which weights move."""

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

from textcapsules.base.errors import ConfigError, TextCapsulesError
from textcapsules.text import encoder_training
from textcapsules.text.encoder import (
    EncoderEmbedding,
    PretrainedEncoder,
    load_encoder,
    read_encoder,
)
from textcapsules.text.encoder_training import LearningEncoder, find_layers
from tiny_encoder import KINDS, write_encoder

TEXTS = ["My cat purrs. The app crashes!", "dog barks", ""]
BITS = 2e-2  # kept states have 11 bits, products on some CPUs 8


@pytest.fixture(scope="module", params=KINDS)
def encoder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> PretrainedEncoder:
    folder = tmp_path_factory.mktemp("encoders") / "tiny"
    return load_encoder(str(write_encoder(folder, request.param)))


@pytest.fixture
def bert(tmp_path: Path) -> PretrainedEncoder:
    return load_encoder(str(write_encoder(tmp_path / "bert")))


def padded(encoder: PretrainedEncoder, texts: list[str], width: int = 0):
    documents = encoder.tokenizer.encode(texts, 100)
    ids = np.zeros((len(texts), max(width, *map(len, documents))), np.int64)
    for row, document in enumerate(documents):
        ids[row, : len(document)] = document
    return torch.from_numpy(ids)


def learning(encoder: PretrainedEncoder, way: str, **options) -> LearningEncoder:
    n_layers = 1 if way == "light" else None
    return LearningEncoder(encoder.states, n_layers=n_layers, **options).eval()


@torch.no_grad()
@pytest.mark.parametrize("way", ["light", "tuned"])
def test_states_begin_as_the_frozen_ones(encoder: PretrainedEncoder, way: str) -> None:
    ids = padded(encoder, TEXTS)
    expected = EncoderEmbedding(encoder.states)(ids)
    found = learning(encoder, way)(ids)
    torch.testing.assert_close(found, expected, atol=3 * BITS, rtol=BITS)
    assert not found[ids == 0].any()


@torch.no_grad()
@pytest.mark.parametrize("way", ["light", "tuned"])
def test_a_text_has_the_same_states_alone_and_padded_in_a_batch(
    encoder: PretrainedEncoder, way: str
) -> None:
    embedding = learning(encoder, way)
    alone = embedding(padded(encoder, TEXTS[:1]))[0]
    among = embedding(padded(encoder, ["dog. " * 20, TEXTS[0], ""], width=70))
    torch.testing.assert_close(among[1, : len(alone)], alone, atol=1e-5, rtol=1e-4)


def test_every_kind_is_cut_below_the_layers_that_learn(
    encoder: PretrainedEncoder,
) -> None:
    embedding = learning(encoder, "light")
    assert embedding.lower is not None
    ids = padded(encoder, TEXTS)
    documents = [row[row > 0].numpy() for row in ids]
    embedding.encode_all(documents, torch.device("cpu"))
    embedding.lower.run = None  # type: ignore[assignment]  # all is known
    embedding(ids).sum().backward()
    assert all(p.grad is not None for _, p in embedding.learning_parameters())


@torch.no_grad()
def test_a_model_that_cannot_be_cut_is_run_whole(
    encoder: PretrainedEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = padded(encoder, TEXTS)
    expected = learning(encoder, "tuned")(ids)
    monkeypatch.setattr(
        "textcapsules.text.encoder_training.Given.forward", lambda *_, **__: None
    )
    embedding = learning(encoder, "light")
    assert embedding.lower is None
    torch.testing.assert_close(embedding(ids), expected)
    assert {depth for depth, _ in embedding.learning_parameters()} == {0}


@pytest.mark.parametrize("way", ["light", "tuned"])
def test_only_the_layers_asked_for_learn(encoder: PretrainedEncoder, way: str) -> None:
    embedding = learning(encoder, way)
    before = {n: p.detach().clone() for n, p in embedding.named_parameters()}
    rates = [{"params": [p]} for _, p in embedding.learning_parameters()]
    optimiser = torch.optim.SGD(rates, lr=0.1)
    weight = torch.randn(16)
    (embedding(padded(encoder, TEXTS)) @ weight).sum().backward()
    optimiser.step()
    after = dict(embedding.named_parameters())
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    n_layers = len({name.split(".")[1] for name in moved if way == "light"})
    assert n_layers == (1 if way == "light" else 0)
    depths = {depth for depth, _ in embedding.learning_parameters()}
    assert depths == ({0} if way == "light" else {0, 1, 2})  # 2: below both layers
    frozen = embedding.frozen()
    changed = {
        key
        for key, value in encoder.states.tensors.items()
        if not torch.equal(value, frozen.states.tensors[key])
    }
    assert changed
    assert len(changed) <= len(moved)
    if way == "light":
        layer = str(len(find_layers(frozen.states.model)) - 1)
        assert all(f".{layer}." in key for key in changed)
    else:
        assert any("embeddings" in key for key in changed)


@torch.no_grad()
@pytest.mark.parametrize("way", ["light", "tuned"])
def test_frozen_again_it_is_what_a_folder_holds(
    encoder: PretrainedEncoder, way: str, tmp_path: Path
) -> None:
    embedding = learning(encoder, way)
    for _, parameter in embedding.learning_parameters():
        parameter += 0.05 * torch.randn_like(parameter)
    ids = padded(encoder, TEXTS)
    learnt, frozen = embedding(ids), embedding.frozen()
    torch.testing.assert_close(frozen(ids), learnt, atol=3 * BITS, rtol=BITS)
    assert (
        learnt - EncoderEmbedding(encoder.states)(ids)
    ).norm() > 0.01 * learnt.norm()
    frozen.states.save(tmp_path)
    encoder.tokenizer.save(tmp_path / "tokenizer.json")
    _, states = read_encoder(tmp_path)
    assert torch.equal(states.of(ids), frozen.states.of(ids))


def test_dropout_is_for_the_layers_that_learn_alone(bert: PretrainedEncoder) -> None:
    ids = padded(bert, TEXTS)
    for way, n_active in (("light", 1), ("tuned", None)):
        embedding = learning(bert, way)
        assert torch.equal(embedding(ids), embedding(ids))
        embedding.train()
        assert not torch.equal(embedding(ids), embedding(ids))
        model = embedding.whole[0]
        active = [part for part in model.encoder.layer if part.training]
        assert n_active is None or len(active) == n_active
        assert model.embeddings.training == (way == "tuned")


@pytest.mark.parametrize("way", ["light", "tuned"])
def test_products_in_bfloat16_keep_states_and_gradients(
    encoder: PretrainedEncoder, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids, weight = padded(encoder, TEXTS), torch.randn(16)
    states, gradients = [], []
    for short in (False, True):
        monkeypatch.setattr(
            encoder_training, "multiplies_bfloat16", lambda it=short: it
        )
        embedding = learning(encoder, way)
        states.append(embedding(ids))
        (states[-1] @ weight).square().sum().backward()
        learnt = [p.grad for _, p in embedding.learning_parameters()]
        assert all(p.dtype == torch.float32 for _, p in embedding.learning_parameters())
        gradients.append(torch.cat([g.flatten() for g in learnt if g is not None]))
    torch.testing.assert_close(*states, atol=3 * BITS, rtol=BITS)
    exact, fast = gradients
    assert (fast - exact).norm() < 0.05 * exact.norm()


@pytest.mark.parametrize("way", ["light", "tuned"])
def test_layers_computed_twice_give_the_same_gradients(
    encoder: PretrainedEncoder, way: str
) -> None:
    ids, weight = padded(encoder, TEXTS), torch.randn(16)
    gradients = []
    for memory in (None, 1):
        embedding = learning(encoder, way, memory=memory).train()
        torch.manual_seed(1)
        (embedding(ids) @ weight).sum().backward()
        gradients.append([p.grad for _, p in embedding.learning_parameters()])
        if embedding.whole[0].supports_gradient_checkpointing:
            assert embedding.twice == (memory == 1)
    for once, twice in zip(*gradients, strict=True):
        torch.testing.assert_close(once, twice)


def test_weights_that_half_precision_cannot_hold_are_told(
    bert: PretrainedEncoder,
) -> None:
    embedding = learning(bert, "tuned")
    with torch.no_grad():
        next(embedding.parameters()).fill_(1e6)
    with pytest.raises(TextCapsulesError, match=r"half precision.*--encoder-rate"):
        embedding.frozen()


def test_a_model_without_layers_is_refused() -> None:
    with pytest.raises(ConfigError, match="encoder must have a list of layers"):
        find_layers(torch.nn.Linear(2, 2))


def whole(encoder: PretrainedEncoder) -> PretrainedEncoder:
    return encoder._replace(tokenizer=encoder.tokenizer.cut_by("texts"))


@torch.no_grad()
@pytest.mark.parametrize("short", [False, True])
def test_whole_texts_have_the_frozen_states(
    encoder: PretrainedEncoder, short: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoder_training, "multiplies_bfloat16", lambda: short)
    window = encoder.states.max_pieces
    texts = [*TEXTS, "my cat " * window, "snow ☃ ☃ dog."]  # long; pieces without a name
    ids = padded(whole(encoder), texts, width=2 * window + 7)
    expected = EncoderEmbedding(encoder.states)(ids)
    found = learning(encoder, "tuned", whole_texts=True)(ids)
    bits = 3 * BITS if short else BITS
    torch.testing.assert_close(found, expected, atol=bits, rtol=BITS)
    assert not found[ids == 0].any()


def test_whole_texts_give_the_gradients_of_their_windows(
    encoder: PretrainedEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoder_training, "multiplies_bfloat16", lambda: False)
    ids = padded(whole(encoder), [*TEXTS, "my cat " * encoder.states.max_pieces])
    weight, gradients = torch.randn(16), []
    for whole_texts, together in ((False, 1 << 15), (True, 1 << 15), (True, 1)):
        monkeypatch.setattr(encoder_training, "WHOLE_TOKENS", together)
        embedding = learning(encoder, "tuned", whole_texts=whole_texts)
        assert embedding.capturable == whole_texts
        (embedding(ids) @ weight).square().sum().backward()
        gradients.append([p.grad for _, p in embedding.learning_parameters()])
    for each in gradients[1:]:
        for expected, found in zip(gradients[0], each, strict=True):
            torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)


def test_whole_texts_are_read_without_a_look_by_the_host(
    encoder: PretrainedEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On `meta`, whatever asks for a number of a tensor fails, as in a capture."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    embedding = learning(encoder, "tuned", whole_texts=True).to("meta")
    ids = torch.zeros(3, 20, dtype=torch.int64, device="meta")
    kind = encoder.states.settings["model_type"]
    assert embedding.takes_pairs or kind not in {"bert", "mpnet", "roberta"}
    if embedding.takes_pairs:
        assert embedding(ids).shape == (3, 20, 16)


@torch.no_grad()
def test_a_mask_over_pairs_is_given_to_those_who_understand_it(
    encoder: PretrainedEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = padded(whole(encoder), TEXTS, width=30)
    expected = learning(encoder, "tuned", whole_texts=True)(ids)
    monkeypatch.setattr(encoder_training, "mask_pairs", lambda _: None)
    embedding = learning(encoder, "tuned", whole_texts=True)
    assert not embedding.takes_pairs  # it would read the padding
    torch.testing.assert_close(embedding(ids), expected, atol=3 * BITS, rtol=BITS)


def test_only_an_encoder_whose_weights_all_learn_reads_whole_texts_so(
    bert: PretrainedEncoder,
) -> None:
    embedding = learning(bert, "light", whole_texts=True)
    assert not embedding.capturable
    ids = padded(whole(bert), TEXTS)
    expected = learning(bert, "tuned", whole_texts=True)(ids)
    torch.testing.assert_close(embedding(ids), expected, atol=3 * BITS, rtol=BITS)
