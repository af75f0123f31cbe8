"""Tables from records made by hand."""

import functools
import math
import re
from collections.abc import Sequence

import numpy as np
import pytest

from textcapsules.lab.paper.figures import RecordedFigures, format_p_value
from textcapsules.lab.paper.plan import LADDER, LADDER_ON, Cell, Plan, select
from textcapsules.lab.paper.records import Records
from textcapsules.lab.paper.runs import bits
from textcapsules.lab.paper.systems import TUNED
from textcapsules.lab.paper.tables import plot_losses, render_tables

pytestmark = pytest.mark.slow

PLAN = Plan(folds=3, seeds=2)


planned = functools.cache(PLAN.cells)


def cells(table: str, only: str, setting: str = "") -> list[Cell]:
    return [cell for cell in select(planned(table), [only]) if cell.setting == setting]


def add(records: Records, cell: Cell, figures: dict, **more) -> None:
    """Keep a record with what the tables read."""
    records.add(
        {
            "key": cell.key,
            "system": cell.system,
            "corpus": cell.config.data.source,
            "dev": {},
            "test": {name: {"texts": 8, **figures} for name in cell.tests},
            "texts": {"train": 1234, "dev": 56},
            "data": {"title": "Made up", "sha256": {"f": "0123456789abcdef"}},
            "vectors": {"file": "v.npz", "tokens": 0.987},
            "losses": [0.5, 0.25],
            **more,
        }
    )


def add_accuracies(
    records: Records, only: str, values: Sequence[float], rights: Sequence[str]
) -> None:
    runs = cells("table1", only)
    for cell, value, right in zip(runs, values, rights, strict=True):
        mask = np.array([mark == "x" for mark in right])
        add(records, cell, {"accuracy": value, "right": bits(mask)})


def page(records: Records) -> str:
    return render_tables(RecordedFigures(PLAN, records))


def section(text: str, title: str) -> str:
    start = text.index(f"## {title}")
    stop = re.search(r"\n## ", text[start + 1 :])
    return text[start : start + 1 + stop.start() if stop else None]


def rows(text: str, first: str) -> list[list[str]]:
    """Return the cells of every row that begins with `first`."""
    found = [line.strip("| ").split(" | ") for line in text.splitlines()]
    return [row for row in found if row[0] == first]


def test_without_records_every_cell_is_a_dash(tmp_path):
    text = page(Records(tmp_path))
    ours, published = rows(section(text, "Table 1"), "Capsule-B searched")
    assert ours[1:] == ["-"] * 7
    assert published[1] == "82.3 (-)"
    row = rows(section(text, "Ablation"), "our routing, 5 iterations")[0]
    assert row[1:] == ["-", "81.6", "-", "0"]
    assert "figure3.svg" not in text


def test_mean_spread_difference_and_number_of_runs(tmp_path):
    records = Records(tmp_path)
    # Mean 82, deviations -1, 0, 1: spread 1; the paper has 82.3.
    add_accuracies(records, "capsule_b/mr", [0.81, 0.82, 0.83], ["x" * 8] * 3)
    text = page(records)
    ours, published = rows(section(text, "Table 1"), "Capsule-B searched")
    assert ours[1] == "82.0 ± 1.0 (3)"
    assert published[1] == "82.3 (-0.3)"
    ablation = rows(section(text, "Ablation"), "our routing, 3 iterations")[0]
    assert ablation[1:] == ["82.0 ± 1.0", "82.3", "-0.3", "3"]
    fifth = rows(section(text, "Table A.4"), "5")[0]
    assert fifth[-4:] == ["82.0 ± 1.0", "81.8", "+0.2", "3"]
    # Of the systems of the paper alone, published figures are shown.
    assert rows(section(text, "Table 1"), "fastText")[0][1:] == ["-"] * 7


