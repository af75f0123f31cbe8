"""Do explanations tell the truth? Delete what they name, and keep only that.

For a text and a label predicted for it, a method ranks the tokens. When the strongest
are deleted, the label's length should fall (comprehensiveness); when only they are
kept, it should stay (sufficiency). Both are measured for several shares of the text's
tokens, the same number of tokens for every method, and averaged over these shares: the
areas over the two curves (DeYoung et al., 2020). Couplings, which know n-grams only,
rank those as `phrases` does, down to the weakest. Tokens in a random order are the
yardstick.

A method's *gap* is comprehensiveness less sufficiency: high is faithful. The method to
take (`chosen`) is the cheapest whose gap is at most one standard error (of the
difference, case by case) below the widest, or two below that of `sampled`.

Deleting takes words out of the text, and the rest closes up: the model then reads a
text without holes. The sentences that an encoder reads by themselves stay apart. New
neighbours may say something of their own; that is the same for all methods.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from textcapsules.base.errors import ConfigError, DataError
from textcapsules.model.builder import System
from textcapsules.model.classifier import TextClassifier
from textcapsules.reasons.attributions import document_lengths, keep_tokens
from textcapsules.reasons.explanation import Faithfulness, MethodCurves
from textcapsules.reasons.methods import (
    METHODS,
    batch_for,
    check_usable,
    default_method,
    evaluating,
    explainable_network,
    methods_of,
)
from textcapsules.reasons.phrases import pick_phrases
from textcapsules.reasons.strengths import NgramStrengths, find_strengths

__all__ = ["RANDOM", "SHARES", "measure_faithfulness"]

RANDOM = "random"
SHARES = (0.05, 0.1, 0.2, 0.3, 0.5)  # of a text's tokens
BATCH_SIZE = 32
CLEAR = 2.0  # standard errors from which a difference is called clear
SLOW = ("sampled", "erasure")
BY_COST = (
    *("couplings", "contributions", "gradient"),
    *("sampled", "erasure", "integrated"),
)


class Case(NamedTuple):
    """A document and the class predicted for it."""

    ids: NDArray
    label: int


class Remaining(NamedTuple):
    """What is left of the label's length, as shares of it, (cases, shares) each."""

    deleted: NDArray[np.float64]
    kept: NDArray[np.float64]

    def gaps(self) -> NDArray[np.float64]:
        """Return comprehensiveness less sufficiency, (cases,): high is faithful."""
        return self.kept.mean(1) - self.deleted.mean(1)


def measure_faithfulness(
    classifier: TextClassifier,
    texts: Sequence[str],
    *,
    methods: Sequence[str] | None = None,
    max_texts: int = 100,
    draws: int = 5,
    seed: int = 0,
    on_step: Callable[[int, int], None] | None = None,
) -> Faithfulness:
    """Measure how faithful explanations of a model are, on a sample of texts.

    Args:
        classifier: as for `explain`.
        texts: to draw from; their labels are not used.
        methods: of `reasons.methods.METHODS`; if None, all that suit the model except
            `erasure` and `sampled`, which are slow, unless they are its default.
            Random phrases are always measured too.
        max_texts: size of the sample.
        draws: how many random rankings are averaged for each case.
        seed: of the sample and the random rankings.
        on_step: called with the number of rankings done and of all.
    """
    network = explainable_network(classifier)
    if methods is None:
        default = default_method(classifier)
        methods = [
            each for each in methods_of(network) if each == default or each not in SLOW
        ]
    if not methods or any(method not in METHODS for method in methods):
        raise ConfigError(
            f"methods must be some of {', '.join(METHODS)}; got {list(methods)!r}."
        )
    for method in methods:
        check_usable(network, method)
    random = np.random.default_rng(seed)
    cases, n_texts = draw_cases(classifier, texts, max_texts, random)
    measured: dict[str, Remaining] = {}
    for number, method in enumerate([*methods, RANDOM]):
        repeats = draws if method == RANDOM else 1
        with evaluating(network):
            runs = [measure(network, cases, method, random) for _ in range(repeats)]
        measured[method] = Remaining(
            *(np.mean(parts, 0) for parts in zip(*runs, strict=True))
        )
        if on_step is not None:
            on_step(number + 1, len(methods) + 1)
    best = max(methods, key=lambda method: measured[method].gaps().mean())
    gaps = measured[best].gaps()
    return Faithfulness(
        texts=n_texts,
        cases=len(cases),
        shares=SHARES,
        methods=tuple(curves(*item, gaps) for item in measured.items()),
        best=best,
        verdict=" ".join(sentences(measured, best)),
        chosen=cheapest(measured, methods, best),
    )


