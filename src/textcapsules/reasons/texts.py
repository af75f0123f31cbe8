"""Explain texts: which phrases spoke for each label, and what each is worth.

`explain` runs the network once per batch for the strengths of the method, deletes the
phrases that these propose, and predicts again, all phrases of a batch at once
(`trials`). The fields of an explanation are made from these arrays when they are first
read: `BatchSource`, `TextSource` and `LabelSource` hold what is needed for that.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from textcapsules.base.checks import check_decision, read_texts
from textcapsules.base.errors import ConfigError
from textcapsules.model.classifier import TextClassifier
from textcapsules.reasons.changes import find_change
from textcapsules.reasons.explanation import (
    ORPHAN,
    Change,
    Explanation,
    LabelExplanation,
    Phrase,
    Sentence,
    TokenSpan,
    Trial,
)
from textcapsules.reasons.methods import (
    batch_for,
    evaluating,
    explainable_network,
    settle_method,
)
from textcapsules.reasons.phrases import PickedPhrases, joints, propose_phrases, tidy
from textcapsules.reasons.strengths import Strengths, find_strengths
from textcapsules.reasons.trials import (
    MIN_AGAINST,
    MIN_FALL,
    Place,
    choose_places,
    documents_without,
    lengths_of_documents,
    neighbours,
)
from textcapsules.text.batch import epoch_batches
from textcapsules.text.encode import (
    WordCounts,
    count_words,
    drop_unreadable,
    spelling_options,
)
from textcapsules.text.function_words import is_function_word
from textcapsules.text.pieces import PieceTokenizer, sentence_places
from textcapsules.text.vocabulary import UNK_ID, Located, TextTokenizer

__all__ = ["BatchSource", "TextSource", "explain", "locate_texts", "what_would_change"]

BATCH_SIZE = 32  # the couplings of more leave a CPU's caches
PRICES = (0.15, 0.5)  # of a token in a phrase: longer candidates, and shorter ones
MAX_CANDIDATES = 8  # per price, for a label that is given
OTHER_LABELS = 3  # the highest that are not given: their candidates are tried too
OTHER_CANDIDATES = 3
AGAINST_CANDIDATES = 3
MAX_SENTENCES = 50  # that are deleted, the first ones


class RowTrials(NamedTuple):
    """What was deleted from one text, and how far all lengths fell."""

    places: list[Place]
    falls: NDArray[np.float32]  # (phrases, E)
    sentences: list[Place]
    sentence_falls: NDArray[np.float32]  # (sentences, E)


@dataclass(frozen=True)
class BatchSource:
    """Strengths and decisions for some texts together: B texts, J classes."""

    tokenizer: TextTokenizer | PieceTokenizer
    names: tuple[str, ...]  # of the J classes
    strengths: Strengths
    chosen: NDArray[np.bool_]  # (B, J)
    limits: NDArray[np.float64]  # (B, J), what a score must reach
    n_tokens: NDArray[np.int64]  # (B,)
    top: int

    @cached_property
    def proposed(self) -> list[PickedPhrases]:
        """The candidates at each price, strongest first."""
        return [self.propose(price) for price in PRICES]

    @cached_property
    def opposed(self) -> PickedPhrases:
        """The candidates that speak against labels."""
        return self.propose(PRICES[0], against=True)

    def propose(self, price: float, *, against: bool = False) -> PickedPhrases:
        """Pick candidates at a price."""
        top = min(self.top, MAX_CANDIDATES)
        return propose_phrases(
            self.strengths, self.n_tokens, top, price=price, against=against
        )


class TextSource(NamedTuple):
    """One text of a batch; its methods compute fields of an `Explanation`."""

    batch: BatchSource
    row: int
    text: str
    located: Located
    tried: RowTrials | None  # None if nothing was to be deleted

    def tokens(self) -> tuple[TokenSpan, ...]:
        """Return the tokens that the model read."""
        return tuple(self.batch.tokenizer.pieces(self.text, self.located))

    def labels(self) -> tuple[LabelExplanation, ...]:
        """Return every class's explanation, its phrases and strengths for later."""
        scores = self.batch.strengths.lengths[self.row].tolist()
        chosen = self.batch.chosen[self.row].tolist()
        limits = self.batch.limits[self.row].tolist()
        return tuple(
            LabelExplanation.later(
                LabelSource(self, place),
                label=name,
                score=scores[place],
                predicted=chosen[place],
                threshold=limits[place],
                change=None,
            )
            for place, name in enumerate(self.batch.names)
        )

    def orphan(self) -> LabelExplanation | None:
        """Return the orphan's explanation, if the model has one."""
        scores, place = self.batch.strengths.lengths[self.row], len(self.batch.names)
        if len(scores) == place:
            return None
        return LabelExplanation.later(
            LabelSource(self, place),
            label=ORPHAN,
            score=float(scores[place]),
            predicted=False,
            threshold=0.0,
            change=None,
        )

    def trials(self) -> tuple[Trial, ...]:
        """Return all phrases that were deleted, in the text's order."""
        if self.tried is None:
            return ()
        n_labels = len(self.batch.names)
        pairs = zip(self.tried.places, self.tried.falls.tolist(), strict=True)
        found = [Trial(*place, tuple(falls[:n_labels])) for place, falls in pairs]
        return tuple(sorted(found))

    def sentences(self) -> tuple[Sentence, ...]:
        """Return the sentences, with the falls of the labels that were given."""
        if self.tried is None:
            return ()
        given = np.flatnonzero(self.batch.chosen[self.row]).tolist()
        return tuple(
            Sentence(*place, {self.batch.names[j]: float(falls[j]) for j in given})
            for place, falls in zip(
                self.tried.sentences, self.tried.sentence_falls, strict=True
            )
        )

    def candidates(
        self, picked: PickedPhrases, column: int, top: int
    ) -> Iterator[tuple[Place, float]]:
        """Yield the places of a class's candidates with tidy ends, and its strength."""
        parts = (part[self.row, column, :top].tolist() for part in picked[:3])
        tokens = self.batch.strengths.tokens[self.row, :, column]
        places = self.located.places
        begins = self.clause_begins()
        for start, end, strength in zip(*parts, strict=True):
            if strength <= 0:
                break
            for part in clause_parts(begins, tokens, start, end):
                first, last = tidy(self.text, places, tokens, *part)
                place = places[first][0], places[last - 1][1]
                # Without an "and" two clauses may run together: no reason.
                if all(map(is_function_word, self.text[slice(*place)].split())):
                    continue
                if not self.batch.strengths.of_ngrams:
                    strength = float(tokens[first:last].sum())
                yield place, strength

    def clause_begins(self) -> list[int]:
        """Return the tokens that begin a clause."""
        places = self.located.places
        return [bisect_left(places, (start, start)) for start in joints(self.text)]

    def to_try(self, wanted: Sequence[int]) -> list[Place]:
        """Return the phrases to be deleted, those of the wanted classes first."""
        batch = self.batch
        n_classes = len(batch.names)
        scores = batch.strengths.lengths[self.row, :n_classes]
        others = [j for j in np.argsort(-scores, kind="stable") if j not in wanted]
        orphan = range(n_classes, batch.strengths.lengths.shape[1])
        found: dict[Place, None] = {}
        for column in wanted:
            for picked in batch.proposed:
                pairs = list(self.candidates(picked, column, batch.top))
                places = [place for place, _ in pairs]
                found.update(dict.fromkeys([*places, *neighbours(places, self.text)]))
            against = self.candidates(batch.opposed, column, AGAINST_CANDIDATES)
            if not batch.strengths.of_ngrams:
                found.update(dict.fromkeys(place for place, _ in against))
        for column in [*others[:OTHER_LABELS], *orphan]:
            pairs = self.candidates(batch.proposed[0], column, OTHER_CANDIDATES)
            found.update(dict.fromkeys(place for place, _ in pairs))
        return list(found)


