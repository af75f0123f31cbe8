"""The models behind the paper's displays of connection strengths.

Both are Capsule-B without its convolutional capsules, so that the primary capsules,
which stand for n-grams, are routed to the categories directly. Table 6 and its like
(A.1, A.2) show 3-grams, table A.3 single words.

Tables 6, A.1 and A.2: documents with the connection strengths of their 3-grams.

The page shows sentences of the corpus, which is not ours to publish: it is written into
a folder that git ignores.

What capsules of single words are like: their lengths, and what the orphan gets.

A primary capsule of a uni-gram model stands for one word of the text. Its coupling to a
parent is a share of the leaky softmax, scaled by the capsule's own length where the
model has the amendment: what it gives is then its length, and else one. A word is
silent where the convolution's ReLU leaves it no feature: its capsules are then those of
the biases, whatever the word.

Table A.3: the words with the strongest connections to the orphan and some labels.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from textcapsules.base.errors import WriteError
from textcapsules.base.files import write_bytes, write_text
from textcapsules.data.example import Corpus, Example
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
from textcapsules.lab.paper import published
from textcapsules.lab.paper.cases import CASES, choose_cases, word_columns
from textcapsules.lab.paper.figures import markdown
from textcapsules.lab.paper.plan import Cell, Plan, search_corpus
from textcapsules.lab.paper.runs import Place, read
from textcapsules.lab.paper.systems import Options, system
from textcapsules.model.classifier import TextClassifier
from textcapsules.reasons.couplings import branches_of, existence
from textcapsules.reasons.explanation import Explanation, PhraseTotal
from textcapsules.reasons.methods import capsule_network
from textcapsules.reasons.routing_inspection import Connections, connections
from textcapsules.reasons.texts import explain
from textcapsules.text.batch import epoch_batches, make_batch
from textcapsules.training.run import train

__all__ = [
    "A3_PAGE",
    "DISPLAYS",
    "FOLDER",
    "FUNCTION_WORDS",
    "WordGroup",
    "WordSums",
    "check_a3",
    "check_table6",
    "count_function_words",
    "describe",
    "display_cell",
    "sum_words",
    "train_display",
    "without_amendment",
    "write_a3",
    "write_table6",
]

DISPLAYS = {"table6": 3, "a3": 1}  # and the n-gram size K1 of its model
SYSTEM, CORPUS = "capsule_b", "reuters-multi"


def display_cell(plan: Plan, name: str, epochs: int | None = None) -> Cell:
    """Return the run that a display needs, with the settings the search has chosen.

    Args:
        plan: what all runs have in common.
        name: one of `DISPLAYS`.
        epochs: at most; the plan's if None.
    """
    entry = system(SYSTEM)
    size = DISPLAYS[name]
    chosen = plan.chosen.get((SYSTEM, search_corpus(entry, CORPUS)), entry.settings[0])
    own: Options = {
        "model": {"conv_capsules": False, "ngram_sizes": (size,)},
        "train": {"select": "accuracy"} | ({"epochs": epochs} if epochs else {}),
    }
    return Cell(
        table=name,
        system=SYSTEM,
        corpus=CORPUS,
        setting=f"K1={size}",
        repeat=0,
        config=plan.config(entry, CORPUS, chosen, own),
    )


def without_amendment(cell: Cell) -> Cell:
    """Return the run of a like model whose couplings no capsule's length scales."""
    return replace(cell, config=cell.config.replace(model={"amendment": False}))


def train_display(
    cell: Cell, place: Place, **watch: Any
) -> tuple[TextClassifier, Corpus]:
    """Train a display's model, and return it with its texts."""
    config = place.localise(cell.config)
    corpus = read(config.data)
    with tempfile.TemporaryDirectory(prefix="textcapsules-") as folder:
        return train(config, Path(folder) / "model", corpus=corpus, **watch), corpus


def describe(classifier: TextClassifier) -> str:
    """Say how a display's model was made."""
    record, model = classifier.record, classifier.config.model
    best = record["epochs"][record["best_epoch"] - 1]
    title, _, _ = record["corpus"]["title"].partition(",")
    amended = "amended" if model.amendment else "not amended"
    return (
        f"Capsule-B without convolutional capsules, K1 = {model.ngram_sizes[0]}, "
        f"{model.iterations} iterations of routing, dropout {model.dropout:g}, "
        f"{model.embeddings} vectors, couplings {amended}, seed "
        f"{classifier.config.train.seed}. Trained on the {record['texts']['train']:,} "
        f"training texts of {title} with one label. Epochs: {len(record['epochs'])}; "
        f"kept: the one with the highest dev accuracy, {record['best_epoch']} "
        f"({100 * best['dev_accuracy']:.1f} percent)."
    )


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
    spoken = [PhraseTotal(text, strength, 1) for text, strength in pairs]
    spoken = sorted(spoken, key=lambda one: -one.strength)[:CLOUD]
    strongest = ", ".join(one.text for one in spoken[:10])
    image = draw_cloud(spoken, place=place, top=CLOUD)
    return Picture(image, f"Tag cloud of {label}: {strongest}.")


