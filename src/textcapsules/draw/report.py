"""A report as one self-contained page: figures in, HTML out.

First comes what a reader in a hurry needs: what the model does, how good it is beside a
simple rival, and what to beware of. Then the figures label by label, the reasons, the
training texts, and at the end what happens inside the network.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from textcapsules.base.progress import percent
from textcapsules.draw.pages import (
    BACKGROUND,
    Cells,
    Figure,
    Highlight,
    Picture,
    colophon,
    connection_histograms,
    highlight,
    reading_help,
    render,
    shade_cells,
)
from textcapsules.draw.palette import label_style, label_tags
from textcapsules.draw.pictures import (
    draw_convergence,
    draw_dev_scores,
    draw_faithfulness,
    draw_loss,
    draw_reliability,
)
from textcapsules.inference.data_card import DataCard
from textcapsules.inference.evaluate import Evaluation
from textcapsules.inference.label_pairs import MixUp
from textcapsules.inference.reliability import Reliability
from textcapsules.inference.report import (
    Explained,
    Report,
    ReportTable,
    TrainingTexts,
)
from textcapsules.inference.rival import Comparison
from textcapsules.model.builder import ngram_sizes
from textcapsules.model.capsnet import CapsuleNetwork
from textcapsules.reasons.explanation import (
    CorpusExplanation,
    Faithfulness,
    LabelPhrases,
    PhraseTotal,
)
from textcapsules.reasons.routing_inspection import Convergence

__all__ = [
    "METRICS",
    "LabelCloud",
    "Reasons",
    "Trust",
    "about_table",
    "confusion_cells",
    "give_reasons",
    "headline",
    "label_rows",
    "mix_up_table",
    "pair_table",
    "render_report",
    "rival_verdict",
    "summary",
    "training_curves",
    "training_table",
]

METRICS = {
    "exact match": "exact_match",
    "micro precision": "micro_precision",
    "micro recall": "micro_recall",
    "micro F1": "micro_f1",
    "macro F1": "macro_f1",
    "samples F1": "samples_f1",
}
LARGEST_MATRIX = 30  # labels; with more, the list of mix-ups has to do
LONGEST_TEXT = 1500  # characters of an example
LONGEST_ROW = 220  # characters of a text in a table
LABELS_NAMED = 12  # in the first sentence
SUSPECTS_SHOWN = 10
REPEATS_SHOWN = 5
CLOUD_PHRASES = 12
CLOUD_SIZES = (0.8, 1.35)  # of a cloud's weakest and strongest phrase, in rem
CHANCE = 0.05  # a difference that is likelier by chance is none


def is_single(report: Report) -> bool:
    """Tell whether the model gives one label per text and each text has one."""
    task = report.classifier.labels.task
    return task == "single-label" and report.evaluation.single_label is not None


def share_right(report: Report, evaluation: Evaluation) -> float:
    """Return the share of texts with all labels right, as the model is used."""
    if is_single(report) and evaluation.single_label is not None:
        return evaluation.single_label["accuracy"]
    return evaluation.multi_label["exact_match"]


def headline(report: Report) -> list[Figure]:
    """Return the numbers at the head of the page."""
    evaluation = report.evaluation
    figures = {"texts judged": f"{evaluation.texts:,}"}
    right = f"{percent(share_right(report, evaluation))}%"
    if is_single(report) and evaluation.single_label is not None:
        figures["right label"] = right
        figures["macro F1"] = percent(evaluation.single_label["macro_f1"])
    else:
        several = evaluation.multi_label
        figures["all labels right"] = right
        figures["of given labels, right"] = f"{percent(several['micro_precision'])}%"
        figures["of true labels, found"] = f"{percent(several['micro_recall'])}%"
    if report.training is not None and report.training.comparison is not None:
        rival = share_right(report, report.training.comparison.evaluation)
        figures["simple linear model"] = f"{percent(rival)}%"
    return [Figure(*item) for item in figures.items()]


def what_it_does(report: Report) -> str:
    """Say in plain words what the model does and what the page is about."""
    labels, n_texts = report.classifier.labels, report.evaluation.texts
    names = ", ".join(labels.names[:LABELS_NAMED])
    more = len(labels.names) - LABELS_NAMED
    if more > 0:
        names += f" and {more:,} more"
    gives = (
        "every label that fits"
        if labels.task == "multi-label"
        else "the one label that fits best"
    )
    learnt = report.classifier.record.get("texts", {}).get("train")
    texts = "labelled texts" if learnt is None else f"{learnt:,} labelled texts"
    judged = "1 text" if n_texts == 1 else f"{n_texts:,} texts"
    return (
        f"The model reads a text and gives it {gives} out of {len(labels.names)}: "
        f"{names}. It learnt from {texts}. This page says how it did on {judged} "
        f"({report.source}), and why."
    )


def summary(report: Report) -> list[str]:
    """Return the report in a few sentences."""
    sentences = [quality(report)]
    if report.training is not None and report.training.comparison is not None:
        sentences.append(rival_verdict(report, report.training.comparison))
    elif report.training is None and report.missing:
        sentences.append(
            "There is no simple rival to compare with and no card of the training "
            f"texts: {report.missing}."
        )
    judged = [row for row in report.evaluation.per_class if row["texts"]]
    if len(judged) > 1:
        worst, best = (f(judged, key=lambda row: row["f1"]) for f in (min, max))
        sentences.append(
            f"It does best on {best['label']} (F1 {percent(best['f1'])}) and worst on "
            f"{worst['label']} (F1 {percent(worst['f1'])})."
        )
    if report.explained is not None and report.explained.faithfulness is not None:
        sentences.append(honesty(report.explained.faithfulness))
    return [*sentences, *cautions(report)]


def quality(report: Report) -> str:
    """Say how good the model is."""
    evaluation, n_texts = report.evaluation, report.evaluation.texts
    share = share_right(report, evaluation)
    right = f"{round(share * n_texts):,} of {n_texts:,} texts ({percent(share)}%)"
    if is_single(report):
        commonest = max(row["texts"] for row in evaluation.per_class) / n_texts
        return (
            f"It gave the right label to {right}. Always giving the commonest label "
            f"would be right for {percent(commonest)}%."
        )
    several = evaluation.multi_label
    return (
        f"It got all labels of {right} right, none missing and none too many. Of 100 "
        f"labels that it gave, {100 * several['micro_precision']:.0f} were right; of "
        f"100 labels that texts have, it found {100 * several['micro_recall']:.0f}."
    )


def rival_verdict(report: Report, comparison: Comparison) -> str:
    """Say which of the two is better, or that it cannot be told."""
    mine = share_right(report, report.evaluation)
    theirs = share_right(report, comparison.evaluation)
    figures = f"{percent(mine)}% against {percent(theirs)}%"
    counts = (
        f"the model alone was right on {comparison.only_model:,} texts, the rival "
        f"alone on {comparison.only_rival:,}"
    )
    if comparison.chance > CHANCE:
        verdict = (
            f"It is not clearly better or worse than a simple linear model: {figures} "
            f"right; {counts}, which may be chance (p = {comparison.chance:.2f})."
        )
    elif comparison.only_model > comparison.only_rival:
        verdict = f"It beats a simple linear model: {figures} right; {counts}."
    else:
        verdict = (
            f"A simple linear model is better: {figures} right; {counts}. Take that "
            "one, unless you need what only this model offers."
        )
    return f"{verdict} The rival is {comparison.rival} on the same training texts."


def honesty(faithfulness: Faithfulness) -> str:
    """Say in plain words whether the reasons hold."""
    by_name = {curves.method: curves for curves in faithfulness.methods}
    named = [curves for name, curves in by_name.items() if name != "random"]
    first, random = named[0], by_name.get("random")
    lost = f"{100 * first.comprehensiveness:.0f}%"
    if random is None:
        return f"Without the phrases that it names, a label loses {lost} of its score."
    luck = f"{100 * random.comprehensiveness:.0f}%"
    spreads = (first.comprehensiveness_spread, random.comprehensiveness_spread)
    noise = 2 * math.hypot(*spreads) / math.sqrt(max(faithfulness.cases, 1))
    lead = first.comprehensiveness - random.comprehensiveness
    hold = lead > max(random.comprehensiveness, noise, 0.0)
    return (
        f"{'Its reasons hold' if hold else 'Its reasons hold only in part'}: without "
        f"the phrases that it names, a label loses {lost} of its score on average; "
        f"without as many words at random, {luck}."
    )


def cautions(report: Report) -> list[str]:
    """Return what makes the figures or the training texts doubtful."""
    found = []
    n_texts, (known, words) = report.evaluation.texts, report.known
    unknown = 1 - known / words if words else 0.0
    if unknown > 0.1:
        found.append(f"{percent(unknown)}% of the words are unknown to the model.")
    if refused := report.evaluation.refused:
        were, texts = ("was", "it counts") if refused == 1 else ("were", "they count")
        found.append(
            f"{refused:,} of {n_texts:,} texts {were} taken for off-topic: {texts} as "
            "without a label, whatever the scores are."
        )
    if cut := report.evaluation.cut.cut:
        were = "was" if cut == 1 else "were"
        found.append(f"{cut:,} of {n_texts:,} texts {were} too long to be read whole.")
    if report.training is None:
        return found
    card = report.training.card
    if card.among_judged:
        found.append(
            f"{card.among_judged:,} of the {n_texts:,} judged texts are training texts "
            "too, so the figures may be too good."
        )
    if card.contradictions:
        found.append(
            f"{len(card.contradictions):,} training texts come twice with different "
            "labels."
        )
    if card.rare:
        found.append(f"Hardly any training text has {' or '.join(card.rare[:5])}.")
    if suspects := len(report.training.suspects):
        found.append(
            f"{suspects:,} of {card.texts:,} training texts have a label that looks "
            "wrong."
        )
    return found


def rival_table(report: Report) -> ReportTable | None:
    """Return the figures of the model and of its rival, one row each."""
    if report.training is None or report.training.comparison is None:
        return None
    comparison = report.training.comparison
    rows = []
    for name, evaluation in (
        ("this model", report.evaluation),
        (comparison.rival, comparison.evaluation),
    ):
        right = percent(share_right(report, evaluation))
        if is_single(report) and evaluation.single_label is not None:
            rows.append((name, right, percent(evaluation.single_label["macro_f1"])))
        else:
            keys = ("micro_precision", "micro_recall", "micro_f1", "macro_f1")
            figures = (percent(evaluation.multi_label[key]) for key in keys)
            rows.append((name, right, *figures))
    header = ("system", "right label", "macro F1")
    if not is_single(report):
        averages = ("micro precision", "micro recall", "micro F1", "macro F1")
        header = ("system", "all labels right", *averages)
    note = (
        "The rival read the same training texts. The same development texts chose its "
        "settings and its thresholds. Macro: mean over labels. "
    )
    if not is_single(report):
        note += "Micro: over all labels of all texts."
    return ReportTable("Beside a simple rival, in percent", header, rows, note)


class LabelRow(NamedTuple):
    """One label's figures, in percent, and its threshold."""

    label: str
    tag: str
    style: tuple[int, str]
    texts: str
    precision: str
    recall: str
    f1: str
    share: float  # F1 from 0 to 1, as a bar
    rival: str  # the rival's F1, "" without one
    threshold: str  # "" where only the highest score counts


