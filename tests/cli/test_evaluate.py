import json

import pytest
from sklearn.metrics import accuracy_score

from textcapsules.data import load
from textcapsules.data.load import load_source
from textcapsules.model.classifier import TextClassifier
from toy import (
    OFF_TOPIC,
    TINY,
    TOPICAL,
    refusal,
    refusing_model,
    run_cli,
    toy_file,
    toy_rows,
    trained_model,
    write_csv,
)


@pytest.fixture
def more(tmp_path):
    return write_csv(tmp_path / "more.csv", toy_rows(21, seed=5), ("text", "label"))


def last_json(ran):
    assert ran.code == 0, ran.err
    return json.loads(ran.out.splitlines()[-1])


def test_users_file_is_judged_whole(more):
    ran = run_cli("evaluate", trained_model(), "--data", more, "--json")
    values = last_json(ran)
    rows = toy_rows(21, seed=5)
    found = TextClassifier.load(trained_model()).predict([text for text, _ in rows])
    guess = [prediction.labels[0] for prediction in found]
    accuracy = accuracy_score([label for _, label in rows], guess)
    assert values["single_label"]["accuracy"] == pytest.approx(accuracy)
    assert (values["texts"], values["split"]) == (21, "test")
    assert f"accuracy {100 * accuracy:.1f}" in ran.out


def test_out_holds_figures_and_a_picture(more, tmp_path):
    args = ["evaluate", trained_model(), "--data", more, "--out", tmp_path / "e"]
    values = last_json(run_cli(*args, "--json"))
    assert json.loads((tmp_path / "e" / "evaluation.json").read_text()) == values
    picture = (tmp_path / "e" / "confusion.png").read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert b"IEND" in picture[-12:]
    assert len(list((tmp_path / "e").iterdir())) == 2


def test_evaluation_is_kept_unless_overwrite(more, tmp_path):
    args = ["evaluate", trained_model(), "--data", more, "--out", tmp_path]
    (tmp_path / "evaluation.json").write_text("mine")
    assert "evaluation.json must not exist yet" in refusal(*args)
    assert (tmp_path / "evaluation.json").read_text() == "mine"
    assert run_cli(*args, "--overwrite").code == 0
    assert (tmp_path / "evaluation.json").read_text() != "mine"


def test_out_that_is_a_file_is_refused(more):
    args = ["evaluate", trained_model(), "--data", more, "--out", more]
    assert "must be a folder; got a file" in refusal(*args)


def test_model_without_a_test_set_is_not_judged_on_its_training_texts():
    message = refusal("evaluate", trained_model())
    assert "got none beside" in message
    assert "--split dev" in message


def test_training_texts_given_as_data_are_told(more, monkeypatch):
    folder = trained_model()
    monkeypatch.chdir(folder)
    same = ["evaluate", folder, "--data", "../toy.csv"]
    values = last_json(ran := run_cli(*same, "--json"))
    assert len(values["warnings"]) == 1
    assert "../toy.csv holds the texts the model was trained on" in ran.err
    assert "--split dev" in ran.err
    for args in ([*same, "--split", "train"], [*same, "--test", more]):
        assert "trained on" not in run_cli(*args).err
    assert "trained on" not in run_cli("evaluate", folder, "--data", more).err


