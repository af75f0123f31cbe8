"""Table 5: from one label in training to several in the test.

From records to `TABLES.md`: ours beside the published figure, with its spread.

A figure stands here only if a record does; a cell without one is a dash.

Figure 3: training loss by epoch, one curve for each number of iterations.
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
    HEADER,
    NO_CAPSULES,
    NOTHING,
    Board,
    Name,
    against_best,
    apart,
    markdown,
    mean,
    shown,
    told,
    with_runs,
)
from textcapsules.lab.paper.plan import (
    ABLATION,
    CORPORA,
    CURVES,
    LADDER,
    LADDER_ON,
    REUTERS,
    TABLE_1,
)
from textcapsules.lab.paper.record import Record
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


def table5(board: Board) -> str:
    """Return the section: two summaries, the tests, then every figure."""
    parts = ["## Table 5: from one label to several\n"]
    for corpus in REUTERS:
        for measure, title in (("exact_match", "exact match"), ("f1", "micro F1")):
            parts.append(f"### {corpus}: {title}\n")
            parts.append(summary(board, corpus, measure))
    parts.append("### Exact match against the best rival, in points\n")
    parts.append(comparisons(board))
    for corpus in REUTERS:
        parts.append(f"### {corpus}: every figure\n")
        parts.append(
            "In brackets the difference from the published figure. `samples`: averaged "
            "over texts, as the released code counts.\n"
        )
        parts.append(details(board, corpus))
    return "\n".join(parts)


def path_of(threshold: str, measure: str, average: str = "micro") -> tuple[str, str]:
    """Return where a test set's figures hold a measure."""
    if measure == "exact_match":
        return threshold, measure
    return threshold, f"{average}_{measure}"


def thresholds_of(setting: str) -> list[str]:
    """Return the thresholds that a summary shows of one way to choose the epoch.

    Thresholds per label are fitted on single and joined texts of unequal parts, so they
    stand where all else is chosen on those; every figure is in the table of details.
    """
    on_both = "single+joined" in setting or "by label" in setting
    apart = "per_label" if on_both else "unequal"
    return ["half", "calibrated", apart]


def summary(board: Board, corpus: str, measure: str) -> str:
    """Return one measure of every system: ways to choose across."""
    ways = [(setting, each) for setting in SETTINGS for each in thresholds_of(setting)]
    metric = published.METRICS[MEASURES.index(measure)]
    rows = []
    for system, entry in SYSTEMS.items():
        names = [Name("table5", system, corpus, setting) for setting, _ in ways]
        if not any(name in board.planned for name in names):
            continue
        cells = [
            shown(board.mean(name, *path_of(threshold, measure)))
            for name, (_, threshold) in zip(names, ways, strict=True)
        ]
        paper = told(published.transfer(system, corpus, metric))
        if {paper, *cells} != {NOTHING}:
            rows.append([entry.title, paper, *cells])
    header = [f"{SETTINGS[setting]}; {THRESHOLDS[least]}" for setting, least in ways]
    return markdown(["system", "published", *header], rows)


def details(board: Board, corpus: str) -> str:
    """Return all measures of every system, epoch choice and threshold."""
    rows = []
    for name in board.planned:
        if (name.table, name.corpus) != ("table5", corpus) or not board.runs(name):
            continue
        for threshold, title in THRESHOLDS.items():
            start = [SYSTEMS[name.system].title, SETTINGS[name.setting], title]
            if board.mean(name, *path_of(threshold, "exact_match")):
                rows.append([*start, *figures(board, name, threshold)])
    measures = ["ER", "precision", "recall", "F1"]
    samples = [f"{measure}, samples" for measure in measures[1:]]
    return markdown(
        ["system", "epoch by", "threshold", *measures, *samples, "runs"], rows
    )


def figures(board: Board, name: Name, threshold: str) -> list[str]:
    """Return one row's figures, micro averages beside the published ones."""
    cells = []
    for measure, metric in zip(MEASURES, published.METRICS, strict=True):
        found = board.mean(name, *path_of(threshold, measure))
        paper = published.transfer(name.system, name.corpus, metric)
        gap = f" ({apart(found, paper)})" if found and paper is not None else ""
        cells.append(shown(found) + gap)
    for measure in MEASURES[1:]:
        path = path_of(threshold, measure, "samples")
        cells.append(shown(board.mean(name, *path)))
    return [*cells, str(len(board.runs_with(name, threshold)))]


def is_variant(system: str) -> bool:
    """Tell a system that differs from preset best in one thing.

    >>> is_variant("capsule_b_best_one_iteration"), is_variant("capsule_b_best")
    (True, False)
    """
    return system.startswith("capsule_b_best_")


