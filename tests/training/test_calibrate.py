"""Joined documents, and thresholds against brute force."""

import math
import tracemalloc
import typing
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from textcapsules.config import TrainConfig
from textcapsules.training import calibrate
from textcapsules.training.calibrate import (
    best_threshold,
    fit_biases,
    join_documents,
    join_texts,
    joined_pairs,
    label_thresholds,
)

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
    assert choices == calibrate.PAIRED_BY == BY


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


def test_joined_texts_are_whole() -> None:
    pairs = np.array([[0, 1], [1, 0]])
    assert join_texts(["a b", "c"], pairs) == ["a b c", "c a b"]


def objective_by_hand(predicted: np.ndarray, targets: np.ndarray, name: str) -> float:
    """Count one text and one class at a time."""
    exact = hits = given = asked = 0
    for guess, truth in zip(predicted.tolist(), targets.tolist(), strict=True):
        exact += guess == [bool(t) for t in truth]
        hits += sum(g and bool(t) for g, t in zip(guess, truth, strict=True))
        given, asked = given + sum(guess), asked + sum(truth)
    if name == "exact-match":
        return exact / len(targets)
    return 2 * hits / (given + asked) if given + asked else 0.0


N_CLASSES = 3
grid_scores = st.lists(  # few levels, so that ties are common
    st.lists(st.integers(0, 12), min_size=N_CLASSES, max_size=N_CLASSES), min_size=1
)


@pytest.mark.parametrize("name", ["exact-match", "micro-f1"])
@given(levels=grid_scores, seed=st.integers(0, 99))
@settings(max_examples=120, deadline=None)
def test_threshold_is_as_good_as_any_that_parts_the_scores(
    name: str, levels: list, seed: int
) -> None:
    scores = np.array(levels) / 12
    targets = np.random.default_rng(seed).integers(0, 2, scores.shape)
    threshold, value = best_threshold(scores, targets, name)
    assert value == pytest.approx(objective_by_hand(scores >= threshold, targets, name))
    # "At least t" for every score t but the lowest covers all ways to part them.
    rivals = np.unique(scores)[1:]
    best = max(
        (objective_by_hand(scores >= t, targets, name) for t in rivals), default=0
    )
    if len(rivals):
        assert value == pytest.approx(best)
        assert scores.min() < threshold < scores.max()


def test_threshold_lies_midway_in_the_gap_that_separates() -> None:
    scores = np.array([[0.9, 0.2], [0.1, 0.8], [0.7, 0.3]])
    targets = np.array([[1, 0], [0, 1], [1, 0]])
    assert best_threshold(scores, targets) == (pytest.approx(0.5), 1.0)


def test_of_equally_good_thresholds_the_middle_is_taken() -> None:
    scores = np.array([[0.1, 0.8], [0.2, 0.3], [0.4, 0.6]])
    never = np.array([[1, 0]] * 3)  # no threshold is ever right: all are equal
    # Candidates 0.15, 0.25, 0.35, 0.5, 0.7.
    assert best_threshold(scores, never) == (pytest.approx(0.35), 0.0)
    refuse = np.array([[0, 1], [0, 0], [0, 0]])  # right at 0.7 alone
    assert best_threshold(scores, refuse) == (pytest.approx(0.7), 1.0)


def test_constant_scores_leave_the_threshold_at_a_half() -> None:
    targets = np.array([[1, 0], [1, 1]])
    assert best_threshold(np.full((2, 2), 0.2), targets) == (0.5, 0.0)
    assert best_threshold(np.full((2, 2), 0.7), targets) == (0.5, 0.5)
    assert best_threshold(np.full((2, 2), 0.7), targets, "micro-f1") == (
        0.5,
        pytest.approx(2 * 3 / (4 + 3)),
    )


@pytest.mark.parametrize("scores", [[[0.1, 0.9]], [[0.5, 0.5]]], ids=["two", "one"])
def test_unknown_objective_is_named(scores: list) -> None:
    message = "objective must be exact-match or micro-f1; got 'macro-f1'"
    with pytest.raises(ValueError, match=message):
        best_threshold(np.array(scores), np.array([[0, 1]]), "macro-f1")


def test_every_configured_objective_is_known() -> None:
    choices = typing.get_args(typing.get_type_hints(TrainConfig)["threshold_for"])
    assert set(choices) == set(calibrate.OBJECTIVES)


