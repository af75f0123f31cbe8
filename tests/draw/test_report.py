"""The report: what it finds, and the page that shows it whole and escaped."""

import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from pages import NASTY, Page, check_page
from textcapsules.base.errors import ConfigError, DataError
from textcapsules.data.example import Example
from textcapsules.draw.report import (
    cautions,
    honesty,
    render_report,
    rival_verdict,
    sized,
)
from textcapsules.inference.evaluate import evaluate
from textcapsules.inference.report import (
    Report,
    ReportTable,
    certainty,
    make_report,
    pick_best,
    spread_out,
    training_corpus,
)
from textcapsules.inference.rival import Comparison
from textcapsules.model.classifier import TextClassifier
from textcapsules.reasons.explanation import Faithfulness, MethodCurves, PhraseTotal
from textcapsules.text.encode import Cuts
from toy import TOPICS, toy_rows, trained_model

pytestmark = pytest.mark.slow

EXAMPLES = [Example(text, (label,)) for text, label in toy_rows(24, seed=5)]
WRONG = [Example("cat purr kitten meow", ("dogs",))]
SEVERAL = [
    Example(f"{one.text} {other.text}", (*one.labels, *other.labels))
    for one, other in pairwise(EXAMPLES)
]


def toys(task: str = "single-label") -> TextClassifier:
    classifier = TextClassifier.load(trained_model(), "cpu")
    thresholds = (0.3,) * len(classifier.labels.names)
    classifier.labels = classifier.labels._replace(task=task, thresholds=thresholds)
    return classifier


def report(
    examples: list[Example], classifier: TextClassifier | None = None, **changes
) -> Report:
    settings = {"source": "toys", "title": "Toys", "lead": "Lead.", "n_sampled": 4}
    return make_report(classifier or toys(), examples, **{**settings, **changes})


def counts(page: Page) -> list[int]:
    """Return the cells of the confusion matrix, row by row."""
    rows = page.inside("tbody")[page.all("table").index({"class": "cells"})]
    return [int(n) for n in rows.split() if n.isdigit()]


@pytest.fixture(scope="module")
def found() -> Report:
    corpus, missing = training_corpus(toys())
    assert missing == ""
    return report([*EXAMPLES, *WRONG], corpus=corpus)


@pytest.fixture(scope="module")
def page(found: Report) -> Page:
    return check_page(render_report(found))


def test_certainty_by_hand() -> None:
    scores = np.array([[0.9, 0.2, 0.1], [0.3, 0.6, 0.7]])
    true = np.array([[1, 0, 0], [0, 1, 0]])
    one = certainty(scores, true, [0.5] * 3, several=False)
    np.testing.assert_allclose(one, [0.7, -0.1])
    several = certainty(scores, true, [0.5, 0.5, 0.4], several=True)
    np.testing.assert_allclose(several, [0.3, -0.3])


def test_best_examples_have_different_labels() -> None:
    examples = [Example(str(n), (label,)) for n, label in enumerate("aabca")]
    right = np.array([True, True, True, False, True])
    best = pick_best(examples, np.array([1, 0, 2, 4, 3]), right, 5)
    assert [example.text for example in best] == ["1", "2"]
    assert pick_best(examples, np.arange(5), right, 1) == examples[:1]


def test_samples_are_spread_over_all_texts() -> None:
    texts = [str(n) for n in range(100)]
    assert spread_out(texts, 4) == ["0", "33", "66", "99"]
    assert spread_out(texts[:3], 50) == texts[:3]


def test_figures_are_those_of_an_evaluation(found: Report, page: Page) -> None:
    expected = evaluate(toys(), [*EXAMPLES, *WRONG])
    assert found.evaluation.to_dict() == expected.to_dict()
    assert expected.single_label is not None
    accuracy = f"{100 * expected.single_label['accuracy']:.1f}"
    assert page.inside("dd")[:2] == ["25", f"{accuracy}%"]
    cells = page.inside("td")
    for row in expected.per_class:
        assert f"{100 * row['f1']:.1f}" in cells
    matrix = np.asarray(expected.confusion)
    assert counts(page) == matrix.ravel().tolist()


def test_page_has_every_section(page: Page) -> None:
    assert page.inside("h2") == [
        "In short",
        "Label by label",
        "What is a score worth?",
        "Which labels come together, and which are mixed up",
        "Which phrases speak for each label",
        "Examples",
        "Do the reasons tell the truth?",
        "The training texts",
        "Inside the network",
        "About this report",
    ]
    ids = [attributes["id"] for attributes in page.all("h2")]
    assert [link["href"] for link in page.all("a")[1:]] == [f"#{name}" for name in ids]


