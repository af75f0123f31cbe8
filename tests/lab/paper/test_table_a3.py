from typing import Any

import pytest

from lab.paper.described import described_classifier
from random_models import random_classifier
from textcapsules.base.errors import ConfigError, WriteError
from textcapsules.data.example import Example
from textcapsules.lab.paper.table_a3 import word_columns, write_a3
from textcapsules.model.classifier import TextClassifier
from textcapsules.reasons.explanation import ORPHAN

LABELS = ("trade", "money-fx", "interest")
Models = tuple[TextClassifier, TextClassifier]
HEADER = "|  | orphan | trade | money-fx | interest |"
WORDS = ["the", "and", "deficit", "rate", "dollar", "bank"]
EXAMPLES = [
    Example("the deficit and the rate", ("trade",)),
    Example("dollar rate and bank", ("money-fx", "interest")),
    Example("unknown", ("trade",)),
]


def unigrams(**model: Any) -> TextClassifier:
    return described_classifier(
        words=WORDS, labels=LABELS, ngram_sizes=(1,), conv_capsules=False, **model
    )


@pytest.fixture
def models() -> Models:
    return unigrams(), unigrams(amendment=False)


def rows_of(page: str, header: str) -> list[list[str]]:
    table = page.partition(header)[2].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in table]


def test_columns_and_counts_are_the_measured_ones(models: Models, tmp_path):
    (path,) = write_a3(*models, EXAMPLES, tmp_path)
    assert path == tmp_path / "A3.md"
    page = path.read_text()
    counted = rows_of(page.partition("among the first 20:")[2], HEADER)
    assert counted.pop() == ["published", "14", "0", "0", "0"]
    places = [page, page.partition("## The columns of the model without")[2]]
    for model, place, counts in zip(models, places, counted, strict=True):
        columns = word_columns(model, EXAMPLES, LABELS)
        words = [[word.text for word in column.words] for column in columns]
        written = list(zip(*rows_of(place, HEADER), strict=True))[1:]
        assert [[word for word in column if word] for column in written] == words
        expected = [str(len({"the", "and"} & {*column})) for column in words]
        assert counts[1:] == expected


def test_the_page_says_how_the_model_was_made_and_what_was_measured(
    models: Models, tmp_path
):
    page = write_a3(*models, EXAMPLES, tmp_path)[0].read_text()
    assert "K1 = 1, 3 iterations of routing" in page
    assert "1,234 training texts of Some news with one label. Epochs: 2;" in page
    assert "dev accuracy, 2 (87.5 percent)" in page
    assert "Explained: 3 test texts" in page
    assert "couplings amended, seed" in page and "couplings not amended, seed" in page
    assert "They do not lead it: 2 of 6; 2 are words of the published column" in page
    groups = rows_of(page, "Means over occurrences:\n\n")
    assert [row[:2] for row in groups] == [
        ["function words", "4"],
        ["other words", "5"],
        ["function words, without the amendment", "4"],
        ["other words, without the amendment", "5"],
    ]


def test_only_its_own_page_is_replaced(models: Models, tmp_path):
    first = write_a3(*models, EXAMPLES, tmp_path)[0].read_text()
    assert write_a3(*models, EXAMPLES, tmp_path)[0].read_text() == first
    (tmp_path / "A3.md").write_text("mine")
    with pytest.raises(WriteError, match=r"A3\.md must be a page of this command"):
        write_a3(*models, EXAMPLES, tmp_path)
    assert (tmp_path / "A3.md").read_text() == "mine"


def test_columns_begin_with_the_orphan():
    examples = [Example("W1 w2, w3 w4 w5", ("red",))] * 3
    columns = word_columns(random_classifier(), examples, ["blue", "red"], top=2)
    assert [column.label for column in columns] == [ORPHAN, "blue", "red"]
    assert len(columns[0].words) == 2
    columns = word_columns(random_classifier(orphan=False), examples, ["red"])
    assert [column.label for column in columns] == ["red"]
    with pytest.raises(ConfigError, match=r"labels must be some of .*; got 'pink'"):
        word_columns(random_classifier(), examples, ["pink"])