def test_many_scores_are_searched_on_a_grid_that_is_fine_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    targets = rng.random((700, 3)) < 0.4
    noise = rng.normal(scale=0.15, size=targets.shape)
    scores = np.clip(np.where(targets, 0.7, 0.3) + noise, 0, 1)
    threshold, value = best_threshold(scores, targets)
    assert value == objective_by_hand(scores >= threshold, targets, "exact-match")
    monkeypatch.setattr(calibrate, "MAX_CANDIDATES", 10**6)
    _, exact = best_threshold(scores, targets)
    assert exact - 0.01 <= value <= exact  # 400 steps of 2,000 scores: a hair's breadth


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


def test_texts_are_cut_between_words() -> None:
    texts = ["a b c d e f g h", "1 2 3 4 5 6 7 8"]
    joined = join_texts(texts, np.array([[0, 1]] * 50), share=0.5, seed=0)
    for text in joined:
        halves = [
            " ".join(word for word in text.split() if word.isalpha() == is_alpha)
            for is_alpha in (True, False)
        ]
        assert all(part in whole for part, whole in zip(halves, texts, strict=True))
        assert any(part == whole for part, whole in zip(halves, texts, strict=True))
        assert min(len(part.split()) for part in halves) >= 4
    assert len(set(joined)) > 5


def logits(scores: np.ndarray) -> np.ndarray:
    return np.log(scores) - np.log(1 - scores)


def shifted_scores(
    n_texts: int, shifts: list[float], seed: int = 0, share: float = 0.3
) -> tuple[np.ndarray, np.ndarray]:
    """Draw scores whose logits lie around 1 or -1, those of each label shifted."""
    rng = np.random.default_rng(seed)
    targets = rng.random((n_texts, len(shifts))) < share
    noise = rng.normal(size=targets.shape)
    return 1 / (1 + np.exp(-(np.where(targets, 1, -1) + noise + shifts))), targets


def stacked_regression(
    scores: np.ndarray, targets: np.ndarray
) -> tuple[float, np.ndarray]:
    """Fit scikit-learn's regression on one row per text and label."""
    n_texts, n_labels = scores.shape
    rows = np.zeros((n_texts, n_labels, 1 + n_labels))
    rows[:, :, 0] = logits(scores)
    rows[:, range(n_labels), range(1, n_labels + 1)] = 1  # which label it is
    model = LogisticRegression(C=1e8, fit_intercept=False, tol=1e-10, max_iter=10_000)
    model.fit(rows.reshape(-1, 1 + n_labels), targets.ravel())
    return float(model.coef_[0, 0]), model.coef_[0, 1:]


def test_without_a_penalty_the_fit_is_that_of_scikit_learn() -> None:
    scores, targets = shifted_scores(500, [0.0, 1.5, -2.0])
    slope, biases = fit_biases(logits(scores), targets, 0.0)
    expected, offsets = stacked_regression(scores, targets)
    assert slope == pytest.approx(expected, rel=1e-3)
    np.testing.assert_allclose(biases, offsets, atol=2e-3)
    # Thresholds are where the regression passes one cut for all labels.
    found = label_thresholds(scores, targets, ridge=0.0)
    cuts = expected * logits(found.each) + offsets
    np.testing.assert_allclose(cuts, cuts[0], atol=1e-2)


def penalised(at: np.ndarray, z: np.ndarray, y: np.ndarray, ridge: float) -> float:
    """Add the loss up, one text and label at a time."""
    slope, biases = at[0], at[1:]
    total = sum(ridge * (bias - biases.mean()) ** 2 for bias in biases)
    for row, truths in zip(z, y, strict=True):
        for value, truth, bias in zip(row, truths, biases, strict=True):
            p = 1 / (1 + math.exp(-(slope * value + bias)))
            total -= math.log(p if truth else 1 - p)
    return float(total)


@pytest.mark.parametrize("ridge", [0.3, 5.0, 200.0])
def test_no_step_from_the_fit_lowers_the_penalised_loss(ridge: float) -> None:
    scores, targets = shifted_scores(60, [0.0, 1.5, -2.0])
    z = logits(scores)
    slope, biases = fit_biases(z, targets, ridge)
    at = np.array([slope, *biases])
    least = penalised(at, z, targets, ridge)
    for step in np.random.default_rng(0).normal(scale=0.05, size=(30, 4)):
        assert penalised(at + step, z, targets, ridge) > least


def test_a_heavy_penalty_gives_the_one_threshold() -> None:
    scores, targets = shifted_scores(300, [0.0, 1.5, -2.0])
    one, value = best_threshold(scores, targets)
    found = label_thresholds(scores, targets, ridge=1e9)
    # In the same gap between scores: the same decisions.
    assert (found.each == found.each[0]).all()
    assert ((scores >= found.each) == (scores >= one)).all()
    assert found.common == pytest.approx(found.each[0])
    assert found.value == pytest.approx(value)


