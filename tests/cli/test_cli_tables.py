"""Users' tables on the command line: how they are written, and what is odd in them."""

import csv
import json
from pathlib import Path

import pytest

from textcapsules.model.classifier import TextClassifier
from toy import TINY, refusal, run_cli, toy_rows, trained_model, write_csv

ROWS = toy_rows(60)  # enough for training to warn of nothing


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def european(name: str, encoding: str = "utf-8", rows=ROWS) -> str:
    with Path(name).open("w", newline="", encoding=encoding) as file:
        csv.writer(file, delimiter=";").writerows([("text", "label"), *rows])
    return name


def last_json(ran) -> dict:
    assert ran.code == 0, ran.err
    return json.loads(ran.out.splitlines()[-1])


TOLD = "the cells are read as separated by ';'"


def train(*args: object):
    return run_cli("train", *TINY, "--epochs", 6, "--out", "m", *args)


def test_european_csv_is_read_by_every_verb_and_told_once():
    source = european("t.csv")
    record = last_json(train("--data", source, "--json"))
    assert record["texts"] == {"train": 54, "dev": 6}
    (warning,) = record["warnings"]
    assert TOLD in warning
    assert TextClassifier.load("m").record["warnings"] == [warning]
    others = ROWS[::-1]  # no copy of the file it was trained on
    source = european("again.csv", rows=others)
    warning = warning.replace("t.csv", source)
    verbs = [
        ("evaluate", "m", "--data", source),
        ("predict", "m", "--data", source, "--out", "out.csv"),
        ("explain", "m", source),
    ]
    for args in verbs:
        ran = run_cli(*args, "--json")
        assert last_json(ran)["warnings"] == [warning]
        assert [line for line in ran.err.splitlines() if TOLD in line] == [
            f"textcapsules: warning: {warning}"
        ]
    for args in verbs:
        named = run_cli(*args, "--delimiter", ";", "--overwrite")
        assert (named.code, named.err) == (0, "")
    wrong = ["report", "m", "--data", source, "--delimiter", "|"]
    assert "one column 'text'; got text;label" in refusal(*wrong)
    with Path("out.csv").open(newline="") as file:
        found = list(csv.DictReader(file, delimiter=";"))  # as it came
    assert [(row["text"], row["label"]) for row in found] == others


def test_named_delimiter_and_encoding_are_kept_with_the_model():
    rows = [(f"{text} é", label) for text, label in ROWS]
    source = european("t.csv", "latin-1", rows)
    message = refusal(
        "train", *TINY, "--out", "m", "--data", source, "--delimiter", ";"
    )
    assert message.endswith("name it, as --encoding latin-1; else mend that line.")
    flags = ["--delimiter", ";", "--encoding", "latin-1"]
    assert train("--data", source, *flags).code == 0
    assert run_cli("evaluate", "m", "--split", "dev").code == 0
    # Another file is not written as that one was.
    other = write_csv(Path("other.csv"), rows)
    result = last_json(run_cli("evaluate", "m", "--data", other, "--json"))
    assert result["texts"] == 60
    for verb in (["predict", "m", "--data"], ["explain", "m"]):
        assert "--encoding latin-1" in refusal(*verb, source, "--delimiter", ";")
        out = run_cli(*verb, source, *flags).out
        assert all(text in out for text, _ in rows)
    assert train("--data", source, "--encoding", "x", "--overwrite").code == 2


def test_text_file_is_read_in_its_encoding():
    Path("t.txt").write_text("café cat", encoding="latin-1")
    assert "--encoding latin-1" in refusal("explain", trained_model(), "t.txt")
    args = ["explain", trained_model(), "t.txt"]
    assert run_cli(*args, "--encoding", "latin-1").out.startswith("café cat\n")
    Path("t.txt").write_text("café cat", encoding="utf-16")
    assert run_cli(*args).out.startswith("café cat\n")
    assert "delimiter must go with a table" in refusal(*args, "--delimiter", ";")


