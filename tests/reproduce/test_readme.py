"""The README's figures are those of the tables that records make."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Lines that the README calls otherwise than the tables do.
ONE_LABEL = {
    "the same, tuned": "CNN-non-static, tuned",
    "Capsule-B, preset `paper`": "Capsule-B, preset paper",
    "the same, setting searched": "Capsule-B searched",
    "and non-shared transforms": "Capsule-B searched, non-shared",
    "Capsule-B, preset `best`": "Capsule-B, preset best",
}
SEVERAL = {
    **ONE_LABEL,
    "the same, uniform couplings": "Capsule-B searched, uniform couplings",
}
CORPORA = ("mr", "sst2", "subj", "trec", "cr", "ag-news")
WAYS = (
    "joined dev; 0.5",
    "joined dev; calibrated",
    "joined dev, joined training; calibrated",
)


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


@pytest.mark.parametrize(
    ("there", "here", "names", "columns", "skip"),
    [
        ("Test accuracy (mean", "## Table 1: accuracy", ONE_LABEL, CORPORA, 1),
        (
            "labels, trained on documents with one (five",
            "### reuters-multi: exact match",
            SEVERAL,
            WAYS,
            2,
        ),
    ],
)
def test_figures_are_those_of_the_tables(there, here, names, columns, skip):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    tables = (ROOT / "reproduction/TABLES.md").read_text(encoding="utf-8")
    header, *rows = table_after(tables, here)
    expected = {
        row[0]: [figure(row[header.index(column)]) for column in columns]
        for row in rows
    }
    _, *shown = table_after(readme, there)
    assert len(shown) >= 7
    for title, *cells in shown:
        figures = expected[names.get(title, title)]
        for told, found in zip(cells[skip - 1 :], figures, strict=True):
            if told := figure(told):
                # A system without spread has none in the README.
                assert told in (found, found.removesuffix(" ± 0.0")), title
