"""Table A.3: the words with the strongest connections to the orphan and to some labels.

A primary capsule of a uni-gram model stands for one word of the text. Its coupling to a
parent is a share of the leaky softmax. With the amendment this share is multiplied by
the length of the capsule, so that a capsule gives its length in all; without, one. A
word is silent if the convolution's ReLU leaves it no feature: its capsules are then
those of the biases, the same for every silent word.
"""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from textcapsules.base.errors import ConfigError
from textcapsules.base.files import write_text
from textcapsules.data.example import Example
from textcapsules.lab.paper import published
from textcapsules.lab.paper.displays import check_page, describe_model
from textcapsules.lab.paper.figures import markdown
from textcapsules.model.classifier import TextClassifier
from textcapsules.reasons.corpus import explain_corpus
from textcapsules.reasons.couplings import branches_of, existence
from textcapsules.reasons.explanation import LabelPhrases
from textcapsules.reasons.methods import capsule_network
from textcapsules.text.batch import epoch_batches, make_batch

__all__ = [
    "A3_MARK",
    "A3_PAGE",
    "FUNCTION_WORDS",
    "WordGroup",
    "WordSums",
    "count_function_words",
    "sum_words",
    "word_columns",
    "write_a3",
]

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
    silent: float  # share of the occurrences without a feature
    length: float  # of their capsules
    coupled: float  # to the orphan
    share: float  # what the orphan gets, of all that they give, the leak included


class WordSums(NamedTuple):
    """Sums over the occurrences of each of V words; a word's capsules are averaged."""

    words: tuple[str, ...]
    counts: NDArray[np.float64]  # (V,)
    silent: NDArray[np.float64]  # (V,)
    lengths: NDArray[np.float64]  # (V,)
    given: NDArray[np.float64]  # (V,), to all parents, the leak included
    coupled: NDArray[np.float64]  # (V,), given to the orphan

    def means(self, *, function: bool) -> WordGroup:
        """Return the means over the function words, or over the others."""
        in_group = np.array([word in FUNCTION_WORDS for word in self.words]) == function
        totals = [float(part[in_group].sum()) for part in self[1:]]
        count, silent, length, given, coupled = totals
        n = max(count, 1.0)
        share = coupled / given if given else 0.0
        return WordGroup(int(count), silent / n, length / n, coupled / n, share)


@torch.no_grad()
def sum_words(classifier: TextClassifier, texts: Sequence[str]) -> WordSums:
    """Return sums over the capsules of each word, from a uni-gram model.

    Args:
        classifier: a capsule network with an orphan, of one n-gram size, 1, and
            without convolutional capsules.
        texts: words that the model does not know are left out.
    """
    network = capsule_network(classifier)
    was_training = network.training
    network.eval()
    (branch,) = branches_of(network)
    device = next(network.parameters()).device
    words = tuple(classifier.tokenizer.words)
    totals = torch.zeros(len(words), 5, dtype=torch.float64)
    documents = classifier.encode(texts)
    nothing = np.zeros((len(documents), 0), np.float32)
    sizes = [len(ids) for ids in documents]
    for rows in epoch_batches(sizes, BATCH_SIZE, seed=0, epoch=0, shuffle=False):
        batch = make_batch(documents, nothing, rows).to(device)
        (routing,) = network(batch.ids, batch.mask, inspect=True).branches
        given = existence(branch.classes, routing.capsules)  # (B, T, C)
        orphan = routing.classes.couplings[..., -1].unflatten(1, given.shape[1:])
        lengths = torch.linalg.vector_norm(routing.capsules, dim=-1)
        features, _ = branch.ngrams(network.embedding(batch.ids), batch.mask)
        silent = (features == 0).all(-1, keepdim=True).expand_as(given)
        ones = torch.ones_like(given)
        parts = [ones, silent.to(given), lengths, given, orphan]
        sums = torch.stack([part.mean(2) for part in parts], -1)[batch.mask]
        totals.index_add_(0, batch.ids[batch.mask].cpu(), sums.double().cpu())
    network.train(was_training)
    first = classifier.tokenizer.first_word
    occurring = np.flatnonzero(totals[:, 0].numpy() * (np.arange(len(words)) >= first))
    return WordSums(
        tuple(words[row] for row in occurring),
        *totals[occurring].numpy().T.astype(np.float64),
    )


