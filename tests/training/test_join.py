"""Joined documents: which texts are paired, and what is kept of each."""

import math
import tracemalloc
import typing
from collections import Counter, defaultdict

import numpy as np
import pytest
from numpy.typing import NDArray

from textcapsules.config import TrainConfig
from textcapsules.text.pieces import FIRST_PIECE, split_sentences
from textcapsules.training import join
from textcapsules.training.join import join_documents, joined_pairs

ONE_LABEL = np.eye(4)[np.repeat([0, 1, 2, 3], [5, 9, 2, 4])]  # 20 texts
SEVERAL = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0]])


MOSTLY_ONE = np.eye(4)[np.repeat([0, 1, 2, 3], [180, 10, 6, 4])]  # 90 % have label 0
BY = ("texts", "labels")


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize(
    "targets", [ONE_LABEL, SEVERAL, MOSTLY_ONE], ids=["one", "several", "mostly one"]
)
def test_pairs_never_share_a_label(targets: np.ndarray, by: str) -> None:
    pairs = joined_pairs(targets, 200, seed=0, by=by)
    assert pairs.shape == (200, 2)
    for first, second in pairs:
        assert not (targets[first] * targets[second]).any()


def test_pairs_use_every_row_in_turn() -> None:
    pairs = joined_pairs(ONE_LABEL, 50, seed=0)  # two and a half rounds of 20
    firsts = Counter(pairs[:, 0].tolist())
    assert set(firsts) == set(range(20))
    assert set(firsts.values()) == {2, 3}


def test_partners_are_spread_over_all_rows_that_fit() -> None:
    pairs = joined_pairs(np.eye(2)[[0, 0, 0, 1, 1, 1]], 1200, seed=0)
    partners = Counter(pairs[:, 1].tolist())
    # 200 each on average, with a deviation below 13: five deviations either way.
    assert all(135 < partners[row] < 265 for row in range(6))


def test_pairs_by_label_have_every_label_about_equally_often() -> None:
    pairs = joined_pairs(MOSTLY_ONE, 2000, seed=0, by="labels")
    labels = np.sort(MOSTLY_ONE.argmax(1)[pairs])  # (P, 2)
    # A label is in half of the pairs, two labels together in a sixth: 1,000 and 333.3,
    # with deviations of 22.4 and 16.7. Five deviations either way.
    single = np.bincount(labels.ravel())
    assert len(single) == 4
    assert all(888 < count < 1112 for count in single)
    together = Counter(map(tuple, labels.tolist()))
    assert len(together) == 6
    assert all(250 < count < 417 for count in together.values())
    # By texts nearly every pair has the common label.
    pairs = joined_pairs(MOSTLY_ONE, 2000, seed=0, by="texts")
    assert MOSTLY_ONE[pairs.ravel(), 0].sum() > 1900


def test_pairs_by_label_have_either_place_and_every_text_of_a_label_alike() -> None:
    pairs = joined_pairs(MOSTLY_ONE, 2000, seed=0, by="labels")
    # 1,000 places for the four texts of label 3, half of them first, 125 in each.
    for place in (0, 1):
        counts = Counter(pairs[:, place].tolist())
        assert all(70 < counts[row] < 180 for row in range(196, 200))  # 11 each way
    # 1,000 for the 180 of label 0: one is left out with a chance of 0.4 %.
    assert len(set(pairs[pairs < 180].tolist())) > 170


def label_pairs_by_hand(targets: np.ndarray) -> dict[tuple[int, int], float]:
    """Return how likely each pair is, all draws gone through."""
    n_texts, n_labels = targets.shape
    chances: dict[tuple[int, int], float] = defaultdict(float)
    having = [
        [row for row in range(n_texts) if targets[row, j]] for j in range(n_labels)
    ]
    for label in range(n_labels):
        for first in having[label]:
            apart = [
                [row for row in rows if not (targets[row] * targets[first]).any()]
                for rows in having
            ]
            others = [rows for rows in apart if rows]
            for rows in others:
                chance = 1 / (len(having[label]) * len(others) * len(rows))
                for second in rows:
                    chances[first, second] += chance / n_labels
    return chances


@pytest.mark.parametrize(
    "targets", [SEVERAL, ONE_LABEL[::2]], ids=["several", "one label"]
)
def test_pairs_by_label_are_drawn_label_text_label_text(targets: np.ndarray) -> None:
    n_pairs = 4000
    found = Counter(map(tuple, joined_pairs(targets, n_pairs, 0, by="labels").tolist()))
    chances = label_pairs_by_hand(targets)
    assert sum(chances.values()) == pytest.approx(1)
    assert set(found) <= set(chances)
    for pair, chance in chances.items():
        deviation = math.sqrt(n_pairs * chance * (1 - chance))
        assert abs(found[pair] - n_pairs * chance) < 5 * deviation, pair


def test_pairs_by_label_of_many_texts_need_little_memory() -> None:
    targets = np.eye(5)[np.random.default_rng(0).integers(0, 5, 4000)]
    tracemalloc.start()
    pairs = joined_pairs(targets, 4000, seed=0, by="labels")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(pairs) == 4000
    assert most < 10e6  # partners of every text would be 4,000 lists of 3,200 numbers


@pytest.mark.parametrize("by", BY)
def test_pairs_follow_from_the_seed(by: str) -> None:
    one, same = (joined_pairs(ONE_LABEL, 30, 7, by=by) for _ in range(2))
    assert (one == same).all()
    assert (one != joined_pairs(ONE_LABEL, 30, 8, by=by)).any()
    assert (one != joined_pairs(ONE_LABEL, 30, [7, 1], by=by)).any()


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("n_texts", [0, 1, 5])
def test_lone_class_has_no_pairs(n_texts: int, by: str) -> None:
    targets = np.eye(3)[[1] * n_texts].reshape(n_texts, 3)
    assert joined_pairs(targets, 10, seed=0, by=by).shape == (0, 2)


