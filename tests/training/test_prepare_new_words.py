"""Words that a file of vectors has and the training texts lack: `words_from`."""

import json
import logging
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from textcapsules import CapsuleClassifier
from textcapsules.base.errors import ModelFolderError
from textcapsules.config import RunConfig
from textcapsules.data.example import Corpus
from textcapsules.data.load import load_corpus
from textcapsules.deploy.onnx.export import export_onnx
from textcapsules.model.classifier import TextClassifier
from textcapsules.reasons.texts import explain
from textcapsules.text.vocabulary import UNK_ID
from textcapsules.training.prepare import prepare
from textcapsules.training.resolve import resolve
from textcapsules.training.run import resume, train
from toy import TINY_MODEL, TOPICS, tiny_config, toy_rows, without_sums, write_csv

pytestmark = pytest.mark.slow

NEW = ["tabby", "hound", "raven"]  # of no text but new ones
ONLY_DEV = "siamese"
RARE = "lynx"  # once in the training texts
SIZE = 8


def vectors_of() -> dict[str, list[float]]:
    """Return the file's words: each topic's are near one another, new ones too."""
    random = np.random.default_rng(3)
    centres = random.normal(size=(len(TOPICS), SIZE))
    words = [
        (word, centre)
        for (topic, own), centre in zip(TOPICS.items(), centres, strict=True)
        for word in own
    ]
    birds, cats, dogs = centres
    words += [("tabby", cats), ("hound", dogs), ("raven", birds)]
    words += [(ONLY_DEV, cats), (RARE, cats), ("Paris", cats), ("two words", cats)]
    return {
        word: (centre + random.normal(size=SIZE) / 10).astype(np.float16).tolist()
        for word, centre in words
    }


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    rows = [*toy_rows(), (f"my {RARE} is a cat", "cats")]
    write_csv(tmp_path / "train.csv", rows)
    dev = [*toy_rows(12, seed=2), (f"the {ONLY_DEV} zzz", "cats")]
    write_csv(tmp_path / "dev.csv", dev)
    held = vectors_of()
    np.savez(
        tmp_path / "vectors.npz",
        words=np.array(list(held)),
        vectors=np.array(list(held.values()), np.float32),
        real=np.array([word != "cat" for word in held]),
    )
    return tiny_config(
        tmp_path / "train.csv",
        data={
            "source": str(tmp_path / "train.csv"),
            "dev": str(tmp_path / "dev.csv"),
        },
        text={"vectors": str(tmp_path / "vectors.npz")},
    )


def trained_words(classifier: TextClassifier) -> list[str]:
    network: Any = classifier.network
    return classifier.tokenizer.words[: network.embedding.num_embeddings]


def extra_words(classifier: TextClassifier) -> list[str]:
    return classifier.tokenizer.words[len(trained_words(classifier)) :]


@pytest.fixture
def classifier(config: RunConfig, tmp_path: Path) -> TextClassifier:
    return train(config, tmp_path / "model")


# Which words have a row, and of which kind.


def test_auto_is_kims_habit_on_the_benchmarks_alone(config: RunConfig):
    corpus: Corpus = load_corpus(config.data)
    assert resolve(config, corpus).text.words_from == "vectors"
    expected = {"mr": "corpus", "trec": "corpus", "tickets": "vectors"}
    for source, words_from in expected.items():
        named = config.replace(data={"source": source, "dev": None})
        assert resolve(named, corpus).text.words_from == words_from
        asked = named.replace(text={"words_from": "train"})
        assert resolve(asked, corpus).text.words_from == "train"


def test_a_users_table_keeps_the_whole_file(classifier: TextClassifier):
    assert classifier.config.text.words_from == "vectors"
    assert extra_words(classifier) == [*NEW, ONLY_DEV]  # in the file's order
    assert RARE in trained_words(classifier)
    assert classifier.record["vectors"]["extra"] == 4


def test_words_of_dev_texts_get_a_trained_row_by_kims_habit_alone(config: RunConfig):
    for words_from, expected in {"train": False, "corpus": True}.items():
        prepared = prepare(config.replace(text={"words_from": words_from}))
        network: Any = prepared.network
        assert (ONLY_DEV in prepared.tokenizer.words) == expected
        assert NEW[0] not in prepared.tokenizer.words
        assert network.embedding.num_embeddings == prepared.tokenizer.n_words


def test_rare_words_of_the_training_texts_are_known_by_their_vector(config: RunConfig):
    config = config.replace(text={"min_count": 2})
    prepared = prepare(config)
    network: Any = prepared.network
    row = prepared.tokenizer.words.index(RARE)
    assert row >= network.embedding.num_embeddings
    assert any((ids == row).any() for ids in prepared.train.documents)
    assert network.embedding.extra_in_training
    rows = np.concatenate(prepared.train.documents)
    shares = prepared.facts["vectors"]
    seen = np.unique(rows)
    known = [prepared.tokenizer.words[row] in vectors_of() for row in seen]
    assert shares["types"] == pytest.approx(np.mean(known))