def test_files_of_excel_are_told():
    Path("book.csv").write_bytes(b"PK\x03\x04" + bytes(100))
    assert "got a ZIP archive, as an Excel workbook is. Save it as CSV." in refusal(
        "predict", trained_model(), "--data", "book.csv"
    )
    Path("excel.csv").write_text("sep=;\ntext;label\na cat;cats\n")
    assert "got 'sep=;', a line for Excel. Remove it, and pass --delimiter ';'" in (
        refusal("predict", trained_model(), "--data", "excel.csv")
    )


@pytest.mark.parametrize("option", [("--delimiter", ";"), ("--encoding", "latin-1")])
def test_options_of_files_without_one_are_refused(option):
    assert "must go with" in refusal("predict", trained_model(), "text", *option)
    assert "must go with" in refusal("explain", trained_model(), "text", *option)


# What is odd in a training table.


def test_odd_labels_are_told_and_kept_in_the_record():
    rows = [*ROWS, *[("a cow", "CATS")] * 3, *[("a hen", "NaN")] * 2]
    source = write_csv(Path("t.csv"), rows)
    ran = train("--data", source)
    assert ran.code == 0
    told = [line for line in ran.err.splitlines() if ": warning: " in line]
    assert len(told) == 3  # the last: these labels have few texts
    assert "label 'NaN' of 2 texts" in told[0]
    both = "labels 'CATS' (3 texts) and 'cats' (20 texts)"
    assert f"{both} differ only in case" in told[1]
    values = last_json(train("--data", source, "--overwrite", "--json"))
    assert [f"textcapsules: warning: {each}" for each in values["warnings"]] == told
    assert (
        json.loads(Path("m/training.json").read_text())["warnings"]
        == (values["warnings"])
    )


def test_plain_table_has_no_warnings():
    values = last_json(train("--data", write_csv(Path("t.csv"), ROWS), "--json"))
    assert values["warnings"] == []


EMPTY = [ROWS[0], ("", "cats"), *ROWS[1:], (" ", "dogs"), ("my cat", ""), ("", "")]


def test_empty_cells_are_counted_and_left_out_on_request():
    source = write_csv(Path("t.csv"), EMPTY)
    message = refusal("train", *TINY, "--out", "m", "--data", source)
    assert "got an empty cell of 'text' in row 2 and 2 more; and " in message
    assert "a label in each row; got '' in 'label', row 63." in message
    assert "--skip-empty" in message
    told = (
        "t.csv: 4 rows are left out, 3 without a text and 1 without a label; the first "
        "is row 2."
    )
    record = last_json(train("--data", source, "--skip-empty", "--json"))
    assert record["warnings"] == [told]
    assert record["texts"] == {"train": 54, "dev": 6}
    # The option is not the next file's.
    source = write_csv(Path("again.csv"), [*EMPTY, EMPTY[0]])  # no copy
    told = told.replace("t.csv", "again.csv")
    assert "--skip-empty" in refusal("evaluate", "m", "--data", source)
    ran = run_cli("evaluate", "m", "--data", source, "--skip-empty")
    assert ran.err == f"textcapsules: warning: {told}\n"
    assert "61 texts" in ran.out
    assert run_cli("evaluate", "m", "--split", "dev").code == 0


def test_table_of_empty_rows_alone_is_refused():
    source = write_csv(Path("t.csv"), [("", "a"), ("x", "")])
    ran = train("--data", source, "--skip-empty")
    assert ran.code == 2
    assert "t.csv must have rows; got empty ones alone" in ran.err


# What predict writes.


def predicted(source: str, out: str, *args: object) -> dict:
    ran = run_cli("predict", trained_model(), "--data", source, "--out", out, *args)
    assert ran.code == 0, ran.err
    return {"err": ran.err}


def test_late_column_and_surrogates_come_out_of_predict():
    lines = ['{"text": "my cat"}'] * 5000
    lines += ['{"text": "a dog \\ud800", "note": "late"}']
    Path("t.jsonl").write_text("\n".join(lines))
    assert (
        "1 cell has half of a surrogate pair" in predicted("t.jsonl", "o.jsonl")["err"]
    )
    last = json.loads(Path("o.jsonl").read_text().splitlines()[-1])
    assert (last["text"], last["note"]) == ("a dog \ufffd", "late")