def cheapest(measured: dict[str, Remaining], methods: Sequence[str], best: str) -> str:
    """Return the cheapest method within one standard error of the best.

    Sampled contributions cost several predictions: they must be clearly ahead.
    """
    errors = CLEAR if best == "sampled" else 1.0
    for method in BY_COST:
        if method in methods:
            behind = measured[best].gaps() - measured[method].gaps()
            if behind.mean() <= errors * standard_error(behind):
                return method
    return best


def standard_error(values: NDArray[np.float64]) -> float:
    """Return the standard error of a mean over cases."""
    return float(values.std() / np.sqrt(len(values)))


def draw_cases(
    classifier: TextClassifier,
    texts: Sequence[str],
    max_texts: int,
    random: np.random.Generator,
) -> tuple[list[Case], int]:
    """Return every label predicted for a sample of texts, and the sample's size."""
    chosen: list[int] = random.permutation(len(texts))[:max_texts].tolist()
    sample = [texts[row] for row in chosen]
    documents = classifier.encode(sample)
    decided = classifier.decide(classifier.scores(sample))  # (N, J)
    cases = [
        Case(ids, int(label))
        for ids, row in zip(documents, decided, strict=True)
        for label in np.flatnonzero(row)
        if len(ids)
    ]
    if not cases:
        raise DataError(
            "the texts must hold one that the model gives a label; got none. "
            "Take more texts, or texts of the kind it was trained on."
        )
    return cases, len(sample)


def measure(
    network: System,
    cases: Sequence[Case],
    method: str,
    random: np.random.Generator,
) -> Remaining:
    """Rank the tokens of every case by a method, delete and keep them, and predict."""
    whole, deleted, kept = [], [], []
    orders = rank_cases(network, cases, method, random)
    for case, order in zip(cases, orders, strict=True):
        whole.append(case.ids)
        for share in SHARES:
            named = np.zeros(len(case.ids), dtype=bool)
            named[order[: max(1, round(share * len(case.ids)))]] = True
            deleted.append(keep_tokens(network, case.ids, ~named))
            kept.append(keep_tokens(network, case.ids, named))
    labels = np.array([case.label for case in cases])
    lengths = document_lengths(network, whole)[np.arange(len(cases)), labels]
    repeated = np.repeat(labels, len(SHARES))

    def remaining(documents: list[NDArray]) -> NDArray[np.float64]:
        left = document_lengths(network, documents)
        left = left[np.arange(len(documents)), repeated].reshape(len(cases), -1)
        return left / lengths[:, None].astype(np.float64)

    return Remaining(remaining(deleted), remaining(kept))


def rank_cases(
    network: System,
    cases: Sequence[Case],
    method: str,
    random: np.random.Generator,
) -> Iterator[NDArray[np.int64]]:
    """Yield the tokens of every case, strongest phrase first, in the cases' order."""
    orders: dict[int, NDArray[np.int64]] = {}
    labels = np.array([case.label for case in cases])
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        for start in range(0, len(rows), BATCH_SIZE):
            part = rows[start : start + BATCH_SIZE]
            documents = [cases[row].ids for row in part]
            ranked = rank_tokens(network, documents, int(label), method, random)
            orders.update(zip(part.tolist(), ranked, strict=True))
    return (orders[row] for row in range(len(cases)))


