import json
import shlex

import pytest

from textcapsules.cli.compare import (
    print_comparison,
    recommendation,
    train_command,
)
from textcapsules.config import RunConfig, preset
from textcapsules.inference.compare import Comparison, Figure, Result
from toy import TINY, refusal, run_cli, toy_file

QUICK = [*TINY[2:], "--epochs", 1, "--feature-maps", 4, "--encoder", "none"]


@pytest.mark.slow
def test_the_best_is_recommended_with_a_command_that_works(tmp_path):
    path = toy_file(tmp_path, 120)
    out = tmp_path / "out"
    args = ["compare", "--data", path, "--minutes", 2, *QUICK, "--out", out]
    ran = run_cli(*args, "--json")
    assert ran.code == 0, ran.err
    values = json.loads(ran.out.splitlines()[-1])
    values.pop("warnings", None)  # of a network after one epoch
    assert json.loads((out / "results.json").read_text()) == values
    names = {each["name"] for each in values["results"]}
    assert names == {"tfidf-svm", "cnn", "capsules"}
    assert values["texts"] == {
        "train": 86,
        "dev": 10,
        "single": 24,
        "joined": 24,
    }
    best = values["results"][0]
    assert f"Take {best['title']}" in ran.out
    assert "exact match" in ran.out
    assert values["command"] in ran.out
    command = [*shlex.split(values["command"])[1:], "--print-config", "--json"]
    printed = json.loads(run_cli(*command).out.splitlines()[-1])
    assert printed == json.loads(json.dumps(best["config"]))
    assert "must not exist yet" in refusal(*args)
    assert not (out / "cnn").exists()  # models are kept only with --keep


def test_faults_are_refused_before_anything_is_trained(tmp_path):
    path = toy_file(tmp_path)
    start = ["compare", "--data", path]
    assert "architecture must be left out" in refusal(*start, "--architecture", "cnn")
    assert "keep must go with --out" in refusal(*start, "--keep")
    assert "test-fraction must be" in refusal(*start, "--test-fraction", 1)
    assert "must be a folder; got a file" in refusal(*start, "--out", path)
    assert "minutes must be above 0" in refusal(*start, "--minutes", 0)
    one = tmp_path / "one.csv"
    one.write_text("text,label\n" + "".join(f"bird {n},birds\n" for n in range(20)))
    options = ("--encoder", "none", "--out", tmp_path / "out")
    message = refusal("compare", "--data", one, *options)
    assert "must have at least two labels to tell apart" in message
    for content, expected in (
        ("", "must be a readable CSV file"),
        ("text,label\n", "must have rows"),
        ("body,label\na,b\n", "must have one column 'text'"),
        ("text,label\na,b\nc,d\n", "must have at least 10 texts"),
    ):
        one.write_text(content)
        assert expected in refusal("compare", "--data", one, *options)
    assert not (tmp_path / "out").exists()


def test_command_has_the_options_that_differ_from_the_preset():
    config = preset("best").replace(
        data={"source": "my texts.csv", "separator": ";"},
        model={"ngram_sizes": (2, 3), "edges": False},
    )
    assert train_command(config) == (
        "textcapsules train --encoder none --data 'my texts.csv' --separator ';' "
        "--ngram-sizes 2,3 --no-edges"
    )
    assert train_command(RunConfig()) == "textcapsules train --preset paper"


def comparison(*behind: tuple[float, float, float]) -> Comparison:
    figures = {"single": {"accuracy": Figure(0.8, 0.7, 0.9)}}
    results = [
        Result(f"r{n}", f"R{n}", RunConfig(), figures, Figure(*each), 0, 1, 1, 1, "")
        for n, each in enumerate([(0.0, 0.0, 0.0), *behind])
    ]
    return Comparison(results, {}, "single", "accuracy", {}, 1.0, 1.0)


def test_recommendation_says_whether_it_is_clear():
    clear = recommendation(comparison((0.1, 0.05, 0.2)))
    assert clear == (
        "Take R0, which has the best accuracy on single test texts, 80.0, clearly "
        "ahead of the others that were compared:"
    )
    noise = recommendation(comparison((0.1, -0.05, 0.2), (0.1, -0.01, 0.2)))
    assert "80.0; but R1 and R2 are behind it by no more than noise:" in noise
    cut = comparison((0.1, 0.05, 0.2))._replace(left_out={"R9": "no time"})
    assert "R9 had too little time, so raise --minutes first:" in recommendation(cut)
    linear = comparison((0.1, 0.05, 0.2))
    first = linear.results[0]._replace(name="tfidf-svm", title="TF-IDF + SVM")
    linear = linear._replace(results=[first, *linear.results[1:]])
    assert "Take TF-IDF + SVM, the linear model, which has" in recommendation(linear)
    assert recommendation(comparison()) == (
        "Take R0, the only system that was compared:"
    )


def test_what_had_too_little_time_is_in_the_table(capsys):
    found = comparison((0.1, 0.05, 0.2))
    short = found.results[1]._replace(epochs=5, planned_epochs=14, note="5 epochs")
    found = found._replace(
        results=[found.results[0], short], left_out={"R9": "no time was left for it"}
    )
    print_comparison("mine.csv", found)
    printed = capsys.readouterr().out
    assert "5 of 14" in printed
    (row,) = [
        line for line in printed.splitlines() if "left out" in line and "│" in line
    ]
    assert "R9" in row
    assert "R1: 5 epochs, to stay within --minutes." in printed
    assert "R9: left out; no time was left for it. Raise --minutes." in printed
    assert "This took 0.0 of 1 minutes." in printed