def label_rows(report: Report) -> list[LabelRow]:
    """Return each label's figures, in the model's order."""
    labels, training = report.classifier.labels, report.training
    rival: Sequence[Mapping[str, Any]] = ()
    if training is not None and training.comparison is not None:
        rival = training.comparison.evaluation.per_class
    tags = label_tags(labels.names)
    several = labels.task == "multi-label"
    return [
        LabelRow(
            label=row["label"],
            tag=tags[place],
            style=label_style(place),
            texts=f"{row['texts']:,}",
            precision=percent(row["precision"]),
            recall=percent(row["recall"]),
            f1=percent(row["f1"]),
            share=row["f1"],
            rival=percent(rival[place]["f1"]) if rival else "",
            threshold=f"{labels.thresholds[place]:.2f}" if several else "",
        )
        for place, row in enumerate(report.evaluation.per_class)
    ]


def averages_table(report: Report) -> ReportTable | None:
    """Return the averages with calibrated thresholds and with the published one."""
    evaluation = report.evaluation
    if is_single(report):
        return None
    on = report.classifier.record.get("calibration", {}).get("on", "nothing")
    averages = [
        (name, *(percent(figures[key]) for key in METRICS.values()))
        for name, figures in (
            ("calibrated", evaluation.multi_label),
            ("0.5, as published", evaluation.multi_label_at_half),
        )
    ]
    return ReportTable(
        "All labels past a threshold, in percent",
        ("threshold", *METRICS),
        averages,
        "Exact match: all labels of a text right. Micro: over all decisions. Macro: "
        f"over labels. Samples: over texts. Thresholds were calibrated on {on}.",
    )