BATCH_SIZE = 32
# Articles, pronouns, prepositions, conjunctions, auxiliaries and the like.
FUNCTION_WORDS = frozenset(
    """
    a about above after again against all although am among an and another any are as at
    be because been before being below between both but by can could did do does down
    during each either every few for from had has have he her here him his how however
    i if in into is it its itself may me might more most must my neither no nor not now
    of off on once only onto or other our out over own per same shall she should since
    so some such than that the their them then there these they this those though
    through thus to too toward towards under until up upon us very was we were what when
    where whether which while who whom whose why will with within without would yet you
    your
    """.split()  # noqa: SIM905 (a page to read, not a list)
)


class WordGroup(NamedTuple):
    """Means over the occurrences of some words."""

    occurrences: int
    silent: float  # share of them without a feature
    length: float  # of their capsules
    coupled: float  # to the orphan
    share: float  # of all that they give to anybody or nobody, what the orphan gets


class WordSums(NamedTuple):
    """Sums over the occurrences of each of V words, capsules of a word averaged."""

    words: tuple[str, ...]
    counts: NDArray[np.float64]  # (V,)
    silent: NDArray[np.float64]  # (V,)
    lengths: NDArray[np.float64]  # (V,)
    given: NDArray[np.float64]  # (V,), to all parents and to nobody
    coupled: NDArray[np.float64]  # (V,), given to the orphan
    shares: NDArray[np.float64]  # (V,), of what an occurrence gives, the orphan's

    def means(self, *, function: bool) -> WordGroup:
        """Return the means of the function words, or of the others."""
        chosen = np.array([word in FUNCTION_WORDS for word in self.words]) == function
        totals = [float(part[chosen].sum()) for part in self[1:]]
        count, silent, length, given, coupled, _ = totals
        n = max(count, 1.0)
        share = coupled / given if given else 0.0
        return WordGroup(int(count), silent / n, length / n, coupled / n, share)

    def strongest(self, values: NDArray[np.float64], top: int) -> list[str]:
        """Return the words with the highest values, alphabetically where equal."""
        order = np.lexsort((np.array(self.words), -values))
        return [self.words[row] for row in order[:top]]


@torch.no_grad()
def sum_words(classifier: TextClassifier, texts: Sequence[str]) -> WordSums:
    """Add up what becomes of each word's capsules, with a uni-gram model.

    Args:
        classifier: a capsule network with an orphan, of one n-gram size, 1, and
            without convolutional capsules.
        texts: words of theirs that the model does not know are left out.
    """
    network = capsule_network(classifier)
    was_training = network.training
    network.eval()
    (branch,) = branches_of(network)
    device = next(network.parameters()).device
    words = tuple(classifier.tokenizer.words)
    totals = torch.zeros(len(words), 6, dtype=torch.float64)
    documents = classifier.encode(texts)
    nothing = np.zeros((len(documents), 0), np.float32)
    sizes = [len(ids) for ids in documents]
    for rows in epoch_batches(sizes, BATCH_SIZE, seed=0, epoch=0, shuffle=False):
        batch = make_batch(documents, nothing, rows).to(device)
        (routing,) = network(batch.ids, batch.mask, inspect=True).branches
        given = existence(branch.classes, routing.capsules)  # (B, T, C)
        orphan = routing.classes.couplings[..., -1].unflatten(1, given.shape[1:])
        shares = orphan / given.clamp(min=torch.finfo(given.dtype).tiny)
        lengths = torch.linalg.vector_norm(routing.capsules, dim=-1)
        features, _ = branch.ngrams(network.embedding(batch.ids), batch.mask)
        silent = (features == 0).all(-1, keepdim=True).expand_as(given)
        ones = torch.ones_like(given)
        parts = [ones, silent.to(given), lengths, given, orphan, shares]
        found = torch.stack([part.mean(2) for part in parts], -1)[batch.mask]
        totals.index_add_(0, batch.ids[batch.mask].cpu(), found.double().cpu())
    network.train(was_training)
    first = classifier.tokenizer.first_word
    met = np.flatnonzero(totals[:, 0].numpy() * (np.arange(len(words)) >= first))
    return WordSums(
        tuple(words[row] for row in met), *totals[met].numpy().T.astype(np.float64)
    )


A3_PAGE, A3_MARK = "A3.md", "Generated by `textcapsules reproduce a3`"
LABELS = ("trade", "money-fx", "interest")
TOP = 20  # words a column, as published


