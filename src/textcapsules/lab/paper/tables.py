"""From records to the page `TABLES.md` and the plot of figure 3.

The page shows our figures, with their spread, beside the published ones. Every figure
comes from records; a cell without a record is a dash.
"""

from collections.abc import Mapping, Sequence
from itertools import product, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from textcapsules.base.files import atomic_path
from textcapsules.data.catalogue import card
from textcapsules.lab.paper import published
from textcapsules.lab.paper.figures import (
    BASELINES,
    COMPARISON_HEADER,
    DASH,
    FigureName,
    RecordedFigures,
    compare_with_best,
    format_difference,
    format_mean,
    format_published,
    format_with_runs,
    markdown,
    mean,
)
from textcapsules.lab.paper.heads import ENCODER_CORPORA, HEADS
from textcapsules.lab.paper.plan import (
    ABLATION,
    CORPORA,
    CURVES,
    LADDER,
    LADDER_ON,
    REUTERS,
    TABLE_1,
)
from textcapsules.lab.paper.records import Record
from textcapsules.lab.paper.systems import SYSTEMS, TUNED, TUNED_ON

__all__ = ["MARK", "plot_losses", "render_tables", "table5"]

THRESHOLDS = {
    "half": "0.5",
    "calibrated": "calibrated",
    "unequal": "calibrated on unequal parts",
    "per_label": "calibrated per label",
}
SETTINGS = {
    "accuracy": "dev accuracy",
    "joined": "joined dev",
    "margin": "dev accuracy, margin loss",
    "trained-joined": "joined dev, joined training",
    "single+joined": "single and joined dev",
    "trained-joined, single+joined": "single and joined dev, joined training",
    "by label, 400 tokens": "single dev and joined by label, 400 tokens",
    "trained-joined, by label, 400 tokens": (
        "single dev and joined by label, 400 tokens, joined training"
    ),
}
MEASURES = ("exact_match", "precision", "recall", "f1")


def table5(recorded: RecordedFigures) -> str:
    """Return the section: summaries, comparisons, then every figure."""
    parts = ["## Table 5: from one label to several\n"]
    for corpus in REUTERS:
        for measure, title in (("exact_match", "exact match"), ("f1", "micro F1")):
            parts.append(f"### {corpus}: {title}\n")
            parts.append(table5_summary(recorded, corpus, measure))
    parts.append("### Exact match: differences between systems, in points\n")
    parts.append(table5_comparisons(recorded))
    for corpus in REUTERS:
        parts.append(f"### {corpus}: every figure\n")
        parts.append(
            "The difference from the published figure is in brackets. `samples`: "
            "averaged over texts, as in the released code.\n"
        )
        parts.append(table5_details(recorded, corpus))
    return "\n".join(parts)


def path_of(threshold: str, measure: str, average: str = "micro") -> tuple[str, str]:
    """Return the keys of a measure within the figures of a test set."""
    if measure == "exact_match":
        return threshold, measure
    return threshold, f"{average}_{measure}"


def thresholds_of(setting: str) -> list[str]:
    """Return the thresholds that a summary shows for one way to choose the epoch.

    Thresholds per label are fitted on single texts and joined ones of unequal parts. So
    they appear if all else is chosen on such texts; the details show all thresholds.
    """
    on_both = "single+joined" in setting or "by label" in setting
    return ["half", "calibrated", "per_label" if on_both else "unequal"]


def table5_summary(recorded: RecordedFigures, corpus: str, measure: str) -> str:
    """Return one measure of every system, a column per way to choose."""
    ways = [(setting, each) for setting in SETTINGS for each in thresholds_of(setting)]
    metric = published.TABLE_5_COLUMNS[MEASURES.index(measure)]
    rows = []
    for system, entry in SYSTEMS.items():
        names = [FigureName("table5", system, corpus, setting) for setting, _ in ways]
        if not any(name in recorded.planned for name in names):
            continue
        cells = [
            format_mean(recorded.mean(name, *path_of(threshold, measure)))
            for name, (_, threshold) in zip(names, ways, strict=True)
        ]
        paper = format_published(published.transfer(system, corpus, metric))
        if {paper, *cells} != {DASH}:
            rows.append([entry.title, paper, *cells])
    header = [f"{SETTINGS[setting]}; {THRESHOLDS[each]}" for setting, each in ways]
    return markdown(["system", "published", *header], rows)