def show_reliability(found: Reliability, report: Report) -> Picture | None:
    """Draw the calibration curve, and say it in words."""
    if not found.bins:
        return None
    several = report.classifier.labels.task == "multi-label"
    thresholds = report.classifier.labels.thresholds
    image = draw_reliability(
        [each.score for each in found.bins],
        [each.share for each in found.bins],
        [each.pairs for each in found.bins],
        thresholds=(min(thresholds), max(thresholds)) if several else None,
    )
    high = found.bins[-1]
    middle = min(found.bins, key=lambda each: abs(each.score - 0.5))
    words = " ".join(
        f"Of the labels scored {each.low:.1f} to {each.high:.1f}, "
        f"{percent(each.share)}% are right ({each.pairs:,} pairs of text and label)."
        for each in dict.fromkeys((high, middle))
    )
    distance = (
        f"On average a score is {percent(found.error)} points away from the share that "
        "is right. On the dotted line, a score could be read as a probability; below "
        "it, the model is too sure of itself. The larger a point, the more pairs."
    )
    return Picture(image, f"Calibration curve. {words}", f"{words} {distance}")


def confusion_cells(report: Report) -> Cells | None:
    """Return the confusion matrix, shaded by the share of each true label."""
    labels, counts = report.classifier.labels.names, report.confusion
    if counts is None or len(labels) > LARGEST_MATRIX:
        return None
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    return shade_cells(labels, labels, counts, shades=shares)


