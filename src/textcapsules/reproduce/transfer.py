"""Table 5: from one label in training to several in the test."""

from itertools import product

from textcapsules.reproduce import published
from textcapsules.reproduce.board import Board, Name
from textcapsules.reproduce.cell import REUTERS
from textcapsules.reproduce.compare import HEADER, NO_CAPSULES, against_best
from textcapsules.reproduce.markup import NOTHING, apart, markdown, shown, told
from textcapsules.reproduce.systems import SYSTEMS

__all__ = ["table5"]

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
