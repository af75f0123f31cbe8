"""What spoke for every label throughout a corpus, and where the model errs.

A text adds its phrases and words to the labels predicted for it, and to the orphan in
any case. Strengths are added up, so what is both strong and frequent leads. Texts are
read in pieces, and what is remembered of a label is bounded: when there are too many
phrases, the weakest half of them is forgotten.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice

from textcapsules.data.example import Example
from textcapsules.model.capsnet import CapsuleNetwork
from textcapsules.model.classifier import TextClassifier
from textcapsules.reasons.couplings import has_orphan
from textcapsules.reasons.explanation import (
    ORPHAN,
    CorpusExplanation,
    Explanation,
    LabelExplanation,
    LabelPhrases,
    Mistake,
    Spoken,
    TokenSpan,
)
from textcapsules.reasons.methods import explainable_network
from textcapsules.reasons.strengths import settle_method
from textcapsules.reasons.texts import explain

__all__ = ["Tally", "explain_corpus", "find_mistake"]

TOGETHER = 256  # texts explained at once
REMEMBERED = 50_000  # phrases of a label


class Tally:
    """Strengths added up by text, in bounded memory."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self.remembered = remembered
        self.found: dict[str, tuple[float, int]] = {}

    def add(self, text: str, strength: float) -> None:
        """Count a phrase or word that spoke."""
        total, times = self.found.get(text, (0.0, 0))
        self.found[text] = (total + strength, times + 1)
        if len(self.found) > self.remembered:
            kept = heapq.nlargest(
                self.remembered // 2, self.found.items(), key=lambda item: item[1]
            )
            self.found = dict(kept)

    def strongest(self, top: int) -> tuple[Spoken, ...]:
        """Return the strongest, alphabetically where they are equal."""
        ordered = heapq.nsmallest(
            top, self.found.items(), key=lambda item: (-item[1][0], item[0])
        )
        return tuple(Spoken(text, *found) for text, found in ordered)


class LabelTally:
    """What spoke for one label so far."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.phrases, self.words = Tally(), Tally()

    def add(self, tokens: tuple[TokenSpan, ...], found: LabelExplanation) -> None:
        """Add what spoke in one text."""
        for phrase in found.phrases:
            self.phrases.add(" ".join(phrase.text.lower().split()), phrase.strength)
        for token, strength in zip(tokens, found.tokens, strict=True):
            self.words.add(token.text, strength)

    def strongest(self, top: int) -> LabelPhrases:
        """Return the strongest phrases and words."""
        return LabelPhrases(
            self.label, self.phrases.strongest(top), self.words.strongest(top)
        )


class Mistakes:
    """The most confident mistakes so far; of equal ones the earlier."""

    def __init__(self, at_most: int) -> None:
        self.at_most = at_most
        self.heap: list[tuple[float, int, Mistake]] = []  # the least confident first
        self.ages = count(0, -1)

    def add(self, mistake: Mistake) -> None:
        """Keep a mistake if it is among the most confident."""
        heapq.heappush(self.heap, (mistake.confidence, next(self.ages), mistake))
        if len(self.heap) > self.at_most:
            heapq.heappop(self.heap)

    def ordered(self) -> tuple[Mistake, ...]:
        """Return them, most confident first."""
        return tuple(mistake for _, _, mistake in sorted(self.heap, reverse=True))


def explain_corpus(
    classifier: TextClassifier,
    examples: Iterable[Example],
    *,
    method: str | None = None,
    top: int = 20,
    mistakes: int = 10,
    on_texts: Callable[[int], None] | None = None,
) -> CorpusExplanation:
    """Explain a corpus of any size.

    Args:
        classifier: as for `explain`.
        examples: texts with their labels; without, no mistake is found in them.
        method: as for `explain`.
        top: phrases and words listed a label, at most.
        mistakes: texts listed that got wrong labels, most confident first.
        on_texts: called with the number of texts done, piece by piece.
    """
    network = explainable_network(classifier)
    method = settle_method(network, method)
    routed = isinstance(network, CapsuleNetwork)
    tallies = [LabelTally(name) for name in classifier.labels.names]
    orphan, errors = LabelTally(ORPHAN), Mistakes(mistakes)
    n_texts, n_read, leak, orphan_share = 0, 0, 0.0, 0.0
    for explanation in explain_stream(classifier, examples, method, on_texts):
        n_texts += 1
        n_read += bool(explanation.tokens)
        leak += explanation.leak or 0.0
        orphan_share += explanation.orphan_share or 0.0
        for tally, found in zip(tallies, explanation.labels, strict=True):
            if found.predicted:
                tally.add(explanation.tokens, found)
        if explanation.orphan is not None:
            orphan.add(explanation.tokens, explanation.orphan)
        mistake = find_mistake(classifier, explanation)
        if mistake is not None:
            errors.add(mistake)
    return CorpusExplanation(
        texts=n_texts,
        labels=tuple(tally.strongest(top) for tally in tallies),
        orphan=orphan.strongest(top) if has_orphan(network) else None,
        leak=leak / max(n_read, 1) if routed else None,
        orphan_share=orphan_share / max(n_read, 1) if routed else None,
        mistakes=errors.ordered(),
        method=method,
    )


def explain_stream(
    classifier: TextClassifier,
    examples: Iterable[Example],
    method: str,
    on_texts: Callable[[int], None] | None = None,
) -> Iterator[Explanation]:
    """Explain examples one after the other, some at a time."""
    examples, done = iter(examples), 0
    while piece := list(islice(examples, TOGETHER)):
        yield from explain(
            classifier,
            [example.text for example in piece],
            method=method,
            true=[example.labels for example in piece],
        )
        done += len(piece)
        if on_texts is not None:
            on_texts(done)


def find_mistake(
    classifier: TextClassifier, explanation: Explanation
) -> Mistake | None:
    """Return what is wrong about a text's labels, if anything, and how sure it was.

    Confidence is how far the most wrong score lies on the wrong side: of its threshold,
    or for a model of one label a text, of the true label's score.
    """
    true, predicted = explanation.true, explanation.predicted
    if not true or set(true) == set(predicted):
        return None
    scores = {found.label: found.score for found in explanation.labels}
    limits = dict(
        zip(classifier.labels.names, classifier.labels.thresholds, strict=True)
    )
    if classifier.labels.task == "single-label":
        limits = dict.fromkeys(limits, max(scores.get(name, 0.0) for name in true))
    wrong = [scores[name] - limits[name] for name in set(predicted) - set(true)]
    missed = [
        limits[name] - scores[name]
        for name in set(true) - set(predicted)
        if name in scores
    ]
    return Mistake(explanation.text, predicted, true, max([*wrong, *missed, 0.0]))