def together_cells(report: Report) -> Cells | None:
    """Return how many texts have each two labels, None if no text has two."""
    labels = report.classifier.labels.names
    if report.together is None or not 1 < len(labels) <= LARGEST_MATRIX:
        return None
    pairs = report.together[0].copy()
    np.fill_diagonal(pairs, 0)  # texts with one label are in the table of labels
    return shade_cells(labels, labels, pairs, blank=0) if pairs.any() else None


def pair_table(report: Report, top: int = 8) -> ReportTable | None:
    """Return the pairs of labels that come together most often, given or not."""
    if report.together is None:
        return None
    names = report.classifier.labels.names
    have, got = (np.triu(counts, 1) for counts in report.together)
    order = np.argsort(-np.maximum(have, got), axis=None, kind="stable")[:top]
    places = zip(*np.unravel_index(order, have.shape), strict=True)
    rows = [
        (f"{names[i]} + {names[j]}", f"{have[i, j]:,}", f"{got[i, j]:,}")
        for i, j in places
        if have[i, j] or got[i, j]
    ]
    if not rows:
        return None
    header = ("two labels", "texts that have both", "texts that got both")
    note = (
        f"The {len(rows)} most frequent pairs. If far fewer texts got both than have "
        "both, the model sees one of them and misses the other."
    )
    return ReportTable("Labels that come together", header, rows, note)


def mix_up_table(mix_ups: Sequence[MixUp], top: int = 10) -> ReportTable | None:
    """Return the most frequent mix-ups, None if there are none."""
    rows = [(each.missed, each.instead, f"{each.texts:,}") for each in mix_ups[:top]]
    if not rows:
        return None
    title = "Labels that are mixed up"
    note = (
        "One label was missed, and the other given instead. The "
        f"{len(rows)} most frequent of {len(mix_ups):,} such pairs."
    )
    return ReportTable(title, ("missed", "given instead", "texts"), rows, note)


def training_table(record: Mapping[str, Any]) -> ReportTable:
    """Return one row per epoch."""
    on = record.get("calibration", {}).get("on", "dev documents")
    columns = {
        "dev accuracy": "dev_accuracy",
        f"exact match, {on}": "dev_exact_match",
        f"micro F1, {on}": "dev_micro_f1",
    }
    epochs = record["epochs"]
    kept = {name: key for name, key in columns.items() if key in epochs[0]}
    rows = [
        (
            r["epoch"],
            f"{r['loss']:.4f}",
            *(percent(r.get(key)) for key in kept.values()),
        )
        for r in epochs
    ]
    note = f"Epoch {record.get('best_epoch')} was kept."
    return ReportTable("Training", ("epoch", "loss", *kept), rows, note)