@pytest.mark.parametrize(
    "command", ["evaluate", pytest.param("report", marks=pytest.mark.slow)]
)
def test_training_texts_are_known_by_their_content(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = toy_file(tmp_path)
    (tmp_path / "a").mkdir()
    flags = ["--data", source.name, "--test", "a/test.csv", *TINY, "--epochs", 1]
    write_csv(tmp_path / "a" / "test.csv", toy_rows(9, seed=3))
    ran = run_cli("train", *flags, "--out", tmp_path / "m")
    assert "best of 1 epoch is 1" in ran.out, ran.err
    copy = tmp_path / "a" / "copy.csv"
    copy.write_bytes(source.read_bytes())
    # The model's options have a name that says nothing in another folder.
    monkeypatch.chdir(tmp_path / "a")
    given = [command, tmp_path / "m", "--out", tmp_path / "out.html", "--overwrite"]
    given += ["--no-rival"] if command == "report" else []
    for path in (source, copy):
        ran = run_cli(*given, "--data", path)
        assert f"{path} holds the texts the model was trained on" in ran.err
    assert "trained on" not in run_cli(*given, "--data", "test.csv").err


def test_models_own_dev_set_is_the_one_held_out():
    values = last_json(run_cli("evaluate", trained_model(), "--split", "dev", "--json"))
    record = TextClassifier.load(trained_model()).record
    assert values["texts"] == record["texts"]["dev"]
    best = record["epochs"][record["best_epoch"] - 1]
    assert values["single_label"]["accuracy"] == pytest.approx(best["dev_accuracy"])


def test_models_own_corpus_fold_and_columns_are_used(tmp_path, monkeypatch):
    test = write_csv(tmp_path / "test.csv", toy_rows(9, seed=3), ("body", "topic"))
    path = write_csv(tmp_path / "toy.csv", toy_rows(24), ("body", "topic"))
    columns = ["--text-column", "body", "--label-column", "topic"]
    flags = ["--data", path, *columns, "--test", test, "--fold", 3, "--split-seed", 2]
    run_cli("train", *flags, *TINY, "--epochs", 1, "--out", tmp_path / "m")
    seen = []

    def spy(config):
        seen.append(config)
        return load_source(config)

    monkeypatch.setattr(load, "load_source", spy)
    values = last_json(run_cli("evaluate", tmp_path / "m", "--json"))
    assert values["texts"] == 9
    assert (seen[0].fold, seen[0].split_seed, seen[0].label_column) == (3, 2, "topic")
    # another file is read in the same form, without the model's own test file
    other = write_csv(tmp_path / "more.csv", toy_rows(6, seed=4), ("body", "topic"))
    values = last_json(run_cli("evaluate", tmp_path / "m", "--data", other, "--json"))
    assert (values["texts"], values["data"]) == (6, str(other))


def test_several_labels_are_judged_without_accuracy(tmp_path):
    rows = [("my cat and a dog bark", "cats|dogs"), ("a bird sing", "birds")]
    path = write_csv(tmp_path / "more.csv", rows)
    args = ["evaluate", trained_model(), "--data", path, "--separator", "|"]
    values = last_json(run_cli(*args, "--out", tmp_path / "e", "--json"))
    assert values["single_label"] is None
    assert not (tmp_path / "e" / "confusion.png").exists()


def test_threshold_is_passed_on(more):
    args = ["evaluate", trained_model(), "--data", more, "--json"]
    values = last_json(run_cli(*args, "--threshold", 0.5))
    assert values["multi_label"] == values["multi_label_at_half"]


def test_the_table_says_what_thresholds_were_chosen_on(more):
    args = ("evaluate", trained_model(), "--data", more)
    told = ", calibrated on single and joined dev documents"
    shown = run_cli(*args).out
    assert told in shown and "as given" not in shown
    shown = run_cli(*args, "--threshold", 0.25).out
    assert told not in shown and "0.25, as given" in shown


def test_threshold_out_of_range_is_refused(more):
    message = refusal("evaluate", trained_model(), "--data", more, "--threshold", 1.5)
    assert message == "threshold must be from 0 to 1; got 1.5."


def test_unknown_split_is_refused(more):
    message = refusal("evaluate", trained_model(), "--data", more, "--split", "all")
    assert message == "split must be train, dev or test; got 'all'."


def test_label_never_seen_is_told_with_file_and_row(tmp_path):
    path = write_csv(tmp_path / "more.csv", [("my cat", "cats"), ("my cow", "cows")])
    message = refusal("evaluate", trained_model(), "--data", path)
    assert f"got 'cows' in row 2 of {path}" in message


def test_toy_file_is_what_the_model_saw(tmp_path):
    path = toy_file(tmp_path)
    values = last_json(run_cli("evaluate", trained_model(), "--data", path, "--json"))
    assert values["single_label"]["accuracy"] > 0.9


def test_files_are_written_before_anything_is_printed(more, monkeypatch, tmp_path):
    from textcapsules.cli import evaluate as verb

    seen = []
    monkeypatch.setattr(
        verb,
        "print_evaluation",
        lambda *_: seen.append((tmp_path / "e" / "evaluation.json").exists()),
    )
    out = tmp_path / "e"
    run_cli("evaluate", trained_model(), "--data", more, "--out", out)
    assert seen == [True]


def test_refused_texts_are_counted_and_can_be_kept(tmp_path):
    rows = [(TOPICAL, "cats"), (OFF_TOPIC, "cats"), (OFF_TOPIC, "birds")]
    data = write_csv(tmp_path / "mixed.csv", rows)
    args = ["evaluate", refusing_model(), "--data", data, "--json"]
    refusing, plain = run_cli(*args), run_cli(*args, "--no-refuse")
    assert "2 of 3 texts were refused as outside" in refusing.out
    assert last_json(refusing)["refused"] == 2
    assert last_json(refusing)["single_label"]["accuracy"] == pytest.approx(1 / 3)
    assert last_json(plain)["refused"] == 0
    assert last_json(plain)["single_label"]["accuracy"] == pytest.approx(2 / 3)


def test_one_refused_text_is_one(tmp_path):
    path = write_csv(tmp_path / "t.csv", [(TOPICAL, "cats"), (OFF_TOPIC, "cats")])
    ran = run_cli("evaluate", refusing_model(), "--data", path)
    assert "1 of 2 texts was refused" in ran.out
    assert "topics: it counts as without a label" in " ".join(ran.out.split())