def word_columns(
    classifier: TextClassifier,
    examples: Iterable[Example],
    labels: Sequence[str],
    *,
    top: int = 20,
    method: str = "couplings",
) -> tuple[LabelPhrases, ...]:
    """Return the columns of table A.3: the orphan, if there is one, then some labels.

    The paper's model for it has uni-grams (K1 = 1) and no convolutional capsules. A
    word's strengths are added up over the texts that got the label; the orphan's over
    all texts.
    """
    unknown = [label for label in labels if label not in classifier.labels.names]
    if unknown:
        names = ", ".join(classifier.labels.names)
        raise ConfigError(f"labels must be some of {names}; got {unknown[0]!r}.")
    summary = explain_corpus(classifier, examples, method=method, top=top, mistakes=0)
    by_label = {column.label: column for column in summary.labels}
    orphan = () if summary.orphan is None else (summary.orphan,)
    return (*orphan, *(by_label[label] for label in labels))


A3_PAGE, A3_MARK = "A3.md", "Generated by `textcapsules reproduce a3`"
LABELS = ("trade", "money-fx", "interest")
TOP = 20  # words per column, as published


def write_a3(
    classifier: TextClassifier,
    plain: TextClassifier,
    examples: Sequence[Example],
    folder: Path,
) -> list[Path]:
    """Write the columns and the section on function words, and return the file.

    Args:
        classifier: the uni-gram model.
        plain: the same model, trained without the amendment of couplings.
        examples: the texts explained.
        folder: where the page goes.
    """
    check_page(folder / A3_PAGE, A3_MARK)
    texts = [example.text for example in examples]
    columns, plain_columns = (
        strongest_words(model, examples) for model in (classifier, plain)
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
        f"{A3_MARK}; do not edit. {describe_model(classifier)} Explained: "
        f"{len(examples):,} test texts. The couplings of a word are added up over the "
        "texts that got the label; those to the orphan over all texts.\n",
        word_table(columns),
        "Function words (articles, pronouns, prepositions, conjunctions, auxiliaries) "
        f"among the first {TOP}:\n",
        count_table(counted),
        function_words_section(columns["orphan"], plain_columns["orphan"], measured),
        "## The columns of the model without the amendment\n",
        f"{describe_model(plain)}\n",
        word_table(plain_columns),
    ]
    write_text(folder / A3_PAGE, "\n".join(parts))
    return [folder / A3_PAGE]


def strongest_words(
    classifier: TextClassifier, examples: Sequence[Example]
) -> dict[str, list[str]]:
    """Return the strongest words of the orphan and of each label, by its name."""
    columns = word_columns(classifier, examples, LABELS, top=TOP)
    return {
        name: [word.text for word in column.words]
        for name, column in zip(("orphan", *LABELS), columns, strict=True)
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


def function_words_section(
    orphan: Sequence[str], plain_orphan: Sequence[str], measured: dict[str, WordSums]
) -> str:
    """Return whether function words lead the column of the orphan, and the means."""
    n_words, in_paper = count_function_words(orphan), {*published.top_words()["orphan"]}
    verb = "lead" if 2 * n_words > len(orphan) else "do not lead"
    groups = {
        f"{kind} words{title}": sums.means(function=kind == "function")
        for title, sums in measured.items()
        for kind in ("function", "other")
    }
    return (
        f"## Do function words lead the orphan's column?\n\nThey {verb} it: {n_words} "
        f"of {len(orphan)}; {len(in_paper & {*orphan})} are words of the published "
        f"column. In the model without the amendment, {len(in_paper & {*plain_orphan})}"
        f" of {len(plain_orphan)} are. Means over occurrences:\n\n"
        f"{group_table(groups)}\n"
        "- Silent: the share of occurrences for which the ReLU of the convolution "
        "leaves no feature. Their capsules are those of the biases, the same for every "
        "such word.\n"
        "- With the amendment, a coupling is multiplied by its capsule's length: a "
        "short capsule gives little to any parent, the orphan included. Without it, "
        "every capsule gives the same amount, and frequent words lead.\n"
        "- The orphan's share: what it gets of all that these capsules give, the leak "
        "included.\n"
    )


def group_table(groups: dict[str, WordGroup]) -> str:
    """Return the means of groups of words as a table."""
    rows = [
        [title, f"{group.occurrences:,}", *(f"{value:.4f}" for value in group[1:])]
        for title, group in groups.items()
    ]
    header = ["", "occurrences", "silent", "length", "coupling to the orphan"]
    return markdown([*header, "the orphan's share"], rows)
