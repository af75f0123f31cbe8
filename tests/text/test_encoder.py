"""A pretrained encoder: its files, and the states of sentences."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel

from textcapsules.base.errors import ConfigError
from textcapsules.text import encoder as encoders
from textcapsules.text.encoder import (
    EncoderEmbedding,
    PretrainedEncoder,
    load_encoder,
    read_encoder,
)
from tiny_encoder import KINDS, write_encoder

TEXTS = ["My cat purrs. The app crashes!", "dog barks", ""]
HALF = 2e-3  # states and weights are kept in half precision


@pytest.fixture(scope="module", params=KINDS)
def folder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    return write_encoder(tmp_path_factory.mktemp("encoders") / "tiny", request.param)


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    return write_encoder(tmp_path / "bert")


def padded(
    encoder: PretrainedEncoder, texts: list[str], width: int = 0
) -> torch.Tensor:
    documents = encoder.tokenizer.encode(texts, 100)
    ids = np.zeros((len(texts), max(width, *map(len, documents))), np.int64)
    for row, document in enumerate(documents):
        ids[row, : len(document)] = document
    return torch.from_numpy(ids)


@torch.no_grad()
def test_states_are_the_librarys_sentence_by_sentence(folder: Path) -> None:
    encoder = load_encoder(str(folder))
    model = AutoModel.from_pretrained(folder).eval()
    library = encoder.tokenizer._tokenizer
    states = encoder.states.of(padded(encoder, TEXTS[:1]))[0]
    expected = [
        model(input_ids=torch.tensor([library.encode(sentence).ids])).last_hidden_state[
            0, 1:-1
        ]
        for sentence in ("My cat purrs.", "The app crashes!")
    ]
    torch.testing.assert_close(states, torch.cat(expected), atol=HALF, rtol=HALF)


def test_states_do_not_depend_on_batch_or_padding(folder: Path) -> None:
    alone = load_encoder(str(folder))
    together = load_encoder(str(folder))
    one = alone.states.of(padded(alone, TEXTS[1:2]))[0]
    many = together.states.of(padded(together, TEXTS, width=30))
    torch.testing.assert_close(many[1, : len(one)], one, atol=1e-3, rtol=1e-3)
    assert not many[1, len(one) :].any()
    assert not many[2].any()  # a text without words


def test_every_sentence_is_encoded_once(
    bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, counts = load_encoder(str(bert)), []
    run = encoder.states.run

    def counted(sentences, device):
        counts.append(len(sentences))
        return run(sentences, device)

    monkeypatch.setattr(encoder.states, "run", counted)
    ids = padded(encoder, [*TEXTS, "dog barks"])
    first = encoder.states.of(ids)
    assert sum(counts) == 3  # two texts share a sentence
    assert torch.equal(encoder.states.of(ids), first)
    assert sum(counts) == 3


def test_states_past_the_limit_are_forgotten_and_found_again(bert: Path) -> None:
    encoder = load_encoder(str(bert))
    ids = padded(encoder, TEXTS)
    expected = encoder.states.of(ids)
    encoder.states.cached_numbers = 1
    encoder.states.of(padded(encoder, ["hello"]))
    assert not encoder.states.cache
    assert torch.equal(encoder.states.of(ids), expected)


def test_embedding_is_normalised_and_has_no_weights(bert: Path) -> None:
    encoder = load_encoder(str(bert))
    embedding, ids = EncoderEmbedding(encoder.states), padded(encoder, TEXTS)
    vectors = embedding(ids)
    assert not list(embedding.parameters())
    assert not embedding.state_dict()
    assert not vectors[ids == 0].any()
    inside = vectors[ids > 0]
    assert inside.mean(1).abs().max() < 1e-5


def test_saved_encoder_gives_the_same_states(folder: Path, tmp_path: Path) -> None:
    encoder = load_encoder(str(folder))
    encoder.states.save(tmp_path)
    encoder.tokenizer.save(tmp_path / "tokenizer.json")
    _, states = read_encoder(tmp_path)
    ids = padded(encoder, TEXTS)
    assert torch.equal(states.of(ids), encoder.states.of(ids))


def test_facts_name_the_encoder_without_its_path(bert: Path) -> None:
    facts = load_encoder(str(bert)).facts
    assert facts["encoder"] == "bert"
    assert facts["kind"] == "bert"
    assert list(facts["sha256"]) == ["model.safetensors"]


def test_an_encoder_newer_than_the_library_is_refused(bert: Path) -> None:
    values = json.loads((bert / "config.json").read_text())
    (bert / "config.json").write_text(json.dumps(values | {"model_type": "bert9"}))
    with pytest.raises(ConfigError, match="transformers knows; got 'bert9'"):
        load_encoder(str(bert))


def test_code_on_the_hub_is_never_asked_for(bert: Path) -> None:
    values = json.loads((bert / "config.json").read_text())
    values["auto_map"] = {"AutoModel": "evil/code--model.Evil"}
    (bert / "config.json").write_text(json.dumps(values))
    assert type(load_encoder(str(bert)).states.model).__name__ == "PlainBert"


def test_weights_of_another_shape_or_too_few_are_refused(bert: Path) -> None:
    values = json.loads((bert / "config.json").read_text())
    (bert / "config.json").write_text(json.dumps(values | {"num_hidden_layers": 3}))
    with pytest.raises(ConfigError, match="encoder must have all weights of a bert"):
        load_encoder(str(bert))
    (bert / "config.json").write_text(json.dumps(values | {"intermediate_size": 33}))
    with pytest.raises(ConfigError, match="encoder must have weights that fit"):
        load_encoder(str(bert))


def test_the_last_encoder_stays_in_memory_until_its_files_change(bert: Path) -> None:
    first = load_encoder(str(bert))
    assert load_encoder(str(bert)) is first
    write_encoder(bert, seed=1)
    other = load_encoder(str(bert))
    assert other is not first
    ids = padded(other, TEXTS)
    assert not torch.equal(other.states.of(ids), first.states.of(ids))


def test_threads_share_the_states(bert: Path) -> None:
    encoder = load_encoder(str(bert))
    encoder.states.cached_numbers = 100  # most are forgotten at once
    texts = [f"cat {'dog ' * n}. my app {'paw ' * n}" for n in range(20)]
    expected = encoder.states.of(padded(encoder, texts))
    rows = padded(encoder, texts)
    with ThreadPoolExecutor(4) as threads:
        for states in threads.map(encoder.states.of, [rows] * 8):
            torch.testing.assert_close(states, expected, atol=1e-3, rtol=1e-3)


def test_weights_that_half_precision_cannot_hold_are_refused(bert: Path) -> None:
    tensors = load_file(bert / "model.safetensors")
    tensors["embeddings.word_embeddings.weight"][0, 0] = 1e6
    save_file(tensors, bert / "model.safetensors")
    with pytest.raises(ConfigError, match="half precision can hold"):
        load_encoder(str(bert))


@torch.no_grad()
def test_products_in_bfloat16_stay_within_their_budget(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoders, "multiplies_bfloat16", lambda: False)
    encoders.load_files.cache_clear()
    exact = load_encoder(str(folder))
    monkeypatch.setattr(encoders, "multiplies_bfloat16", lambda: True)
    encoders.load_files.cache_clear()
    fast = load_encoder(str(folder))
    encoders.load_files.cache_clear()
    ids = padded(exact, TEXTS)
    expected, states = exact.states.of(ids), fast.states.of(ids)
    # Eight bits per factor, over two layers: below 2% of the states' own length.
    error = (states - expected).norm() / expected.norm()
    assert 0 < error < 0.02
    assert exact.states.checksum() != fast.states.checksum()


def test_all_sentences_are_encoded_before_they_are_asked_for(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEXTCAPSULES_STATES", str(tmp_path / "states"))
    monkeypatch.setattr(encoders, "FEWEST_STORED", 4)
    monkeypatch.setattr(encoders, "STORED_PIECES", 6)
    encoder, seen = load_encoder(str(bert)), []
    ids = padded(encoder, TEXTS)
    expected = encoder.states.of(ids)
    documents = [row[row > 0].numpy() for row in ids]
    for source in ("encoded", "stored"):
        encoders.load_files.cache_clear()
        states = load_encoder(str(bert)).states
        states.encode_all(
            documents, torch.device("cpu"), lambda *done: seen.append(done)
        )
        monkeypatch.setattr(states, "run", None)  # nothing is left to encode
        assert torch.equal(states.of(ids), expected), source
        if source == "encoded":
            n_all = sum(map(len, documents))
            assert seen[-1] == (n_all, n_all)
            assert list((tmp_path / "states").rglob("*.states"))
            seen.clear()
    assert not seen  # all came from the disk


def test_no_more_is_encoded_at_first_than_can_be_remembered(bert: Path) -> None:
    encoder = load_encoder(str(bert))
    states, ids = encoder.states, padded(encoder, TEXTS)
    documents = [row[row > 0].numpy() for row in ids]
    states.cached_numbers = 6 * states.size
    states.encode_all(documents, torch.device("cpu"))
    assert 0 < states.n_cached <= states.cached_numbers
    assert len(states.cache) == 1


def test_epochs_that_ask_for_too_much_find_what_was_kept(
    bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, counts = load_encoder(str(bert)), []
    states = encoder.states
    ids = padded(encoder, ["cat purrs", "dog barks", "my app"])
    expected = EncoderEmbedding(load_encoder(str(bert)).states)(ids)
    states.cache.clear()
    states.n_cached, states.cached_numbers = 0, 6 * states.size  # two of the sentences
    documents = [row[row > 0].numpy() for row in ids]
    states.encode_all(documents, torch.device("cpu"))
    assert len(states.cache) == 2
    whole = states.run
    monkeypatch.setattr(
        states, "run", lambda *args: counts.append(len(args[0])) or whole(*args)
    )
    for _ in range(2):
        for row, each in zip(ids, expected, strict=True):
            found = EncoderEmbedding(states)(row[None])[0]
            torch.testing.assert_close(found, each, atol=HALF, rtol=HALF)
    assert counts == [1, 1]  # the third sentence, once per epoch


def test_states_of_other_texts_make_room(bert: Path) -> None:
    encoder = load_encoder(str(bert))
    states, device = encoder.states, torch.device("cpu")
    first, second = (
        encoder.tokenizer.encode([x], 9) for x in ("cat purrs", "dog barks")
    )
    states.cached_numbers = states.size * max(map(len, [*first, *second]))
    states.encode_all(first, device)
    states.encode_all(second, device)
    assert list(states.cache) == list(states.sentences_of(second))