def check_a3(folder: Path) -> None:
    """Refuse to replace a page that is not ours."""
    page = folder / A3_PAGE
    if page.exists() and A3_MARK not in page.read_text(errors="replace")[:500]:
        raise WriteError(
            f"{page} must be a page of this command to be replaced; got another file. "
            "Name another folder with --out."
        )


def write_a3(
    classifier: TextClassifier,
    plain: TextClassifier,
    examples: Sequence[Example],
    folder: Path,
) -> list[Path]:
    """Write the columns and the account of function words, and return the file.

    Args:
        classifier: the uni-gram model.
        plain: the same, trained without the amendment of couplings.
        examples: the texts explained.
        folder: where the page goes.
    """
    check_a3(folder)
    texts = [example.text for example in examples]
    columns, plain_columns = (
        find_columns(model, examples) for model in (classifier, plain)
    )
    counted = {
        "here": columns,
        "here, without the amendment": plain_columns,
        "published": published.top_words(),
    }
    measured = {
        "": sum_words(classifier, texts),
        ", without the amendment": sum_words(plain, texts),
    }
    parts = [
        "# Table A.3: words of the orphan and of three categories\n\n"
        f"{A3_MARK}; do not edit. {describe(classifier)} Explained: {len(examples):,} "
        "test texts. A word's couplings are added up over the texts that got the "
        "label, the orphan's over all texts.\n",
        word_table(columns),
        "Function words (articles, pronouns, prepositions, conjunctions, auxiliaries) "
        f"among the first {TOP}:\n",
        count_table(counted),
        account(columns["orphan"], plain_columns["orphan"], measured),
        f"## The columns of the model without the amendment\n\n{describe(plain)}\n",
        word_table(plain_columns),
    ]
    write_text(folder / A3_PAGE, "\n".join(parts))
    return [folder / A3_PAGE]


def find_columns(
    classifier: TextClassifier, examples: Sequence[Example]
) -> dict[str, list[str]]:
    """Return the strongest words of the orphan and of each label."""
    found = word_columns(classifier, examples, LABELS, top=TOP)
    return {
        name: [word.text for word in column.words]
        for name, column in zip(("orphan", *LABELS), found, strict=True)
    }


def word_table(columns: dict[str, list[str]]) -> str:
    """Return the columns side by side, shorter ones filled up."""
    across = zip_longest(*columns.values(), fillvalue="")
    rows = [
        [str(place), *(word.replace("|", "\\|") for word in words)]
        for place, words in enumerate(across, start=1)
    ]
    return markdown(["", *columns], rows)


def count_function_words(words: Sequence[str]) -> int:
    """Return how many of some words are function words.

    >>> count_function_words(["the", "deficit", "from"])
    2
    """
    return sum(word in FUNCTION_WORDS for word in words)


def count_table(counted: dict[str, dict[str, list[str]]]) -> str:
    """Return the number of function words in every set of columns."""
    names = ("orphan", *LABELS)
    rows = [
        [title, *(str(count_function_words(columns[name])) for name in names)]
        for title, columns in counted.items()
    ]
    return markdown(["", *names], rows)


def account(
    orphan: Sequence[str], plain_orphan: Sequence[str], measured: dict[str, WordSums]
) -> str:
    """Say whether function words lead the orphan's column, and what was measured."""
    n_words, printed = count_function_words(orphan), {*published.top_words()["orphan"]}
    verb = "lead" if 2 * n_words > len(orphan) else "do not lead"
    groups = {
        f"{kind} words{title}": sums.means(function=kind == "function")
        for title, sums in measured.items()
        for kind in ("function", "other")
    }
    return (
        f"## Do function words lead the orphan's column?\n\nThey {verb} it: {n_words} "
        f"of {len(orphan)}; {len(printed & {*orphan})} are words of the published "
        f"column. Of the model without the amendment, {len(printed & {*plain_orphan})} "
        f"of {len(plain_orphan)} are. Means over occurrences:\n\n"
        f"{group_table(groups)}\n"
        "- Silent: the share of occurrences for which the convolution's ReLU leaves no "
        "feature, so that the capsules are those of the biases, the same for every "
        "such word.\n"
        "- With the amendment a coupling is scaled by the length of its capsule: a "
        "short one gives little to anybody, the orphan included. Without, every "
        "capsule gives as much, and frequent words lead.\n"
        "- The orphan's share: what it gets of all that these capsules give, the leak "
        "included.\n"
    )


def group_table(groups: dict[str, WordGroup]) -> str:
    """Return what was measured of groups of words."""
    rows = [
        [title, f"{group.occurrences:,}", *(f"{value:.4f}" for value in group[1:])]
        for title, group in groups.items()
    ]
    header = ["", "occurrences", "silent", "length", "coupling to the orphan"]
    return markdown([*header, "the orphan's share"], rows)