def test_page_shows_clouds_curves_and_examples(found: Report, page: Page) -> None:
    assert found.explained is not None
    alts = [image["alt"] for image in page.all("img")]
    for cloud, label in zip(page.all("ul")[2:5], TOPICS, strict=True):
        assert cloud == {"class": "cloud", "aria-label": f"Phrases of {label}"}
    assert sum("loss" in alt for alt in alts) == 1
    assert sum("strongest tokens" in alt for alt in alts) == 2
    texts = page.inside("p", "text")
    assert WRONG[0].text in texts
    shown = [*found.explained.worst, *found.explained.best]
    assert texts[: len(shown)] == [explanation.text for explanation in shown]
    assert "wrong" in page.inside("span")
    assert "missed" in page.inside("span")


def test_faithfulness_is_told_in_words_figures_and_curves(found, page) -> None:
    trust = found.explained.faithfulness
    assert trust.verdict in page.inside("p")
    for curves in trust.methods:
        area = f"{curves.comprehensiveness:.3f} ± {curves.comprehensiveness_spread:.3f}"
        assert area in page.inside("td")
        assert curves.method in page.inside("th")


def test_json_has_the_figures(found: Report) -> None:
    values = found.to_dict()
    assert values["texts"] == 25
    assert found.explained is not None
    assert values["method"] == found.explained.corpus.method
    assert {row["method"] for row in values["faithfulness"]["methods"]} >= {"random"}


@pytest.mark.parametrize("text", [" ".join(NASTY[:3]), " ".join(NASTY[3:])])
def test_any_text_is_shown_as_itself(text: str) -> None:
    classifier = toys()
    names = (text, "cats", "dogs")
    classifier.labels = classifier.labels._replace(names=names)
    examples = [Example(f"{text} cat purr", (text,)), Example("dog bark", ("dogs",))]
    table = ReportTable(text, ("system", text), [(text, text)], text)
    made = report(
        examples, classifier, source=text, title=text, lead=text, tables=[table]
    )
    shown = check_page(render_report(made))
    assert shown.inside("title") == shown.inside("h1") == [text]
    assert shown.inside("p", "lead")[1:] == [text]
    assert text in shown.inside("p", "lead")[0]
    assert text in shown.inside("h3")
    assert text in shown.inside("th")
    assert text in shown.inside("td")
    assert any(text in note for note in shown.inside("p", "note"))
    assert text in shown.inside("bdi")
    assert f"{text} cat purr" in shown.inside("p", "text")


def test_several_labels_get_averages_and_no_matrix_of_their_own() -> None:
    made = report(SEVERAL, toys("multi-label"))
    assert made.evaluation.confusion is None
    page = check_page(render_report(made))
    assert "all labels right" in page.inside("dt")
    assert "0.5, as published" in page.inside("th")
    other = np.arange(9).reshape(3, 3)
    with_matrix = report(SEVERAL, toys("multi-label"), confusion=other)
    assert counts(Page(render_report(with_matrix))) == list(range(9))


def test_texts_that_nobody_can_read() -> None:
    made = report([Example("qqq", ("cats",)), Example("", ("dogs",))])
    assert made.explained is not None
    assert made.explained.faithfulness is None
    page = check_page(render_report(made))
    assert "Do the reasons tell the truth?" not in page.inside("h2")
    assert "No phrase spoke for this label." in page.inside("p", "note")


def test_long_texts_are_cut_on_the_page() -> None:
    made = report([Example("cat purr " * 1000, ("dogs",))])
    (text,) = Page(render_report(made)).inside("p", "text")
    assert text.endswith("…")
    assert len(text) == 1501


def test_model_of_another_kind_is_judged_without_reasons(found: Report) -> None:
    bare = Report(
        **{
            name: getattr(found, name)
            for name in Report.__slots__
            if name != "explained"
        },
        explained=None,
    )
    page = check_page(render_report(bare))
    headings = page.inside("h2")
    assert "Which phrases speak for each label" not in headings
    assert {"Label by label", "The training texts"} <= set(headings)
    assert bare.to_dict()["faithfulness"] is None


def test_many_labels_are_not_drawn_as_a_matrix(found: Report) -> None:
    names = tuple(f"label {n}" for n in range(40))
    classifier = toys()
    classifier.labels = classifier.labels._replace(names=names)
    many = Report(
        **{
            **{name: getattr(found, name) for name in Report.__slots__},
            "classifier": classifier,
            "confusion": np.eye(40, dtype=int),
            "explained": None,
        }
    )
    assert "cells" not in " ".join(
        table.get("class", "") for table in Page(render_report(many)).all("table")
    )