def rank_tokens(
    network: System,
    documents: Sequence[NDArray],
    label: int,
    method: str,
    random: np.random.Generator,
) -> list[NDArray[np.int64]]:
    """Return the tokens of every document, the strongest for a label first."""
    sizes = [len(ids) for ids in documents]
    if method == RANDOM:
        return [random.permutation(size) for size in sizes]
    batch = batch_for(network, documents, range(len(documents)))
    strengths = find_strengths(network, batch.ids, batch.mask, method, [label])
    if not strengths.of_ngrams:
        return [
            np.argsort(-row[:size, 0], kind="stable")
            for row, size in zip(strengths.tokens, sizes, strict=True)
        ]
    ngrams, n_tokens = strengths.ngrams, np.array(sizes)
    picked = pick_phrases(
        as_ranks(ngrams), n_tokens, int(n_tokens.max()), min_share=0.0
    )
    return [
        np.concatenate(
            [
                np.arange(start, end)
                for start, end, rank in zip(*phrases, strict=True)
                if rank > 0
            ]
        )
        for phrases in zip(
            *(part[:, 0] for part in (picked.starts, picked.ends, picked.strengths)),
            strict=True,
        )
    ]


def as_ranks(ngrams: Sequence[NgramStrengths]) -> list[NgramStrengths]:
    """Replace strengths by their ranks among all of the text, from 1 upwards.

    So n-grams that speak against the label are ranked too, after all others.
    """
    values = np.concatenate([each.values for each in ngrams], 1)  # (B, M, E)
    order = values.argsort(1, kind="stable")
    ranks = np.empty_like(values)
    np.put_along_axis(
        ranks, order, np.arange(1, values.shape[1] + 1, dtype=np.float32)[:, None], 1
    )
    ends = np.cumsum([each.values.shape[1] for each in ngrams])[:-1]
    return [
        each._replace(values=part)
        for each, part in zip(ngrams, np.split(ranks, ends, 1), strict=True)
    ]


def curves(method: str, measured: Remaining, best: NDArray[np.float64]) -> MethodCurves:
    """Return the means and areas of one method; `best` are the best method's gaps."""
    lost, missing = 1 - measured.deleted.mean(1), 1 - measured.kept.mean(1)  # (cases,)
    gaps = measured.gaps()
    return MethodCurves(
        method=method,
        deleted=tuple(measured.deleted.mean(0).tolist()),
        kept=tuple(measured.kept.mean(0).tolist()),
        comprehensiveness=float(lost.mean()),
        comprehensiveness_spread=float(lost.std()),
        sufficiency=float(missing.mean()),
        sufficiency_spread=float(missing.std()),
        gap=float(gaps.mean()),
        gap_error=standard_error(gaps),
        behind=float((best - gaps).mean()),
        behind_error=standard_error(best - gaps),
    )


def sentences(measured: dict[str, Remaining], best: str) -> Iterator[str]:
    """Tell the outcome in sentences, with figures."""
    lost = {name: 1 - each.deleted.mean() for name, each in measured.items()}
    kept = {name: each.kept.mean() for name, each in measured.items()}
    yield (
        f"Without the phrases that {best} names, a predicted label loses "
        f"{lost[best]:.0%} of its score on average; without random phrases of as many "
        f"words, {lost[RANDOM]:.0%}. Of the named phrases alone it keeps "
        f"{kept[best]:.0%}, of the random ones {kept[RANDOM]:.0%}."
    )
    gradients = [name for name in ("gradient", "integrated") if name in measured]
    routed = [name for name in ("couplings", "contributions") if name in measured]
    for name in routed:
        for other in gradients:
            yield compare(name, other, measured)


def compare(one: str, other: str, measured: dict[str, Remaining]) -> str:
    """Say which of two methods is more faithful, if the difference is clear."""
    gap = measured[one].gaps() - measured[other].gaps()  # (cases,)
    error = standard_error(gap)
    figures = f"{gap.mean():+.3f}, standard error {error:.3f}"
    if abs(gap.mean()) <= CLEAR * error:
        return f"{one} and {other} do not clearly differ ({figures})."
    more = "more" if gap.mean() > 0 else "less"
    return f"{one} is {more} faithful than {other} ({figures})."