def test_row_nested_too_deep_is_one_line_and_no_output():
    deep = "[" * 100_000 + "]" * 100_000
    Path("t.jsonl").write_text(f'{{"text": "a", "x": {deep}}}\n')
    args = ["predict", trained_model(), "--data", "t.jsonl", "--out", "o.jsonl"]
    assert "inside one another in line 1" in refusal(*args)
    assert not Path("o.jsonl").exists()


CELLS = [
    ("=1+1", "'=1+1"),
    ("+x", "'+x"),
    ("-x y", "'-x y"),
    ("@SUM(A1)", "'@SUM(A1)"),
    ("\tx", "'\tx"),
    ("\rx", "'\rx"),
    ("-5", "-5"),
    ("+3.25", "+3.25"),
    ("-1,5e-3", "-1,5e-3"),
    ("-1+2", "'-1+2"),
    ("a=1", "a=1"),
    ("'=1", "'=1"),
    ("", ""),
]


@pytest.mark.parametrize(("form", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_excel_safe_quotes_texts_and_no_numbers(form, delimiter):
    source = write_csv(
        Path("t.csv"), [("my cat", cell) for cell, _ in CELLS], ["text", "=note"]
    )
    for args, place, header in (((), 0, "=note"), (("--excel-safe",), 1, "'=note")):
        predicted(str(source), f"{place}.{form}", "--scores", *args)
        with Path(f"{place}.{form}").open(newline="") as file:
            rows = list(csv.DictReader(file, delimiter=delimiter))
        assert [row[header] for row in rows] == [cells[place] for cells in CELLS]
        assert {row["predicted"] for row in rows} == {"cats"}
        assert all(float(row["score_cats"]) > 0 for row in rows)


def test_excel_safe_goes_with_a_csv_file_alone():
    source = write_csv(Path("t.csv"), ROWS)
    args = ["predict", trained_model(), "--data", source, "--excel-safe"]
    assert "excel-safe must go with --out" in refusal(*args)
    assert "o.jsonl must be a CSV or TSV file" in refusal(*args, "--out", "o.jsonl")


# Names of files in place of texts.


@pytest.mark.parametrize("verb", ["predict", "explain"])
@pytest.mark.parametrize(
    "name", ["nope.csv", "a/b.tsv.gz", "x.parquet", "notes.txt", "./my file.jsonl"]
)
def test_missing_file_is_told_and_not_taken_for_a_text(verb, name):
    message = refusal(verb, trained_model(), name)
    assert message.startswith(f"{name} must be a file; got no such file.")


def test_file_as_a_text_is_told_how_to_be_given():
    write_csv(Path("new.csv"), ROWS)
    Path("notes.txt").write_text("my cat\na dog\n")
    model = trained_model()
    assert refusal("predict", model, "new.csv") == (
        "text must be a text; got 'new.csv', the name of a file. If you mean the file, "
        "pass --data new.csv; if it is a text, send it to stdin with -."
    )
    assert "pass - < notes.txt, which reads" in refusal("predict", model, "notes.txt")
    for verb in ("predict", "explain"):
        for texts in (("new.csv", "notes.txt"), ("my cat", "new.csv")):
            assert "pass --data new.csv;" in refusal(verb, model, *texts)
    Path("plain").write_text("my cat")
    assert "pass --data plain;" in refusal("predict", model, "plain")


@pytest.mark.parametrize("verb", ["predict", "explain"])
@pytest.mark.parametrize("text", ["I lost cat.csv", ".csv", "cat.", "cat.jpg", "csv"])
def test_texts_that_name_files_by_the_way_are_texts(verb, text):
    ran = run_cli(verb, trained_model(), text)
    assert (ran.code, ran.err) == (0, "")
    assert text in ran.out


def test_name_among_texts_is_a_text():
    ran = run_cli("predict", trained_model(), "cat.csv", "my cat purr")
    assert ran.code == 0
    assert len(ran.out.splitlines()) == 2
