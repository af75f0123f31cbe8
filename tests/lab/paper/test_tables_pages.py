"""The figures of README.md and docs/results.md are those that the records make."""

import functools
from pathlib import Path

ROOT = Path(__file__).parents[3]
# Systems that the pages call otherwise than the tables do.
ONE_LABEL = {
    "the same, tuned": "CNN-non-static, tuned",
    "Capsule-B, preset `paper`": "Capsule-B, preset paper",
    "the same, setting searched": "Capsule-B searched",
    "and non-shared transforms": "Capsule-B searched, non-shared",
    "Capsules, preset `best`": "Capsules, preset best",
    "the same, without peaks": "Capsules, preset best, no peaks",
    "Capsules, preset `best`, with words: the default": (
        "Capsules, preset best, with words"
    ),
}
SEVERAL = {
    "Capsules, preset `best`": "Capsules, preset best",
    "Capsules, preset `best`, with words: the default": (
        "Capsules, preset best, with words"
    ),
    "with one iteration of routing": "Capsules, preset best, one iteration",
    "without competition": "Capsules, preset best, no competition",
    "not normalised": "Capsules, preset best, not normalised",
    "without peaks": "Capsules, preset best, no peaks",
}
# Systems (and whether they were trained on pairs) and test texts of README.md's table.
README_SYSTEMS = {
    "capsules, with words": ("Capsules, preset best, with words", False),
    "capsules": ("Capsules, preset best", False),
    "CNN, with words": ("CNN-non-static, tuned, with words", False),
    "CNN": ("CNN-non-static, tuned", False),
    "linear SVM": ("TF-IDF + linear SVM", False),
}
README_CORPORA = {
    "Reuters, all documents": "reuters-full",
    "Reuters, documents with several labels": "reuters-multi",
    "TREC, one label": "trec",
    "SST-2, one label": "sst2",
    "MR, one label": "mr",
}
CORPORA = ("mr", "sst2", "subj", "trec", "cr", "ag-news")
BY_LABEL = "single dev and joined by label, 400 tokens"
THRESHOLDS = ("0.5", "calibrated", "calibrated per label")
ON_PAIRS = "the same, trained on pairs too"  # the system of the line above


def table_after(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, its header first."""
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = text[text.index(heading) :].splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[first:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return [rows[0], *rows[2:]]


def figure(cell: str) -> str:
    """Return a figure without emphasis, published figure and number of runs."""
    return cell.replace("**", "").partition("(")[0].strip()


@functools.cache
def accuracies() -> dict[tuple[str, str], str]:
    """Return the figures of table 1 by corpus and system."""
    header, *rows = table_after("reproduction/TABLES.md", "## Table 1: accuracy")
    return {
        (corpus, row[0]): figure(row[header.index(corpus)])
        for row in rows
        for corpus in CORPORA
    }


@functools.cache
def exact_matches() -> dict[tuple[str, str, str], str]:
    """Return the figures of table 5 by corpus, system and threshold."""
    figures = {}
    for corpus in ("reuters-multi", "reuters-full"):
        heading = f"### {corpus}: exact match"
        header, *rows = table_after("reproduction/TABLES.md", heading)
        for system, *cells in rows:
            for way, cell in zip(header[1:], cells, strict=True):
                figures[corpus, system, way] = cell
    return figures


def recorded_match(corpus: str, system: str, threshold: str, *, pairs: bool) -> str:
    training = ", joined training" if pairs else ""
    return exact_matches()[corpus, system, f"{BY_LABEL}{training}; {threshold}"]


def without_zero_spread(cell: str) -> str:
    """Return a figure as pages show it: a system that draws nothing has no spread."""
    return cell.removesuffix(" ± 0.0")


def test_accuracy_is_that_of_table_1() -> None:
    _, *rows = table_after("docs/results.md", "## One label")
    assert len(rows) >= 7
    for title, *cells in rows:
        system = ONE_LABEL.get(title, title)
        for corpus, cell in zip(CORPORA, cells, strict=True):
            recorded = accuracies()[corpus, system]
            if shown := figure(cell):
                assert shown in (recorded, without_zero_spread(recorded)), title


def test_exact_match_is_that_of_table_5() -> None:
    _, *rows = table_after("docs/results.md", "## Several labels out of one")
    assert len(rows) == 13
    system = ""
    for title, *cells in rows:
        pairs = title == ON_PAIRS
        system = system if pairs else SEVERAL.get(title, title)
        for threshold, cell in zip(THRESHOLDS, cells, strict=True):
            corpora = ("reuters-multi", "reuters-full")
            for corpus, shown in zip(corpora, cell.split(" / "), strict=True):
                recorded = recorded_match(corpus, system, threshold, pairs=pairs)
                with_spread = without_zero_spread(recorded)
                allowed = {with_spread}
                if threshold != "calibrated":
                    allowed.add(recorded.partition(" ± ")[0])
                assert shown in allowed, (title, threshold, corpus)


def test_first_page_shows_figures_of_the_tables() -> None:
    header, *rows = table_after("README.md", "## Results")
    assert header[1:] == list(README_SYSTEMS)
    assert [title for title, *_ in rows] == list(README_CORPORA)
    for title, *cells in rows:
        corpus = README_CORPORA[title]
        for name, shown in zip(header[1:], cells, strict=True):
            system, pairs = README_SYSTEMS[name]
            if corpus.startswith("reuters"):
                rule = "calibrated per label"  # the default
                recorded = recorded_match(corpus, system, rule, pairs=pairs)
            else:
                recorded = "" if pairs else accuracies()[corpus, system]
            assert shown == without_zero_spread(recorded), (title, name)
