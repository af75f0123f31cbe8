"""Which texts come up for review, and in which order."""

from pathlib import Path

import numpy as np
import pytest

from textcapsules.base.errors import ConfigError, InputError
from textcapsules.data.reviews import ReviewLog
from textcapsules.inference.recalibrate import recalibrate
from textcapsules.inference.review import ReviewQueue, expected
from textcapsules.model.classifier import TextClassifier
from toy import OFF_TOPIC, refusing_model, toy_rows, trained_model

MODEL = "0123456789abcdef"
TRUTH = dict(toy_rows(40, seed=4))


@pytest.fixture
def queue(tmp_path: Path) -> ReviewQueue:
    model = TextClassifier.load(trained_model(), "cpu")
    texts = [*TRUTH, " ", next(iter(TRUTH))]
    return ReviewQueue(model, texts, ReviewLog(tmp_path / "r.log.jsonl", MODEL))


def test_the_least_certain_come_first_and_each_fourth_at_random(
    queue: ReviewQueue,
) -> None:
    items = queue.upcoming(40)
    assert {item.text for item in items} == TRUTH.keys()
    assert [item.is_random for item in items[:8]] == [False, False, False, True] * 2
    thresholds = np.array(queue.classifier.labels.thresholds)

    def margin(text: str) -> float:
        odds = lambda p: np.log(p / (1 - p))  # noqa: E731
        scores = queue.classifier.scores([text])[0].astype(float)
        return float(np.abs(odds(scores) - odds(thresholds)).min())

    uncertain = [margin(item.text) for item in items if not item.is_random]
    assert uncertain == sorted(uncertain)
    assert (
        items[0].proposed
        == queue.classifier.predict(items[0].text, multi_label=True).labels
    )


def test_decisions_move_the_queue_on_and_undo_moves_it_back(queue: ReviewQueue) -> None:
    first, second = queue.upcoming(2)
    queue.decide(first.text, ["dogs", "birds"])
    assert queue.log.reviews()[0].labels == ("birds", "dogs")  # the model's order
    assert queue.upcoming()[0].text == second.text
    queue.skip(second.text)
    assert queue.counts() == {"reviewed": 1, "skipped": 1, "left": 38}
    queue.log.undo()
    assert queue.upcoming()[0].text == second.text


def test_random_texts_are_known_as_a_sample_however_they_came_up(
    queue: ReviewQueue,
) -> None:
    for _ in range(16):
        item = queue.upcoming()[0]
        queue.decide(item.text, [TRUTH[item.text]])
    sample = {review.text for review in queue.log.reviews() if review.is_random}
    assert len(sample) >= 4
    # A prefix of an order that has nothing to do with the model.
    assert sample == {queue.texts[row] for row in queue.random_order[: len(sample)]}


def test_fit_is_that_of_the_reviewed_texts(queue: ReviewQueue, tmp_path: Path) -> None:
    assert queue.fit() is None
    for text in list(TRUTH)[:12]:
        queue.decide(text, [TRUTH[text]])
    fitted = queue.fit()
    assert fitted is not None
    reviews = queue.log.reviews()
    by_hand = recalibrate(
        queue.classifier,
        [review.text for review in reviews],
        [review.labels for review in reviews],
        is_random=[review.is_random for review in reviews],
    )
    assert fitted.after == pytest.approx(by_hand.after)
    assert f"estimated on {fitted.value_after.texts} texts" in expected(fitted)
    # With another file of texts, those reviewed before still count.
    other = ReviewQueue(queue.classifier, ["a dog"], queue.log)
    again = other.fit()
    assert again is not None
    assert again.after == pytest.approx(fitted.after)


def test_fit_counts_refused_texts_in_this_review_and_others(tmp_path: Path) -> None:
    model = TextClassifier.load(refusing_model(), "cpu")
    model.labels = model.labels._replace(thresholds=(0.4,) * 3)
    log = ReviewLog(tmp_path / "r.log.jsonl", MODEL)
    texts = [OFF_TOPIC, *list(TRUTH)[:5]]
    queue = ReviewQueue(model, texts, log)
    for text in texts:
        queue.decide(text, [TRUTH.get(text, "birds")])  # as the scores say
    reviews = log.reviews()
    by_hand = recalibrate(
        model,
        [review.text for review in reviews],
        [review.labels for review in reviews],
        is_random=[review.is_random for review in reviews],
    )
    assert by_hand.value_after.exact_match < 1
    for each in (queue, ReviewQueue(model, ["a dog"], log)):
        fitted = each.fit()
        assert fitted is not None
        assert fitted.value_before.exact_match == by_hand.value_before.exact_match
        assert fitted.value_after.exact_match == by_hand.value_after.exact_match


def test_what_is_not_there_is_refused(queue: ReviewQueue) -> None:
    with pytest.raises(InputError, match="text must be one of those"):
        queue.decide("unheard of", [])
    with pytest.raises(InputError, match="label must be one of birds"):
        queue.decide(next(iter(TRUTH)), ["fish"])
    assert queue.counts()["left"] == 40
    with pytest.raises(ConfigError, match="random-share"):
        ReviewQueue(queue.classifier, ["a"], queue.log, random_share=0)