def test_a_run_on_rare_words_trains(config: RunConfig, tmp_path: Path):
    one_epoch = {"epochs": 1}
    trained = train(
        config.replace(text={"min_count": 2}, train=one_epoch), tmp_path / "rare"
    )
    assert RARE in extra_words(trained)
    assert np.isfinite(trained.scores([f"my {RARE}"])).all()


def test_fewer_words_may_be_kept_and_it_is_said(config: RunConfig, caplog):
    with caplog.at_level(logging.WARNING):
        prepared = prepare(config.replace(text={"vector_words": 2}))
    assert prepared.tokenizer.words[-2:] == NEW[:2]
    (message,) = caplog.messages
    assert "of the words in vectors.npz are left out and unknown" in message
    assert "beyond the first 2; --vector-words" in message
    caplog.clear()
    prepare(config)
    assert not caplog.messages


def test_true_vectors_are_told_from_estimates(config: RunConfig):
    prepared = prepare(config)
    facts, words = prepared.facts["vectors"], prepared.tokenizer.words
    tokens = [words[row] for ids in prepared.train.documents for row in ids]
    real = [word in vectors_of() and word != "cat" for word in tokens]
    types = [word in vectors_of() and word != "cat" for word in set(tokens)]
    assert facts["real_tokens"] == pytest.approx(np.mean(real))
    assert facts["real_types"] == pytest.approx(np.mean(types))
    assert facts["real_tokens"] < facts["tokens"]


# What new words do.


def test_a_new_word_speaks_with_the_files_vector(classifier: TextClassifier):
    scores = classifier.scores(["the", "the tabby", "the hound", "the zzz"])
    assert not np.array_equal(scores[1], scores[2])
    assert not np.array_equal(scores[1], scores[3])
    predicted = classifier.predict(["tabby tabby tabby", "hound hound", "raven raven"])
    assert [each.labels[0] for each in predicted] == ["cats", "dogs", "birds"]


def test_new_words_change_nothing_in_training(config: RunConfig, tmp_path: Path):
    last = config.replace(train={"select": "last"})
    train(last, tmp_path / "vectors")
    train(last.replace(text={"words_from": "train"}), tmp_path / "train")
    with_extra = load_file(tmp_path / "vectors" / "model.safetensors")
    without = load_file(tmp_path / "train" / "model.safetensors")
    extra = with_extra.pop("embedding.extra")
    assert extra.dtype == torch.float16
    held = vectors_of()
    expected = np.array([held[word] for word in [*NEW, ONLY_DEV]], np.float32)
    np.testing.assert_array_equal(extra.numpy(), expected.astype(np.float16))
    assert with_extra.keys() == without.keys()
    assert all(torch.equal(with_extra[name], without[name]) for name in without)


def test_kims_habit_reads_the_words_of_dev_texts_no_otherwise(
    config: RunConfig, tmp_path: Path
):
    # No gradient reaches their rows, trained or not.
    texts = [f"the {ONLY_DEV}", f"{ONLY_DEV} dog"]
    one, two = (
        train(config.replace(text={"words_from": words}), tmp_path / words)
        for words in ("corpus", "vectors")
    )
    assert np.array_equal(one.scores(texts), two.scores(texts))


def test_dev_texts_are_read_as_new_ones_are(config: RunConfig):
    prepared = prepare(config)
    network: Any = prepared.network
    words = prepared.tokenizer.words
    assert not network.embedding.extra_in_training
    last = prepared.dev.documents[-1].tolist()
    assert last[1:] == [words.index(ONLY_DEV), UNK_ID]
    assert last[1] >= network.embedding.num_embeddings


