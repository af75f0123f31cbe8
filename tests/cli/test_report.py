"""`textcapsules report`: the page it writes and what it refuses."""

import json
from pathlib import Path

import pytest

from pages import check_page
from toy import (
    model_copy,
    refusal,
    run_cli,
    toy_rows,
    trained_model,
    without_sums,
    write_csv,
)


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
    name = f"{trained_model().parent.name}/model"
    assert page.inside("h1") == [f"{name} on more.csv, test"]
    accuracy = values["single_label"]["accuracy"]
    assert f"{100 * accuracy:.1f}" in page.inside("dd")
    assert str(tmp_path) not in out.read_text(encoding="utf-8")
    assert values["rival"]["rival"] == "TF-IDF + logistic regression"
    assert values["training"]["texts"] == 54  # 60 less those held out for dev
    assert "Beside a simple rival, in percent" in page.inside("h3")


@pytest.mark.slow
def test_missing_training_texts_are_told_on_the_page(
    tmp_path: Path, table: Path
) -> None:
    model, out = model_copy(tmp_path), tmp_path / "page.html"
    config = json.loads((model / "config.json").read_text())
    config["data"]["source"] = str(tmp_path / "secret" / "gone.csv")
    (model / "config.json").write_text(json.dumps(config))
    without_sums(model)
    args = ("--data", table, "--out", out, "--sample", 2, "--json")
    values = json.loads(run_cli("report", model, *args).out.splitlines()[-1])
    assert values["rival"] is values["training"] is None
    assert values["missing"] == "its training texts, gone.csv, could not be read here"
    page = out.read_text(encoding="utf-8")
    assert "gone.csv, could not be read here" in page
    assert "secret" not in page


@pytest.mark.slow
def test_a_model_is_named_by_its_folder_not_by_what_a_link_leads_to(
    tmp_path: Path, table: Path
) -> None:
    (tmp_path / "mine").symlink_to(trained_model())
    args = ("--data", table, "--out", tmp_path / "a.html", "--sample", 2, "--no-rival")
    assert run_cli("report", tmp_path / "mine", *args).code == 0
    page = check_page((tmp_path / "a.html").read_text(encoding="utf-8"))
    assert page.inside("h1") == ["mine on more.csv, test"]
    assert "--no-rival was given" in " ".join(page.inside("li"))


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