def test_scores_that_are_shifted_move_their_threshold_by_as_much() -> None:
    shifts = np.array([0.0, 1.5, -2.0])
    plain, targets = shifted_scores(400, [0.0, 0.0, 0.0])
    moved, _ = shifted_scores(400, shifts.tolist())
    before = label_thresholds(plain, targets, ridge=0.0)
    after = label_thresholds(moved, targets, ridge=0.0)
    own = stacked_regression(plain, targets)
    # One threshold may do as well where nothing is shifted: compare with the fit.
    cut = own[0] * logits(after.each) - own[0] * shifts + own[1]
    np.testing.assert_allclose(cut, cut[0], atol=1e-2)
    assert after.value >= before.value
    _, reached = best_threshold(moved, targets)
    assert after.value > reached + 0.1
    assert objective_by_hand(
        moved >= after.each, targets, "exact-match"
    ) == pytest.approx(after.value)


def test_a_label_with_few_texts_stays_near_the_others() -> None:
    # Scores are honest odds, but two logits too low for the last two labels, of which
    # one is common and one is rare.
    rng = np.random.default_rng(0)
    means = np.array([-1.0, -1.0, -1.0, -1.0, -1.0, -7.0])
    biases = np.array([0.0, 0.0, 0.0, 0.0, 2.0, 2.0])
    z = means + 1.5 * rng.normal(size=(600, 6))
    targets = rng.random(z.shape) < 1 / (1 + np.exp(-(z + biases)))
    assert targets[:, 4].sum() > 300
    assert 1 < targets[:, 5].sum() < 10
    ridge = calibrate.default_ridge(z, targets)
    free, drawn = (fit_biases(z, targets, each)[1] for each in (0.0, ridge))
    mean = drawn.mean()
    way = (drawn[4:] - mean) / (free[4:] - mean)  # 1: all the way to its own
    assert way[0] > 0.8
    assert 0 < way[1] < 0.5


def test_twenty_texts_bring_a_label_half_way() -> None:
    # Labels that differ in nothing but the shift, of as many positives each.
    n_texts, n_labels = 20 * 10, 30
    rng = np.random.default_rng(3)
    targets = np.stack([rng.permutation(n_texts) < 20 for _ in range(n_labels)], axis=1)
    shifts = np.tile([0.4, -0.4], n_labels // 2)
    noise = rng.normal(size=targets.shape)
    z = np.where(targets, 1, -1) + noise + shifts
    free, drawn = (
        fit_biases(z, targets, ridge)[1]
        for ridge in (0.0, calibrate.default_ridge(z, targets))
    )
    spread = np.std(drawn) / np.std(free)
    assert 0.4 < spread < 0.6


def test_a_label_without_a_text_has_the_mean() -> None:
    scores, targets = shifted_scores(400, [0.0, 1.5, -2.0, 0.0])
    targets[:, 3] = False
    found = label_thresholds(scores, targets, ridge=0.0)
    slope, biases = stacked_regression(scores[:, :3], targets[:, :3])
    cut = slope * logits(found.each[:3]) + biases  # thrice the same
    mean = (cut[0] - biases.mean()) / slope
    assert logits(found.each[3]) == pytest.approx(mean, abs=1e-2)
    assert found.common == found.each[3]


@pytest.mark.parametrize("name", ["exact-match", "micro-f1"])
def test_thresholds_per_label_are_never_worse_than_one(name: str) -> None:
    for seed in range(10):
        shifts = np.random.default_rng(seed).normal(size=4).tolist()
        drawn, targets = shifted_scores(50, shifts, seed)
        scores = drawn.astype(np.float32)  # as a network's
        found = label_thresholds(scores, targets, name)
        assert found.value >= best_threshold(scores, targets, name)[1]
        by_hand = objective_by_hand(
            scores >= found.each.astype(np.float32), targets, name
        )
        assert found.value == pytest.approx(by_hand)


@pytest.mark.parametrize(
    "scores",
    [
        [[0.9, 0.1], [0.2, 0.8], [0.7, 0.1]],  # told apart without error
        [[0.1, 0.9], [0.8, 0.2], [0.1, 0.7]],  # a high score speaks against
        [[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]],
        [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]],
    ],
    ids=["apart", "backwards", "constant", "extreme"],
)
def test_where_there_is_nothing_to_fit_labels_share_a_threshold(scores: list) -> None:
    targets = np.array([[1, 0], [0, 1], [1, 0]])
    found = label_thresholds(np.array(scores), targets)
    threshold, value = best_threshold(np.array(scores), targets)
    assert found.each.tolist() == [threshold] * 2
    assert (found.common, found.value) == (threshold, value)
    none = label_thresholds(np.array(scores), np.zeros((3, 2)))
    assert len(set(none.each.tolist())) == 1