def clause_parts(
    begins: Sequence[int], strengths: NDArray, start: int, end: int
) -> list[tuple[int, int]]:
    """Return the parts of a phrase that lie in one clause each, the strongest first.

    Parts whose tokens speak against the label are left out, unless all do.

    >>> clause_parts([0, 3], np.array([0.1, 0.2, 0.1, 0.3, 0.2]), 1, 5)
    [(3, 5), (1, 3)]
    """
    cuts = [start, *(begin for begin in begins if start < begin < end), end]

    def strength(part: tuple[int, int]) -> float:
        return float(strengths[slice(*part)].sum())

    ordered = sorted(pairwise(cuts), key=strength, reverse=True)
    return [part for part in ordered if strength(part) > 0] or ordered[:1]


class LabelSource(NamedTuple):
    """One class of a text; its methods compute fields of a `LabelExplanation`."""

    text: TextSource
    place: int  # among the classes, the orphan last

    def phrases(self) -> tuple[Phrase, ...]:
        """Return what the score falls without; what was not tried, as proposed."""
        source, top = self.text, self.text.batch.top
        if source.tried is not None:
            falls = source.tried.falls[:, self.place]
            given = [*source.batch.chosen[source.row], False][self.place]
            # Where a reason stands twice in a text, either alone is worth little.
            least = 0.0 if given else MIN_FALL
            tried = source.tried
            whole = dict(
                zip(tried.sentences, tried.sentence_falls[:, self.place], strict=True)
            )
            return self.cut(
                choose_places(tried.places, falls, top, least=least, sentences=whole)
            )
        picked = source.batch.proposed[0]
        return self.cut(list(source.candidates(picked, self.place, top)))

    def against(self) -> tuple[Phrase, ...]:
        """Return what the score rises without."""
        if self.text.tried is None:
            return ()
        rises = -self.text.tried.falls[:, self.place]
        found = choose_places(self.text.tried.places, rises, self.text.batch.top)
        return self.cut([(p, -rise) for p, rise in found if rise >= MIN_AGAINST])

    def cut(self, places: Sequence[tuple[Place, float]]) -> tuple[Phrase, ...]:
        """Cut phrases out of the text."""
        text, tokens = self.text.text, self.text.located.places
        return tuple(
            Phrase(
                text[start:end],
                start,
                end,
                strength,
                sum(start <= first and last <= end for first, last in tokens),
            )
            for (start, end), strength in places
        )

    def tokens(self) -> tuple[float, ...]:
        """Return one strength per token."""
        batch, row, located = self.text.batch, self.text.row, self.text.located
        n_tokens = len(located.places)
        return tuple(batch.strengths.tokens[row, :n_tokens, self.place].tolist())