@pytest.mark.parametrize("by", BY)
def test_row_that_shares_labels_with_all_others_is_left_out(by: str) -> None:
    targets = np.array([[1, 1], [1, 0], [0, 1]])
    pairs = joined_pairs(targets, 40, seed=0, by=by)
    assert len(pairs) == 40
    assert set(pairs.ravel().tolist()) == {1, 2}


def test_text_without_labels_is_in_no_pair_by_label() -> None:
    targets = np.array([[0, 0], [1, 0], [0, 0], [0, 1]])
    pairs = joined_pairs(targets, 60, seed=0, by="labels")
    assert set(map(tuple, pairs.tolist())) == {(1, 3), (3, 1)}
    assert joined_pairs(targets[:3], 60, seed=0, by="labels").shape == (0, 2)


def test_unknown_way_to_draw_pairs_is_named() -> None:
    with pytest.raises(ValueError, match="by must be texts or labels; got 'words'"):
        joined_pairs(ONE_LABEL, 3, 0, by="words")


def test_every_configured_way_to_draw_pairs_is_known() -> None:
    choices = typing.get_args(typing.get_type_hints(TrainConfig)["joined_by"])
    assert choices == join.PAIRED_BY == BY


def test_text_without_labels_is_never_joined_with_itself() -> None:
    pairs = joined_pairs(np.array([[0, 0], [0, 0], [1, 0]]), 60, seed=0)
    assert (pairs[:, 0] != pairs[:, 1]).all()
    assert joined_pairs(np.zeros((1, 2)), 3, seed=0).shape == (0, 2)


def test_joined_documents_carry_both_labels_and_half_of_the_tokens_each() -> None:
    documents = [np.arange(10, 19), np.arange(20, 22), np.arange(0)]
    targets = np.eye(3)
    pairs = np.array([[0, 1], [1, 0], [2, 0]])
    joined, labels = join_documents(documents, targets, pairs, max_tokens=7)
    assert [ids.tolist() for ids in joined] == [
        [10, 11, 12, 20, 21],  # 7 // 2 = 3 of the first
        [20, 21, 10, 11, 12],
        [10, 11, 12],
    ]
    assert labels.tolist() == [[1, 1, 0], [1, 1, 0], [1, 0, 1]]


def test_no_pairs_join_to_no_documents() -> None:
    none = np.zeros((0, 2), dtype=np.int64)
    joined, labels = join_documents([np.arange(3)], np.eye(1), none, 10)
    assert joined == []
    assert labels.shape == (0, 1)


def test_of_one_of_two_joined_documents_a_stretch_is_kept() -> None:
    documents = [np.arange(100, 140), np.arange(200, 210), np.arange(0)]
    pairs = np.array([[0, 1]] * 400 + [[2, 0]] * 20)
    joined, labels = join_documents(
        documents, np.eye(3), pairs, 200, share=0.25, seed=3
    )
    kept: dict[int, list[int]] = {0: [], 1: []}
    starts = set()
    for ids in joined[:400]:
        parts = [ids[ids < 200], ids[ids >= 200]]
        assert ids.tolist() == np.concatenate(parts).tolist()  # in this order
        whole = [len(part) == len(documents[row]) for row, part in enumerate(parts)]
        assert any(whole)
        for row, part in enumerate(parts):
            assert (np.diff(part) == 1).all()  # a stretch, nothing left out
            if not whole[row]:
                kept[row].append(len(part))
                starts.add(int(part[0]) - 100 * (row + 1))
    assert 150 < len(kept[0]) < 250  # either is cut as often as the other
    assert min(kept[0]) in (10, 11)  # a quarter of 40, rounded up
    assert len(starts) > 20  # anywhere in the text
    assert all(len(ids) in range(10, 41) for ids in joined[400:])
    assert labels[0].tolist() == [1, 1, 0]
    again, _ = join_documents(documents, np.eye(3), pairs, 200, share=0.25, seed=3)
    other, _ = join_documents(documents, np.eye(3), pairs, 200, share=0.25, seed=4)
    assert [ids.tolist() for ids in again] == [ids.tolist() for ids in joined]
    assert [ids.tolist() for ids in other] != [ids.tolist() for ids in joined]


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_word_pieces_are_cut_between_sentences(share: float) -> None:
    """Every sentence of a joined document is one of its texts', whole."""
    n_pieces, random = 10, np.random.default_rng(0)

    def sentence() -> NDArray:
        rows = FIRST_PIECE + random.integers(n_pieces, size=random.integers(1, 6))
        rows[0] += n_pieces
        return rows

    texts = [[sentence() for _ in range(n)] for n in (1, 2, 5, 3)]
    documents = [np.concatenate(text) for text in texts]
    pairs = np.array([[a, b] for a in range(4) for b in range(4) if a != b] * 10)
    joined, _ = join_documents(
        documents, np.eye(4), pairs, 400, share=share, n_pieces=n_pieces
    )
    whole = {tuple((rows - FIRST_PIECE) % n_pieces) for text in texts for rows in text}
    lengths = set()
    for document, pair in zip(joined, pairs, strict=True):
        lengths.add(len(document) / sum(len(documents[row]) for row in pair))
        assert {tuple(part) for part in split_sentences(document, n_pieces)} <= whole
    assert min(lengths) < 1  # something was cut