def table5_details(recorded: RecordedFigures, corpus: str) -> str:
    """Return all measures of every system, epoch choice and threshold."""
    rows = []
    for name in recorded.planned:
        if (name.table, name.corpus) != ("table5", corpus) or not recorded.runs(name):
            continue
        for threshold, title in THRESHOLDS.items():
            start = [SYSTEMS[name.system].title, SETTINGS[name.setting], title]
            if recorded.mean(name, *path_of(threshold, "exact_match")):
                rows.append([*start, *table5_cells(recorded, name, threshold)])
    measures = ["ER", "precision", "recall", "F1"]
    samples = [f"{measure}, samples" for measure in measures[1:]]
    return markdown(
        ["system", "epoch by", "threshold", *measures, *samples, "runs"], rows
    )


def table5_cells(
    recorded: RecordedFigures, name: FigureName, threshold: str
) -> list[str]:
    """Return the figures of one row; micro averages are compared with the paper."""
    cells = []
    for measure, metric in zip(MEASURES, published.TABLE_5_COLUMNS, strict=True):
        ours = recorded.mean(name, *path_of(threshold, measure))
        paper = published.transfer(name.system, name.corpus, metric)
        gap = (
            f" ({format_difference(ours, paper)})" if ours and paper is not None else ""
        )
        cells.append(format_mean(ours) + gap)
    for measure in MEASURES[1:]:
        path = path_of(threshold, measure, "samples")
        cells.append(format_mean(recorded.mean(name, *path)))
    return [*cells, str(len(recorded.runs_with(name, threshold)))]


def is_variant(system: str) -> bool:
    """Return whether a system differs from preset best in one option.

    >>> is_variant("capsule_b_best_one_iteration"), is_variant("capsule_b_best")
    (True, False)
    """
    return system.startswith("capsule_b_best_")


def table5_comparisons(recorded: RecordedFigures) -> str:
    """Return capsule networks compared with the best of others, per way to choose."""
    rows = []
    compared = (
        ("capsule_b_paper", BASELINES),
        ("capsule_b", BASELINES),
        ("capsule_b", ("capsule_b_uniform",)),
        ("capsule_b_best", BASELINES),
        ("capsule_b_best", ("cnn_tuned",)),
        ("capsule_b_best", ("tfidf_svm",)),
        *(("capsule_b_best", (name,)) for name in SYSTEMS if is_variant(name)),
        *(("capsule_b_best_words", (name,)) for name in WORDS_COMPARED),
    )
    for corpus, (system, others) in product(REUTERS, compared):
        for setting, epochs in SETTINGS.items():
            # Capsule-B always trains with the margin loss.
            ours = "accuracy" if setting == "margin" else setting
            name = FigureName("table5", system, corpus, ours)
            for threshold, title in THRESHOLDS.items():
                path = (threshold, "exact_match")
                cells = compare_with_best(recorded, name, setting, path, others)
                if cells:
                    rows.append([corpus, epochs, title, *cells])
    return markdown(["corpus", "epoch by", "threshold", *COMPARISON_HEADER], rows)


# What capsules with words are compared with.
WORDS_COMPARED = ("tfidf_svm", "cnn_tuned", "cnn_tuned_words")
MARK = "Generated by `textcapsules reproduce` from the records in `results/`"

HEAD = f"""# Tables

{MARK}; do not edit.
Figures are percentages, mean ± standard deviation over the runs (folds where a corpus
has no test set, else seeds). `-`: no record, or nothing published. `PROTOCOL.md` says
how a run is made.
"""
QUICK_HEAD = f"""# A quick try, not results

{MARK}; do not edit.
A few texts, tiny networks, one epoch: these tables show that every cell can be run.
"""
ABLATION_TITLES = {
    "sabour-3": "Sabour's routing, 3 iterations",
    "ours-1": "our routing, 1 iteration",
    "ours-3": "our routing, 3 iterations",
    "ours-5": "our routing, 5 iterations",
    "without-leaky_softmax": "without leaky softmax",
    "without-orphan_category": "without orphan category",
    "without-coefficient_amendment": "without coefficient amendment",
    "sabour-squash": "our routing, 3 iterations, with Sabour's squash",
}
# On an encoder: heads of capsules, and the others that learn as much of the encoder.
_FROZEN = ("encoder_linear", "encoder_attention", "encoder_lr")
HEADS_COMPARED = {
    "encoder_capsules": _FROZEN,
    "encoder_capsules_attention": _FROZEN,
    "encoder_capsules_words": ("encoder_linear_words", "encoder_attention_words"),
    "encoder_capsules_light": ("encoder_linear_light",),
    "encoder_capsules_pieces": _FROZEN,
    "encoder_capsules_pieces_words": (
        "encoder_linear_words",
        "encoder_attention_words",
        "encoder_lr",
    ),
    "encoder_capsules_tuned": ("encoder_linear_tuned",),
    "encoder_capsules_tuned_words": ("encoder_linear_tuned_words",),
}
RESULT = ("accuracy", "published", "difference", "runs")
# A system, and those of which the best is compared with it.
COMPARED = (
    ("capsule_b_paper", BASELINES),
    ("capsule_b", BASELINES),
    ("capsule_b", ("capsule_a",)),
    ("capsule_b", ("capsule_b_uniform",)),
    ("capsule_b", ("capsule_b_non_shared",)),
    ("capsule_b_best", BASELINES),
    ("capsule_b_best", ("cnn_non_static",)),
    ("capsule_b_best", ("cnn_tuned",)),
    ("capsule_b_best", ("capsule_b_best_no_peaks",)),
    ("capsule_b_best_words", ("capsule_b_best",)),
    ("capsule_b_best_words", ("cnn_tuned",)),
    ("capsule_b_best_words", ("cnn_tuned_words",)),
)