def test_capsules_are_compared_with_the_best_baseline(tmp_path):
    records = Records(tmp_path)
    add_accuracies(
        records,
        "capsule_b/mr",
        [0.81, 0.84, 0.83],
        ["xxxx....", "xx......", "x......."],
    )
    add_accuracies(
        records,
        "cnn_static/mr",
        [0.80, 0.82, 0.80],
        [".......x", "........", "x......."],
    )
    add_accuracies(records, "lstm/mr", [0.70, 0.70, 0.70], ["x" * 8] * 3)
    # Better, but on one fold only: less evidence.
    first = cells("table1", "bilstm/mr")[0]
    add(records, first, {"accuracy": 0.99, "right": "ff"})
    compared = rows(section(page(records), "Table 1"), "mr")
    tests = next(row for row in compared if row[1] == "Capsule-B searched")
    t = 2 * math.sqrt(3)
    p_value = 1 - t / math.sqrt(t * t + 2)
    # Texts: 6 only Capsule-B has right, 1 only the CNN.
    expected = ["CNN-static", "+2.0", "3", f"{p_value:.3f}", "0.125"]
    assert tests[1:] == ["Capsule-B searched", *expected]


def test_preset_best_is_compared_with_the_cnn_too(tmp_path):
    records = Records(tmp_path)
    for only, accuracy in (
        ("capsule_b_best/mr", 0.8),
        ("cnn_non_static/mr", 0.7),
        ("lstm/mr", 0.9),
    ):
        add_accuracies(records, only, [accuracy] * 3, ["x" * 8] * 3)
    found = rows(section(page(records), "Table 1"), "mr")
    ours = "Capsules, preset best"
    assert [row[1:4] for row in found] == [
        [ours, "LSTM", "-10.0"],
        [ours, "CNN-non-static", "+10.0"],
    ]


def test_routing_and_sharing_are_compared_with_their_controls(tmp_path):
    records = Records(tmp_path)
    for only, accuracy in (
        ("capsule_b/mr", 0.8),
        ("capsule_a/mr", 0.75),
        ("capsule_b_uniform/mr", 0.7),
        ("capsule_b_non_shared/mr", 0.6),
    ):
        add_accuracies(records, only, [accuracy] * 3, ["x" * 8] * 3)
    found = rows(section(page(records), "Table 1"), "mr")
    assert [row[2:4] for row in found if row[1] == "Capsule-B searched"] == [
        ["Capsule-A searched", "+5.0"],
        ["Capsule-B searched, uniform couplings", "+10.0"],
        ["Capsule-B searched, non-shared", "+20.0"],
    ]


def test_table5_shows_both_thresholds_and_averages(tmp_path):
    records = Records(tmp_path)
    averages = {
        f"{average}_{measure}": value
        for average, value in (("micro", 0.7), ("samples", 0.6))
        for measure in ("precision", "recall", "f1")
    }
    for cell, match in zip(
        cells("table5", "capsule_b/reuters-multi", "accuracy"), (0.2, 0.3), strict=True
    ):
        half = {"exact_match": match, "right": "f0", **averages}
        calibrated = {**half, "exact_match": 2 * match}
        add(records, cell, {"half": half, "calibrated": calibrated})
    table = section(page(records), "Table 5")
    match, f1, at_half, calibrated = rows(table, "Capsule-B searched")[:4]
    assert match[1:4] == ["60.3", "25.0 ± 7.1", "50.0 ± 14.1"]
    assert f1[1:3] == ["85.8", "70.0 ± 0.0"]
    full = rows(table.partition("### reuters-multi: every")[2], "Capsule-B searched")
    at_half, calibrated = full[:2]
    assert at_half[1:4] == ["dev accuracy", "0.5", "25.0 ± 7.1 (-35.3)"]
    assert at_half[-2:] == ["60.0 ± 0.0", "2"]
    assert calibrated[3] == "50.0 ± 14.1 (-10.3)"
    assert "joined dev" not in {row[1] for row in full}  # no run, no row


