"""Tables 6, A.1 and A.2: documents with the connection strengths of their 3-grams.

The page shows sentences of the corpus, which is not ours to publish: it is written into
a folder that git ignores.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from textcapsules.classifier import TextClassifier
from textcapsules.data.example import Example
from textcapsules.errors import WriteError
from textcapsules.explain.clouds import can_draw_clouds, draw_cloud
from textcapsules.explain.displays import (
    CASES,
    Connections,
    choose_cases,
    connections,
)
from textcapsules.explain.highlight import Highlight, highlight
from textcapsules.explain.render import (
    Picture,
    colophon,
    connection_histograms,
    reading_help,
    render,
)
from textcapsules.explain.texts import explain
from textcapsules.explain.types import Explanation, Spoken
from textcapsules.files import write_bytes, write_text
from textcapsules.reproduce.visual import describe

__all__ = ["FOLDER", "check_table6", "write_table6"]

FOLDER, PAGE = "displays", "table6.html"
METHOD = "couplings"  # the paper's quantity
TITLES = {"table6": "Table 6", "a1": "Table A.1", "a2": "Table A.2"}
CLOUD = 12  # 3-grams of a cloud, at most
MARKED = 6  # phrases marked in the text, a label


class Cloud(NamedTuple):
    """A label's phrases in one document, the stronger the larger."""

    label: str
    picture: Picture


class Case(NamedTuple):
    """One document, as the paper shows it; `text` is None where there is none."""

    name: str
    title: str
    text: Highlight | None
    clouds: list[Cloud]
    histograms: Picture | None


class DisplayPage(NamedTuple):
    """What the template shows."""

    title: str
    lead: str
    reading: str
    cases: list[Case]
    colophon: str
    figures: tuple = ()


def check_table6(folder: Path) -> None:
    """Refuse to replace a page that is not ours."""
    page = folder / FOLDER / PAGE
    if page.exists() and "Written by textcapsules" not in page.read_text(
        errors="replace"
    ):
        raise WriteError(
            f"{page} must be a page of this command to be replaced; got another file. "
            "Name another folder with --out."
        )


def write_table6(
    classifier: TextClassifier, examples: Sequence[Example], folder: Path
) -> list[Path]:
    """Write the page and its figures below `folder`, and return the page."""
    check_table6(folder)
    chosen = choose_cases(classifier, examples)
    cases = [show_case(classifier, name, example) for name, example in chosen.items()]
    page = DisplayPage(
        title="Connection strengths of 3-grams: tables 6, A.1 and A.2",
        lead=f"{describe(classifier)} The first test document of each kind is shown.",
        reading=reading_help(METHOD),
        cases=cases,
        colophon=colophon(),
    )
    for case in cases:
        for name, picture in figures(case).items():
            write_bytes(folder / FOLDER / f"{name}.svg", picture.image)
    write_text(folder / FOLDER / PAGE, render("displays.html.j2", page=page))
    return [folder / FOLDER / PAGE]


def figures(case: Case) -> dict[str, Picture]:
    """Return a case's pictures by the name of their file."""
    found = {f"{case.name}-cloud-{cloud.label}": cloud.picture for cloud in case.clouds}
    if case.histograms is not None:
        found[f"{case.name}-strengths"] = case.histograms
    return found


def show_case(classifier: TextClassifier, name: str, example: Example | None) -> Case:
    """Explain one document."""
    title = f"{TITLES[name]}: {CASES[name]}"
    if example is None:
        return Case(name, title, None, [], None)
    explanation = explain(
        classifier, example.text, method=METHOD, top=MARKED, true=example.labels
    )
    found = connections(classifier, example.text, method=METHOD)
    names = classifier.labels.names
    return Case(
        name,
        title,
        highlight(explanation, top=MARKED),
        label_clouds(explanation, found) if can_draw_clouds() else [],
        connection_histograms(found, explanation.predicted, names),
    )


def label_clouds(explanation: Explanation, found: Connections) -> list[Cloud]:
    """Draw the 3-grams of every predicted label."""
    return [
        Cloud(label.label, cloud_picture(label.label, found, place))
        for place, label in enumerate(explanation.labels)
        if label.predicted and label.phrases
    ]


def cloud_picture(label: str, found: Connections, place: int) -> Picture:
    """Draw one label's 3-grams, those that overlap too."""
    pairs = zip(found.phrases, found.strengths[label], strict=True)
    spoken = [Spoken(text, strength, 1) for text, strength in pairs]
    spoken = sorted(spoken, key=lambda one: -one.strength)[:CLOUD]
    strongest = ", ".join(one.text for one in spoken[:10])
    image = draw_cloud(spoken, place=place, top=CLOUD)
    return Picture(image, f"Tag cloud of {label}: {strongest}.")
