"""What words say, against scikit-learn on strings and against loops over words."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.svm import LinearSVC
from torch import Tensor

from textcapsules.model.word_scores import CLIP, PAIR, TINY, Weights, WordScores
from textcapsules.text.batch import make_batch

N_WORDS, N_CLASSES = 14, 3  # rows 0 and 1 are padding and the unknown word
Documents = list[NDArray[np.int64]]


def draw_documents(draw: np.random.Generator, n_texts: int, words: int) -> Documents:
    """Return texts of up to twelve words, many repeated, some of them unknown."""
    lengths = draw.integers(0, 13, n_texts)
    return [draw.integers(1, words, length) for length in lengths]


def as_strings(document: NDArray, pairs: bool) -> list[str]:
    """Return the n-grams of a document: its known words, and pairs of neighbours."""
    names = [str(number) if number > 1 else None for number in document.tolist()]
    words = [name for name in names if name]
    both = [f"{a} {b}" for a, b in pairwise(names) if a and b]
    return words + both * pairs


class Oracle:
    """scikit-learn's own pipeline, and the same numbers as `WordScores`.

    Its own norm of a text, or where `least_norm` is given, one that is at least that.
    """

    def __init__(self, seed: int, pairs: bool, least_norm: float | None = None) -> None:
        self.draw, self.pairs = np.random.default_rng(seed), pairs
        self.least_norm = least_norm
        # Words of later texts that are in no table.
        documents = draw_documents(self.draw, 60, N_WORDS - 3)
        analyzer: Any = lambda document: as_strings(document, pairs)  # noqa: E731
        norm: Any = "l2" if least_norm is None else None
        self.features = TfidfVectorizer(analyzer=analyzer, sublinear_tf=True, norm=norm)
        self.features.fit(documents)
        rows = self.transform(documents)
        targets = self.draw.random((60, N_CLASSES)) < 0.4
        self.planes = [LinearSVC().fit(rows, column) for column in targets.T]

    def transform(self, documents: Documents) -> NDArray:
        counted: Any = self.features.transform(documents)
        rows = counted.toarray()
        if self.least_norm is None:
            return rows
        norms = np.maximum(np.linalg.norm(rows, axis=1), self.least_norm)
        return rows / norms[:, None]

    def decisions(self, documents: Documents) -> NDArray:
        rows = self.transform(documents)
        return np.stack([plane.decision_function(rows) for plane in self.planes], 1)

    def words(self, n_marked: int = 0) -> WordScores:
        names = self.features.get_feature_names_out()
        places = [[int(word) for word in name.split()] for name in names]
        return WordScores.of(
            np.array([a * 2**32 + (rest[0] if rest else 0) for a, *rest in places]),
            self.features.idf_,
            np.concatenate([plane.coef_ for plane in self.planes]),
            np.concatenate([plane.intercept_ for plane in self.planes]),
            least_norm=self.least_norm or TINY,
            n_marked=n_marked,
        )


def batch_of(documents: Documents, pad_to: int | None = None) -> tuple[Tensor, Tensor]:
    batch = make_batch(documents, np.zeros((len(documents), 0)), range(len(documents)))
    more = 0 if pad_to is None else pad_to - batch.ids.shape[1]
    ids, mask = (torch.nn.functional.pad(t, (0, more)) for t in batch[:2])
    return ids, mask


def small_words(*weights: float) -> WordScores:
    """Return the words 2 and 3, and their pair, of two classes."""
    ngrams = np.array([3 * PAIR, 2 * PAIR, 2 * PAIR + 3])
    weight = np.array([[1.0, 2.0, 4.0], [0.0, -1.0, 0.5]])
    idf, bias = np.array([1.0, 2.0, 3.0]), np.array([0.5, -0.25])
    words = WordScores.of(ngrams, idf, weight, bias)
    return words.weighed(Weights(*weights)) if weights else words


@pytest.mark.parametrize("pairs", [False, True], ids=["words", "pairs"])
@pytest.mark.parametrize("least_norm", [None, 7.0])
@pytest.mark.parametrize("seed", range(4))
def test_decisions_are_scikit_learns(
    seed: int, least_norm: float | None, pairs: bool
) -> None:
    oracle = Oracle(seed, pairs, least_norm)
    documents = draw_documents(oracle.draw, 40, N_WORDS)
    documents += [np.array(words, np.int64) for words in ([], [1, 1], [N_WORDS - 1])]
    expected = oracle.decisions(documents)
    found = oracle.words().decide(*batch_of(documents)).decisions
    np.testing.assert_allclose(found, expected, atol=2e-6)
    # A text without an n-gram of the table says nothing.
    np.testing.assert_allclose(found[-3:], oracle.words().bias.expand(3, -1))


@pytest.mark.parametrize("pairs", [False, True], ids=["words", "pairs"])
def test_a_piece_that_begins_a_sentence_is_the_same_piece(pairs: bool) -> None:
    oracle = Oracle(5, pairs)
    documents = draw_documents(oracle.draw, 40, N_WORDS)
    n_marked = N_WORDS - 2
    marked = [
        ids + n_marked * ((ids > 1) & (oracle.draw.random(len(ids)) < 0.3))
        for ids in documents
    ]
    assert max(ids.max(initial=0) for ids in marked) > N_WORDS
    found = oracle.words(n_marked).decide(*batch_of(marked)).decisions
    np.testing.assert_allclose(found, oracle.decisions(documents), atol=2e-6)


def test_a_text_has_the_same_decision_alone_and_padded() -> None:
    oracle = Oracle(6, pairs=True)
    words, documents = oracle.words(), draw_documents(oracle.draw, 20, N_WORDS)
    together = words.decide(*batch_of(documents)).decisions
    longer = words.decide(*batch_of(documents, pad_to=31)).decisions
    alone = torch.cat([words.decide(*batch_of([ids])).decisions for ids in documents])
    torch.testing.assert_close(longer, together)
    torch.testing.assert_close(alone, together)


@pytest.mark.parametrize("pairs", [False, True], ids=["words", "pairs"])
def test_texts_without_a_place_for_words_are_no_error(pairs: bool) -> None:
    words, scores = Oracle(0, pairs).words(), torch.rand(4, N_CLASSES)
    ids = torch.zeros(4, 0, dtype=torch.int64)
    torch.testing.assert_close(
        words.decide(ids, ids > 0).decisions, words.bias.expand(4, -1)
    )
    torch.testing.assert_close(words(scores, ids, ids > 0), scores)
    assert words.shares(ids, ids > 0, [0, 2]).shape == (4, 0, 2)


def test_one_word_does_not_speak_as_loud_as_a_text() -> None:
    ngrams, weight = np.array([2 * PAIR, 3 * PAIR]), np.array([[4.0, 0.0]])
    words = WordScores.of(ngrams, np.ones(2), weight, np.zeros(1), least_norm=2.0)
    texts = [np.array(ids) for ids in ([2], [2, 3], [2, *[3] * 99])]
    found = words.decide(*batch_of(texts)).decisions.ravel()
    # Both of two words count in full up to the norm; then they share it.
    often = 1 + np.log(99)
    expected = [4 / 2, 4 / 2, 4 / np.hypot(1, often)]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_scores_are_blended_as_the_formula_says() -> None:
    alpha, beta, gamma = 0.7, 1.3, -0.4
    words = small_words(alpha, beta, gamma)
    documents = [np.array(ids) for ids in ([2, 3, 2], [3], [5, 5], [2, 1, 3])]
    scores = np.array([[0.3, 0.9], [0.0, 1.0], [0.5, 0.5], [1e-9, 0.2]])
    found = words(torch.tensor(scores), *batch_of(documents))
    idf = {(2,): 2.0, (3,): 1.0, (2, 3): 3.0}
    planes = {(2,): (2.0, -1.0), (3,): (1.0, 0.0), (2, 3): (4.0, 0.5)}
    for row, document in enumerate(documents):
        ids = document.tolist()
        counts: dict[tuple[int, ...], int] = {}
        for ngram in [*((a,) for a in ids), *pairwise(ids)]:
            if ngram in idf:
                counts[ngram] = counts.get(ngram, 0) + 1
        values = {n: (1 + math.log(c)) * idf[n] for n, c in counts.items()}
        norm = math.sqrt(sum(value * value for value in values.values())) or 1.0
        for j, bias in enumerate((0.5, -0.25)):
            z = bias + sum(planes[n][j] * value / norm for n, value in values.items())
            s = min(max(float(scores[row, j]), CLIP), 1 - CLIP)
            u = alpha * math.log(s / (1 - s)) + beta * z + gamma
            # A text without an n-gram of the table has the network's score.
            expected = 1 / (1 + math.exp(-u)) if values else scores[row, j]
            assert found[row, j].item() == pytest.approx(expected, abs=1e-6)


def test_few_words_count_in_part() -> None:
    ngrams, weight = np.array([2 * PAIR, 3 * PAIR]), np.array([[4.0, -4.0]])
    idf, bias = np.array([1.0, 3.0]), np.array([-0.5])
    words = WordScores.of(ngrams, idf, weight, bias, least_norm=20.0)
    words = words.weighed(Weights(0.7, 1.3, 2.0))
    # Norms of 1, 3, sqrt(10) and 5.6: a quarter of 20 counts in full.
    texts = [np.array(ids) for ids in ([4], [2], [3], [2, 3], [2, *[3] * 7])]
    found = words(torch.full((5, 1), 0.3), *batch_of(texts)).ravel()
    logit, sevenfold = math.log(0.3 / 0.7), 3 * (1 + math.log(7))
    expected = [0.3]
    for values in ([1.0, 0.0], [0.0, 3.0], [1.0, 3.0], [1.0, sevenfold]):
        share = min(math.hypot(*values) / 5, 1)
        z = 4 * (values[0] - values[1]) / max(math.hypot(*values), 20) - 0.5
        u = (1 - share) * logit + share * (0.7 * logit + 1.3 * z + 2.0)
        expected.append(1 / (1 + math.exp(-u)))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_an_empty_text_keeps_the_networks_scores() -> None:
    scores = torch.tensor([[0.0, 1.0], [0.3, 0.6]])
    found = small_words()(scores, *batch_of([np.zeros(0, np.int64), np.array([2])]))
    assert torch.equal(found[0], scores[0])
    assert not torch.isclose(found[1], scores[1]).any()


@pytest.mark.parametrize("pairs", [False, True], ids=["words", "pairs"])
def test_shares_add_up_to_what_the_words_say(pairs: bool) -> None:
    oracle = Oracle(7, pairs)
    words, documents = oracle.words(), draw_documents(oracle.draw, 30, N_WORDS)
    ids, mask = batch_of(documents)
    shares = words.shares(ids, mask, range(N_CLASSES))
    expected = words.decide(ids, mask).decisions - words.bias
    torch.testing.assert_close(shares.sum(1), expected, atol=1e-6, rtol=0)
    assert not shares[~mask].any()
    torch.testing.assert_close(words.shares(ids, mask, [2, 0]), shares[..., [2, 0]])


def test_a_pairs_part_is_halved_between_its_words() -> None:
    ids, mask = batch_of([np.array([2, 3, 4])])
    found = small_words().shares(ids, mask, [0, 1])[0]
    norm = math.sqrt(2.0**2 + 1.0**2 + 3.0**2)
    half = np.array([4.0, 0.5]) * 3.0 / 2
    first, second = np.array([2.0, -1.0]) * 2.0, np.array([1.0, 0.0]) * 1.0
    expected = np.stack([first + half, second + half, [0, 0]]) / norm
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_occurrences_of_a_word_share_evenly() -> None:
    ids, mask = batch_of([np.array([2, 4, 2, 2])])
    found = small_words().shares(ids, mask, [0])[0, :, 0]
    np.testing.assert_allclose(found, [2 / 3, 0, 2 / 3, 2 / 3], atol=1e-6)


def test_a_word_of_no_ngram_can_be_deleted_but_for_the_pairs_it_parts() -> None:
    words = small_words()
    texts = [np.array(ids) for ids in ([3, 2, 4], [3, 2], [2, 4, 3])]
    whole, deleted, joined = words.decide(*batch_of(texts)).decisions
    torch.testing.assert_close(whole, deleted)
    torch.testing.assert_close(whole, joined)  # 4 parts 2 and 3
    together = words.decide(*batch_of([np.array([2, 3])])).decisions[0]
    assert not torch.isclose(together, whole).any()


def test_worth_is_the_mean_slope_on_the_way_from_an_empty_texts_score() -> None:
    words = small_words(0.5, 2.0, 9.0)
    scores = torch.tensor([[0.9, 0.3], [1.0, 0.0], [0.01, CLIP]])
    share = torch.tensor([[1.0], [0.5], [0.0]])
    found = words.worth(scores, share)
    start = math.log(CLIP / (1 - CLIP))
    steep = [2.0 / 0.5] * 2 + [0.5 * 2.0 / (0.5 + 0.5 * 0.5)] * 2 + [0.0] * 2
    pairs = zip(scores.flatten().tolist(), found.flatten(), steep, strict=True)
    for s, value, times in pairs:
        s = min(max(s, CLIP), 1 - CLIP)
        end = max(math.log(s / (1 - s)), start + 1e-6)
        u = start + (end - start) * (np.arange(4000) + 0.5) / 4000
        slope = np.mean(np.exp(-u) / (1 + np.exp(-u)) ** 2)
        assert value.item() == pytest.approx(times * slope, rel=1e-3)


def test_double_precision_is_kept() -> None:
    words = small_words().double()
    scores = torch.tensor([[0.3, 0.9]], dtype=torch.float64)
    ids, mask = batch_of([np.array([2, 3])])
    found = words(scores, ids, mask)
    expected = small_words()(scores.float(), ids, mask)
    torch.testing.assert_close(found.float(), expected)


def tensors() -> dict[str, Tensor]:
    return dict(small_words(0.5, 2.0, 9.0).state_dict())


def test_tensors_of_a_folder_give_the_same_scores() -> None:
    made = small_words(0.5, 2.0, 9.0)
    again = WordScores.from_tensors(tensors(), n_classes=2)
    assert again.weights == made.weights
    assert (again.n_marked, again.has_pairs) == (0, True)
    ids, mask = batch_of([np.array([2, 3, 2])])
    assert torch.equal(
        again.decide(ids, mask).decisions, made.decide(ids, mask).decisions
    )


WRONG: dict[str, tuple[dict[str, Tensor], str]] = {
    "scalar keys": (
        {"keys": torch.tensor(5)},
        r"words\.keys of shape \(\), not \(1,\)",
    ),
    "few idf": ({"idf": torch.ones(2)}, r"words\.idf of shape \(2,\), not \(3,\)"),
    "few classes": ({"weight": torch.ones(3, 1)}, r"\(3, 1\), not \(3, 2\)"),
    "falling keys": ({"keys": torch.tensor([3, 2, 5])}, "keys that do not rise"),
    "equal keys": ({"keys": torch.tensor([3, 3, 5])}, "keys that do not rise"),
    "broken keys": ({"keys": torch.tensor([1.0, 2, 3])}, "keys that holds no whole"),
    "no norm": ({"least_norm": torch.tensor(0.0)}, "least_norm that is not above"),
    "no network": (
        {"weighing": torch.tensor([0.0, 1.0, 0.0])},
        "weighing that leaves the network out",
    ),
    "broken marked": ({"marked": torch.tensor(0.5)}, "marked that holds no whole"),
    "nothing": (
        {
            "keys": torch.zeros(0, dtype=torch.int64),
            "idf": torch.zeros(0),
            "weight": torch.zeros(0, 2),
        },
        "keys that do not rise",
    ),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_tensors_that_do_not_fit_are_refused(
    change: dict[str, Tensor], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        WordScores.from_tensors({**tensors(), **change}, n_classes=2)


@pytest.mark.parametrize("name", tensors())
def test_a_missing_tensor_is_named(name: str) -> None:
    left = {key: value for key, value in tensors().items() if key != name}
    with pytest.raises(ValueError, match=f"words without {name}"):
        WordScores.from_tensors(left, n_classes=2)