def test_a_figure_that_older_records_lack_is_the_mean_of_the_others(tmp_path):
    records = Records(tmp_path)
    figures = {
        f"{average}_{measure}": 0.7
        for average in ("micro", "samples")
        for measure in ("precision", "recall", "f1")
    }
    half = {"exact_match": 0.2, "right": "f0", **figures}
    old, new = cells("table5", "capsule_b/reuters-multi", "accuracy")
    add(records, old, {"half": half, "calibrated": half})
    again = {**half, "exact_match": 0.6}
    add(records, new, {"half": half, "calibrated": half, "unequal": again})
    table = section(page(records), "Table 5")
    assert rows(table, "Capsule-B searched")[0][2:5] == [
        "20.0 ± 0.0",
        "20.0 ± 0.0",
        "60.0",
    ]
    full = rows(table.partition("### reuters-multi: every")[2], "Capsule-B searched")
    assert [(row[2], row[-1]) for row in full[:3]] == [
        ("0.5", "2"),
        ("calibrated", "2"),
        ("calibrated on unequal parts", "1"),
    ]


def test_thresholds_per_label_stand_where_single_texts_calibrate_too(tmp_path):
    records = Records(tmp_path)
    figures = {
        f"{average}_{measure}": 0.7
        for average in ("micro", "samples")
        for measure in ("precision", "recall", "f1")
    }
    ways = {"half": 0.2, "calibrated": 0.3, "unequal": 0.4, "per_label": 0.5}
    for cell in cells("table5", "capsule_b/reuters-multi", "single+joined"):
        add(
            records,
            cell,
            {
                name: {"exact_match": value, "right": "f0", **figures}
                for name, value in ways.items()
            },
        )
    table = section(page(records), "Table 5")
    header = next(line for line in table.splitlines() if line.startswith("| system"))
    names = [name.strip() for name in header.strip("|").split("|")]
    row = dict(zip(names, rows(table, "Capsule-B searched")[0], strict=True))
    start = "single and joined dev"
    assert row[f"{start}; 0.5"] == "20.0 ± 0.0"
    assert row[f"{start}; calibrated"] == "30.0 ± 0.0"
    assert row[f"{start}; calibrated per label"] == "50.0 ± 0.0"
    assert row[f"{start}, joined training; calibrated per label"] == "-"
    assert row["joined dev; calibrated"] == "-"
    full = rows(table.partition("### reuters-multi: every")[2], "Capsule-B searched")
    assert [each[1:4] for each in full[:4]] == [
        [start, "0.5", "20.0 ± 0.0 (-40.3)"],
        [start, "calibrated", "30.0 ± 0.0 (-30.3)"],
        [start, "calibrated on unequal parts", "40.0 ± 0.0 (-20.3)"],
        [start, "calibrated per label", "50.0 ± 0.0 (-10.3)"],
    ]


def test_margin_line_of_a_baseline_is_compared_with_capsules(tmp_path):
    records = Records(tmp_path)
    for only, setting, right in (
        ("capsule_b/reuters-full", "accuracy", "fe"),
        ("cnn_rand/reuters-full", "margin", "00"),
    ):
        figures = {"exact_match": int(right, 16).bit_count() / 8, "right": right}
        figures |= {
            f"{average}_{measure}": 0.5
            for average in ("micro", "samples")
            for measure in ("precision", "recall", "f1")
        }
        for cell in cells("table5", only, setting):
            add(records, cell, {"half": figures, "calibrated": figures})
    table = section(page(records), "Table 5").partition("differences between systems")[
        2
    ]
    row = next(
        row
        for row in rows(table, "reuters-full")
        if "margin" in row[1] and row[3] == "Capsule-B searched"
    )
    # 7 texts to none: 2 / 2^7.
    expected = ["Capsule-B searched", "CNN-rand", "+87.5", "2", "-", "0.016"]
    assert row[1:] == ["dev accuracy, margin loss", "0.5", *expected]


def test_corpora_stand_beside_the_papers_counts(tmp_path):
    records = Records(tmp_path)
    add_accuracies(records, "capsule_b/mr", [0.8] * 3, ["x" * 8] * 3)
    row = rows(section(page(records), "Corpora"), "mr")[0]
    counts = ["Made up", "1,234", "56", "8", "8.6k", "0.9k", "1.1k"]
    assert row[1:] == [*counts, "01234567", "98.7", "-"]