@overload
def explain(
    classifier: TextClassifier,
    texts: str,
    *,
    method: str | None = None,
    top: int = 10,
    true: Sequence[str] | None = None,
    multi_label: bool | None = None,
    threshold: float | None = None,
    refuse: bool = True,
    about: Sequence[str] = (),
    verify: bool = True,
    changes: bool = False,
) -> Explanation: ...
@overload
def explain(
    classifier: TextClassifier,
    texts: list[str] | tuple[str, ...],
    *,
    method: str | None = None,
    top: int = 10,
    true: Sequence[Sequence[str]] | None = None,
    multi_label: bool | None = None,
    threshold: float | None = None,
    refuse: bool = True,
    about: Sequence[str] = (),
    verify: bool = True,
    changes: bool = False,
) -> list[Explanation]: ...
def explain(
    classifier: TextClassifier,
    texts: str | list[str] | tuple[str, ...],
    *,
    method: str | None = None,
    top: int = 10,
    true: Sequence[str] | Sequence[Sequence[str]] | None = None,
    multi_label: bool | None = None,
    threshold: float | None = None,
    refuse: bool = True,
    about: Sequence[str] = (),
    verify: bool = True,
    changes: bool = False,
) -> Explanation | list[Explanation]:
    """Explain one text, or several.

    A phrase's strength is how far the label's score falls when the phrase is deleted
    and the model predicts again. The method proposes the phrases.

    Args:
        classifier: a capsule network, a CNN, an LSTM, TF-IDF or fastText.
        texts: one text, or a list of them.
        method: which proposes phrases and gives tokens their strengths:
            `contributions`, `sampled` or `couplings` of capsules, `gradient`,
            `integrated` or `erasure`. If None, the one that was most faithful on dev
            texts in training, or `contributions` for capsules, `gradient` for a CNN,
            `integrated` for an LSTM, `erasure` for the rest.
        top: the largest number of phrases per label.
        true: the labels that the text, or each text, should get; they are shown beside
            the predicted ones.
        multi_label: which labels count as predicted; see `TextClassifier.decide`.
        threshold: one for all labels, in place of the calibrated ones.
        refuse: no label counts as predicted for a text outside the training topics.
        about: labels to be looked at as closely as the predicted ones.
        verify: delete the phrases and predict again. If not, a phrase's strength is the
            method's: cheaper for many texts, but of another scale.
        changes: look for the deletions that would turn a decision round, for the
            predicted labels and those in `about`.
    """
    decision: dict[str, Any] = {"multi_label": multi_label, "threshold": threshold}
    options = {"method": method, "top": top, "about": about, **decision}
    if isinstance(texts, str):
        labels = None if true is None else [label_names(true)]
        return explain(
            classifier,
            [texts],
            true=labels,
            refuse=refuse,
            verify=verify,
            changes=changes,
            **options,
        )[0]
    check_decision(multi_label, threshold)
    texts = read_texts(texts)
    network = explainable_network(classifier)
    method = settle_method(classifier, method)
    check_request(classifier, texts, top, true, about)
    if changes and not verify:
        raise ConfigError("changes must go with verify; got verify=False.")
    located, counts, outside = locate_counted(classifier, texts)
    documents = [each.ids for each in located]
    sizes = np.array([len(ids) for ids in documents])
    names, tokenizer = classifier.labels.names, classifier.tokenizer
    explanations: dict[int, Explanation] = {}
    with evaluating(network):
        for rows in epoch_batches(sizes, BATCH_SIZE, seed=0, epoch=0, shuffle=False):
            batch = batch_for(network, documents, rows)
            strengths = find_strengths(network, batch.ids, batch.mask, method)
            strengths.lengths[sizes[rows] == 0] = 0  # where padding votes
            scores = strengths.lengths[:, : len(names)]
            chosen = classifier.decide(
                scores, outside=outside[rows] if refuse else None, **decision
            )
            limits = decision_limits(classifier, scores, **decision)
            source = BatchSource(
                tokenizer, names, strengths, chosen, limits, sizes[rows], top
            )
            sources = [
                TextSource(source, place, texts[row], located[row], None)
                for place, row in enumerate(rows.tolist())
            ]
            if verify:
                asked = [
                    [*about, *(() if true is None else label_names(true[row]))]
                    for row in rows.tolist()
                ]
                sources = try_phrases(classifier, sources, asked)
            for place, row in enumerate(rows.tolist()):
                explanations[row] = Explanation.later(
                    sources[place],
                    text=texts[row],
                    leak=value_at(strengths.leak, place),
                    orphan_share=value_at(strengths.orphan_share, place),
                    predicted=classifier.names(scores[place], chosen[place]),
                    true=None if true is None else label_names(true[row]),
                    method=method,
                    known=int(counts.known[row]),
                    words=int(counts.words[row]),
                    outside=bool(outside[row]),
                )
                # No deletion is looked for where a text is refused as a whole.
                if changes and not (refuse and outside[row]):
                    found = explanations[row]
                    explanations[row] = with_changes(
                        found,
                        {
                            name: find_change(classifier, found, name, **decision)
                            for name in (*found.predicted, *about)
                        },
                    )
    return [explanations[row] for row in range(len(texts))]