def training_curves(epochs: Sequence[Mapping[str, Any]]) -> list[Picture]:
    """Return the curves of loss and development scores."""
    first, last = epochs[0], epochs[-1]
    loss = f"from {first['loss']:.3f} to {last['loss']:.3f}"
    score = f"{percent(first['dev_score'])} to {percent(last['dev_score'])} percent"
    return [
        Picture(draw_loss(epochs), f"Training loss over the epochs, {loss}."),
        Picture(draw_dev_scores(epochs), f"Development scores, {score} at the end."),
    ]


def about_table(report: Report) -> ReportTable:
    """Return what the model and the texts are."""
    classifier, record = report.classifier, report.classifier.record
    thresholds = classifier.labels.thresholds
    limits = dict.fromkeys(f"{t:.3f}" for t in (min(thresholds), max(thresholds)))
    known, words = report.known
    rows = [
        ("texts judged", report.source),
        ("model", classifier.config.model.architecture),
        ("made for", f"{classifier.labels.task} texts"),
        ("thresholds", " to ".join(limits)),
        ("known words", f"{classifier.tokenizer.n_words:,}"),
    ]
    if words:
        unknown = f"{words - known:,} of {words:,} ({percent(1 - known / words)}%)"
        rows.append(("unknown words in the texts judged", unknown))
    cut = report.evaluation.cut
    rows.append(("texts too long to be read whole", f"{cut.cut:,}"))
    if isinstance(classifier.network, CapsuleNetwork):
        sizes = ngram_sizes(classifier.config.model)
        rows.append(("n-gram sizes", ", ".join(map(str, sizes))))
    if "parameters" in record:
        rows.append(("parameters", f"{record['parameters']:,}"))
    if title := record.get("corpus", {}).get("title"):
        rows.append(("trained on", title))
    return ReportTable("About", ("what", "value"), rows)


class SizedPhrase(NamedTuple):
    """A phrase of a cloud and its size in rem."""

    text: str
    size: float


class LabelCloud(NamedTuple):
    """One label's phrases and words throughout the texts."""

    label: str
    style: tuple[int, str] | None  # None for the background
    phrases: list[SizedPhrase]
    words: list[str]


class Trust(NamedTuple):
    """How faithful the methods of explaining are."""

    verdict: str
    table: ReportTable
    curves: list[Picture]


@dataclass(frozen=True, slots=True)
class Reasons:
    """The parts of the page that explain; those that are None or empty are left out."""

    clouds: list[LabelCloud]
    clouds_note: str
    reading: str
    best: list[Highlight]
    worst: list[Highlight]
    histograms: Picture | None
    convergence: Picture | None
    trust: Trust | None


def give_reasons(explained: Explained) -> Reasons:
    """Return the parts of the page that explain."""
    corpus = explained.corpus
    sharpening, faithfulness = explained.convergence, explained.faithfulness
    return Reasons(
        clouds=label_clouds(corpus),
        clouds_note=(
            "The larger a phrase is, the more it spoke for the label in all texts "
            "together. Phrases whose words come as often with other labels are small. "
            f"{shares_unclaimed(corpus)}"
        ),
        reading=reading_help(corpus.method),
        best=[highlight(each, longest=LONGEST_TEXT) for each in explained.best],
        worst=[highlight(each, longest=LONGEST_TEXT) for each in explained.worst],
        histograms=show_histograms(explained),
        convergence=None if sharpening is None else show_convergence(sharpening),
        trust=None if faithfulness is None else show_trust(faithfulness),
    )


def shares_unclaimed(corpus: CorpusExplanation) -> str:
    """Say how much of the texts spoke for no label; "" without capsules."""
    if corpus.leak is None:
        return ""
    background = ""
    if corpus.orphan is not None:
        background = (
            f"{percent(corpus.orphan_share)}% of an average text was taken for "
            f"{BACKGROUND}, and "
        )
    start = "nobody claimed" if background else "Nobody claimed"
    return f"{background}{start} {percent(corpus.leak)}% of it."


def label_clouds(corpus: CorpusExplanation) -> list[LabelCloud]:
    """Return every label's phrases and words, the background's last."""
    clouds = [label_cloud(label, place) for place, label in enumerate(corpus.labels)]
    if corpus.orphan is None:
        return clouds
    # Its phrases are cut out of sentences of all labels; its words tell what it is.
    spoken = [each for each in corpus.orphan.words if any(map(str.isalnum, each.text))]
    words = sized(spoken)
    return [*clouds, LabelCloud(BACKGROUND, None, words, [])]


