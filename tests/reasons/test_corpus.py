import json

import numpy as np
import pytest

from random_models import THRESHOLD, WORDS, random_classifier
from textcapsules.data.example import Example
from textcapsules.reasons import corpus as corpus_module
from textcapsules.reasons.corpus import (
    PRIOR,
    StrengthSums,
    explain_corpus,
    find_mistake,
    log_odds,
    without_variants,
)
from textcapsules.reasons.explanation import Mistake, PhraseTotal
from textcapsules.reasons.texts import explain


def random_examples(n_texts: int) -> list[Example]:
    random = np.random.default_rng(1)
    sizes = random.integers(1, 15, n_texts)
    texts = [" ".join(random.choice(WORDS, size)).title() for size in sizes]
    return [Example(text, (str(random.choice(["red", "blue"])),)) for text in texts]


def test_strengths_are_added_up_over_the_texts_that_got_the_label(monkeypatch):
    monkeypatch.setattr(corpus_module, "TEXTS_AT_ONCE", 7)
    classifier, examples = random_classifier(), random_examples(30)
    done: list[int] = []
    found = explain_corpus(classifier, examples, top=5, on_texts=done.append)
    assert done == [7, 14, 21, 28, 30]
    spoken: dict[str, dict[str, list[float]]] = {}
    explanations = [explain(classifier, example.text) for example in examples]
    for explanation in explanations:
        orphan = explanation.orphan
        assert orphan is not None
        for label in (*explanation.labels, orphan):
            column = spoken.setdefault(label.label, {})
            if label.predicted or label is orphan:
                for place, token in enumerate(explanation.tokens):
                    column.setdefault(token.text, []).append(label.tokens[place])
    assert found.orphan is not None
    for column in (*found.labels, found.orphan):
        words = spoken[column.label]
        for word in column.words:
            assert word.strength == pytest.approx(sum(words[word.text]), rel=1e-4)
            assert word.count == len(words[word.text])
        if column is found.orphan:
            expected = sorted(words, key=lambda word: -sum(words[word]))[:5]
            assert [word.text for word in column.words] == expected
        else:
            weights = [word.strength * word.odds for word in column.words]
            assert weights == sorted(weights, reverse=True)
            assert all(word.odds > 0 for word in column.words)
    assert any(column.words for column in found.labels)
    leaks = np.array([explanation.leak for explanation in explanations], float)
    assert found.leak == pytest.approx(leaks.mean(), abs=1e-6)
    json.dumps(found.to_dict())


def test_phrases_are_one_whatever_their_case_and_spaces():
    classifier = random_classifier(architecture="capsule-a", ngram_sizes=(3,))
    found = explain_corpus(classifier, [Example("w1 w2", ()), Example("W1 \n W2", ())])
    assert found.orphan is not None
    ((text, count),) = [(each.text, each.count) for each in found.orphan.phrases]
    assert (text, count) == ("w1 w2", 2)


def test_mistakes_are_the_most_confident_and_ordered():
    classifier, examples = random_classifier(), random_examples(40)
    found = explain_corpus(classifier, iter(examples), mistakes=3)
    everything = explain_corpus(classifier, examples, mistakes=1000).mistakes
    assert found.mistakes == everything[:3]
    confidences = [mistake.confidence for mistake in everything]
    assert confidences == sorted(confidences, reverse=True)
    predictions = classifier.predict([example.text for example in examples])
    wrong = {
        example.text
        for example, prediction in zip(examples, predictions, strict=True)
        if set(prediction.labels) != set(example.labels)
    }
    assert {mistake.text for mistake in everything} == wrong
    assert 3 < len(wrong) <= 40


@pytest.mark.parametrize("task", ["multi-label", "single-label"])
def test_confidence_is_the_distance_on_the_wrong_side(task):
    classifier = random_classifier(task=task)
    text = "w1 w2 w3 w4 w5 w6"
    scores = dict(
        zip(classifier.labels.names, classifier.scores([text])[0], strict=True)
    )
    (predicted, *_) = explain(classifier, text).predicted
    other = next(
        name for name in scores if name not in explain(classifier, text).predicted
    )
    mistake = find_mistake(classifier, explain(classifier, text, true=[other]))
    assert isinstance(mistake, Mistake)
    if task == "single-label":
        assert mistake.confidence == pytest.approx(scores[predicted] - scores[other])
    else:
        sides = [abs(scores[name] - THRESHOLD) for name in (predicted, other)]
        assert mistake.confidence == pytest.approx(max(sides), abs=1e-6)


def test_a_text_without_labels_is_no_mistake():
    found = explain_corpus(random_classifier(), [Example("w1 w2 w3 w4 w5 w6", ())])
    assert found.mistakes == ()


def test_an_empty_corpus_and_a_model_without_orphan():
    found = explain_corpus(random_classifier(orphan=False), [])
    assert (found.texts, found.orphan, found.leak) == (0, None, 0)
    assert [column.words for column in found.labels] == [()] * 3


def test_memory_is_bounded_and_the_strong_are_kept():
    sums = StrengthSums(max_phrases=100)
    for number in range(5000):
        sums.add(f"rare {number}", 0.1)
        sums.add("strong", 1.0)
        assert len(sums.sums) <= 100
    (first,) = sums.strongest(1)
    assert (first.text, first.count) == ("strong", 5000)
    assert first.strength == pytest.approx(5000)


def test_log_odds_are_those_of_shares_smoothed_by_all_texts():
    # The odds of a word after `PRIOR` more words are read, drawn as in all texts.
    for (y, n), (z, m) in [((8, 100), (2, 400)), ((0, 50), (5, 90)), ((1, 9), (1, 9))]:
        rate = (y + z) / (n + m)
        here = (y + PRIOR * rate) / (n + PRIOR)
        there = (z + PRIOR * rate) / (m + PRIOR)
        expected = np.log(here / (1 - here)) - np.log(there / (1 - there))
        assert log_odds((y, n), (z, m)) == pytest.approx(expected)
    assert log_odds((1, 9), (1, 9)) == 0
    assert log_odds((0, 0), (0, 0)) == 0


def test_odds_of_a_label_count_its_texts_against_all_others():
    classifier, examples = random_classifier(), random_examples(30)
    found = explain_corpus(classifier, examples, top=5)
    explanations = [explain(classifier, each.text, verify=False) for each in examples]
    for label in found.labels:
        sides: dict[bool, list[str]] = {True: [], False: []}
        for each in explanations:
            words = [token.text for token in each.tokens]
            sides[label.label in each.predicted] += words
        for word in label.words:
            counts = [(side.count(word.text), len(side)) for side in sides.values()]
            assert word.odds == pytest.approx(log_odds(*counts))


def test_a_longer_form_of_a_phrase_is_not_listed_beside_it():
    texts = ["charged twice", "was charged twice", "charged", "refund", "twice refund"]
    kept = without_variants((PhraseTotal(text, 1.0, 1) for text in texts), 3)
    assert [each.text for each in kept] == ["charged twice", "refund"]
