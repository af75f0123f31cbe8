"""What in a corpus keeps a model from learning, told in words before training.

Nothing here stops a run: each message names the labels and their counts, and ends in
the run's record (`warnings` of training.json) and on stderr.
"""

from collections import Counter
from collections.abc import Iterable

from textcapsules.data.example import Corpus, Example

__all__ = ["FEW_TEXTS", "data_warnings"]

FEW_TEXTS = 10  # training texts of a label below which it is named
NAMED = 5  # labels named in one message, at most


def data_warnings(corpus: Corpus) -> list[str]:
    """Return one message per kind of shortage, none for a corpus without any."""
    train, dev, test = map(count_labels, (corpus.train, corpus.dev, corpus.test))
    labels = sorted({*corpus.labels, *test})
    unseen = [label for label in labels if not train[label]]
    few = [label for label in labels if 0 < train[label] < FEW_TEXTS]
    few.sort(key=lambda label: train[label])  # the rarest first
    found = []
    if unseen:
        counts = name_some(
            f"{label!r} ({dev[label]} dev, {test[label]} test)" for label in unseen
        )
        found.append(
            f"{count_of(unseen)} no training text and cannot be learnt: {counts}. Add "
            "texts, or remove the label."
        )
    if few:
        counts = name_some(f"{label!r} ({train[label]})" for label in few)
        found.append(
            f"{count_of(few)} fewer than {FEW_TEXTS} training texts: {counts}. Expect "
            "little of such labels; add texts if you can."
        )
    if len(dev) < 2:
        found.append(
            f"the dev set has {len(corpus.dev)} {plural(len(corpus.dev), 'text')} of "
            f"{len(dev)} {plural(len(dev), 'label')}: the threshold stays at 0.5, "
            "uncalibrated. Add texts, or raise --dev-fraction."
        )
    return found


def count_labels(examples: Iterable[Example]) -> Counter[str]:
    """Return how many texts carry each label."""
    return Counter(label for example in examples for label in set(example.labels))


def count_of(labels: list[str]) -> str:
    """Return the start of a sentence about some labels."""
    return f"{len(labels):,} {'label has' if len(labels) == 1 else 'labels have'}"


def plural(n: int, noun: str) -> str:
    """Return a noun as it stands beside a number."""
    return noun if n == 1 else f"{noun}s"


def name_some(labels: Iterable[str]) -> str:
    """Return the first few, and how many more there are.

    >>> name_some("abcdefg")
    'a, b, c, d, e and 2 more'
    """
    names = list(labels)
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more:,} more" if more > 0 else "")
