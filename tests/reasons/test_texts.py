import json
from itertools import pairwise

import numpy as np
import pytest
import torch

from random_models import ARCHITECTURES, THRESHOLD, WORDS, random_classifier
from textcapsules.base.errors import ConfigError
from textcapsules.model.classifier import TextClassifier
from textcapsules.reasons.explanation import ORPHAN, Explanation
from textcapsules.reasons.methods import METHODS, capsule_network
from textcapsules.reasons.texts import explain
from textcapsules.training.run import train
from toy import tiny_config, trained_model, write_csv

options = pytest.mark.parametrize("options", ARCHITECTURES.values(), ids=ARCHITECTURES)
methods = pytest.mark.parametrize("method", METHODS)
TEXTS = [
    "w1 w2 w3 w4 w5 w6 w7 w8 w9",
    "",
    "w1",
    "nothing known here",
    "w3 unknown w5",
    "w1 " * 40,  # more than the model reads
    "w2 w2",
]
AWKWARD = [
    "\u2066Café\u2069 w1 e\u0301te\u0301 w2, naïve!",
    "👩‍👩‍👧 w1 👍🏽 w2 \U0001f600w3",
    "שלום w1 عَرَبِيّ w2",
    "<script>w1('&amp;')</script> w2\n\n\tw3",
    "w1 \ud800 w2",  # a lone surrogate
]


def all_labels(explanation: Explanation):
    orphan = () if explanation.orphan is None else (explanation.orphan,)
    return (*explanation.labels, *orphan)


@options
def test_scores_and_labels_are_the_predicted_ones(options):
    classifier = random_classifier(**options)
    explanations = explain(classifier, TEXTS)
    predictions = classifier.predict(TEXTS)
    for explanation, prediction in zip(explanations, predictions, strict=True):
        scores = [found.score for found in explanation.labels]
        np.testing.assert_allclose(scores, prediction.scores, atol=1e-6)
        assert explanation.predicted == prediction.labels
        named = {found.label for found in explanation.labels if found.predicted}
        assert named == set(prediction.labels)
        assert (explanation.orphan is not None) == options.get("orphan", True)


@pytest.mark.parametrize(
    "decision", [{"multi_label": False}, {"multi_label": True}, {"threshold": 0.3}]
)
def test_labels_are_decided_as_predict_decides_them(decision):
    classifier = random_classifier()
    predictions = classifier.predict(TEXTS, **decision)
    explanations = explain(classifier, TEXTS, **decision)
    assert [e.predicted for e in explanations] == [p.labels for p in predictions]
    assert explain(classifier, TEXTS[0], **decision).predicted == predictions[0].labels


@pytest.mark.slow
@methods
@pytest.mark.parametrize("edges", [False, True])
def test_a_text_in_a_batch_is_explained_as_alone(method, edges):
    classifier = random_classifier(edges=edges)
    together = explain(classifier, TEXTS, method=method)
    for text, found in zip(TEXTS, together, strict=True):
        alone = explain(classifier, text, method=method)
        assert alone.text == text
        assert alone.tokens == found.tokens
        assert alone.leak == pytest.approx(found.leak, abs=1e-6)
        for one, other in zip(all_labels(alone), all_labels(found), strict=True):
            assert one.tokens == pytest.approx(other.tokens, abs=1e-6)
            assert [p[:3] for p in one.phrases] == [p[:3] for p in other.phrases]


@methods
@pytest.mark.parametrize("text", AWKWARD)
def test_offsets_point_at_what_is_shown(method, text):
    explanation = explain(random_classifier(), text, method=method)
    assert explanation.tokens
    for token in explanation.tokens:
        assert token.text.startswith("w") == text[token.start].startswith("w")
    for found in all_labels(explanation):
        assert len(found.tokens) == len(explanation.tokens)
        for phrase in (*found.phrases, *found.against):
            assert text[phrase.start : phrase.end] == phrase.text
            starts = [token.start for token in explanation.tokens]
            first = starts.index(phrase.start)
            last = explanation.tokens[first : first + phrase.ngram_size][-1]
            assert phrase.end == last.end


def test_marks_and_joined_emoji_stay_whole():
    (first, second) = explain(random_classifier(), AWKWARD[:2])
    shown = [AWKWARD[0][token.start : token.end] for token in first.tokens]
    assert shown == ["Café", "w1", "e\u0301te\u0301", "w2", ",", "naïve", "!"]
    shown = [AWKWARD[1][token.start : token.end] for token in second.tokens]
    assert shown == ["👩‍👩‍👧", "w1", "👍🏽", "w2", "😀", "w3"]