def with_changes(
    explanation: Explanation, changes: dict[str, Change | None]
) -> Explanation:
    """Return an explanation whose labels have their changes."""
    labels = [
        replace(label, change=changes[label.label]) if label.label in changes else label
        for label in explanation.labels
    ]
    return replace(explanation, labels=tuple(labels))


def what_would_change(
    classifier: TextClassifier,
    text: str,
    label: str,
    *,
    method: str | None = None,
    multi_label: bool | None = None,
    threshold: float | None = None,
) -> Change | None:
    """Return a small deletion that takes a label away, or gives it; None if none does.

    Args:
        classifier: as for `explain`.
        text: one text.
        label: given or not.
        method: as for `explain`.
        multi_label: as for `explain`.
        threshold: as for `explain`.
    """
    explanation = explain(
        classifier,
        text,
        method=method,
        multi_label=multi_label,
        threshold=threshold,
        about=[label],
    )
    decision: dict[str, Any] = {"multi_label": multi_label, "threshold": threshold}
    return find_change(classifier, explanation, label, **decision)


def decision_limits(
    classifier: TextClassifier,
    scores: NDArray[np.float32],
    *,
    multi_label: bool | None,
    threshold: float | None,
) -> NDArray[np.float64]:
    """Return what each score (B, J) must reach for its label to be given."""
    if multi_label is None:
        multi_label = classifier.labels.task == "multi-label" or threshold is not None
    if multi_label:
        limits = classifier.labels.thresholds if threshold is None else threshold
        return np.broadcast_to(np.asarray(limits, dtype=np.float64), scores.shape)
    others = np.repeat(scores[:, None].astype(np.float64), scores.shape[1], 1)
    others[:, np.eye(scores.shape[1], dtype=bool)] = -np.inf
    return others.max(2)