def test_nothing_to_judge_is_refused() -> None:
    with pytest.raises(DataError, match="toys must hold at least one labelled text"):
        report([])
    with pytest.raises(ConfigError, match="method must be one of"):
        report(EXAMPLES, method="tea leaves")


def test_numbers_stand_to_the_right() -> None:
    table = ReportTable("t", ("a", "b", "c"), [("x", "1.0", "y"), ("z", "-", "1")])
    assert [table.is_numeric(column) for column in range(3)] == [False, True, False]


def test_stages_are_told_in_order() -> None:
    told: list[str] = []
    report(EXAMPLES[:6], on_stage=told.append)
    assert told[0] == "judging"
    assert len(told) == len(set(told)) >= 3


def test_style_uses_only_the_palette_s_colours(found: Report) -> None:
    style = render_report(found).split("<style>")[1].split("</style>")[0]
    rules = re.sub(r"--\w+: #\w{6};", "", style)
    assert not re.search(r"#[0-9a-fA-F]{3,8}\b", rules)


def test_an_unknown_method_is_refused_where_nothing_is_explained():
    classifier = toys()
    classifier.network = torch.nn.Linear(1, 1)  # type: ignore[assignment]
    with pytest.raises(ConfigError, match=r"one of .*; got 'tea leaves'"):
        report(EXAMPLES, classifier, method="tea leaves")


def compared(mine: float, theirs: float, wins: int, losses: int) -> str:
    """Return the verdict of made-up figures."""
    made = report(EXAMPLES[:3])
    single = {"accuracy": mine, "macro_f1": mine}
    made = replace(made, evaluation=made.evaluation._replace(single_label=single))
    rival = made.evaluation._replace(single_label={**single, "accuracy": theirs})
    right = np.array([True] * wins + [False] * losses)
    return rival_verdict(made, Comparison.of(rival, right, ~right))


def test_the_better_of_two_is_told_and_chance_is_not_taken_for_skill() -> None:
    assert compared(0.9, 0.8, 50, 10).startswith("It beats a simple linear model")
    worse = compared(0.8, 0.9, 10, 50)
    assert worse.startswith("A simple linear model is better: 80.0% against 90.0%")
    equal = compared(0.9, 0.89, 12, 10)
    assert equal.startswith("It is not clearly better or worse")
    assert "model alone was right on 12 texts, the rival alone on 10" in equal


def test_what_spoils_the_figures_is_told(found: Report) -> None:
    assert found.training is not None
    card = found.training.card._replace(among_judged=3, rare=("cats",))
    spoilt = replace(
        found, known=(70, 100), training=replace(found.training, card=card)
    )
    told = " ".join(cautions(spoilt))
    assert "30.0% of the words are unknown to the model." in told
    assert "3 of the 25 judged texts are training texts too" in told
    assert "Hardly any training text has cats." in told
    for n_cut, were in ((1, "was"), (2, "were")):
        evaluation = found.evaluation._replace(cut=Cuts(25, n_cut, 500, 9, 30))
        told = " ".join(cautions(replace(found, evaluation=evaluation)))
        assert f"{n_cut} of 25 texts {were} too long to be read whole." in told


def test_reasons_that_hold_and_those_that_do_not() -> None:
    def curves(name: str, area: float, spread: float) -> MethodCurves:
        empty = MethodCurves(name, (), (), area, 0.0, 0.0, 0.0)
        return replace(empty, comprehensiveness_spread=spread)

    def trust(area: float, spread: float = 0.0) -> str:
        methods = (curves("couplings", area, spread), curves("random", 0.1, 0.0))
        return honesty(Faithfulness(5, 5, (), methods, "couplings", ""))

    assert trust(0.7).startswith("Its reasons hold: without the phrases")
    assert "70% of its score on average" in trust(0.7)
    assert trust(0.15).startswith("Its reasons hold only in part")
    # Five labels with a spread as large as the lead: that may be chance.
    assert trust(0.7, 0.8).startswith("Its reasons hold only in part")


def test_a_cloud_is_larger_for_what_is_strong_and_telling() -> None:
    totals = [
        PhraseTotal("strong and telling", 4.0, 2, odds=2.0),
        PhraseTotal("strong", 4.0, 2, odds=1.0),
        PhraseTotal("weak", 0.5, 2, odds=1.0),
        PhraseTotal("against", -1.0, 2, odds=1.0),
    ]
    first, second, third = sized(totals)
    assert (first.text, first.size) == ("strong and telling", 1.35)
    assert first.size > second.size > third.size > 0.8


def test_page_stays_small_whatever_the_number_of_texts(found: Report) -> None:
    many = report([*EXAMPLES, *WRONG] * 20)
    assert len(render_report(many)) < 1.2 * len(render_report(found))