@options
def test_token_contributions_add_up_to_the_scores(options):
    if "routing" in options:
        pytest.skip("a logit of attention is no sum over n-grams")
    text = "w1 w2 w3 w4 w5 w6 w7 w8"
    explanation = explain(random_classifier(**options), text, method="contributions")
    padding_votes = not options.get("mask_padding", True)
    for found in all_labels(explanation):
        tokens = pytest.approx(sum(found.tokens), abs=1e-5)
        assert (found.score == tokens) != padding_votes  # which no token stands for


def test_known_words_are_counted_as_predict_counts_them():
    classifier = random_classifier()
    most = classifier.config.text.max_tokens
    assert most < 40
    counts = [(found.known, found.words) for found in explain(classifier, TEXTS)]
    assert counts == [(9, 9), (0, 0), (1, 1), (0, 3), (2, 3), (most, most), (2, 2)]
    predicted = classifier.predict(TEXTS)
    assert [(found.known, found.words) for found in predicted] == counts


def test_a_text_without_known_words_has_no_tokens_and_no_phrases():
    for text in ("", "nothing known here", "\n\t "):
        explanation = explain(random_classifier(), text)
        assert explanation.tokens == explanation.predicted == ()
        assert explanation.leak == explanation.orphan_share == 0
        assert all(found.score == 0 for found in explanation.labels)
        assert not any(found.phrases for found in all_labels(explanation))


def test_a_text_shorter_than_the_ngram_is_one_phrase():
    classifier = random_classifier(architecture="capsule-a", ngram_sizes=(3,))
    explanation = explain(classifier, " w1 w2.", method="couplings", verify=False)
    for found in all_labels(explanation):
        assert [phrase.text for phrase in found.phrases] == ["w1 w2"]  # tidy
    for found in all_labels(explain(classifier, "w1 ")):
        assert [phrase.text for phrase in found.phrases] == ["w1"]
        assert found.phrases[0].strength == pytest.approx(found.score)


@pytest.mark.parametrize("verify", [False, True])
def test_phrases_are_ranked_bounded_and_apart(verify):
    text = " ".join(WORDS[:15])
    explanation = explain(random_classifier(), text, top=2, verify=verify)
    for found in all_labels(explanation):
        for phrases, sign in ((found.phrases, 1), (found.against, -1)):
            strengths = [sign * phrase.strength for phrase in phrases]
            assert all(strength > 0 for strength in strengths)
            if verify:
                assert strengths == sorted(strengths, reverse=True)
            assert len(phrases) <= 2
            spans = sorted((phrase.start, phrase.end) for phrase in phrases)
            assert all(a[1] <= b[0] for a, b in pairwise(spans))
    assert any(found.phrases for found in explanation.labels)


@pytest.mark.parametrize(
    "method", ["contributions", "couplings", "gradient", "erasure"]
)
def test_a_strength_is_what_the_score_loses_without_the_phrase(method):
    """Whoever proposed it: delete it by hand, and ask the model."""
    classifier = random_classifier()
    text = "w1 w2 w3. w4, w5 w6 w7 w8! W9 w10 w11 w12"
    explanation = explain(classifier, text, method=method)
    checked = 0
    for place, found in enumerate(explanation.labels):
        for phrase in (*found.phrases, *found.against):
            rest = f"{text[: phrase.start]} {text[phrase.end :]}"
            score = classifier.predict(rest).scores[place]
            assert phrase.strength == pytest.approx(found.score - score, abs=1e-5)
            checked += 1
    assert checked >= 3
    for sentence in explanation.sentences:
        rest = f"{text[: sentence.start]} {text[sentence.end :]}"
        scores = dict(
            zip(classifier.labels.names, classifier.predict(rest).scores, strict=True)
        )
        assert set(sentence.falls) == set(explanation.predicted)
        for found in explanation.labels:
            if found.predicted:
                fall = pytest.approx(found.score - scores[found.label], abs=1e-5)
                assert sentence.falls[found.label] == fall
    assert [text[s.start : s.end] for s in explanation.sentences] == [
        "w1 w2 w3.",
        "w4, w5 w6 w7 w8!",
        "W9 w10 w11 w12",
    ]


def test_deleting_a_phrase_brings_in_no_word_that_was_cut():
    classifier = random_classifier(max_tokens=6)
    text = "w1 w2 w3 w4 w5 w6 w7 w8 w9"
    for place, found in enumerate(explain(classifier, text).labels):
        for phrase in found.phrases:
            rest = text[: phrase.start] + text[phrase.end : text.index(" w7")]
            score = classifier.predict(rest).scores[place]
            assert phrase.strength == pytest.approx(found.score - score, abs=1e-5)


