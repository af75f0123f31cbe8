import json
import re
import signal
import time
from pathlib import Path

import pytest

from toy import refusal, run_cli, spawn

pytestmark = pytest.mark.slow

# Every table and system. One system of every kind is tried on every corpus; the others
# differ from one of these in little and are tried on MR and Reuters, the networks of
# characters, which cannot be made small, on MR alone.
EVERYWHERE = ("lr_lstm", "cnn_rand", "capsule_b_paper", "capsule_b_best", "tfidf_svm")
ELSEWHERE = (
    "*lstm",
    "cnn_*static",
    "cnn_tuned*",
    "capsule_a*",
    "capsule_b",
    "capsule_b_*",
    "tfidf_*",
    "fasttext",
)
SYSTEMS = (
    *EVERYWHERE,
    "cl_cnn/mr",
    "vd_cnn/mr",
    *(f"{name}/{corpus}" for name in ELSEWHERE for corpus in ("mr", "reuters-*")),
)
EVERYTHING = [part for name in SYSTEMS for part in ("--only", name)]
FEW = ["--quick", "--only", "tfidf_svm/trec", "--only", "cnn_rand/trec"]


def lines(folder: Path) -> list[dict]:
    return [
        json.loads(line)
        for path in sorted(folder.rglob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]


def test_quick_runs_every_table(tmp_path):
    ran = run_cli(
        "reproduce", "all", "--quick", "--json", "--out", tmp_path, *EVERYTHING,
        "--data-dir", tmp_path / "nothing",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    result = json.loads(ran.out.splitlines()[-1])
    assert result["failed"] == 0, (tmp_path / "failures.jsonl").read_text()
    assert result["done"] == len(lines(tmp_path / "results"))
    page = (tmp_path / "TABLES.md").read_text()
    table1 = page.partition("## Table 1")[2].partition("The published")[0]
    # LR-LSTM is not for 4 or 6 classes; so small, Capsule-B is the same run with either
    # preset; 24 systems are on one corpus alone. Preset best without peaks is a step of
    # the ladder, on six corpora.
    assert table1.count("(1)") == 6 * 7 - 2 + 24 + 6
    parts = page.partition("## Ablation")[2]
    mr = [line for line in parts.splitlines() if line.endswith("| 1 |")]
    assert len(mr) == 8 + 14 + 3
    ladder = page.partition("## Ladder")[2].partition("\n## ")[0]
    assert ladder.count("(1)") == 12 * 8
    assert (tmp_path / "figure3.png").is_file()
    assert "| published | 14 | 0 | 0 | 0 |" in (tmp_path / "A3.md").read_text()
    assert "Table A.1" in (tmp_path / "displays" / "table6.html").read_text()
    again = run_cli(
        "reproduce", "all", "--quick", "--json", "--out", tmp_path, *EVERYTHING
    )
    told = json.loads(again.out.splitlines()[-1])
    assert (told["done"], told["already"]) == (0, result["done"])
    assert (tmp_path / "TABLES.md").read_text() == page


def test_displays_are_written_alone_and_their_folder_told(tmp_path):
    place = ["--out", tmp_path, "--data-dir", tmp_path / "nothing"]
    ran = run_cli("reproduce", "table6", "--quick", *place)
    assert ran.code == 0, ran.err
    page = tmp_path / "displays" / "table6.html"
    assert f"{page} holds sentences of the corpus" in ran.out
    assert f"wrote {page}\n" in ran.out
    assert not (tmp_path / "TABLES.md").exists()
    assert "epoch 1" in ran.err
    ignored = Path(__file__).parents[2] / ".gitignore"
    assert "reproduction/displays/" in ignored.read_text().splitlines()


def test_displays_of_somebody_else_are_kept(tmp_path):
    (tmp_path / "A3.md").write_text("my notes")
    line = refusal("reproduce", "a3", "--quick", "--out", tmp_path)
    assert "A3.md must be a page of this command to be replaced" in line
    assert (tmp_path / "A3.md").read_text() == "my notes"


def test_plan_counts_without_running(tmp_path):
    args = ["--only", "capsule_b/mr", "--folds", 4, "--out", tmp_path, "--plan"]
    ran = run_cli("reproduce", "table1", "ablation", *args, "--json")
    told = json.loads(ran.out.splitlines()[-1])
    # 4 folds of table 1; 8 x 4 of the ablation, 4 of them table 1's; a search of four
    # settings on three folds.
    assert told["cells"] == 4 + 32 + 12
    assert told["runs_to_do"] == 32 + 12
    assert list(tmp_path.iterdir()) == []
    without = run_cli("reproduce", "table1", *args, "--no-search", "--json")
    assert json.loads(without.out.splitlines()[-1])["runs_to_do"] == 4


def test_runs_are_told_and_tables_can_be_written_alone(tmp_path):
    args = ["--jobs", 1, "--out", tmp_path, "--data-dir", tmp_path / "nothing"]
    ran = run_cli("reproduce", "table1", *FEW, *args)
    assert ran.code == 0, ran.err
    assert "2 runs done, 0 recorded before, 0 failed." in ran.out
    told = [line for line in ran.err.splitlines() if ": warning: " not in line]
    assert [line.split(":")[0] for line in told] == [
        "1/2 cnn_rand/trec 0",
        "2/2 tfidf_svm/trec 0",
    ]
    (tmp_path / "TABLES.md").unlink()
    ran = run_cli("reproduce", "table1", *FEW, "--tables-only", "--out", tmp_path)
    assert ran.code == 0
    assert "| CNN-rand |" in (tmp_path / "TABLES.md").read_text()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["table7"], "table must be one of table1, table5, .* got 'table7'"),
        (["table6"], "vectors must be a file of word vectors for capsule_b; got none"),
        (["a3", "--only", "lstm"], "only must leave cells of a3; got lstm"),
        (["a3", "--epochs", "0"], "epochs"),
        (
            ["table1", "--only", "gru"],
            "only must be SYSTEM/CORPUS/SET.* got 'gru'",
        ),
        (["ablation", "--only", "lstm"], "only must leave cells of ablation; got lstm"),
        (["table1", "--plan", "--tables-only"], "plan must not go with tables_only"),
        (["table1", "--folds", "11"], "folds"),
        (["table1", "--seeds", "0"], "seeds"),
        (["table1", "--jobs", "0"], "jobs"),
        (["a4", "--device", "tpu"], "device must be auto"),
        (["a4"], "vectors must be a file of word vectors for capsule_b; got none"),
        (["table1", "--only", "cnn_rand/mr"], "data_dir must hold the corpus mr; got"),
    ],
)
def test_mistakes_get_one_line(tmp_path, args, said):
    line = refusal(
        "reproduce", *args, "--out", tmp_path / "out", "--data-dir", tmp_path
    )
    assert re.search(said, line), line
    assert not (tmp_path / "out").exists()