def comparisons(board: Board) -> str:
    """Return Capsule-B against the best rival, for every way to choose."""
    rows = []
    compared = (
        ("capsule_b_paper", NO_CAPSULES),
        ("capsule_b", NO_CAPSULES),
        ("capsule_b", ("capsule_b_uniform",)),
        ("capsule_b_best", NO_CAPSULES),
        ("capsule_b_best", ("cnn_tuned",)),
        ("capsule_b_best", ("tfidf_svm",)),
        *(("capsule_b_best", (name,)) for name in SYSTEMS if is_variant(name)),
    )
    for corpus, (system, rivals) in product(REUTERS, compared):
        for setting, epochs in SETTINGS.items():
            # Capsule-B's own loss is the margin loss.
            ours = "accuracy" if setting == "margin" else setting
            name = Name("table5", system, corpus, ours)
            for threshold, title in THRESHOLDS.items():
                path = (threshold, "exact_match")
                cells = against_best(board, name, setting, path, rivals)
                if cells:
                    rows.append([corpus, epochs, title, *cells])
    return markdown(["corpus", "epoch by", "threshold", *HEADER], rows)


MARK = "Generated by `textcapsules reproduce` from the records in `results/`"

HEAD = f"""# Tables

{MARK}; do not edit.
Figures are percentages, mean ± standard deviation over the runs (folds where a corpus
has no test set, else seeds). `-`: no record, or nothing published. `PROTOCOL.md` says
how a run is made.
"""
QUICK_HEAD = f"""# A quick try, not results

{MARK}; do not edit.
A few texts, tiny networks, one epoch: what follows shows that every cell can be run.
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
RESULT = ("accuracy", "published", "difference", "runs")
# Who is tested against whom: the best of some rivals.
COMPARED = (
    ("capsule_b_paper", NO_CAPSULES),
    ("capsule_b", NO_CAPSULES),
    ("capsule_b", ("capsule_a",)),
    ("capsule_b", ("capsule_b_uniform",)),
    ("capsule_b", ("capsule_b_non_shared",)),
    ("capsule_b_best", NO_CAPSULES),
    ("capsule_b_best", ("cnn_non_static",)),
    ("capsule_b_best", ("cnn_tuned",)),
    ("capsule_b_best", ("capsule_b_best_one_iteration",)),
    ("capsule_b_best", ("capsule_b_best_attention",)),
)


def render_tables(board: Board, *, quick: bool = False) -> str:
    """Return the page."""
    parts = [
        QUICK_HEAD if quick else HEAD,
        corpora(board),
        table1(board),
        table5(board),
        ablation(board),
        components(board),
        figure3(board),
        ladder(board),
        tuning(board),
    ]
    return "\n".join(parts)


def corpora(board: Board) -> str:
    """Return our counts beside the paper's, what was read, and where it differs."""
    rows = []
    for name in CORPORA:
        run = board.example(name)
        title = run["data"]["title"] if run else card(name).title
        shares = board.coverage.get(name) or (run["vectors"] if run else {})
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
    """Return one corpus's counts and sums."""
    paper = published.sizes(corpus)
    theirs = [paper.get(part, NOTHING) for part in ("train", "dev", "test")]
    if run is None:
        return [NOTHING] * 3 + theirs + [NOTHING]
    texts = {**run["texts"], "test": run["test"][corpus]["texts"]}
    ours = [f"{texts[part]:,}" for part in ("train", "dev", "test")]
    sums = " ".join(each[:8] for each in run["data"]["sha256"].values())
    return [*ours, *theirs, sums]


def covered(shares: Mapping[str, Any]) -> list[str]:
    """Return how many tokens have a vector, and how many of those a true one."""
    share, real = (shares.get(name) for name in ("tokens", "real_tokens"))
    known = NOTHING if share is None else f"{100 * share:.1f}"
    # Older records do not tell true vectors from estimates.
    true = f"{100 * real / share:.1f}" if share and real is not None else NOTHING
    return [known, true]


def table1(board: Board) -> str:
    """Return every system's accuracy, the published one, and the tests."""
    ours, papers, tests = [], [], []
    for system, entry in SYSTEMS.items():
        means = [
            board.mean(Name("table1", system, corpus), "accuracy") for corpus in TABLE_1
        ]
        theirs = [published.accuracy(system, corpus) for corpus in TABLE_1]
        ours.append([entry.title, *map(with_runs, means)])
        gaps = [
            NOTHING if paper is None else f"{told(paper)} ({apart(found, paper)})"
            for found, paper in zip(means, theirs, strict=True)
        ]
        if any(paper is not None for paper in theirs):
            papers.append([entry.title, *gaps])
    for system, rivals in COMPARED:
        for corpus in TABLE_1:
            name = Name("table1", system, corpus)
            if cells := against_best(board, name, "", ("accuracy",), rivals):
                tests.append([corpus, *cells])
    return "\n".join(
        [
            "## Table 1: accuracy\n\nIn brackets the number of runs.\n",
            markdown(["system", *TABLE_1], ours),
            "Published, and in brackets ours less it, in points. The published "
            "Capsule-B is the network with non-shared transforms (82.3 on MR is row 4 "
            "of table A.4), so every one of its lines stands beside it:\n",
            markdown(["system", *TABLE_1], papers),
            "One system less another, in points; where several are compared with, the "
            "best of them:\n",
            markdown(["corpus", *HEADER], tests),
        ]
    )


