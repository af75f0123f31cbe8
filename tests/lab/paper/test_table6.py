import pytest

from lab.paper.described import described_classifier
from pages import NASTY, check_page
from textcapsules.base.errors import WriteError
from textcapsules.data.example import Example
from textcapsules.lab.paper.table6 import write_table6

pytest.importorskip("wordcloud")


TEXT = "w1 w2 w3 w4 w5 w6 w7 w8"
LABELS = ("red", "blue")  # the first is predicted, the second is not


@pytest.fixture(scope="module")
def classifier():
    """Return a model that sees red and green in every text, and never blue."""
    model = described_classifier(
        conv_capsules=False, architecture="capsule-a", ngram_sizes=(3,), max_tokens=99
    )
    assert model.labels.names == ("red", "green", "blue")
    model.labels = model.labels._replace(thresholds=(0.0, 0.0, 9.0))
    return model


def test_the_page_shows_every_case_there_is(classifier, tmp_path):
    examples = [Example("w1 w2", ("red",)), Example(TEXT, LABELS)]
    (path,) = write_table6(classifier, examples, tmp_path)
    assert path == tmp_path / "displays" / "table6.html"
    page = check_page(path.read_text())
    assert [title.partition(":")[0] for title in page.inside("h2")] == [
        "Table 6",
        "Table A.1",
        "Table A.2",
    ]
    assert page.inside("p", "text") == [TEXT]
    missing = "No test document is such a case for this model."
    assert page.inside("p").count(missing) == 2
    assert len(page.all("img")) == 3  # a cloud per predicted label, and the histograms
    verdicts = [page.inside("span", kind) for kind in ("right", "wrong", "missed")]
    assert list(map(len, verdicts)) == [1, 1, 1]
    pictures = {file.name for file in path.parent.glob("*.svg")}
    assert pictures == {
        "a2-cloud-red.svg",
        "a2-cloud-green.svg",
        "a2-strengths.svg",
    }


@pytest.mark.parametrize("nasty", NASTY)
def test_any_document_is_shown_as_itself(classifier, nasty, tmp_path):
    text = f"{nasty} {TEXT}"
    (path,) = write_table6(classifier, [Example(text, LABELS)], tmp_path)
    page = check_page(path.read_text())
    assert page.inside("p", "text") == [text]
    assert "script" not in page.names()


def test_no_document_at_all_is_said(classifier, tmp_path):
    page = check_page(write_table6(classifier, [], tmp_path)[0].read_text())
    assert len(page.all("img")) == 0


def test_only_its_own_page_is_replaced(classifier, tmp_path):
    (path,) = write_table6(classifier, [], tmp_path)
    write_table6(classifier, [], tmp_path)
    path.write_text("mine")
    with pytest.raises(WriteError, match=r"table6\.html must be a page of this"):
        write_table6(classifier, [], tmp_path)
    assert path.read_text() == "mine"
