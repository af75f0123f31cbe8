"""What speaks for every label throughout a corpus, and where the model is wrong.

Every text adds its phrases and words to the labels predicted for it, and to the orphan.
Function words at the ends of phrases are cut off, and strengths are added up: those of
the method, for there are too many phrases to delete each and see. A word that comes as
often with other labels says little about this one, however strong: each word has
log-odds, and a label's list is in the order of strength times log-odds. Texts
are read in pieces, and memory is bounded: when a label has too many phrases, the
weakest half of them is dropped.

The log-odds δ are those of Monroe, Colaresi and Quinn (2008), "Fightin' Words". Word w
comes y times in the n words of the texts with the label, and y' times in the n' words
of the others. Each side gets `PRIOR` words more, shared out as in all texts together:

    α = PRIOR (y + y') / (n + n')
    δ = log (y + α) / (n + PRIOR - y - α) - log (y' + α) / (n' + PRIOR - y' - α)
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count, islice
from math import log
from typing import NamedTuple

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
from textcapsules.text.function_words import is_function_word, trim_phrase

__all__ = ["StrengthSums", "explain_corpus", "find_mistake", "log_odds"]

TEXTS_AT_ONCE = 256
MAX_PHRASES = 50_000  # kept per label
PRIOR = 200.0  # words; the more, the less is made of a word that came a few times


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


class Word(NamedTuple):
    """A word of a text, and which of the text's tokens make it up."""

    text: str
    start: int
    end: int


def whole_words(tokens: Sequence[TokenSpan], *, in_pieces: bool) -> list[Word]:
    """Return the words of a text; word pieces that touch are one word.

    >>> spans = TokenSpan("pass", 0, 4), TokenSpan("word", 4, 8), TokenSpan("!", 8, 9)
    >>> [word.text for word in whole_words(spans, in_pieces=True)]
    ['password', '!']
    """
    words: list[Word] = []
    for place, token in enumerate(tokens):
        before = tokens[place - 1] if place and in_pieces else None
        if (
            before is not None
            and before.end == token.start
            and before.text[-1:].isalnum()
            and token.text[:1].isalnum()
        ):
            text, start, _ = words.pop()
            words.append(Word(text + token.text, start, place + 1))
        else:
            words.append(Word(token.text, place, place + 1))
    return words


class LabelSums:
    """The sums of one label so far."""

    def __init__(self, label: str) -> None:
        self.label, self.n_words = label, 0
        self.phrases, self.words = StrengthSums(), StrengthSums()

    def add(self, words: Sequence["Word"], label: LabelExplanation) -> None:
        """Add the phrases and words of one text."""
        for phrase in label.phrases:
            if trimmed := trim_phrase(phrase.text.lower()):
                self.phrases.add(trimmed, phrase.strength)
        for text, start, end in words:
            self.words.add(text, sum(label.tokens[start:end]))
        self.n_words += len(words)

    def strongest(self, top: int) -> LabelPhrases:
        """Return the strongest phrases and words, whatever other labels have."""
        return LabelPhrases(
            self.label, self.phrases.strongest(top), self.words.strongest(top)
        )

    def telling(self, top: int, counts: Counter[str]) -> LabelPhrases:
        """Return the phrases and words that are strong here and rare elsewhere.

        Args:
            top: the largest number of phrases, and of words.
            counts: of each word in all texts.
        """
        n_all = counts.total()

        def odds(word: str) -> float:
            here, total = self.words.sums.get(word, (0, 0))[1], counts[word]
            elsewhere = (total - here, n_all - self.n_words)
            return max(0.0, log_odds((here, self.n_words), elsewhere))

        words = [
            replace(each, odds=odds(each.text))
            for each in self.words.strongest(len(self.words.sums))
            if not is_function_word(each.text)
        ]
        own = {each.text: each.odds for each in words}
        phrases = []
        for each in self.phrases.strongest(len(self.phrases.sums)):
            parts = [own[word] for word in each.text.split() if word in own]
            if parts:
                phrases.append(replace(each, odds=sum(parts) / len(parts)))
        return LabelPhrases(
            self.label,
            without_variants(sorted(phrases, key=telling_order), top),
            tuple(each for each in sorted(words, key=telling_order) if each.odds)[:top],
        )


def telling_order(total: PhraseTotal) -> tuple[float, str]:
    """Return what sorts by strength times log-odds, alphabetically where equal."""
    return -total.strength * total.odds, total.text


def log_odds(here: tuple[int, int], elsewhere: tuple[int, int]) -> float:
    """Return how much likelier a word is here than elsewhere, as a logarithm.

    Args:
        here: how often the word came, and how many words there are.
        elsewhere: the same of all other texts.

    >>> log_odds((5, 100), (50, 1000))
    0.0
    """
    (y, n), (other, n_other) = here, elsewhere
    if not n + n_other:
        return 0.0
    alpha = PRIOR * (y + other) / (n + n_other)
    odds = (
        (count + alpha) / max(size + PRIOR - count - alpha, 1e-9)
        for count, size in (here, elsewhere)
    )
    mine, theirs = odds
    return log(mine / theirs) if mine and theirs else 0.0


def without_variants(
    phrases: Iterable[PhraseTotal], top: int
) -> tuple[PhraseTotal, ...]:
    """Return the first `top` phrases that are no longer or shorter form of another."""
    kept: list[tuple[set[str], PhraseTotal]] = []
    for phrase in phrases:
        words = {word for word in phrase.text.split() if not is_function_word(word)}
        if len(kept) == top:
            break
        if not any(words <= other or other <= words for other, _ in kept):
            kept.append((words, phrase))
    return tuple(phrase for _, phrase in kept)


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
    counts: Counter[str] = Counter()  # of words in all texts
    in_pieces = classifier.tokenizer.rule == "pieces"
    n_texts, n_read, leak, orphan_share = 0, 0, 0.0, 0.0
    for explanation in explain_stream(classifier, examples, method, on_texts):
        n_texts += 1
        n_read += bool(explanation.tokens)
        leak += explanation.leak or 0.0
        orphan_share += explanation.orphan_share or 0.0
        words = whole_words(explanation.tokens, in_pieces=in_pieces)
        counts.update(word.text for word in words)
        for sums, label in zip(labels, explanation.labels, strict=True):
            if label.predicted:
                sums.add(words, label)
        if explanation.orphan is not None:
            orphan.add(words, explanation.orphan)
        mistake = find_mistake(classifier, explanation)
        if mistake is not None:
            errors.add(mistake)
    return CorpusExplanation(
        texts=n_texts,
        labels=tuple(sums.telling(top, counts) for sums in labels),
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
