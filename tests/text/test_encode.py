"""Documents: what cannot be read is empty, and trees fit their words."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from textcapsules.base.errors import DataError
from textcapsules.config import RunConfig
from textcapsules.text import encode
from textcapsules.text.batch import make_batch
from textcapsules.text.encode import Encoder, count_words, drop_unreadable, word_ids
from textcapsules.text.vocabulary import TextTokenizer
from textcapsules.training.join import join_documents

TEXTS = ["The cat sat", "on the mat!", "zzz 💥", "", "a <script>cat</script>"]


class FakeParser:
    """The first word is every other word's head."""

    def __init__(self, *, keep: bool) -> None:
        self.keep = keep
        self.seen: list[list[str]] = []

    def __call__(self, documents: Sequence[Sequence[str]]) -> list[np.ndarray]:
        self.seen += map(list, documents)
        return [-np.arange(len(words), dtype=np.int32) for words in documents]


def make(rule: str = "words", max_tokens: int = 200, **sections: Any) -> Encoder:
    trained = ["the cat sat on the mat !", "a script < > /"]
    tokenizer = TextTokenizer.train(trained, rule=rule)
    config = RunConfig().replace(text={"max_tokens": max_tokens}, **sections)
    return Encoder(config, tokenizer)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "DependencyParser", FakeParser)


def test_plain_documents_are_the_tokenizers() -> None:
    encoder = make()
    expected = encoder.tokenizer.encode(TEXTS, 200)
    encoded = encoder.encode(TEXTS)
    assert [ids.tolist() for ids in encoded[:2]] == [
        ids.tolist() for ids in expected[:2]
    ]
    assert [len(ids) for ids in encoded[2:4]] == [0, 0]  # nothing known, nothing at all


def test_blanks_and_unknown_characters_alone_are_nothing() -> None:
    encoded = make("characters").encode([" 💥 é ", "é a", "   "])
    assert [len(ids) for ids in encoded] == [0, 3, 0]


def test_rows_with_structure_are_judged_by_their_words() -> None:
    known = np.array([[7, -1], [1, 0]], np.int32)
    unknown = np.array([[1, 5], [1, 9]], np.int32)
    encoded = drop_unreadable([known, unknown])
    assert encoded[0] is known
    assert encoded[1].shape == (0, 2)
    assert word_ids(known).tolist() == [7, 1]


def test_words_are_counted_text_by_text() -> None:
    draw = np.random.default_rng(0)
    texts = [draw.integers(0, 6, n).astype(np.int32) for n in (0, 3, 0, 7, 1, 40, 0)]
    goes_on = np.array([False, False, False, True, False, True])  # rows 3 and 5
    known, words = count_words(texts, 2, goes_on)
    assert known.tolist() == [int(np.isin(ids, (2, 4)).sum()) for ids in texts]
    unknown = words - known
    assert unknown.tolist() == [int((ids == 1).sum()) for ids in texts]
    assert [len(each) for each in count_words([])] == [0, 0]
    kept = drop_unreadable(texts, 4)
    assert [len(ids) for ids in kept] == [
        len(ids) if any(row >= 4 for row in ids) else 0 for ids in texts
    ]


@pytest.mark.usefixtures("fake")
def test_heads_stand_beside_the_words_they_were_parsed_from() -> None:
    encoder = make(model={"architecture": "tree-lstm"}, max_tokens=4)
    encoded = encoder.encode(TEXTS)
    plain = make(max_tokens=4).encode(TEXTS)
    for document, ids in zip(encoded, plain, strict=True):
        assert document.dtype == np.int32
        assert document.shape == (len(ids), 2)
        assert document[:, 0].tolist() == ids.tolist()
        assert document[:, 1].tolist() == [-place for place in range(len(ids))]
    parser = encoder.parser
    assert isinstance(parser, FakeParser)
    assert parser.seen[0] == ["the", "cat", "sat"]
    assert parser.seen[4] == ["a", "<", "script", ">"]  # cut like the document
    assert not parser.keep


def n_ary(source: str = "toy.csv", **data: Any) -> Encoder:
    return make(
        model={"architecture": "tree-lstm"},
        baseline={"tree_kind": "n-ary"},
        data={"source": source, **data},
    )


@pytest.mark.usefixtures("fake")
def test_text_without_a_tree_gets_one_of_its_dependencies() -> None:
    first, _, unknown, empty, _ = n_ary().encode(TEXTS)
    the, cat, sat = make().encode(TEXTS)[0]
    # The first word takes the second, and both the third.
    assert first[:, 0].tolist() == [the, cat, sat, 0, 0]
    assert first[:, 1].tolist() == [3, 2, 2, 1, 0]
    assert first[:, 2].tolist() == [0, 1, 1, 0, 0]
    assert unknown.shape == empty.shape == (0, 4)


@pytest.mark.usefixtures("fake")
def test_treebanks_own_trees_are_taken_with_labels_only_to_learn(monkeypatch) -> None:
    tree = "(4 (2 The) (3 (4 cat) (0 sat)))"
    monkeypatch.setattr(encode, "read_treebank", lambda folder: {TEXTS[0]: tree})
    encoder = n_ary("sst2", data_dir="x")
    (document,) = encoder.encode(TEXTS[:1])
    the, cat, sat = make().encode(TEXTS)[0]
    assert document[:, 0].tolist() == [the, cat, sat, 0, 0]
    assert document[:, 1].tolist() == [4, 2, 1, 1, 0]
    assert document[:, 3].tolist() == [0] * 5
    (learnt,) = encoder.encode(TEXTS[:1], ("negative", "positive"))
    assert learnt[:, 3].tolist() == [0, 2, 1, 2, 2]


@pytest.mark.usefixtures("fake")
def test_missing_treebank_stops_training_but_not_prediction(tmp_path) -> None:
    encoder = n_ary("sst2", data_dir=str(tmp_path))
    assert len(encoder.encode(TEXTS[:1])[0]) == 5
    learning = Encoder(encoder.config, encoder.tokenizer, keep_parses=True)
    with pytest.raises(DataError, match="sst/trees"):
        learning.encode(TEXTS[:1])


def test_columns_go_through_batches_and_joins() -> None:
    one = np.array([[5, 1], [6, 0]], np.int32)
    two = np.array([[7, 2], [8, 0], [9, -1]], np.int32)
    documents, targets = [one, two, one[:0]], np.eye(3, dtype=np.float32)
    batch = make_batch(documents, targets, [1, 0, 2])
    assert batch.ids.tolist() == [
        [[7, 2], [8, 0], [9, -1]],
        [[5, 1], [6, 0], [0, 0]],
        [[0, 0]] * 3,
    ]
    assert batch.mask.sum(1).tolist() == [3, 2, 0]
    joined, both = join_documents(documents, targets, np.array([[0, 1]]), 200)
    assert joined[0].tolist() == [[5, 1], [6, 0], [7, 2], [8, 0], [9, -1]]
    assert both.tolist() == [[1, 1, 0]]
