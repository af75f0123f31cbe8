"""Sharing a model: through a server on this machine, and from a folder."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

from fake_hub import FakeHub, fake_hub
from textcapsules import CapsuleClassifier, TextClassifier, from_pretrained, push_to_hub
from textcapsules.base.errors import DownloadError, ModelFolderError, TextCapsulesError
from textcapsules.deploy.hub import model_card
from toy import (
    OFF_TOPIC,
    model_copy,
    refusing_model,
    toy_rows,
    trained_model,
    without_sums,
)

TEXTS = [text for text, _ in toy_rows(20, seed=3)] + ["", "<script>cat</script>"]
REPO = "someone/toy"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    with fake_hub() as served:
        yield served


def metadata_of(card: str) -> dict:
    return yaml.safe_load(card.split("---")[1])


@pytest.mark.parametrize("kind", ["folder", "path as text", "classifier", "estimator"])
def test_what_is_pushed_comes_back(hub: FakeHub, tmp_path: Path, kind: str) -> None:
    folder = trained_model()
    model = {
        "folder": folder,
        "path as text": str(folder),
        "classifier": TextClassifier.load(folder, "cpu"),
        "estimator": CapsuleClassifier.load(folder, "cpu"),
    }[kind]
    url = push_to_hub(model, REPO, private=True, token="hf_x", endpoint=hub.url)
    assert url.startswith(f"{hub.url}/{REPO}/commit/")
    assert hub.private[REPO] and "Bearer hf_x" in hub.tokens
    back = from_pretrained(REPO, cache_dir=tmp_path, endpoint=hub.url, device="cpu")
    expected = TextClassifier.load(folder, "cpu").scores(TEXTS)
    np.testing.assert_array_equal(back.scores(TEXTS), expected)
    # What was downloaded serves without the server.
    hub.commits.clear()
    again = from_pretrained(REPO, cache_dir=tmp_path, local_files_only=True)
    np.testing.assert_array_equal(again.scores(TEXTS), expected)


def test_what_refuses_texts_travels_with_the_model(
    hub: FakeHub, tmp_path: Path
) -> None:
    push_to_hub(refusing_model(), REPO, endpoint=hub.url)
    back = from_pretrained(REPO, cache_dir=tmp_path, endpoint=hub.url, device="cpu")
    assert back.predict(OFF_TOPIC).outside


def test_revision_is_the_one_asked_for(hub: FakeHub, tmp_path: Path) -> None:
    own = CapsuleClassifier.load(trained_model(), "cpu")
    push_to_hub(own, REPO, endpoint=hub.url)
    first = hub.commit_id(REPO, "main")
    own.thresholds_ = 0.125
    push_to_hub(own, REPO, endpoint=hub.url)
    found = [
        from_pretrained(
            REPO, revision=revision, cache_dir=tmp_path, endpoint=hub.url, device="cpu"
        ).labels.thresholds[0]
        for revision in (None, first)
    ]
    assert found[0] == 0.125 != found[1]


def test_labels_of_an_estimator_survive(hub: FakeHub, tmp_path: Path) -> None:
    own = CapsuleClassifier.load(trained_model(), "cpu")
    own.classes_ = np.array([10, 20, 30])
    push_to_hub(own, REPO, endpoint=hub.url)
    back = from_pretrained(REPO, cache_dir=tmp_path, endpoint=hub.url, device="cpu")
    assert CapsuleClassifier.of(back).predict(TEXTS).tolist() == (
        own.predict(TEXTS).tolist()
    )


def test_only_the_model_and_its_card_are_shared(hub: FakeHub, tmp_path: Path) -> None:
    folder = without_sums(model_copy(tmp_path))
    (folder / "secret.txt").write_text("mine")
    config = json.loads((folder / "config.json").read_text())
    config["data"]["source"] = "/srv/private/clients.csv"
    config["text"]["vectors"] = "/srv/private/vectors.npz"
    (folder / "config.json").write_text(json.dumps(config))
    push_to_hub(folder, REPO, endpoint=hub.url)
    files = hub.files(REPO)
    assert set(files) == {
        "README.md",
        "config.json",
        "labels.json",
        "model.safetensors",
        "tokenizer.json",
        "training.json",
    }
    assert all(b"/srv/private" not in content for content in files.values())
    assert json.loads(files["config.json"])["data"]["source"] == "clients.csv"


def test_card_tells_what_the_record_knows(hub: FakeHub) -> None:
    push_to_hub(trained_model(), REPO, license="apache-2.0", endpoint=hub.url)
    card = hub.files(REPO)["README.md"].decode()
    record = json.loads((trained_model() / "training.json").read_text())
    best = record["epochs"][record["best_epoch"] - 1]
    about = metadata_of(card)
    assert about["library_name"] == "textcapsules"
    assert about["license"] == "apache-2.0"
    assert about["pipeline_tag"] == "text-classification"
    (result,) = about["model-index"][0]["results"]
    assert result["metrics"][0] == {
        "type": "accuracy",
        "value": round(best["dev_accuracy"], 4),
    }
    assert f"| accuracy | {100 * best['dev_accuracy']:.1f} |" in card
    assert f"| training texts | {record['texts']['train']} |" in card
    assert record["corpus"]["files"]["toy.csv"]["sha256"] in card
    assert f"epoch {record['best_epoch']} of {len(record['epochs'])} kept" in card
    threshold = record["calibration"]["threshold"]
    for label in ("birds", "cats", "dogs"):
        assert f"| {label} | {threshold:.3f} |" in card
    for part in ("Intended use and limits", f'from_pretrained("{REPO}")'):
        assert part in card


def test_card_takes_labels_literally_and_lacks_gracefully() -> None:
    classifier = TextClassifier.load(trained_model(), "cpu")
    names = ("a|b", "<script>", "*stars*\nand lines")
    classifier.labels = classifier.labels._replace(names=names)
    classifier.record = {}
    card = model_card(classifier, REPO, "")
    least = f"{classifier.labels.thresholds[0]:.3f}"
    rows = [line for line in card.splitlines() if line.endswith(f" | {least} |")]
    assert rows == [
        rf"| a\|b | {least} |",
        rf"| \<script\> | {least} |",
        rf"| \*stars\* and lines | {least} |",
    ]
    assert "| corpus | unknown |" in card


def test_file_damaged_on_its_way_is_refused(hub: FakeHub, tmp_path: Path) -> None:
    push_to_hub(trained_model(), REPO, endpoint=hub.url)
    files = hub.files(REPO)
    assert b'"birds"' in files["labels.json"]
    files["labels.json"] = files["labels.json"].replace(b'"birds"', b'"bards"')
    with pytest.raises(ModelFolderError, match=r"labels\.json must be as it was"):
        from_pretrained(REPO, cache_dir=tmp_path, endpoint=hub.url)


def test_own_card_is_kept(hub: FakeHub, tmp_path: Path) -> None:
    folder = model_copy(tmp_path)
    (folder / "README.md").write_text("# Mine\n")
    push_to_hub(folder, REPO, endpoint=hub.url)
    assert hub.files(REPO)["README.md"] == b"# Mine\n"


def test_folder_is_loaded_as_it_is() -> None:
    back = from_pretrained(trained_model(), device="cpu")
    assert back.labels.names == ("birds", "cats", "dogs")
    with pytest.raises(ModelFolderError, match="revision must go with a repository"):
        from_pretrained(trained_model(), revision="main")


@pytest.mark.parametrize("name", ["someone/other", "no/such/thing", "runs/.."])
def test_missing_repository_is_one_line(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)  # where no such folder lies
    with pytest.raises(DownloadError, match=f"{name!r} must be a model folder, or"):
        from_pretrained(name, cache_dir=tmp_path, endpoint=hub.url)


def test_unknown_revision_and_dead_server_are_one_line(
    hub: FakeHub, tmp_path: Path
) -> None:
    push_to_hub(trained_model(), REPO, endpoint=hub.url)
    with pytest.raises(DownloadError, match="RevisionNotFound"):
        from_pretrained(REPO, revision="v9", cache_dir=tmp_path, endpoint=hub.url)
    dead = "http://127.0.0.1:9"
    with pytest.raises(DownloadError, match="Check the name"):
        from_pretrained(REPO, cache_dir=tmp_path / "new", endpoint=dead)
    with pytest.raises(DownloadError, match="Check the name"):
        push_to_hub(trained_model(), REPO, endpoint=dead)


def test_folder_that_is_no_model_is_not_pushed(hub: FakeHub, tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match="must be a model folder"):
        push_to_hub(tmp_path, REPO, endpoint=hub.url)
    assert not hub.commits


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(TextCapsulesError, match=r"pip install 'textcapsules\[hub\]'"):
        push_to_hub(trained_model(), REPO)
    with pytest.raises(TextCapsulesError, match="must be installed to download"):
        from_pretrained(REPO)
