"""`textcapsules explain`: what it prints, writes and refuses."""

import json
from pathlib import Path

import pytest

from pages import Page, check_page
from toy import OFF_TOPIC, refusal, refusing_model, run_cli, trained_model, write_csv

TEXT = "my kitten and the cat purr"


def explained(*args: object, stdin: bytes = b"") -> dict:
    ran = run_cli("explain", trained_model(), *args, "--json", stdin=stdin)
    assert (ran.code, ran.err) == (0, "")
    return json.loads(ran.out.splitlines()[-1])


def test_text_is_printed_with_labels_and_phrases() -> None:
    ran = run_cli("explain", trained_model(), TEXT, "zzz")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0] == TEXT
    assert lines[1].startswith("  cats 0.")
    assert "“" in lines[1]
    assert lines[2].startswith("  5 of 6 words known")  # "and" is in no training text
    assert lines[-3:-1] == ["zzz", "  no label"]
    assert lines[-1].startswith("  0 of 1 words known; phrases proposed by ")


def test_json_holds_phrases_with_their_places() -> None:
    (found,) = explained(TEXT)["explanations"]
    assert found["predicted"] == ["cats"]
    assert (found["known"], found["words"]) == (5, 6)  # "and" is in no training text
    (cats,) = [label for label in found["labels"] if label["label"] == "cats"]
    assert cats["phrases"]
    for phrase in cats["phrases"]:
        assert TEXT[phrase["start"] : phrase["end"]] == phrase["text"]


@pytest.mark.parametrize("method", ["couplings", "gradient", "erasure"])
def test_method_is_the_one_asked_for(method: str) -> None:
    (found,) = explained(TEXT, "--method", method)["explanations"]
    assert found["method"] == method


def test_the_default_method_is_the_one_that_training_found() -> None:
    record = json.loads((trained_model() / "training.json").read_text())
    found = explained(TEXT)["explanations"][0]["method"]
    assert found == record["reasons"]["method"]


def test_the_phrase_of_a_label_is_worth_what_it_loses() -> None:
    (found,) = explained(TEXT)["explanations"]
    (cats,) = [label for label in found["labels"] if label["label"] == "cats"]
    phrase = cats["phrases"][0]
    rest = TEXT[: phrase["start"]] + TEXT[phrase["end"] :]
    (other,) = explained(rest)["explanations"]
    (without,) = [label for label in other["labels"] if label["label"] == "cats"]
    fall = cats["score"] - without["score"]
    assert phrase["strength"] == pytest.approx(fall, abs=1e-5)


def test_labels_not_given_are_shown_if_asked() -> None:
    ran = run_cli(
        *("explain", trained_model(), "my cat and the dog bark purr"),
        *("--why-not", "birds", "--what-would-change"),
    )
    assert ran.code == 0
    (line,) = [each for each in ran.out.splitlines() if each.startswith("  birds ")]
    assert "not given" in line
    assert "without" in ran.out
    refused = refusal("explain", trained_model(), TEXT, "--why-not", "fish")
    assert refused.startswith("label must be one of the model's, birds, cats, dogs; ")


def test_a_model_is_called_by_its_folder() -> None:
    assert "/" not in explained(TEXT)["model"].removesuffix("/model")


def test_page_is_written_and_named(tmp_path: Path) -> None:
    out = tmp_path / "sub" / "page.html"
    ran = run_cli("explain", trained_model(), TEXT, "<b>cat</b>", "--out", out)
    assert ran.code == 0
    assert ran.out.splitlines()[-1] == f"page: {out}"
    page = check_page(out.read_text(encoding="utf-8"))
    assert page.inside("p", "text") == [TEXT, "<b>cat</b>"]
    notes = page.inside("p", "note")
    assert any(note.startswith("5 of 6 words known. ") for note in notes)
    # Marks are words by themselves.
    assert any(note.startswith("1 of 8 words known. ") for note in notes)


