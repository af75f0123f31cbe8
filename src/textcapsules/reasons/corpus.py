"""What speaks for every label throughout a corpus, and where the model is wrong.

Every text adds its phrases and words to the labels predicted for it, and to the orphan.
Strengths are the method's (no phrase is deleted and tried, of which there are too many)
and are added up, so phrases that are both strong and frequent come first. Texts
are read in pieces, and memory is bounded: when a label has too many phrases, the
weakest half of them is dropped.
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
    PhraseTotal,
    TokenSpan,
)
from textcapsules.reasons.methods import explainable_network, settle_method
from textcapsules.reasons.texts import explain

__all__ = ["StrengthSums", "explain_corpus", "find_mistake"]

TEXTS_AT_ONCE = 256
MAX_PHRASES = 50_000  # kept per label


class StrengthSums:
    """Sums of strengths by phrase or word, in bounded memory."""

    def __init__(self, max_phrases: int = MAX_PHRASES) -> None:
        self.max_phrases = max_phrases
        self.sums: dict[str, tuple[float, int]] = {}  # strength, count

    def add(self, text: str, strength: float) -> None:
        """Add one occurrence of a phrase or word."""
        total, count = self.sums.get(text, (0.0, 0))
        self.sums[text] = (total + strength, count + 1)
        if len(self.sums) > self.max_phrases:
            kept = heapq.nlargest(
                self.max_phrases // 2, self.sums.items(), key=lambda item: item[1]
            )
            self.sums = dict(kept)

    def strongest(self, top: int) -> tuple[PhraseTotal, ...]:
        """Return the strongest, alphabetically where they are equal."""
        ordered = heapq.nsmallest(
            top, self.sums.items(), key=lambda item: (-item[1][0], item[0])
        )
        return tuple(PhraseTotal(text, *sums) for text, sums in ordered)


class LabelSums:
    """The sums of one label so far."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.phrases, self.words = StrengthSums(), StrengthSums()

    def add(self, tokens: tuple[TokenSpan, ...], label: LabelExplanation) -> None:
        """Add the phrases and words of one text."""
        for phrase in label.phrases:
            self.phrases.add(" ".join(phrase.text.lower().split()), phrase.strength)
        for token, strength in zip(tokens, label.tokens, strict=True):
            self.words.add(token.text, strength)

    def strongest(self, top: int) -> LabelPhrases:
        """Return the strongest phrases and words."""
        return LabelPhrases(
            self.label, self.phrases.strongest(top), self.words.strongest(top)
        )


class Mistakes:
    """The most confident mistakes so far; of equally confident ones, the earlier."""

    def __init__(self, max_mistakes: int) -> None:
        self.max_mistakes = max_mistakes
        self.heap: list[tuple[float, int, Mistake]] = []  # the least confident first
        self.ages = count(0, -1)  # so that the earlier of equals stays

    def add(self, mistake: Mistake) -> None:
        """Keep a mistake if it is among the most confident."""
        heapq.heappush(self.heap, (mistake.confidence, next(self.ages), mistake))
        if len(self.heap) > self.max_mistakes:
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
        examples: texts with their labels; without labels no mistakes are listed.
        method: as for `explain`.
        top: the largest number of phrases, and of words, per label.
        mistakes: the largest number of texts listed that got wrong labels.
        on_texts: called with the number of texts done, piece by piece.
    """
    network = explainable_network(classifier)
    method = settle_method(classifier, method)
    has_capsules = isinstance(network, CapsuleNetwork)
    labels = [LabelSums(name) for name in classifier.labels.names]
    orphan, errors = LabelSums(ORPHAN), Mistakes(mistakes)
    n_texts, n_read, leak, orphan_share = 0, 0, 0.0, 0.0
    for explanation in explain_stream(classifier, examples, method, on_texts):
        n_texts += 1
        n_read += bool(explanation.tokens)
        leak += explanation.leak or 0.0
        orphan_share += explanation.orphan_share or 0.0
        for sums, label in zip(labels, explanation.labels, strict=True):
            if label.predicted:
                sums.add(explanation.tokens, label)
        if explanation.orphan is not None:
            orphan.add(explanation.tokens, explanation.orphan)
        mistake = find_mistake(classifier, explanation)
        if mistake is not None:
            errors.add(mistake)
    return CorpusExplanation(
        texts=n_texts,
        labels=tuple(sums.strongest(top) for sums in labels),
        orphan=orphan.strongest(top) if has_orphan(network) else None,
        leak=leak / max(n_read, 1) if has_capsules else None,
        orphan_share=orphan_share / max(n_read, 1) if has_capsules else None,
        mistakes=errors.ordered(),
        method=method,
    )


def explain_stream(
    classifier: TextClassifier,
    examples: Iterable[Example],
    method: str,
    on_texts: Callable[[int], None] | None = None,
) -> Iterator[Explanation]:
    """Yield the explanation of every example; some are explained at once."""
    examples, done = iter(examples), 0
    while piece := list(islice(examples, TEXTS_AT_ONCE)):
        yield from explain(
            classifier,
            [example.text for example in piece],
            method=method,
            true=[example.labels for example in piece],
            verify=False,
        )
        done += len(piece)
        if on_texts is not None:
            on_texts(done)


def find_mistake(
    classifier: TextClassifier, explanation: Explanation
) -> Mistake | None:
    """Return the mistake in a text's labels, if there is one, and its confidence.

    The confidence is how far the most wrong score lies on the wrong side: of its
    threshold, or, for a model of one label per text, of the true label's score.
    """
    true, predicted = explanation.true, explanation.predicted
    if not true or set(true) == set(predicted):
        return None
    scores = {label.label: label.score for label in explanation.labels}
    thresholds = dict(
        zip(classifier.labels.names, classifier.labels.thresholds, strict=True)
    )
    if classifier.labels.task == "single-label":
        best = max(scores.get(name, 0.0) for name in true)
        thresholds = dict.fromkeys(thresholds, best)
    wrong = [scores[name] - thresholds[name] for name in set(predicted) - set(true)]
    missed = [
        thresholds[name] - scores[name]
        for name in set(true) - set(predicted)
        if name in scores
    ]
    return Mistake(explanation.text, predicted, true, max([*wrong, *missed, 0.0]))
