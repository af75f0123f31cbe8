"""Tables 6, A.1 and A.2: documents with the connection strengths of their 3-grams.

The page shows sentences of the corpus, which is not ours to publish: the page goes to a
folder that git ignores.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from textcapsules.base.files import write_bytes, write_text
from textcapsules.data.example import Example
from textcapsules.draw.pages import (
    Highlight,
    Picture,
    colophon,
    connection_histograms,
    highlight,
    reading_help,
    render,
)
from textcapsules.draw.pictures import can_draw_clouds, draw_cloud
from textcapsules.lab.paper.displays import check_page, describe_model
from textcapsules.model.classifier import TextClassifier
from textcapsules.reasons.explanation import Explanation, PhraseTotal
from textcapsules.reasons.routing_inspection import Connections, connections
from textcapsules.reasons.texts import explain

__all__ = ["CASES", "TABLE6_MARK", "TABLE6_PAGE", "choose_cases", "write_table6"]

TABLE6_PAGE = Path("displays/table6.html")  # inside the folder of the tables
TABLE6_MARK = "Written by textcapsules"  # in the colophon
METHOD = "couplings"  # the paper's quantity
CLOUD = 12  # 3-grams per cloud, at most
MARKED = 6  # phrases per label marked in the text, at most

# The documents that the paper shows; all have several labels.
CASES = {
    "table6": "Table 6: fully correct, every label above 0.8",
    "a1": "Table A.1: fully correct, every label between 0.4 and 0.6",
    "a2": "Table A.2: partly correct: some labels right, some wrong",
}


def choose_cases(
    classifier: TextClassifier, examples: Sequence[Example]
) -> dict[str, Example | None]:
    """Return the first document of each of `CASES`, None where there is none."""
    examples = [example for example in examples if len(example.labels) > 1]
    scores = classifier.scores([example.text for example in examples])
    documents: dict[str, Example | None] = dict.fromkeys(CASES)
    decisions = classifier.decide(scores)
    for example, row, decided in zip(examples, scores, decisions, strict=True):
        by_label = zip(classifier.labels.names, row.tolist(), decided, strict=True)
        predicted = {name: score for name, score, is_given in by_label if is_given}
        case = kind_of_case(set(example.labels), predicted)
        if case is not None and documents[case] is None:
            documents[case] = example
    return documents


def kind_of_case(true: set[str], predicted: dict[str, float]) -> str | None:
    """Return which of `CASES` a prediction is, if any."""
    if true == set(predicted):
        if min(predicted.values()) > 0.8:
            return "table6"
        if all(0.4 < score < 0.6 for score in predicted.values()):
            return "a1"
    elif true & set(predicted) and set(predicted) - true:
        return "a2"
    return None


class Cloud(NamedTuple):
    """A label's phrases in one document; a stronger phrase is larger."""

    label: str
    picture: Picture


class Case(NamedTuple):
    """A document as the paper shows it; `text` is None where there is no such one."""

    name: str
    title: str
    text: Highlight | None
    clouds: list[Cloud]
    histograms: Picture | None


class DisplayPage(NamedTuple):
    """What the template `displays.html.j2` reads."""

    title: str
    lead: str
    reading: str
    cases: list[Case]
    colophon: str
    figures: tuple = ()


def write_table6(
    classifier: TextClassifier, examples: Sequence[Example], folder: Path
) -> list[Path]:
    """Write the page and its figures below `folder`, and return the page."""
    check_page(folder / TABLE6_PAGE, TABLE6_MARK)
    cases = [
        explain_case(classifier, name, example)
        for name, example in choose_cases(classifier, examples).items()
    ]
    page = DisplayPage(
        title="Connection strengths of 3-grams: tables 6, A.1 and A.2",
        lead=(
            f"{describe_model(classifier)} The first test document of each kind is "
            "shown."
        ),
        reading=reading_help(METHOD, tried=False),
        cases=cases,
        colophon=colophon(),
    )
    for case in cases:
        pictures = {f"cloud-{cloud.label}": cloud.picture for cloud in case.clouds}
        if case.histograms is not None:
            pictures["strengths"] = case.histograms
        for name, picture in pictures.items():
            path = folder / TABLE6_PAGE.parent / f"{case.name}-{name}.svg"
            write_bytes(path, picture.image)
    write_text(folder / TABLE6_PAGE, render("displays.html.j2", page=page))
    return [folder / TABLE6_PAGE]


def explain_case(
    classifier: TextClassifier, name: str, example: Example | None
) -> Case:
    """Explain one document."""
    if example is None:
        return Case(name, CASES[name], None, [], None)
    explanation = explain(
        classifier,
        example.text,
        method=METHOD,
        top=MARKED,
        true=example.labels,
        verify=False,
    )
    connected = connections(classifier, example.text, method=METHOD)
    return Case(
        name,
        CASES[name],
        highlight(explanation, top=MARKED),
        label_clouds(explanation, connected) if can_draw_clouds() else [],
        connection_histograms(
            connected, explanation.predicted, classifier.labels.names
        ),
    )


def label_clouds(explanation: Explanation, connected: Connections) -> list[Cloud]:
    """Draw the 3-grams of every predicted label."""
    return [
        Cloud(label.label, cloud_picture(label.label, connected, place))
        for place, label in enumerate(explanation.labels)
        if label.predicted and label.phrases
    ]


def cloud_picture(label: str, connected: Connections, place: int) -> Picture:
    """Draw one label's 3-grams, overlapping ones included."""
    pairs = zip(connected.phrases, connected.strengths[label], strict=True)
    phrases = [PhraseTotal(text, strength, 1) for text, strength in pairs]
    phrases = sorted(phrases, key=lambda each: -each.strength)[:CLOUD]
    strongest = ", ".join(each.text for each in phrases[:10])
    image = draw_cloud(phrases, place=place, top=CLOUD)
    return Picture(image, f"Tag cloud of {label}: {strongest}.")