def render_tables(recorded: RecordedFigures, *, quick: bool = False) -> str:
    """Return the page."""
    parts = [
        QUICK_HEAD if quick else HEAD,
        corpora(recorded),
        table1(recorded),
        table5(recorded),
        ablation(recorded),
        components(recorded),
        figure3(recorded),
        ladder(recorded),
        tuning(recorded),
        *(encoder_heads(recorded, name) for name in recorded.encoders),
    ]
    return "\n".join(parts)


def corpora(recorded: RecordedFigures) -> str:
    """Return our counts beside the paper's, the files, and how they differ."""
    rows = []
    for name in CORPORA:
        run = recorded.example(name)
        title = run["data"]["title"] if run else card(name).title
        shares = recorded.coverage.get(name) or (run["vectors"] if run else {})
        rows.append([name, title, *counts(run, name), *covered(shares)])
    header = ["corpus", "what it is", "train", "dev", "test"]
    header += ["paper's train", "paper's dev", "paper's test"]
    header += ["SHA-256 of the texts", "% of tokens with a vector"]
    header += ["% of these true GoogleNews vectors"]
    remarks = dict.fromkeys(
        f"- {card(name).folder}: {remark}\n"
        for name in CORPORA
        for remark in card(name).remarks
    )
    return f"## Corpora\n\n{markdown(header, rows)}\n{''.join(remarks)}"


def counts(run: Record | None, corpus: str) -> list[str]:
    """Return the counts of one corpus, ours and the paper's, and its checksums."""
    paper = published.sizes(corpus)
    theirs = [paper.get(part, DASH) for part in ("train", "dev", "test")]
    if run is None:
        return [DASH] * 3 + theirs + [DASH]
    texts = {**run["texts"], "test": run["test"][corpus]["texts"]}
    ours = [f"{texts[part]:,}" for part in ("train", "dev", "test")]
    sums = " ".join(each[:8] for each in run["data"]["sha256"].values())
    return [*ours, *theirs, sums]


def covered(shares: Mapping[str, Any]) -> list[str]:
    """Return the share of tokens with a vector, and of true vectors among these."""
    share, real = (shares.get(name) for name in ("tokens", "real_tokens"))
    known = DASH if share is None else f"{100 * share:.1f}"
    # Older records do not distinguish true vectors from estimates.
    true = f"{100 * real / share:.1f}" if share and real is not None else DASH
    return [known, true]


def table1(recorded: RecordedFigures) -> str:
    """Return the accuracy of every system, the published one, and the comparisons."""
    ours, papers, tests = [], [], []
    for system, entry in SYSTEMS.items():
        means = [
            recorded.mean(FigureName("table1", system, corpus), "accuracy")
            for corpus in TABLE_1
        ]
        theirs = [published.accuracy(system, corpus) for corpus in TABLE_1]
        ours.append([entry.title, *map(format_with_runs, means)])
        gaps = [
            DASH
            if paper is None
            else f"{format_published(paper)} ({format_difference(mean, paper)})"
            for mean, paper in zip(means, theirs, strict=True)
        ]
        if any(paper is not None for paper in theirs):
            papers.append([entry.title, *gaps])
    for system, others in COMPARED:
        for corpus in TABLE_1:
            name = FigureName("table1", system, corpus)
            if cells := compare_with_best(recorded, name, "", ("accuracy",), others):
                tests.append([corpus, *cells])
    return "\n".join(
        [
            "## Table 1: accuracy\n\nThe number of runs is in brackets.\n",
            markdown(["system", *TABLE_1], ours),
            "The published figures; in brackets our figure less the published one, in "
            "points. The published Capsule-B is the network with non-shared transforms "
            "(82.3 on MR is row 4 of table A.4), and all lines of Capsule-B are "
            "compared with it:\n",
            markdown(["system", *TABLE_1], papers),
            "The figure of one system less that of another, in points. If there are "
            "several others, it is compared with the best of them:\n",
            markdown(["corpus", *COMPARISON_HEADER], tests),
        ]
    )


