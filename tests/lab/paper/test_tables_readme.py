"""The README's figures are those of the tables that records make."""

from pathlib import Path

ROOT = Path(__file__).parents[3]
# Lines that the README calls otherwise than the tables do.
ONE_LABEL = {
    "the same, tuned": "CNN-non-static, tuned",
    "Capsule-B, preset `paper`": "Capsule-B, preset paper",
    "the same, setting searched": "Capsule-B searched",
    "and non-shared transforms": "Capsule-B searched, non-shared",
    "Capsules, preset `best`": "Capsules, preset best",
}
SEVERAL = {
    "Capsules, preset `best`": "Capsules, preset best",
    "with one iteration of routing": "Capsules, preset best, one iteration",
    "without competition": "Capsules, preset best, no competition",
    "not normalised": "Capsules, preset best, not normalised",
}
CORPORA = ("mr", "sst2", "subj", "trec", "cr", "ag-news")
BY_LABEL = "single dev and joined by label, 400 tokens"
THRESHOLDS = ("0.5", "calibrated", "calibrated per label")
ON_PAIRS = "the same, trained on pairs too"  # the system of the line above


def table_after(text: str, start: str) -> list[list[str]]:
    """Return the cells of the first table after a line, its header first."""
    lines = text[text.index(start) :].splitlines()
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


def page(name: str) -> str:
    """Return a page of the project."""
    return (ROOT / name).read_text(encoding="utf-8")


def test_accuracy_is_that_of_table_1() -> None:
    header, *rows = table_after(page("reproduction/TABLES.md"), "## Table 1: accuracy")
    expected = {
        row[0]: [figure(row[header.index(corpus)]) for corpus in CORPORA]
        for row in rows
    }
    _, *shown = table_after(page("README.md"), "Test accuracy (mean")
    assert len(shown) >= 7
    for title, *cells in shown:
        figures = expected[ONE_LABEL.get(title, title)]
        for told, found in zip(cells, figures, strict=True):
            if told := figure(told):
                # A system without spread has none in the README.
                assert told in (found, found.removesuffix(" ± 0.0")), title


def test_exact_match_is_that_of_table_5() -> None:
    tables = page("reproduction/TABLES.md")
    found = {}
    for corpus in ("reuters-multi", "reuters-full"):
        header, *rows = table_after(tables, f"### {corpus}: exact match")
        for system, *cells in rows:
            named = dict(zip(header[1:], cells, strict=True))
            found.update({(corpus, system, way): named[way] for way in named})
    _, *shown = table_after(
        page("README.md"), "What capsules are for is several labels"
    )
    assert len(shown) == 8
    system, trained = "", ""
    for title, *cells in shown:
        trained = ", joined training" if title == ON_PAIRS else ""
        system = system if trained else SEVERAL.get(title, title)
        for threshold, cell in zip(THRESHOLDS, cells, strict=True):
            way = f"{BY_LABEL}{trained}; {threshold}"
            several, everywhere = cell.split(" / ")
            told = {"reuters-multi": several, "reuters-full": everywhere}
            for corpus, value in told.items():
                mean, _, spread = found[corpus, system, way].partition(" ± ")
                assert value in (mean, f"{mean} ± {spread}"), (title, way, corpus)
                if threshold == "calibrated":  # a spread is shown where there is one
                    assert ("±" in value) == (spread != "0.0"), (title, way, corpus)