def test_existing_page_is_kept_unless_told(tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    out.write_text("mine")
    args = ("explain", trained_model(), TEXT, "--out", out)
    assert "must not exist yet" in refusal(*args)
    assert out.read_text() == "mine"
    assert run_cli(*args, "--overwrite").code == 0
    assert TEXT in Page(out.read_text()).inside("p", "text")
    assert "must be a file to write; got a folder" in refusal(
        "explain", trained_model(), TEXT, "--out", tmp_path, "--overwrite"
    )


def test_tables_texts_and_pipes_are_read(tmp_path: Path) -> None:
    table = write_csv(tmp_path / "t.csv", [["cat"], ["dog"], [""]], header=["message"])
    found = explained(table, "--text-column", "message")["explanations"]
    assert [each["text"] for each in found] == ["cat", "dog", ""]
    (tmp_path / "one.txt").write_text("\ufeffcat\nand dog\n", encoding="utf-8")
    (found,) = explained(tmp_path / "one.txt")["explanations"]
    assert found["text"] == "cat\nand dog\n"
    piped = explained("-", stdin="cat 🐈\r\ndog\n".encode())["explanations"]
    assert [each["text"] for each in piped] == ["cat 🐈", "dog"]


def test_file_is_named_by_data_or_alone(tmp_path: Path) -> None:
    table = write_csv(tmp_path / "t.csv", [["cat"], ["dog"]], header=["text"])
    found = explained("--data", table)
    assert [each["text"] for each in found["explanations"]] == ["cat", "dog"]
    assert explained(table) == explained("--file", table) == found
    assert "got both" in refusal("explain", trained_model(), TEXT, "--data", table)


def test_labels_are_decided_as_by_predict() -> None:
    for decision in (
        ["--single-label"],
        ["--multi-label"],
        ["--threshold", 0],
        ["--threshold", 1],
    ):
        ran = run_cli("predict", trained_model(), TEXT, *decision)
        (found,) = explained(TEXT, *decision)["explanations"]
        assert found["predicted"] == json.loads(ran.out)["predicted"]
    assert len(explained(TEXT, "--threshold", 0)["explanations"][0]["predicted"]) == 3
    message = refusal(
        "explain", trained_model(), TEXT, "--threshold", 0.5, "--single-label"
    )
    assert message.startswith("threshold must go with all labels past it")


def test_only_the_first_texts_of_a_large_file_are_explained(tmp_path: Path) -> None:
    table = write_csv(tmp_path / "t.csv", [["cat"]] * 9, header=["text"])
    ran = run_cli("explain", trained_model(), table, "--limit", 4)
    assert ran.code == 0
    assert "first 4 texts" in ran.err
    assert ran.out.count("cats") == 4


def test_mistakes_are_told_in_one_line(tmp_path: Path) -> None:
    model = trained_model()
    assert "must be texts, - or --data FILE; got none" in refusal("explain", model)
    assert "limit must be at least 1" in refusal("explain", model, TEXT, "--limit", 0)
    assert "top must be at least 1" in refusal("explain", model, TEXT, "--top", 0)
    assert "method must be one of" in refusal("explain", model, TEXT, "--method", "x")
    assert "must be a model folder" in refusal("explain", tmp_path, TEXT)
    (tmp_path / "bad.txt").write_bytes(b"caf\xe9")
    assert "must be a readable UTF-8 text" in refusal(
        "explain", model, tmp_path / "bad.txt"
    )
    table = write_csv(tmp_path / "t.csv", [["cat"]], header=["message"])
    assert "text" in refusal("explain", model, table)


def test_long_and_odd_arguments_are_texts_not_files() -> None:
    long = "cat " * 2000
    assert explained(long)["explanations"][0]["text"] == long
    assert explained("cat\tpurr?*")["explanations"][0]["predicted"] == ["cats"]


def test_long_text_is_printed_as_phrases_with_context() -> None:
    words = 50_000
    text = "my kitten and the cat purr today very loud " * (words // 9 + 1)
    ran = run_cli("explain", trained_model(), text)
    assert ran.code == 0
    n_words = len(text.split())
    lines = ran.out.splitlines()
    assert lines[0].startswith("my kitten and the cat purr today")
    assert lines[0].endswith(f"… ({n_words:,} words)")
    assert lines[1] == (
        f"  the model read the first 200 words; {n_words - 200:,} were cut at "
        "--max-tokens, an option of training"
    )
    assert lines[2].startswith("  cats ")
    assert " “" in lines[2] and "” " in lines[2]
    assert len(ran.out) < 2000
    (found,) = explained(text)["explanations"]
    assert found["text"] == text


def test_text_without_a_space_is_not_printed_whole() -> None:
    ran = run_cli("explain", trained_model(), "cat " + "x" * 100_000)
    assert ran.code == 0
    assert len(ran.out) < 2000


def test_short_text_is_printed_whole(tmp_path: Path) -> None:
    text = " ".join(["my cat"] * 50)
    assert run_cli("explain", trained_model(), text).out.splitlines()[0] == text


def test_text_outside_the_topics_is_said_to_be() -> None:
    ran = run_cli("explain", refusing_model(), OFF_TOPIC)
    assert "  no label: outside the training topics (--no-refuse" in ran.out
    plain = run_cli(
        "explain", refusing_model(), OFF_TOPIC, "--single-label", "--no-refuse"
    )
    assert "no label" not in plain.out


def test_one_text_can_be_a_picture_and_several_cannot(tmp_path: Path) -> None:
    out = tmp_path / "why.PNG"
    ran = run_cli("explain", trained_model(), TEXT, "--out", out)
    assert ran.code == 0
    assert ran.out.splitlines()[-1] == f"picture: {out}"
    assert out.read_bytes().startswith(b"\x89PNG")
    other = tmp_path / "two.png"
    told = refusal("explain", trained_model(), TEXT, "dog", "--out", other)
    assert told.startswith("out must be an .html page for 2 texts; got ")
    assert not other.exists()


@pytest.mark.parametrize("name", ["why.pdf", "why", "why.svg"])
def test_other_endings_than_those_written_are_refused(
    tmp_path: Path, name: str
) -> None:
    told = refusal("explain", trained_model(), TEXT, "--out", tmp_path / name)
    assert told == (
        "out must end in .html or .htm, for a page, or in .png, for a picture; got "
        f"{str(tmp_path / name)!r}. Name another file."
    )
    assert not list(tmp_path.iterdir())
    page = tmp_path / "why.HTM"
    assert run_cli("explain", trained_model(), TEXT, "--out", page).code == 0
    assert page.read_text(encoding="utf-8").startswith("<!")


def test_page_names_the_model_by_its_folder(tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    run_cli("explain", trained_model(), TEXT, "--out", out)
    page = out.read_text(encoding="utf-8")
    assert f"Model {trained_model().parent.name}/model, 1 text." in page
    assert str(trained_model().parent) not in page