def label_cloud(label: LabelPhrases, place: int) -> LabelCloud:
    """Return one label's phrases and words."""
    words = [each.text for each in label.words if each.strength > 0][:10]
    return LabelCloud(label.label, label_style(place), sized(label.phrases), words)


def sized(totals: Sequence[PhraseTotal]) -> list[SizedPhrase]:
    """Return the phrases that spoke for a label, the more the larger."""
    weights = {
        each.text: each.strength * (each.odds or 1.0)
        for each in totals
        if each.strength > 0
    }
    kept = list(weights.items())[:CLOUD_PHRASES]
    low, high = CLOUD_SIZES
    most = max((weight for _, weight in kept), default=1.0)
    return [
        SizedPhrase(text, round(low + (high - low) * weight / most, 2))
        for text, weight in kept
    ]


def show_histograms(explained: Explained) -> Picture | None:
    """Draw the connections of the best text, if it has a label."""
    if explained.connections is None or not explained.best[0].predicted:
        return None
    top = explained.best[0]
    names = [label.label for label in top.labels]
    return connection_histograms(explained.connections, top.predicted, names)


def show_convergence(convergence: Convergence) -> Picture:
    """Draw how couplings sharpen, and say it in words."""
    strongest, trained = convergence.strongest, convergence.trained
    words = (
        f"A capsule gives {percent(strongest[0])} percent of its mass to its strongest "
        f"parent after one iteration of routing, and {percent(strongest[trained - 1])} "
        f"percent after the {trained} that the model was trained with; "
        f"{convergence.texts:,} texts."
    )
    return Picture(draw_convergence(strongest, convergence.entropy), words, words)


def show_trust(faithfulness: Faithfulness) -> Trust:
    """Show the areas over the curves, and the curves."""
    rows = [
        (
            curves.method,
            f"{curves.comprehensiveness:.3f} ± {curves.comprehensiveness_spread:.3f}",
            f"{curves.sufficiency:.3f} ± {curves.sufficiency_spread:.3f}",
        )
        for curves in faithfulness.methods
    ]
    note = (
        f"{faithfulness.cases:,} predicted labels of {faithfulness.texts:,} texts; "
        "mean and standard deviation. Comprehensiveness: how much of the label's "
        "length is lost when the strongest tokens are deleted; high is good. "
        "Sufficiency: how much is lost when only they are kept; low is good."
    )
    header = ("method", "comprehensiveness", "sufficiency")
    table = ReportTable("Faithfulness", header, rows, note)
    curves = [trust_curve(faithfulness, "deleted"), trust_curve(faithfulness, "kept")]
    return Trust(faithfulness.verdict, table, curves)


def trust_curve(
    faithfulness: Faithfulness, side: Literal["deleted", "kept"]
) -> Picture:
    """Draw one of the two curves of every method."""
    change = "are deleted" if side == "deleted" else "alone are kept"
    alt = (
        f"What is left of a label's length when the strongest tokens {change}; the "
        "table has the areas over these curves."
    )
    return Picture(draw_faithfulness(faithfulness, side), alt)


class CountedLabel(NamedTuple):
    """A label and the number of its training texts, also as a bar from 0 to 1."""

    label: str
    style: tuple[int, str]
    texts: str
    share: float
    is_rare: bool


@dataclass(frozen=True, slots=True)
class TrainingPart:
    """What the page says about the training texts."""

    facts: ReportTable
    labels: list[CountedLabel]
    overlaps: ReportTable | None
    contradictions: ReportTable | None
    suspects: ReportTable | None


def show_training(training: TrainingTexts, report: Report) -> TrainingPart:
    """Return what the page says about the training texts."""
    card, names = training.card, report.classifier.labels.names
    most = max([1, *card.labels.values()])
    labels = [
        CountedLabel(
            label,
            label_style(names.index(label)),
            f"{count:,}",
            count / most,
            label in card.rare,
        )
        for label, count in card.labels.items()
        if label in names
    ]
    return TrainingPart(
        facts=training_facts(card, report),
        labels=labels,
        overlaps=overlap_table(card),
        contradictions=contradiction_table(card),
        suspects=suspect_table(training),
    )