def test_a_text_scores_alone_as_in_a_batch(classifier: TextClassifier):
    texts = ["my tabby is", "hound", "cat raven " * 9, "zzz", "", "a siamese purr"]
    together = classifier.scores(texts)
    alone = np.concatenate([classifier.scores([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-6)


# What else reads the network.


def test_a_loaded_folder_scores_the_same(classifier: TextClassifier, tmp_path: Path):
    texts = ["my tabby", "the hound bark", "cat"]
    loaded = TextClassifier.load(tmp_path / "model")
    assert np.array_equal(loaded.scores(texts), classifier.scores(texts))
    loaded.save(tmp_path / "again")
    again = TextClassifier.load(tmp_path / "again")
    assert np.array_equal(again.scores(texts), classifier.scores(texts))


def test_a_run_cut_short_ends_with_the_same_weights(config: RunConfig, tmp_path: Path):
    train(config, tmp_path / "whole")

    def stop(record: dict) -> None:
        if record["epoch"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "cut", on_epoch=stop)
    checkpoint = load_file(tmp_path / "cut" / "checkpoint.safetensors")
    assert not [name for name in checkpoint if name.endswith("extra")]
    resume(tmp_path / "cut")
    whole, cut = (tmp_path / name / "model.safetensors" for name in ("whole", "cut"))
    assert whole.read_bytes() == cut.read_bytes()


def test_a_run_is_not_resumed_on_other_new_words(config: RunConfig, tmp_path: Path):
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "cut", on_epoch=lambda _: interrupt())
    path = Path(str(config.text.vectors))
    arrays = dict(np.load(path))
    arrays["vectors"][arrays["words"] == NEW[0]] += 1
    np.savez(path, **arrays)
    with pytest.raises(ModelFolderError, match="must be resumed on the data it was"):
        resume(tmp_path / "cut")


def interrupt() -> None:
    raise KeyboardInterrupt


def test_an_exported_model_knows_new_words(classifier: TextClassifier, tmp_path: Path):
    onnxruntime = pytest.importorskip("onnxruntime")
    from tokenizers import Tokenizer

    folder = tmp_path / "onnx"
    assert export_onnx(classifier, folder)["largest_difference"] <= 1e-4
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    texts = ["my tabby purr", "hound", "zzz", "cat raven zzz"]
    encoded = tokenizer.encode_batch(texts, add_special_tokens=False)
    ids = np.array([each.ids for each in encoded], np.int64)
    (found,) = session.run(["scores"], {"ids": ids})
    np.testing.assert_allclose(found, classifier.scores(texts), atol=1e-5)


@pytest.mark.parametrize("method", ["gradient", "integrated"])
def test_gradients_reach_new_words(classifier: TextClassifier, method: str):
    (explanation,) = explain(classifier, ["the tabby zzz"], method=method)
    strengths = {label.label: label.tokens[1] for label in explanation.labels}
    assert explanation.tokens[1].text == "tabby"
    assert max(strengths, key=lambda name: strengths[name]) == "cats"


@pytest.mark.parametrize(
    "architecture", ["cnn", "lstm", "bilstm", "lr-lstm", "capsule-b"]
)
def test_every_network_of_words_reads_new_ones(
    config: RunConfig, tmp_path: Path, architecture: str
):
    rows = [row for row in toy_rows() if row[1] != "birds"]  # lr-lstm: two classes
    write_csv(tmp_path / "train.csv", [*rows, (f"my {RARE} is a cat", "cats")])
    write_csv(tmp_path / "dev.csv", rows[:9])
    changed = config.replace(
        text={"min_count": 2},
        model={"architecture": architecture, "ngram_sizes": (2, 3)},
        baseline={"hidden_size": 4, "feature_maps": 4},
        train={"epochs": 1},
    )
    trained = train(changed, tmp_path / "baseline")
    assert {RARE, *NEW} < set(extra_words(trained))
    scores = trained.scores(["the tabby", "the zzz"])
    assert not np.array_equal(*scores)
    loaded = TextClassifier.load(tmp_path / "baseline")
    assert np.array_equal(loaded.scores(["the tabby"]), trained.scores(["the tabby"]))


def test_an_estimator_keeps_new_words_through_a_pickle(config: RunConfig):
    texts, topics = zip(*toy_rows(), strict=True)
    estimator = CapsuleClassifier(
        preset="paper",
        epochs=1,
        vectors=config.text.vectors,
        options=TINY_MODEL,
        random_state=0,
        device="cpu",
    ).fit(list(texts), list(topics))
    assert estimator.model_.config.text.words_from == "vectors"
    copy = pickle.loads(pickle.dumps(estimator))
    new = ["the tabby", "the hound"]
    lengths = estimator.decision_function(new)
    assert not np.array_equal(*lengths)
    np.testing.assert_array_equal(copy.decision_function(new), lengths)


# Folders of other versions, and spoilt ones.


def as_before(folder: Path) -> None:
    """Rewrite a folder as earlier versions wrote it: one table, no kinds of words."""
    path = without_sums(folder) / "model.safetensors"
    tensors = load_file(path)
    extra = tensors.pop("embedding.extra").float()
    tensors["embedding.weight"] = torch.cat([tensors["embedding.weight"], extra])
    save_file(tensors, path)
    options = json.loads((folder / "config.json").read_text())
    del options["text"]["vector_words"]
    options["text"]["words_from"] = "corpus"
    (folder / "config.json").write_text(json.dumps(options))


def test_a_folder_of_an_earlier_version_predicts_as_before(
    classifier: TextClassifier, tmp_path: Path
):
    shutil.copytree(tmp_path / "model", tmp_path / "old")
    as_before(tmp_path / "old")
    old = TextClassifier.load(tmp_path / "old")
    assert old.config.text.words_from == "corpus"
    texts = ["my tabby purr", "the dog", "zzz cat"]
    np.testing.assert_array_equal(old.scores(texts), classifier.scores(texts))


@pytest.mark.parametrize("damage", ["missing", "too long", "too short", "narrow"])
def test_spoilt_fixed_rows_are_told(
    classifier: TextClassifier, tmp_path: Path, damage: str
):
    path = tmp_path / "model" / "model.safetensors"
    tensors = load_file(path)
    extra = tensors.pop("embedding.extra")
    spoilt = {
        "too long": extra.repeat(50, 1),
        "too short": extra[1:],
        "narrow": extra[:, 1:],
    }
    if damage in spoilt:
        tensors["embedding.extra"] = spoilt[damage].contiguous()
    save_file(tensors, path)
    with pytest.raises(ModelFolderError, match=r"must hold the weights that config"):
        TextClassifier.load(tmp_path / "model")