def ablation(recorded: RecordedFigures) -> str:
    """Return Capsule-B on MR with one change per line."""
    rows = [
        [ABLATION_TITLES[setting], *on_mr(recorded, "ablation", setting, paper)]
        for setting, paper in zip_longest(
            ABLATION, [row["accuracy"] for row in published.ablation()]
        )
    ]
    title = "## Ablation: Capsule-B on MR\n\n"
    return title + markdown(["routing", *RESULT], rows)


def components(recorded: RecordedFigures) -> str:
    """Return table A.4: Capsule-B on MR with other components."""
    rows = []
    for row in published.components():
        yes = ["yes" if row[key] else "no" for key in ("leaky", "shared", "orphan")]
        start = [str(row["index"]), str(row["iterations"]), *yes]
        start += [row["loss"].replace("_", " "), row["squash"]]
        rows.append([*start, *on_mr(recorded, "a4", start[0], row["accuracy"])])
    header = ["row", "iterations", "leaky", "shared", "orphan", "loss", "squash"]
    return (
        "## Table A.4: components of Capsule-B on MR\n\n"
        + markdown([*header, *RESULT], rows)
        + "\nRows 7 and 9 are the same configuration, so they share their runs.\n"
    )


def on_mr(
    recorded: RecordedFigures, table: str, setting: str, paper: float | None
) -> list[str]:
    """Return the cells under `RESULT`."""
    name = FigureName(table, "capsule_b", "mr", setting)
    ours = recorded.mean(name, "accuracy")
    runs = str(len(recorded.runs(name)))
    return [
        format_mean(ours),
        format_published(paper),
        format_difference(ours, paper),
        runs,
    ]


def figure3(recorded: RecordedFigures) -> str:
    """Return the first and last points of the curves, and the picture."""
    rows, curves = [], recorded.curves()
    for iterations in CURVES:
        losses = curves.get(iterations, [])
        ends = [mean([each[place] for each in losses]) for place in (0, -1)]
        cells = [DASH if end is None else f"{end.value:.4f}" for end in ends]
        rows.append([str(iterations), *cells, str(len(losses))])
    header = ["iterations", "training loss, first epoch", "last epoch", "runs"]
    picture = "\n![Training loss by epoch](figure3.svg)\n" if curves else ""
    title = "## Figure 3: training loss of Capsule-B on Reuters\n\n"
    return title + markdown(header, rows) + picture


def ladder(recorded: RecordedFigures) -> str:
    """Return the figures of every step from preset paper to preset best."""
    rows = []
    for step in LADDER:
        cells = []
        for corpus in LADDER_ON:
            several = ("calibrated", "exact_match")
            path = several if corpus in REUTERS else ("accuracy",)
            name = FigureName("ladder", "capsule_b_paper", corpus, step)
            cells.append(format_with_runs(recorded.mean(name, *path)))
        rows.append([step, *cells])
    header = ["with all steps above", *LADDER_ON]
    return (
        "## Ladder: from preset paper to preset best\n\nAccuracy, and on Reuters exact "
        "match with a threshold from single dev documents and pairs by label. The "
        "number of runs is in brackets.\n\n" + markdown(header, rows)
    )


def tuning(recorded: RecordedFigures) -> str:
    """Return the dev accuracy of every setting of the two tuned systems."""
    parts = [
        "## Tuning: dev accuracy\n\nNo test text was read. The best mean comes first; "
        "the number of runs is in brackets.\n"
    ]
    for system, settings in TUNED.items():
        rows = []
        for setting in settings:
            names = [
                FigureName("tuning", system, corpus, setting) for corpus in TUNED_ON
            ]
            means = [recorded.dev_mean(name) for name in names]
            values = [each.value for each in means if each is not None]
            is_complete = len(values) == len(means)
            total = sum(values) / len(values) if is_complete else None
            last = DASH if total is None else f"{100 * total:.2f}"
            rows.append((total or 0.0, [setting, *map(format_with_runs, means), last]))
        rows.sort(key=lambda row: -row[0])
        header = [SYSTEMS[system].title, *TUNED_ON, "mean"]
        parts.append(markdown(header, [cells for _, cells in rows]))
    return "\n".join(parts)