def training_facts(card: DataCard, report: Report) -> ReportTable:
    """Return the numbers of the data card."""
    median, decile, longest = card.words
    rows = [
        ("training texts", f"{card.texts:,}"),
        (
            "words per text",
            f"{median:,} in the middle, {decile:,} or fewer in nine of ten, "
            f"{longest:,} at most",
        ),
        ("copies of an earlier text", f"{card.copies:,}"),
        ("texts that come twice with different labels", f"{len(card.contradictions)}"),
        ("judged texts that are training texts too", f"{card.among_judged:,}"),
    ]
    cut = report.classifier.record.get("cut", {})
    if "texts" in cut:
        limit = cut.get("max_tokens", report.classifier.config.text.max_tokens)
        value = f"{cut['texts']:,} (longer than {limit:,} words)"
        rows.append(("training texts too long to be read whole", value))
    few = ", ".join(card.rare[:10]) or "none"
    rows.append(("labels with fewer than 10 texts", few))
    return ReportTable("Data card", ("what", "value"), rows)


def overlap_table(card: DataCard) -> ReportTable | None:
    """Return the pairs of labels with similar texts."""
    rows = [
        (f"{each.label} + {each.other}", f"{each.similarity:.2f}", words)
        for each in card.overlaps
        for words in [", ".join(each.words)]
    ]
    if not rows:
        return None
    note = (
        "Cosine of the labels' mean TF-IDF vectors: 1 if their texts use the same "
        "words equally often, 0 if they share none."
    )
    header = ("two labels", "similarity", "words that both use")
    return ReportTable("Labels with similar texts", header, rows, note)


def contradiction_table(card: DataCard) -> ReportTable | None:
    """Return texts that come twice with different labels."""
    found = card.contradictions
    rows = [
        (clip(each.text), " | ".join(", ".join(own) for own in each.labels))
        for each in found[:REPEATS_SHOWN]
    ]
    if not rows:
        return None
    note = f"{len(rows)} of {len(found):,}." if len(found) > len(rows) else ""
    title = "The same text with different labels"
    return ReportTable(title, ("text", "labels"), rows, note)


def suspect_table(training: TrainingTexts) -> ReportTable | None:
    """Return the texts whose label looks wrong."""
    suspects = training.suspects
    rows = [
        (clip(each.text), each.label, each.suggested, f"{each.confidence:.2f}")
        for each in suspects[:SUSPECTS_SHOWN]
    ]
    if not rows:
        return None
    note = (
        f"The {len(rows)} most suspect of {len(suspects):,}. Each was judged by a "
        "linear model that had not seen it. The margin says how much likelier the "
        "suggested label is. Look before you change a label: a suspect may be right."
    )
    header = ("text", "label", "suggested", "margin")
    return ReportTable("Labels that look wrong", header, rows, note)


def clip(text: str) -> str:
    """Return the beginning of a text on one line."""
    line = " ".join(text[: 4 * LONGEST_ROW].split())
    return line if len(line) <= LONGEST_ROW else line[:LONGEST_ROW].rstrip() + "…"


@dataclass(frozen=True, slots=True)
class ReportPage:
    """What the template shows; parts that are None or empty are left out."""

    title: str
    lead: str
    does: str
    figures: Sequence[Figure]
    summary: Sequence[str]
    rival: ReportTable | None
    tables: Sequence[ReportTable]
    labels: Sequence[LabelRow]
    averages: ReportTable | None
    reliability: Picture | None
    confusion: Cells | None
    mix_ups: ReportTable | None
    together: Cells | None
    pairs: ReportTable | None
    reasons: Reasons | None
    training_texts: TrainingPart | None
    training: ReportTable | None
    curves: Sequence[Picture]
    about: ReportTable
    colophon: str


def render_report(report: Report) -> str:
    """Return the page; it needs no network and no script."""
    record, training = report.classifier.record, report.training
    epochs = record.get("epochs", [])
    found = report.reliability
    page = ReportPage(
        title=report.title,
        lead=report.lead,
        does=what_it_does(report),
        figures=headline(report),
        summary=summary(report),
        rival=rival_table(report),
        tables=report.tables,
        labels=label_rows(report),
        averages=averages_table(report),
        reliability=None if found is None else show_reliability(found, report),
        confusion=confusion_cells(report),
        mix_ups=mix_up_table(report.mix_ups),
        together=together_cells(report),
        pairs=pair_table(report),
        reasons=None if report.explained is None else give_reasons(report.explained),
        training_texts=None if training is None else show_training(training, report),
        training=training_table(record) if epochs else None,
        curves=training_curves(epochs) if epochs else [],
        about=about_table(report),
        colophon=colophon(),
    )
    return render("report.html.j2", page=page)
