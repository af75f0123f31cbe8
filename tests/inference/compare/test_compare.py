"""A comparison as a whole: splits, ranks, and says what was left out."""

import pytest

from comparisons import LABELS, tiny, toy_corpus, two_rivals
from textcapsules.base.errors import ConfigError, DataError
from textcapsules.config import preset
from textcapsules.inference import compare as module
from textcapsules.inference.compare import compare, with_test_texts
from textcapsules.model.classifier import TextClassifier


def test_test_texts_are_held_out_of_the_whole_file() -> None:
    corpus = toy_corpus()._replace(test=[])
    config = preset("best")
    split = with_test_texts(config, corpus, 0.25)
    sizes = [len(part) for part in (split.train, split.dev, split.test)]
    assert sizes == [52, 6, 20]  # of 78: a quarter, and a tenth of the rest
    everything = [*split.train, *split.dev, *split.test]
    assert sorted(everything) == sorted([*corpus.train, *corpus.dev])
    kept_dev = with_test_texts(
        config.replace(data={"dev": "dev.csv"}), corpus, fraction=0.25
    )
    assert kept_dev.dev is corpus.dev
    assert len(kept_dev.test) == 15
    assert with_test_texts(config, toy_corpus(), 0.25).test == toy_corpus().test
    with pytest.raises(DataError, match="at least 10 texts"):
        with_test_texts(config, corpus._replace(train=corpus.train[:3], dev=[]), 0.2)


@pytest.fixture
def few_rivals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "list_rivals", two_rivals)


def test_rivals_are_ranked_and_what_was_tried_is_told(few_rivals, tmp_path) -> None:
    found = compare(tiny(), toy_corpus(), minutes=5, folder=tmp_path / "kept")
    assert (found.judged_on, found.judged_by) == ("single and joined", "exact_match")
    assert found.best.title == "SVM"
    assert [each.n_settings for each in found.results] == [1, 2]
    values = [
        each.figures["single and joined"]["exact_match"] for each in found.results
    ]
    assert values[0].value >= values[1].value
    behind = found.results[1].behind
    assert behind.value == pytest.approx(values[0].value - values[1].value)
    assert behind.low <= behind.value <= behind.high
    assert found.best.behind == (0, 0, 0)
    assert (found.left_out, found.equals()) == (
        {},
        [] if behind.low > 0 else [found.results[1]],
    )
    kept = TextClassifier.load(tmp_path / "kept" / "svm")
    assert kept.labels.names == LABELS
    assert (
        found.to_dict()["results"][0]["config"]["model"]["architecture"] == "tfidf-svm"
    )


def test_networks_are_left_out_where_no_time_is_left(few_rivals) -> None:
    found = compare(tiny(), toy_corpus(), minutes=1e-6)
    assert [each.title for each in found.results] == ["SVM"]
    assert found.left_out == {"CNN": "no time was left for it"}
    assert found.unfair() == ["CNN"]
    with pytest.raises(ConfigError, match="minutes must be above 0"):
        compare(tiny(), toy_corpus(), minutes=0)


def test_single_label_is_judged_by_accuracy(few_rivals) -> None:
    config = tiny(train={"task": "single-label"})
    found = compare(config, toy_corpus(), minutes=5)
    assert (found.judged_on, found.judged_by) == ("single", "accuracy")
