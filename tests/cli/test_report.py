"""`textcapsules report`: the page it writes and what it refuses."""

import json
from pathlib import Path

import pytest

from pages import check_page
from toy import refusal, run_cli, toy_rows, trained_model, write_csv


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "more.csv", toy_rows(12, seed=9))


@pytest.mark.slow
def test_report_of_a_file_is_written_and_named(tmp_path: Path, table: Path) -> None:
    out = tmp_path / "page.html"
    args = ("--data", table, "--out", out, "--sample", 3, "--examples", 1, "--json")
    ran = run_cli("report", trained_model(), *args)
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[-2] == f"report: {out}"
    values = json.loads(lines[-1])
    assert values["texts"] == 12
    assert values["report"] == str(out)
    page = check_page(out.read_text(encoding="utf-8"))
    assert page.inside("h1") == ["model on more.csv, test"]
    accuracy = values["single_label"]["accuracy"]
    assert f"{100 * accuracy:.1f}" in page.inside("dd")
    assert str(tmp_path) not in out.read_text(encoding="utf-8")


def test_existing_page_is_kept_unless_told(tmp_path: Path, table: Path) -> None:
    out = tmp_path / "page.html"
    out.write_text("mine")
    args = ("report", trained_model(), "--data", table, "--out", out)
    assert "must not exist yet" in refusal(*args)
    assert out.read_text() == "mine"


def test_mistakes_are_told_in_one_line(tmp_path: Path, table: Path) -> None:
    out = ("--out", tmp_path / "page.html")
    model = trained_model()
    assert "the model must have a test set" in refusal("report", model, *out)
    for flag in ("examples", "sample"):
        told = refusal("report", model, "--data", table, *out, f"--{flag}", 0)
        assert told == f"{flag} must be at least 1; got 0."
    assert "method must be one of" in refusal(
        "report", model, "--data", table, *out, "--method", "x"
    )
    other = write_csv(tmp_path / "other.csv", [["cat", "zebras"]])
    assert "zebras" in refusal("report", model, "--data", other, *out)
    assert not (tmp_path / "page.html").exists()


@pytest.mark.slow
def test_missing_cloud_library_is_told(
    tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from textcapsules.draw import pictures as clouds
    from textcapsules.draw import report as reasons

    monkeypatch.setattr(clouds, "can_draw_clouds", lambda: False)
    monkeypatch.setattr(reasons, "can_draw_clouds", lambda: False)
    out = tmp_path / "page.html"
    ran = run_cli(
        "report", trained_model(), "--data", table, "--out", out, "--sample", 2
    )
    assert ran.code == 0
    assert "pip install 'textcapsules[explain]'" in " ".join(ran.err.split())
    assert out.exists()