def test_damaged_record_gets_one_line(tmp_path):
    path = tmp_path / "results" / "mr" / "lstm.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text('{"key": "half a rec')
    line = refusal("reproduce", "table1", "--tables-only", "--out", tmp_path)
    assert "lstm.jsonl must hold the record of a run in every line" in line


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_interrupted_work_is_kept(tmp_path, end):
    flags = ["reproduce", "table1", "--quick", "--only", "capsule_a/*", "--json"]
    flags += ["--out", tmp_path, "--data-dir", tmp_path / "nothing"]
    process = spawn(*flags, "--jobs", 1 if end == signal.SIGKILL else 2)
    limit = time.monotonic() + 120
    while not lines(tmp_path) and time.monotonic() < limit and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(end)
    _, err = process.communicate(timeout=60)
    kept = lines(tmp_path / "results")
    assert 1 <= len(kept) < 7
    if end == signal.SIGINT:
        assert process.returncode == 130
        assert b"the same command does the rest" in err
        assert b"Traceback" not in err
    told = json.loads(run_cli(*flags, "--jobs", 1).out.splitlines()[-1])
    assert (told["already"], told["done"]) == (len(kept), 7 - len(kept))
    after = lines(tmp_path / "results")
    assert len(after) == 7
    assert all(record in after for record in kept)
