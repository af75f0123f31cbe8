"""The record of a run against a separate evaluation of the same model."""

import json

import numpy as np
import pytest

from textcapsules.data.load import load_corpus
from textcapsules.inference.evaluate import evaluate
from textcapsules.lab.paper import runs
from textcapsules.lab.paper.figures import unpack
from textcapsules.lab.paper.place import QUICK, Place, open_place, write_tiny_corpora
from textcapsules.lab.paper.plan import Plan, select
from textcapsules.lab.paper.runs import execute
from textcapsules.model.score import score_documents
from textcapsules.training.calibrate import best_threshold, label_thresholds
from textcapsules.training.join import join_documents, joined_pairs
from textcapsules.training.prepare import target_matrix
from textcapsules.training.run import train

PLAN = Plan(folds=2, seeds=2, adjust=QUICK)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    missing = str(tmp_path_factory.mktemp("nothing"))
    with open_place(True, missing, None, "cpu") as made:
        yield made


def cell_of(table: str, only: str, setting: str = "", repeat: int = 0):
    cells = select(PLAN.cells(table), [only])
    return next(c for c in cells if (c.setting, c.repeat) == (setting, repeat))


def decode(answers: str, labels: list[str]) -> list[set[str]]:
    """Read a record's answers: one hexadecimal digit per four labels, first highest."""
    n_digits = -(-len(labels) // 4)
    texts = [answers[i : i + n_digits] for i in range(0, len(answers), n_digits)]
    bits = ["".join(f"{int(digit, 16):04b}" for digit in text) for text in texts]
    return [
        {label for label, bit in zip(labels, row, strict=False) if bit == "1"}
        for row in bits
    ]


def truths(config) -> list[set[str]]:
    return [set(example.labels) for example in load_corpus(config.data).test]


def test_record_of_one_label(place, tmp_path):
    cell = cell_of("table1", "capsule_a/trec", repeat=1)
    record = execute(cell, place)
    config = place.localise(cell.config)
    classifier = train(config, tmp_path / "model")
    corpus = load_corpus(config.data)
    expected = evaluate(classifier, corpus.test)
    assert expected.single_label is not None
    test = record["test"]["trec"]
    assert test["accuracy"] == pytest.approx(
        expected.single_label["accuracy"], abs=1e-6
    )
    right = [
        prediction.labels == example.labels
        for prediction, example in zip(
            classifier.predict([example.text for example in corpus.test]),
            corpus.test,
            strict=True,
        )
    ]
    assert unpack(test["right"], test["texts"]).tolist() == right
    predicted = classifier.predict([example.text for example in corpus.test])
    assert decode(test["answers"], record["labels"]) == [
        set(prediction.labels) for prediction in predicted
    ]
    assert "test_by_epoch" not in record
    assert (record["seed"], record["fold"]) == (1, 0)
    assert not {"unequal", "per_label"} & record.keys()
    assert record["key"] == cell.key
    assert record["losses"] == pytest.approx(
        [epoch["loss"] for epoch in classifier.record["epochs"]], abs=1e-5
    )


def test_one_run_on_reuters_is_a_run_on_each_test_set(place, tmp_path):
    """The test sets share training texts, so the shared run must equal a run apart."""
    cell = cell_of("table5", "capsule_a/reuters-multi", "joined")
    record = execute(cell, place)
    for name in ("reuters-multi", "reuters-full"):
        config = place.localise(cell.config.replace(data={"source": name}))
        classifier = train(config, tmp_path / name)
        expected = evaluate(classifier, load_corpus(config.data).test)
        test = record["test"][name]
        assert test["texts"] == expected.texts
        for threshold, figures in (
            ("calibrated", expected.multi_label),
            ("half", expected.multi_label_at_half),
        ):
            recorded = dict(test[threshold])
            right = unpack(recorded.pop("right"), test["texts"])
            answers = decode(recorded.pop("answers"), record["labels"])
            matches = zip(answers, truths(config), strict=True)
            assert [answer == true for answer, true in matches] == right.tolist()
            assert recorded == pytest.approx(figures, abs=1e-6)
            assert right.mean() == pytest.approx(figures["exact_match"])
        # The second threshold, from joined dev texts of unequal parts, by hand.
        dev = load_corpus(config.data).dev
        documents = classifier.encode([example.text for example in dev])
        targets = target_matrix(dev, classifier.labels.names)
        pairs = joined_pairs(targets, len(dev), config.data.split_seed)
        joined, labels = join_documents(
            documents,
            targets,
            pairs,
            config.text.max_tokens,
            share=0.2,
            seed=config.data.split_seed,
        )
        threshold, _ = best_threshold(
            score_documents(classifier.network, joined), labels
        )
        assert record["unequal"]["threshold"] == pytest.approx(threshold)
        examples = load_corpus(config.data).test
        scores = classifier.scores([example.text for example in examples])
        truth = target_matrix(examples, classifier.labels.names) > 0
        right = ((scores >= threshold) == truth).all(1)
        unequal = test["unequal"]
        assert unpack(unequal["right"], len(examples)).tolist() == right.tolist()
        assert unequal["exact_match"] == pytest.approx(right.mean(), abs=1e-6)
        # A threshold per label, from these and the single dev texts.
        everything = np.concatenate(
            [score_documents(classifier.network, each) for each in (documents, joined)]
        )
        each, _, value = label_thresholds(everything, np.concatenate([targets, labels]))
        assert record["per_label"]["thresholds"] == pytest.approx(each.tolist())
        assert record["per_label"]["value"] == pytest.approx(value)
        right = ((scores >= each.astype(np.float32)) == truth).all(1)
        per_label = test["per_label"]
        assert unpack(per_label["right"], len(examples)).tolist() == right.tolist()
        assert per_label["exact_match"] == pytest.approx(right.mean(), abs=1e-6)
        # The diagnostic's last kept epoch is the model judged here.
        by_epoch = record["test_by_epoch"][name]
        assert len(by_epoch) == len(record["losses"])
        at_best = by_epoch[record["best_epoch"] - 1]
        assert at_best == pytest.approx(test["half"]["exact_match"], abs=1e-6)
    assert record["test"]["reuters-multi"]["texts"] == 16
    assert record["test"]["reuters-full"]["texts"] == 32


def test_record_names_no_folder_and_no_text(place):
    record = execute(cell_of("table1", "cnn_static/mr"), place)
    content = json.dumps(record)
    assert place.data_dir not in content
    assert record["config"]["text"]["vectors"] == "vectors.npz"
    corpus = load_corpus(place.localise(PLAN.cells("ablation")[0].config).data)
    assert not any(
        example.text in content
        for example in [*corpus.train, *corpus.dev, *corpus.test]
    )
    assert record["data"]["sha256"].keys() == {"mr/all.tsv.gz"}
    assert record["config"]["train"]["task"] == "single-label"  # nothing left on auto


def test_search_never_scores_the_test_texts(place, monkeypatch):
    from textcapsules.model.classifier import TextClassifier

    monkeypatch.delattr(TextClassifier, "scores")
    record = execute(cell_of("search", "cnn_rand/mr", "2"), place)
    assert record["test"] == {}
    assert 0 <= record["dev"]["dev_score"] <= 1


@pytest.mark.parametrize("system", ["tfidf_svm", "tfidf_lr"])
def test_classic_systems_leave_the_same_record(place, system):
    record = execute(cell_of("table5", f"{system}/reuters-multi", "accuracy"), place)
    assert record["best_epoch"] == 1
    assert set(record["test"]) == {"reuters-multi", "reuters-full"}


def test_place_leaves_vectors_out_where_none_are_read(tmp_path):
    place = Place(str(tmp_path), "v.npz", "cpu")
    for system, expected in (("cnn_rand", None), ("cnn_static", "v.npz")):
        config = place.localise(cell_of("table1", f"{system}/mr").config)
        assert config.text.vectors == expected


def test_tiny_corpora_are_taken_from_real_files(tmp_path):
    made, real, tiny = (tmp_path / name for name in ("made", "real", "tiny"))
    write_tiny_corpora(made, tmp_path / "nothing")
    write_tiny_corpora(real, made)
    words = write_tiny_corpora(tiny, real)
    files = [path for path in real.rglob("*.gz") if "sst/" not in str(path)]
    assert len(files) == 12
    for path in files:  # a sample of so little is all of it
        assert path.read_bytes() == (made / path.relative_to(real)).read_bytes()
    assert "the" in words
    assert np.all([word == word.lower() for word in words])


def test_the_commit_of_a_copy_comes_from_the_environment(monkeypatch):
    runs.commit.cache_clear()
    monkeypatch.setenv("TEXTCAPSULES_COMMIT", "0123456789ab")
    assert runs.commit() == "0123456789ab"
    runs.commit.cache_clear()
    monkeypatch.delenv("TEXTCAPSULES_COMMIT")
    monkeypatch.setattr(runs, "git", lambda _folder, *words: ANSWERS[words[0]])
    assert runs.commit() == "ba9876543210+"
    runs.commit.cache_clear()


ANSWERS = {"ls-files": "", "rev-parse": "ba9876543210", "status": " M runs.py"}