def try_phrases(
    classifier: TextClassifier,
    sources: Sequence[TextSource],
    asked: Sequence[Sequence[str]],
) -> list[TextSource]:
    """Delete the candidates and the sentences of every text, and predict again.

    Args:
        classifier: the model.
        sources: the texts of a batch.
        asked: for each text, labels to be looked at besides those it was given.
    """
    names = classifier.labels.names
    places: list[tuple[list[Place], list[Place]]] = []
    trials: list[NDArray[np.int32]] = []
    for source, more in zip(sources, asked, strict=True):
        if not source.located.places:
            places.append(([], []))
            continue
        given = np.flatnonzero(source.batch.chosen[source.row]).tolist()
        wanted = [*given, *(names.index(name) for name in more if name in names)]
        read = source.text[: source.located.places[-1][1]]
        phrases = source.to_try(list(dict.fromkeys(wanted)))
        sentences = sentence_places(read)[:MAX_SENTENCES]
        places.append((phrases, sentences))
        tried_places = [*phrases, *sentences]
        trials += documents_without(classifier, read, source.located, tried_places)
    after, done = lengths_of_documents(classifier, trials), 0
    tried = []
    for source, (phrases, sentences) in zip(sources, places, strict=True):
        n_phrases, n_trials = len(phrases), len(phrases) + len(sentences)
        before = source.batch.strengths.lengths[source.row]
        if n_trials:
            falls = before - after[done : done + n_trials]
        else:
            falls = np.zeros((0, len(before)), dtype=np.float32)
        done += n_trials
        kept = RowTrials(phrases, falls[:n_phrases], sentences, falls[n_phrases:])
        tried.append(source._replace(tried=kept))
    return tried


def label_names(labels: Any) -> tuple[str, ...]:
    """Return the labels of a text; one that stands alone is one label.

    >>> label_names("crash"), label_names(["crash", "sync"])
    (('crash',), ('crash', 'sync'))
    """
    return (labels,) if isinstance(labels, str) else tuple(map(str, labels))


def check_request(
    classifier: TextClassifier,
    texts: Sequence[str],
    top: int,
    true: Sequence | None,
    about: Sequence[str],
) -> None:
    """Refuse a number of phrases below 1, and labels that do not fit."""
    names = classifier.labels.names
    for name in about:
        if name not in names:
            raise ConfigError(
                f"label must be one of the model's, {', '.join(names)}; got {name!r}."
            )
    if not isinstance(top, int) or top < 1:
        raise ConfigError(f"top must be at least 1; got {top!r}.")
    if true is not None and len(true) != len(texts):
        raise ConfigError(
            f"true must hold the labels of each of {len(texts)} texts; got {len(true)}."
        )


def locate_texts(classifier: TextClassifier, texts: Sequence[str]) -> list[Located]:
    """Return the tokens the model reads of every text; an unreadable text has none."""
    return locate_counted(classifier, texts)[0]


def locate_counted(
    classifier: TextClassifier, texts: Sequence[str]
) -> tuple[list[Located], WordCounts, NDArray[np.bool_]]:
    """Return what `locate_texts` does, how many words are known, and who is outside."""
    tokenizer = classifier.tokenizer
    options = spelling_options(classifier.config, tokenizer)
    located = tokenizer.locate(texts, classifier.config.text.max_tokens, **options)
    ids = [each.ids for each in located]
    documents = drop_unreadable(ids, tokenizer.first_word)
    kept = [
        Located(document, each.places[: len(document)])
        for document, each in zip(documents, located, strict=True)
    ]
    if classifier.config.text.unknown != "keep":
        kept = [known_words(each) for each in kept]
    counts = count_words(ids, tokenizer.first_word, tokenizer.continues)
    return kept, counts, classifier.outside(ids)


def known_words(located: Located) -> Located:
    """Return the tokens without those of unknown words."""
    is_known = located.ids != UNK_ID
    places = [
        place for place, known in zip(located.places, is_known, strict=True) if known
    ]
    return Located(located.ids[is_known], places)


def value_at(values: NDArray[np.float32] | None, row: int) -> float | None:
    """Return the value of one text, if the batch has such values."""
    return None if values is None else float(values[row])