def test_true_vectors_are_shown_if_a_record_has_their_share(tmp_path):
    records = Records(tmp_path)
    shares = {"file": "v.npz", "tokens": 0.8, "real_tokens": 0.6}
    for cell in cells("table1", "capsule_b/mr"):
        add(records, cell, {"accuracy": 0.8, "right": "ff"}, vectors=shares)
    row = rows(section(page(records), "Corpora"), "mr")[0]
    assert row[-2:] == ["80.0", "75.0"]
    assert rows(section(page(records), "Corpora"), "trec")[0][-2:] == ["-", "-"]


def test_figure3_draws_the_losses(tmp_path):
    records = Records(tmp_path)
    for cell in cells("figure3", "capsule_b", "3"):
        add(records, cell, {})
    recorded = RecordedFigures(PLAN, records)
    assert recorded.curves() == {3: [[0.5, 0.25], [0.5, 0.25]]}
    row = rows(section(render_tables(recorded), "Figure 3"), "3")[0]
    assert row[1:] == ["0.5000", "0.2500", "2"]
    svg, png = plot_losses(recorded.curves(), tmp_path)
    assert "<svg" in svg.read_text()
    assert png.read_bytes().startswith(b"\x89PNG")
    before = svg.read_bytes()
    plot_losses(recorded.curves(), tmp_path)
    assert svg.read_bytes() == before


def test_curves_of_different_length_are_drawn_as_far_as_all_go(tmp_path):
    plot_losses({1: [[0.9, 0.8, 0.7], [0.9, 0.8]], 5: [[0.5]]}, tmp_path)
    assert (tmp_path / "figure3.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("p_value", "text"),
    [(math.nan, "-"), (0.00099, "< 0.001"), (0.001, "0.001"), (1.0, "1.000")],
)
def test_p_values(p_value, text):
    assert format_p_value(p_value) == text


def test_the_ladder_has_a_row_per_step_and_a_column_per_corpus(tmp_path):
    records = Records(tmp_path)
    (step, *_), last = LADDER, list(LADDER)[-1]
    for cell in cells("ladder", "capsule_b_paper/mr", step):
        add(records, cell, {"accuracy": 0.75})
    averages = {
        f"{average}_{measure}": 0.7
        for average in ("micro", "samples")
        for measure in ("precision", "recall", "f1")
    }
    half = {"exact_match": 0.25, "right": "f0", **averages}
    for cell in cells("ladder", "capsule_b_paper/reuters-full", last):
        add(records, cell, {"half": half, "calibrated": {**half, "exact_match": 0.5}})
    found = [
        line.strip("| ").split(" | ")
        for line in section(page(records), "Ladder").splitlines()
        if line.startswith("| ")
    ]
    header, _, *shown = found
    assert header[1:] == list(LADDER_ON)
    assert [row[0] for row in shown] == list(LADDER)
    expected = {(step, "mr"): "75.0 ± 0.0 (3)"}
    # A run on Reuters is judged on both of its test sets.
    expected |= {(last, name): "50.0 ± 0.0 (2)" for name in header if "reuters" in name}
    for row in shown:
        for corpus, value in zip(header[1:], row[1:], strict=True):
            assert value == expected.get((row[0], corpus), "-"), (row[0], corpus)


def test_tuning_shows_dev_scores_the_best_mean_first(tmp_path):
    records = Records(tmp_path)
    good, bad = list(TUNED["cnn_tuned"])[4], list(TUNED["cnn_tuned"])[2]
    for setting, score in ((bad, 0.5), (good, 0.75)):
        for cell in cells("tuning", "cnn_tuned", setting):
            score += 0.01  # of every fold a bit more
            add(records, cell, {}, corpus="search", dev={"dev_score": score})
    shown = section(page(records), "Tuning")
    lines = [line.split(" | ") for line in shown.splitlines() if "±" in line]
    assert [line[0].strip("| ") for line in lines] == [good, bad]
    # Three folds of MR (0.76 to 0.78), three of CR, two seeds of TREC.
    assert [cell.strip(" |") for cell in lines[0][1:]] == [
        "77.0 ± 1.0 (3)",
        "80.0 ± 1.0 (3)",
        "82.5 ± 0.7 (2)",
        "79.83",
    ]