@pytest.mark.parametrize("task", ["single-label", "multi-label"])
def test_a_threshold_is_what_the_score_must_reach(task):
    classifier = random_classifier(task=task)
    explanation = explain(classifier, "w1 w2 w3 w4")
    for found in explanation.labels:
        others = [each.score for each in explanation.labels if each is not found]
        expected = max(others) if task == "single-label" else THRESHOLD
        assert found.threshold == pytest.approx(expected)
        assert found.predicted == (found.score >= found.threshold)


def test_labels_that_are_asked_about_get_candidates_of_their_own():
    labels = tuple(f"label{number}" for number in range(12))
    classifier = random_classifier(labels=labels)
    text = " ".join(WORDS[:15])
    plain = explain(classifier, text, threshold=1.0)
    last = min(plain.labels, key=lambda found: found.score).label
    asked = explain(classifier, text, threshold=1.0, about=[last])
    assert {t[:2] for t in plain.trials} < {t[:2] for t in asked.trials}
    with pytest.raises(ConfigError, match=r"label must be one of .*; got 'black'"):
        explain(classifier, text, about=["black"])


def test_values_go_into_json():
    explanation = explain(random_classifier(), AWKWARD[1], true=["red", "blue"])
    values = json.loads(json.dumps(explanation.to_dict()))
    assert values["true"] == ["red", "blue"]
    assert values["orphan"]["label"] == ORPHAN
    assert values["tokens"][1] == {"text": "w1", "start": 6, "end": 8}
    assert values["sentences"][0]["start"] == 0
    assert len(values["trials"][0]["falls"]) == len(values["labels"])


def test_it_is_written_in_a_line():
    explanation = explain(random_classifier(), " ".join(WORDS[:15]))
    assert len(repr(explanation)) < 200
    assert explanation.predicted[0] in repr(explanation)
    assert all(len(repr(found)) < 120 for found in explanation.labels)


def test_true_labels_stay_with_their_texts():
    explanations = explain(
        random_classifier(), ["w1 w2 w3 w4", "w5"], true=[["red"], ["blue", "green"]]
    )
    assert [found.true for found in explanations] == [("red",), ("blue", "green")]


def test_one_true_label_may_stand_alone():
    assert explain(random_classifier(), "w1 w2", true="red").true == ("red",)
    (explanation,) = explain(random_classifier(), ["w1 w2"], true=["red"])
    assert explanation.true == ("red",)


def test_a_trained_model_names_the_words_of_its_topics():
    classifier = TextClassifier.load(trained_model(), "cpu")
    text = "the a my very some today cat purr kitten whisker was is it the a"
    explanation = explain(classifier, text)
    assert explanation.predicted == ("cats",)
    (found,) = [found for found in explanation.labels if found.predicted]
    own = range(text.index("cat"), text.index(" was"))
    assert set(range(found.phrases[0].start, found.phrases[0].end)) & set(own)


def test_the_network_is_left_as_it_was():
    classifier = random_classifier(dropout=0.5)
    capsule_network(classifier).train()
    first, second = explain(classifier, TEXTS[:1] * 2)
    assert first == second
    assert capsule_network(classifier).training


def test_what_cannot_be_explained_is_refused():
    classifier = random_classifier()
    with pytest.raises(ConfigError, match=r"method must be one of .*; got 'magic'"):
        explain(classifier, "w1", method="magic")
    with pytest.raises(ConfigError, match="top must be at least 1; got 0"):
        explain(classifier, "w1", top=0)
    with pytest.raises(ConfigError, match="each of 2 texts; got 1"):
        explain(classifier, ["w1", "w2"], true=[["red"]])
    classifier.network = torch.nn.Linear(1, 1)  # type: ignore[assignment]
    with pytest.raises(ConfigError, match=r"a model of words .* got Linear"):
        explain(classifier, "w1")


def test_a_function_word_alone_is_no_reason(tmp_path):
    """Only "and" and "the" tell the topics apart, and the model learns it."""
    rows = [
        (f"{word} box {number}", topic)
        for number in range(30)
        for word, topic in (("and", "cats"), ("the", "dogs"))
    ]
    path = write_csv(tmp_path / "t.csv", rows, ("text", "label"))
    model = train(tiny_config(path), tmp_path / "m")
    for text in ("and box 3", "the box 5"):
        for label in explain(model, text).labels:
            assert {phrase.text for phrase in label.phrases} <= {
                "box",
                "box 3",
                "box 5",
            }
