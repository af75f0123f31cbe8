import csv
import json

from toy import TINY, refusal, run_cli, toy_rows, write_csv

FLIPPED = {9: "cats", 34: "dogs", 72: "birds"}  # by row of the file, from 1


def flipped_file(tmp_path, *, empty=0):
    """Write rows with three wrong labels, after some rows without a text."""
    rows = toy_rows(120)
    wrong = [
        (text, FLIPPED.get(row, label)) for row, (text, label) in enumerate(rows, 1)
    ]
    assert sum(a != b for a, b in zip(rows, wrong, strict=True)) == len(FLIPPED)
    return write_csv(tmp_path / "t.csv", [("", "cats")] * empty + wrong)


def test_suspects_are_written_by_row_of_the_file(tmp_path):
    path, out = flipped_file(tmp_path, empty=2), tmp_path / "s.csv"
    args = ["suspects", "--data", path, "--skip-empty", "--out", out]
    ran = run_cli(*args, "--json")
    assert ran.code == 0, ran.err
    values = json.loads(ran.out.splitlines()[-1])
    assert (values["texts"], values["out"]) == (120, str(out))
    found = {each["row"]: each for each in values["suspects"]}
    assert set(found) == {row + 2 for row in FLIPPED}
    with out.open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    assert [int(line["row"]) for line in table] == list(found)
    for line in table:
        row = int(line["row"]) - 2
        text, truth = toy_rows(120)[row - 1]
        assert line["text"] == text
        assert (line["label"], line["suggested"]) == (FLIPPED[row], truth)
        assert 0 < float(line["confidence"]) <= 1
    assert "3 of 120 labels look wrong (2.5%)" in ran.out
    assert "must not exist yet" in refusal(*args)


def test_texts_with_several_labels_are_not_judged(tmp_path):
    rows = [*toy_rows(60), *[(text, "cats;dogs") for text, _ in toy_rows(4, seed=9)]]
    path = write_csv(tmp_path / "t.csv", rows)
    ran = run_cli("suspects", "--data", path, "--separator", ";", "--json")
    values = json.loads(ran.out.splitlines()[-1])
    assert values["texts"] == 60
    assert "4 of 64 texts have several labels and are not judged" in ran.err
    path = write_csv(tmp_path / "all.csv", rows[60:])
    ran = run_cli("suspects", "--data", path, "--separator", ";")
    assert ran.code == 2
    assert "got several labels in all 4 rows" in ran.err


def test_options_of_a_system_need_its_name(tmp_path):
    path = flipped_file(tmp_path)
    assert "architecture must be given" in refusal(
        "suspects", "--data", path, "--epochs", 2
    )
    ran = run_cli("suspects", "--data", path, "--folds", 2, *TINY)
    assert ran.code == 0, ran.err


def test_labels_too_rare_to_be_judged_are_no_right_labels(tmp_path):
    rare = [("newt newt pond", "newts"), ("pond newt", "newts")]
    path = write_csv(tmp_path / "some.csv", [*toy_rows(60), *rare])
    ran = run_cli("suspects", "--data", path, "--json")
    assert json.loads(ran.out.splitlines()[-1])["judged"] == 60
    assert "some.csv: 0 of 60 judged labels look wrong (0.0%)" in ran.out
    assert (
        "2 of 62 texts are not judged: fewer texts than folds, 5, have their label. "
        "Add texts, or take fewer --folds." in ran.err
    )
    ran = run_cli("suspects", "--data", write_csv(tmp_path / "t.csv", toy_rows(12)))
    assert "t.csv: no label was judged" in ran.out and "%" not in ran.out
    assert "12 of 12 texts are not judged" in ran.err
