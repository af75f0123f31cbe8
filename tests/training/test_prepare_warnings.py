"""Data that cannot teach is told, by name and count."""

import json

import pytest

from textcapsules.data.example import Corpus, Example
from textcapsules.training.prepare import data_warnings
from textcapsules.training.run import train
from toy import TINY, TOPICS, run_cli, tiny_config, toy_rows, write_csv


def examples(**counts: int) -> list[Example]:
    return [
        Example("a text", (label,)) for label, n in counts.items() for _ in range(n)
    ]


def corpus(train, dev, test=()) -> Corpus:
    labels = sorted(
        {label for part in (train, dev) for e in part for label in e.labels}
    )
    return Corpus("c", tuple(labels), train, dev, test, "single-label", "words", {})


def test_enough_texts_of_each_label_say_nothing():
    enough = corpus(examples(a=10, b=11), examples(a=1, b=1), examples(a=1))
    assert data_warnings(enough) == []


def test_label_without_a_training_text_is_named_with_its_counts():
    (message,) = data_warnings(
        corpus(
            examples(a=10, b=10), examples(a=1, c=3), examples(b=1, c=2, only_here=4)
        )
    )
    assert message == (
        "2 labels have no training text and cannot be learnt: 'c' (3 dev, 2 test), "
        "'only_here' (0 dev, 4 test). Add texts, or remove the label."
    )


def test_few_training_texts_are_one_message_rarest_first():
    few = {f"label{n}": n for n in range(9, 1, -1)}
    (message,) = data_warnings(corpus(examples(a=10, **few), examples(a=1, label9=1)))
    assert message.startswith(
        "8 labels have fewer than 10 training texts: 'label2' (2)"
    )
    assert "'label6' (6) and 3 more. " in message


def test_text_with_several_labels_counts_for_each():
    both = [Example("a text", ("a", "b"))] * 10
    assert data_warnings(corpus(both, both)) == []


def test_dev_texts_of_one_label_leave_the_threshold_uncalibrated():
    (message,) = data_warnings(corpus(examples(a=10, b=10), examples(a=1)))
    assert message.startswith("the dev set has 1 text of 1 label: the threshold stays")


def test_three_rows_with_three_labels_are_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = write_csv(tmp_path / "toy.csv", toy_rows(3))
    flags = ["train", "--data", source, *TINY, "--epochs", 1, "--json", "--out", "m"]
    ran = run_cli(*flags)
    assert ran.code == 0
    values = json.loads(ran.out.splitlines()[-1])
    lines = ran.err.splitlines()
    assert lines == [f"textcapsules: warning: {line}" for line in values["warnings"]]
    assert (
        json.loads((tmp_path / "m/training.json").read_text())["warnings"]
        == (values["warnings"])
    )
    unseen, few, dev, *_ = values["warnings"]
    (name,) = [name for name in TOPICS if name in unseen]  # it went to dev
    assert unseen.startswith(
        f"1 label has no training text and cannot be learnt: '{name}'"
    )
    assert few.startswith("2 labels have fewer than 10 training texts: ")
    assert "the threshold stays at 0.5" in dev


def test_warnings_reach_python_as_logs(tmp_path, caplog):
    source = write_csv(tmp_path / "toy.csv", toy_rows(12))
    record = train(tiny_config(source, train={"epochs": 1}), tmp_path / "m").record
    assert [entry.getMessage() for entry in caplog.records] == record["warnings"]
    assert record["warnings"]


@pytest.mark.parametrize("task", ["single-label", "multi-label"])
def test_model_no_better_than_the_commonest_label_is_told(tmp_path, task, caplog):
    source = write_csv(tmp_path / "toy.csv", toy_rows(300))
    # These texts repeat themselves, of which a rule of refusal would warn too.
    changes = {"learning_rate": 1e6, "epochs": 2, "task": task, "refuse": False}
    config = tiny_config(source, train=changes)
    record = train(config, tmp_path / "m").record
    assert [entry.getMessage() for entry in caplog.records] == record["warnings"]
    (message,) = record["warnings"]
    # 30 dev texts, 10 of each label: 1/3, and two deviations of sqrt(2/9/30) above it
    assert message.startswith("the network may have learnt nothing: its dev accuracy, ")
    assert "the commonest label, which may reach 50.5%. Try another --learni" in message


def test_model_that_learns_is_not_told_so(tmp_path):
    source = write_csv(tmp_path / "toy.csv", toy_rows(60))
    record = train(tiny_config(source), tmp_path / "m").record
    assert record["warnings"] == []