def ablation(board: Board) -> str:
    """Return Capsule-B on MR with one thing changed at a time."""
    rows = [
        [ABLATION_TITLES[setting], *on_mr(board, "ablation", setting, paper)]
        for setting, paper in zip_longest(
            ABLATION, [row["accuracy"] for row in published.ablation()]
        )
    ]
    title = "## Ablation: Capsule-B on MR\n\n"
    return title + markdown(["routing", *RESULT], rows)


def components(board: Board) -> str:
    """Return table A.4: Capsule-B on MR with other components."""
    rows = []
    for row in published.components():
        yes = ["yes" if row[key] else "no" for key in ("leaky", "shared", "orphan")]
        start = [str(row["index"]), str(row["iterations"]), *yes]
        start += [row["loss"].replace("_", " "), row["squash"]]
        rows.append([*start, *on_mr(board, "a4", start[0], row["accuracy"])])
    header = ["row", "iterations", "leaky", "shared", "orphan", "loss", "squash"]
    return (
        "## Table A.4: components of Capsule-B on MR\n\n"
        + markdown([*header, *RESULT], rows)
        + "\nRows 7 and 9 are one configuration, so here one set of runs.\n"
    )


def on_mr(board: Board, table: str, setting: str, paper: float | None) -> list[str]:
    """Return the cells under `RESULT`."""
    name = Name(table, "capsule_b", "mr", setting)
    found = board.mean(name, "accuracy")
    runs = str(len(board.runs(name)))
    return [shown(found), told(paper), apart(found, paper), runs]


def figure3(board: Board) -> str:
    """Return the curves' first and last points, and the picture."""
    rows, curves = [], board.curves()
    for iterations in CURVES:
        losses = curves.get(iterations, [])
        ends = [mean([each[place] for each in losses]) for place in (0, -1)]
        cells = [NOTHING if end is None else f"{end.value:.4f}" for end in ends]
        rows.append([str(iterations), *cells, str(len(losses))])
    header = ["iterations", "training loss, first epoch", "last epoch", "runs"]
    picture = "\n![Training loss by epoch](figure3.svg)\n" if curves else ""
    title = "## Figure 3: training loss of Capsule-B on Reuters\n\n"
    return title + markdown(header, rows) + picture


def ladder(board: Board) -> str:
    """Return preset paper, and what each step to preset best makes of it."""
    rows = []
    for step in LADDER:
        cells = []
        for corpus in LADDER_ON:
            several = ("calibrated", "exact_match")
            path = several if corpus in REUTERS else ("accuracy",)
            name = Name("ladder", "capsule_b_paper", corpus, step)
            cells.append(with_runs(board.mean(name, *path)))
        rows.append([step, *cells])
    header = ["with all of the steps above", *LADDER_ON]
    return (
        "## Ladder: from preset paper to preset best\n\nAccuracy, and on Reuters exact "
        "match with a threshold from single dev documents and pairs by label. In "
        "brackets the number of runs.\n\n" + markdown(header, rows)
    )


def tuning(board: Board) -> str:
    """Return the dev accuracy of what two systems were chosen among."""
    parts = [
        "## Tuning: dev accuracy\n\nNo test text was read. The best mean first; in "
        "brackets the number of runs.\n"
    ]
    for system, settings in TUNED.items():
        rows = []
        for setting in settings:
            names = [Name("tuning", system, corpus, setting) for corpus in TUNED_ON]
            found = [board.dev_mean(name) for name in names]
            values = [each.value for each in found if each is not None]
            whole = len(values) == len(found)
            total = sum(values) / len(values) if whole else None
            last = NOTHING if total is None else f"{100 * total:.2f}"
            rows.append((total or 0.0, [setting, *map(with_runs, found), last]))
        rows.sort(key=lambda row: -row[0])
        header = [SYSTEMS[system].title, *TUNED_ON, "mean"]
        parts.append(markdown(header, [cells for _, cells in rows]))
    return "\n".join(parts)


# Okabe and Ito's colours, told apart by every kind of sight; lines differ too.
STYLES = (("#0072B2", "-", "o"), ("#D55E00", "--", "s"), ("#009E73", ":", "^"))


def plot_losses(
    curves: Mapping[int, Sequence[Sequence[float]]], folder: Path
) -> list[Path]:
    """Draw the mean loss of every number of iterations, its range shaded.

    Args:
        curves: by iterations, the losses by epoch of every run.
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
    # The same records give the same bytes: no time, no drawn names.
    with rc_context({"svg.hashsalt": "figure3"}):
        for path in paths:
            with atomic_path(path) as temporary:
                kind = path.suffix[1:]
                meta = {"Date": None} if kind == "svg" else {}
                figure.savefig(temporary, format=kind, dpi=150, metadata=meta)
    return paths
