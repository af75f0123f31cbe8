"""A model folder is what was written, or it is refused."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from textcapsules.base.errors import ModelFolderError
from textcapsules.base.sums import check_sums, read_record, replace_file, write_record
from textcapsules.model.classifier import TextClassifier, write_config
from toy import model_copy, refusal, without_sums

TEXTS = ["my cat purr", "a dog bark and a bird sing"]
RECORD = {"list": [1, 2.5], "NaN": float("nan"), "ä": {"10": 1, "9": None}}


def sum_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def stored_sums(folder: Path) -> dict[str, str]:
    return json.loads((folder / "training.json").read_text())["sha256"]


def test_sums_of_a_model_are_those_of_its_files(tmp_path: Path) -> None:
    folder = model_copy(tmp_path)
    sums = stored_sums(folder)
    names = {path.name for path in folder.iterdir()}
    assert set(sums) == names
    for name in names - {"training.json"}:
        assert sums[name] == sum_of((folder / name).read_bytes())


def test_record_comes_back_without_its_sums(tmp_path: Path) -> None:
    given: dict[Any, Any] = {**RECORD, 7: (1, 2)}
    write_record(tmp_path, given, {"a": "0" * 64})
    record, sums = read_record(tmp_path)
    assert sums == {"a": "0" * 64}
    assert np.isnan(record.pop("NaN"))
    assert record == {"list": [1, 2.5], "ä": {"10": 1, "9": None}, "7": [1, 2]}


def test_every_change_of_a_records_values_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "training.json"
    write_record(tmp_path, {"epochs": 12, "name": "a"}, {"labels.json": "0" * 64})
    content = path.read_text()
    for old, new in [("12", "13"), ('"a"', '"b"'), ("000", "001"), ("epochs", "epoch")]:
        path.write_text(content.replace(old, new, 1))
        with pytest.raises(ModelFolderError, match=r"training\.json must be as it was"):
            read_record(tmp_path)
    path.write_text(json.dumps(json.loads(content)))  # other spaces, the same values
    assert read_record(tmp_path)[0] == {"epochs": 12, "name": "a"}


@pytest.mark.parametrize("sums", ["[]", '"0"', '{"a": 1}', '{"a": [1]}'])
def test_sums_that_are_none_are_refused(tmp_path: Path, sums: str) -> None:
    (tmp_path / "training.json").write_text(f'{{"sha256": {sums}}}')
    with pytest.raises(ModelFolderError, match="must hold SHA-256 sums; got"):
        read_record(tmp_path)


def test_replaced_file_checks_at_every_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "labels.json").write_bytes(b"old")
    write_record(tmp_path, {"kept": 1}, {"labels.json": sum_of(b"old"), "b": "0" * 64})
    seen = []
    rename = Path.replace

    def watched(self: Path, target: Path) -> Path:
        renamed = rename(self, target)
        record, sums = read_record(tmp_path)
        check_sums(tmp_path, sums, ["labels.json"])
        seen.append((target.name, (tmp_path / "labels.json").read_bytes(), record))
        return renamed

    monkeypatch.setattr(Path, "replace", watched)
    replace_file(tmp_path, "labels.json", b"new")
    assert seen == [
        ("training.json", b"old", {"kept": 1}),
        ("labels.json", b"new", {"kept": 1}),
        ("training.json", b"new", {"kept": 1}),
    ]
    assert read_record(tmp_path)[1] == {"labels.json": sum_of(b"new"), "b": "0" * 64}
    seen.clear()
    replace_file(tmp_path, "labels.json", b"new")
    assert [name for name, _, _ in seen] == ["labels.json"]


def test_new_thresholds_and_options_are_written_with_their_sums(tmp_path: Path) -> None:
    folder = model_copy(tmp_path)
    classifier = TextClassifier.load(folder)
    classifier.labels = classifier.labels._replace(thresholds=(0.1, 0.2, 0.3))
    classifier.save_labels(folder)
    write_config(folder, classifier.config.replace(train={"epochs": 99}))
    loaded = TextClassifier.load(folder)
    assert loaded.labels.thresholds == (0.1, 0.2, 0.3)
    assert loaded.config.train.epochs == 99
    assert loaded.record == classifier.record


def test_folder_of_an_earlier_version_still_loads(tmp_path: Path) -> None:
    folder = model_copy(tmp_path)
    expected = TextClassifier.load(folder).scores(TEXTS)
    loaded = TextClassifier.load(without_sums(folder))
    assert np.array_equal(loaded.scores(TEXTS), expected)
    loaded.save(tmp_path / "again")
    assert set(stored_sums(tmp_path / "again")) == {p.name for p in folder.iterdir()}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("verb", ["predict", "serve"])
def test_weights_that_are_not_finite_are_refused(
    tmp_path: Path, value: float, verb: str
) -> None:
    folder = without_sums(model_copy(tmp_path))
    weights = load_file(folder / "model.safetensors")
    weights["embedding.weight"][3, 2] = value
    save_file(weights, folder / "model.safetensors")
    message = refusal(verb, folder, *(["text"] if verb == "predict" else ["--port", 0]))
    assert "model.safetensors must hold the weights that config.json" in message
    assert "got: numbers that are not finite in 'embedding.weight'" in message


@pytest.mark.parametrize("verb", ["predict", "serve"])
def test_one_bit_of_the_weights_is_seen(tmp_path: Path, verb: str) -> None:
    folder = model_copy(tmp_path)
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-5] ^= 1
    (folder / "model.safetensors").write_bytes(content)
    message = refusal(verb, folder, *(["text"] if verb == "predict" else ["--port", 0]))
    assert "model.safetensors must be as it was written; got another" in message
