"""Unknown words: brought into training, and no evidence for any label afterwards."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from run_folders import figures, weights
from safetensors.torch import load_file

from textcapsules.classifier import TextClassifier
from textcapsules.config import RunConfig
from textcapsules.text.vocabulary import UNK_ID
from textcapsules.training.loop import with_joined
from textcapsules.training.prepare import Encoded, prepare
from textcapsules.training.run import resume, train
from textcapsules.training.unseen import (
    UnseenWords,
    blank_documents,
    drop_chances,
    drop_words,
    neutral_words,
)
from toy import FILLERS, TOPICS, tiny_config, toy_file, toy_rows

TAUGHT = {"word_dropout": 1.0, "blank": 0.5}


def several(folder: Path, **train_options) -> RunConfig:
    """Return a tiny run that is to give several labels, all of its epochs wanted."""
    options = {
        "task": "multi-label",
        "joined": 1.0,
        "epochs": 4,
        "learning_rate": 0.02,
        "select": "last",
        **train_options,
    }
    model = {"conv_capsules": False, "capsule_size": 8, "embedding_size": 16}
    return tiny_config(toy_file(folder, n_rows=120), model=model, train=options)


def documents(*rows: list[int]) -> list[np.ndarray]:
    return [np.array(row, np.int32) for row in rows]


def invented_texts(n_texts: int, seed: int) -> list[str]:
    """Return invented words, and up to three fillers that the texts do have."""
    draw = random.Random(seed)
    texts = []
    for _ in range(n_texts):
        words = [
            "x" + "".join(draw.choices("bdfgklmnprstvwz", k=draw.randint(2, 7)))
            for _ in range(draw.randint(3, 30))
        ]
        for filler in draw.choices(FILLERS, k=draw.randint(0, 3)):
            words.insert(draw.randint(0, len(words)), filler)
        texts.append(" ".join(words))
    return texts


def test_words_become_unknown_as_often_as_their_count_says():
    texts = documents([2] + [3] * 9) * 2000  # counts 1 and 9 in the one training text
    chances = drop_chances(texts[:1], 1.0)
    changed = np.stack(drop_words(texts, chances, 0))
    assert (changed[:, 0] == UNK_ID).mean() == pytest.approx(1 / 2, abs=0.04)
    assert (changed[:, 1:] == UNK_ID).mean() == pytest.approx(1 / 10, abs=0.02)
    assert set(np.unique(changed[:, 1:])) == {UNK_ID, 3}


def test_a_document_keeps_a_known_word_and_padding_stays():
    texts = documents([2], [2, 2], [], [UNK_ID, 2])
    changed = drop_words(texts, np.array([0.0, 0.0, 1.0]), 0)
    assert [ids.tolist() for ids in changed] == [[2], [2, 2], [], [UNK_ID, 2]]
    assert drop_words([], np.zeros(3), 0) == []


def test_neutral_words_are_frequent_and_have_every_label_alike():
    # 2 stands in all texts, 3 with one label alone, 4 in one text, 5 with both labels.
    texts = documents(*([[2, 3, 5]] * 60), *([[2, 5]] * 60), [2, 4], *([[2]] * 80))
    targets = np.zeros((201, 2), np.float32)
    targets[:60, 0] = 1
    targets[60:, 1] = 1
    assert np.flatnonzero(neutral_words(texts, targets)).tolist() == [2]
    targets[130:, 0], targets[130:, 1] = 1, 0  # now 5 is in half of each label's
    assert np.flatnonzero(neutral_words(texts, targets)).tolist() == [2, 5]


def test_blank_documents_hold_nothing_but_unknown_and_neutral_words():
    texts = documents([2, 3, 4, 5] * 5, [3, 3], [], [4])
    is_neutral = np.array([False, False, True, False, True, False])
    blanks = blank_documents(texts, is_neutral, 300, 0)
    assert len(blanks) == 300
    assert set(np.unique(np.concatenate(blanks))) == {UNK_ID, 2, 4}
    assert all((ids > UNK_ID).any() and ids.dtype == np.int32 for ids in blanks)
    assert {1, 2, 20} <= {len(ids) for ids in blanks} <= set(range(1, 21))
    assert blank_documents(texts, np.zeros(6, bool), 300, 0) == []


def test_draws_depend_on_seed_and_epoch_alone(tmp_path):
    def drawn(epoch: int, **train_options) -> list[list[int]]:
        ready = prepare(several(tmp_path, **TAUGHT, **train_options))
        unseen = UnseenWords(ready.config.train, ready.train)
        unseen.add(ready.train, 7)  # another epoch's draw must not matter
        joined = with_joined(ready.config, ready.train, epoch)
        return [ids.tolist() for ids in unseen.add(joined, epoch).documents]

    first = drawn(1)
    torch.manual_seed(99)
    np.random.seed(99)
    assert drawn(1) == first
    assert drawn(2) != first
    assert drawn(1, seed=1) != first


def test_blank_texts_come_last_and_carry_no_label(tmp_path):
    ready = prepare(several(tmp_path, **TAUGHT))
    n_texts = len(ready.train.documents)
    found = UnseenWords(ready.config.train, ready.train).add(ready.train, 0)
    assert len(found.documents) == len(found.targets) == round(1.5 * n_texts)
    assert (found.targets[:n_texts] == ready.train.targets).all()
    assert not found.targets[n_texts:].any()


def test_texts_stay_as_they_are_unless_asked():
    given = Encoded(documents([2, 3]), np.eye(2, dtype=np.float32)[:1])
    found = UnseenWords(RunConfig().train, given).add(given, 0)
    assert found.documents is given.documents
    assert found.targets is given.targets


@pytest.mark.parametrize("options", [{"word_dropout": 1.0}, {"blank": 0.5}])
def test_the_row_of_the_unknown_word_is_trained(tmp_path, options):
    config = several(tmp_path, epochs=1, **options)
    network = prepare(config).network
    assert isinstance(network, torch.nn.Module)
    before = network.state_dict()["embedding.weight"]
    train(config, tmp_path / "model")
    after = load_file(tmp_path / "model" / "model.safetensors")["embedding.weight"]
    assert (before[UNK_ID] != after[UNK_ID]).all()
    train(several(tmp_path, epochs=1), tmp_path / "plain")
    plain = load_file(tmp_path / "plain" / "model.safetensors")["embedding.weight"]
    assert (before[UNK_ID] == plain[UNK_ID]).all()


def test_resumed_run_with_unknown_words_ends_as_the_uninterrupted_one(tmp_path):
    config = several(tmp_path, **{**TAUGHT, "epochs": 3})
    whole = train(config, tmp_path / "whole")

    def stop(record):
        if record["epoch"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "cut", on_epoch=stop)
    cut = resume(tmp_path / "cut")
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")
    assert figures(cut) == figures(whole)


@pytest.fixture(scope="module")
def taught(tmp_path_factory) -> TextClassifier:
    folder = tmp_path_factory.mktemp("taught")
    return train(several(folder, **TAUGHT), folder / "model")


def labelled(classifier: TextClassifier, texts: list[str]) -> int:
    return sum(bool(found.labels) for found in classifier.predict(texts))


def test_invented_words_get_no_label(taught):
    assert labelled(taught, invented_texts(300, seed=5)) == 0
    letters = [" ".join(random.Random(n).choices("bcdefghjk", k=9)) for n in range(50)]
    assert labelled(taught, [f"a {text}" for text in letters]) == 0


def test_real_texts_keep_their_labels(taught):
    rows = toy_rows(90, seed=9)
    found = taught.predict([text for text, _ in rows])
    right = [
        got.labels == (topic,) for got, (_, topic) in zip(found, rows, strict=True)
    ]
    assert np.mean(right) > 0.9
    pairs = [" ".join(TOPICS[name]) for name in ("birds", "dogs")]
    assert set(taught.predict([" ".join(pairs)])[0].labels) == {"birds", "dogs"}


def test_unknown_words_among_known_ones_leave_the_label(taught):
    texts = [
        " ".join(f"{word} xq{n}" for n, word in enumerate(words))
        for words in TOPICS.values()
    ]
    assert [got.labels for got in taught.predict(texts)] == [(name,) for name in TOPICS]


def test_without_the_options_invented_words_do_get_labels(tmp_path):
    plain = train(several(tmp_path), tmp_path / "model")
    assert labelled(plain, invented_texts(300, seed=5)) > 0