def encoder_heads(recorded: RecordedFigures, encoder: str) -> str:
    """Return the figures of every head on one encoder, and how capsules compare."""
    rows, tests, sums = [], [], set()
    for system, entry in HEADS.items():
        cells = []
        for corpus, path in HEADS_MEASURED.values():
            name = FigureName("encoders", system, corpus, encoder)
            cells.append(format_with_runs(recorded.mean(name, *path)))
            sums |= {
                f"`{file}` {digest[:16]}"
                for run in recorded.runs(name).values()
                for file, digest in run["vectors"]["sha256"].items()
            }
        if set(cells) != {DASH}:
            rows.append([entry.title, *cells])
    for system, corpus in product(HEADS_COMPARED, ENCODER_CORPORA):
        name = FigureName("encoders", system, corpus, encoder)
        others, path = HEADS_COMPARED[system], measured(corpus)
        if cells := compare_with_best(recorded, name, encoder, path, others):
            tests.append([corpus, *cells])
    return "\n".join(
        [
            f"## Heads on {encoder}\n\nAll heads read the same states of the same "
            "texts. Accuracy, and on Reuters exact match with a threshold, or one per "
            "label, from single dev documents and pairs by label; the number of runs "
            "is in brackets. Heads without a run are left out. The encoder may have "
            "read some of these texts in its own training. SHA-256 of "
            f"its weights: {', '.join(sorted(sums)) or DASH}.\n",
            markdown(["head", *HEADS_MEASURED], rows),
            "The figure of capsules less that of the best head of another kind, in "
            "points:\n",
            markdown(["corpus", *COMPARISON_HEADER], tests),
        ]
    )


def measured(corpus: str) -> tuple[str, ...]:
    """Return the keys of what the tables of heads show of a test set."""
    return ("calibrated", "exact_match") if corpus in REUTERS else ("accuracy",)


# The columns of the tables of heads: a corpus, and where a record has its figure.
HEADS_MEASURED: dict[str, tuple[str, tuple[str, ...]]] = {
    **{corpus: (corpus, measured(corpus)) for corpus in ENCODER_CORPORA},
    **{
        f"{corpus}, per label": (corpus, ("per_label", "exact_match"))
        for corpus in REUTERS
    },
}

# Okabe and Ito's colours, for colour-blind readers too; lines and marks also differ.
STYLES = (("#0072B2", "-", "o"), ("#D55E00", "--", "s"), ("#009E73", ":", "^"))


def plot_losses(
    curves: Mapping[int, Sequence[Sequence[float]]], folder: Path
) -> list[Path]:
    """Draw the mean loss per number of iterations, its range shaded.

    Args:
        curves: the losses of every run by epoch, by number of iterations.
        folder: where `figure3.svg` and `figure3.png` go.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure  # no pyplot: no global state, no display
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    for (iterations, runs), style in zip(curves.items(), STYLES, strict=False):
        colour, line, marker = style
        n_epochs = min(len(run) for run in runs)
        losses = np.array([run[:n_epochs] for run in runs])  # (runs, epochs)
        epochs = np.arange(1, n_epochs + 1)
        label = f"{iterations} iteration{'s' * (iterations > 1)}"
        axes.plot(
            epochs,
            losses.mean(0),
            color=colour,
            linestyle=line,
            marker=marker,
            markersize=4,
            label=label,
        )
        axes.fill_between(
            epochs, losses.min(0), losses.max(0), color=colour, alpha=0.15, linewidth=0
        )
    axes.set(xlabel="epoch", ylabel="training loss", title="Capsule-B on Reuters")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend()
    paths = [folder / "figure3.svg", folder / "figure3.png"]
    # The same records give the same bytes: no date, no random names.
    with rc_context({"svg.hashsalt": "figure3"}):
        for path in paths:
            with atomic_path(path) as temporary:
                kind = path.suffix[1:]
                meta = {"Date": None} if kind == "svg" else {}
                figure.savefig(temporary, format=kind, dpi=150, metadata=meta)
    return paths
