"""The character CNN against the published table, and quantisation by hand."""

import numpy as np
import pytest
import torch
from torch import Tensor

from textcapsules.model.baselines.convolutional import CharCnn
from textcapsules.model.baselines.recurrent import reversal
from textcapsules.text.tokenize import ALPHABET
from textcapsules.text.vocabulary import TextTokenizer

pytestmark = pytest.mark.slow

# Zhang, Zhao and LeCun: the alphabet as they print it, and a new line.
PUBLISHED = "abcdefghijklmnopqrstuvwxyz0123456789-,;.!?:'\"/\\|_@#$%^&*~`+-=<>()[]{}"
TOKENIZER = TextTokenizer.train([], rule="characters")
SHORT = 123  # one last frame: 96 + 27


def make(size: str = "small", length: int = SHORT, **settings) -> CharCnn:
    torch.manual_seed(0)
    return CharCnn(
        n_characters=TOKENIZER.n_words,
        n_classes=3,
        length=length,
        size=size,
        **settings,
    ).eval()


def batch(texts: list[str]) -> tuple[Tensor, Tensor]:
    documents = TOKENIZER.encode(texts, 1014)
    width = max(1, *map(len, documents))
    ids = torch.zeros(len(texts), width, dtype=torch.long)
    for row, document in zip(ids, documents, strict=True):
        row[: len(document)] = torch.from_numpy(document)
    lengths = torch.tensor(list(map(len, documents)))
    return ids, torch.arange(width) < lengths[:, None]


def test_alphabet_is_the_published_one() -> None:
    assert len(PUBLISHED + "\n") == 70
    assert set(ALPHABET) == set(PUBLISHED + "\n")
    assert len(ALPHABET) == 69  # the hyphen is printed twice


def test_published_length_leaves_the_published_frames() -> None:
    network = make(length=1014)
    assert network.n_frames == (1014 - 96) // 27 == 34
    assert network.full[0].in_features == 34 * 256


@pytest.mark.parametrize(
    ("size", "features", "units"), [("small", 256, 1024), ("large", 1024, 2048)]
)
def test_parameters_are_those_of_the_published_table(size, features, units) -> None:
    with torch.device("meta"):
        network = make(size, length=1014)
    convolutions = (70 * 7 + 1) * features + (features * 7 + 1) * features
    convolutions += 4 * (features * 3 + 1) * features
    full = (34 * features + 1) * units + (units + 1) * units + (units + 1) * 3
    assert sum(p.numel() for p in network.parameters()) == convolutions + full


@pytest.mark.parametrize(("size", "deviation"), [("small", 0.05), ("large", 0.02)])
def test_weights_start_as_a_gaussian(size: str, deviation: float) -> None:
    weight = make(size).convolutions[0].weight
    assert isinstance(weight, Tensor)
    assert weight.std().item() == pytest.approx(deviation, rel=0.02)
    assert weight.mean().item() == pytest.approx(0, abs=deviation / 50)


def quantised_by_hand(text: str, length: int) -> np.ndarray:
    """Return (70, length): the last character first, what is unknown all zero."""
    places = {character: place for place, character in enumerate(ALPHABET)}
    frames = np.zeros((70, length), dtype=np.float32)
    for column, character in enumerate(reversed(text[:length].lower())):
        if character in places:
            frames[places[character], column] = 1
    return frames


@pytest.mark.parametrize(
    "text", ["Ab c-é!", "x", "<script>\n💥 [PAD]", "the end. " * 40], ids=repr
)
def test_characters_are_read_backwards_as_one_hot_vectors(text: str) -> None:
    network, seen = make(), []
    network.convolutions.register_forward_pre_hook(lambda _, given: seen.append(given))
    network(*batch([text]))
    expected = quantised_by_hand(text.strip(" "), SHORT)
    np.testing.assert_array_equal(seen[0][0][0].numpy(), expected)


def test_reversal_leaves_padding_on_the_right() -> None:
    ids = torch.tensor([[5, 6, 7, 0], [8, 0, 0, 0], [0, 0, 0, 0]])
    expected = [[7, 6, 5, 0], [8, 0, 0, 0], [0, 0, 0, 0]]
    assert ids.gather(1, reversal(ids > 0)).tolist() == expected


def test_neither_batch_nor_its_width_matters() -> None:
    network, texts = make(), ["a few words", "b", "c" * 300]
    together = network(*batch(texts)).logits
    for row, text in zip(together, texts, strict=True):
        torch.testing.assert_close(row, network(*batch([text])).logits[0])


def test_gradients_reach_every_parameter() -> None:
    # Few enough units that none is dead for all of the texts by chance alone.
    network = make().train()
    texts = [character * 200 for character in ALPHABET[:40:4]]
    network(*batch(texts)).logits.square().sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def whole(network: CharCnn, ids: Tensor, mask: Tensor) -> Tensor:
    """Return the logits with every frame computed, of padding too."""
    padded = torch.nn.functional.pad(
        ids.gather(1, reversal(mask)), (0, network.length - ids.shape[1])
    )
    frames = network.convolutions(network.one_hot[padded].transpose(1, 2))
    assert frames.shape[2] == network.n_frames
    return network.full(frames.flatten(1))


@pytest.mark.parametrize("length", [123, 300, 310])
@pytest.mark.parametrize("n_characters", [0, 1, 26, 27, 28, 54, 122, 123, 201, 300])
def test_one_silent_frame_stands_for_all(length: int, n_characters: int) -> None:
    network = make(length=length).double()
    for layer in network.convolutions:  # zero biases would make silence zero
        if isinstance(layer, torch.nn.Conv1d):
            torch.nn.init.normal_(layer.bias, std=0.3)  # type: ignore[arg-type]
    n_characters = min(n_characters, length)
    ids, mask = batch(["abc. xyz! " * 30, "é", "pq"])
    ids, mask = ids[:, : max(n_characters, 1)], mask[:, : max(n_characters, 1)]
    mask = mask & (n_characters > 0)
    found, expected = network(ids * mask, mask).logits, whole(network, ids * mask, mask)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    grads = [
        torch.autograd.grad(logits.square().sum(), list(network.parameters()))
        for logits in (found, expected)
    ]
    for (name, _), one, other in zip(network.named_parameters(), *grads, strict=True):
        torch.testing.assert_close(
            one, other, rtol=1e-8, atol=1e-8, msg=lambda text, name=name: name + text
        )
