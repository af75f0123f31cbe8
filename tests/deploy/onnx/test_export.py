"""`textcapsules export`: three files that give the model's own labels."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from textcapsules.base.errors import TextCapsulesError, WriteError
from textcapsules.deploy.onnx import export as exporting
from textcapsules.deploy.onnx.export import export_onnx, random_texts
from textcapsules.model.capsnet import CapsuleNetwork
from textcapsules.model.classifier import TextClassifier
from toy import (
    OFF_TOPIC,
    TOPICAL,
    model_copy,
    refusal,
    refusing_model,
    run_cli,
    toy_rows,
    trained_model,
    without_sums,
)

EXAMPLE = Path(__file__).parents[3] / "examples" / "onnx_predict.py"
AWKWARD = [
    "",
    " ",
    "cat",
    "zzz unknown",
    "<script>cat</script> & dog",
    "\U0001f63a the cat \U0001f469\u200d\U0001f52c meow",
    "CAT. Dog! \u05db\u05dc\u05d1",
    "bird " * 1000,
]


def example_predict(folder: Path, texts: list[str]) -> list[list[str]]:
    spec = importlib.util.spec_from_file_location("onnx_predict", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.predict(folder, texts)


@pytest.mark.parametrize("task", ["single-label", "multi-label"])
def test_example_gives_the_labels_of_predict(tmp_path: Path, task: str) -> None:
    folder = without_sums(model_copy(tmp_path))
    labels = json.loads((folder / "labels.json").read_text())
    (folder / "labels.json").write_text(json.dumps({**labels, "task": task}))
    texts = [text for text, _ in toy_rows(80, seed=7)] + AWKWARD
    ran = run_cli("export", folder, "--format", "onnx", "--json")
    assert ran.code == 0, ran
    facts = json.loads(ran.out.splitlines()[-1])
    assert facts["largest_difference"] <= 1e-5
    assert facts["folder"] == str(tmp_path / "model-onnx")
    expected = TextClassifier.load(folder, "cpu").predict(texts)
    found = example_predict(tmp_path / "model-onnx", texts)
    assert found == [list(each.labels) for each in expected]
    assert found[: len(AWKWARD)] != found[-len(AWKWARD) :]


def test_example_runs_without_this_package(tmp_path: Path) -> None:
    export_onnx(TextClassifier.load(trained_model(), "cpu"), tmp_path)
    code = (
        "import sys, runpy; sys.modules.update(textcapsules=None, torch=None); "
        f"sys.argv[1:] = {[str(tmp_path), 'my cat purr meow', '']!r}; "
        f"runpy.run_path({str(EXAMPLE)!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["predicted"] for line in lines] == [["cats"], []]


@pytest.mark.slow
def test_texts_outside_the_topics_are_refused(tmp_path: Path) -> None:
    classifier = TextClassifier.load(refusing_model(), "cpu")
    export_onnx(classifier, tmp_path)
    texts = [TOPICAL, OFF_TOPIC, *(text for text, _ in toy_rows(80, seed=7)), *AWKWARD]
    expected = classifier.predict(texts)
    assert [each.outside for each in expected[:2]] == [False, True]
    found = example_predict(tmp_path, texts)
    assert found == [list(each.labels) for each in expected]
    model = onnx.load(tmp_path / "model.onnx")
    assert [each.name for each in model.graph.output] == ["scores", "outside"]


def test_files_tell_nothing_of_the_machine(tmp_path: Path) -> None:
    export_onnx(TextClassifier.load(trained_model(), "cpu"), tmp_path)
    content = (tmp_path / "model.onnx").read_bytes()
    for part in (Path(exporting.__file__).parents[3], Path.home(), tmp_path):
        assert str(part).encode() not in content


def test_model_holds_its_labels_and_limits(tmp_path: Path) -> None:
    classifier = TextClassifier.load(trained_model(), "cpu")
    export_onnx(classifier, tmp_path)
    model = onnx.load(tmp_path / "model.onnx")
    facts = {entry.key: json.loads(entry.value) for entry in model.metadata_props}
    assert [row["name"] for row in facts["labels"]] == list(classifier.labels.names)
    assert facts["max_tokens"] == classifier.config.text.max_tokens
    assert facts == json.loads((tmp_path / "labels.json").read_text())


def test_wrong_scores_leave_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slightly_wrong(classifier: TextClassifier) -> exporting.Exported:
        assert isinstance(classifier.network, CapsuleNetwork)
        weight = classifier.network.embedding.weight
        right = weight.data.clone()
        weight.data += 0.05
        exported = build(classifier)
        weight.data = right
        return exported

    build = exporting.build
    monkeypatch.setattr(exporting, "build", slightly_wrong)
    with pytest.raises(TextCapsulesError, match=r"within 0\.0001 of the model's; got"):
        export_onnx(TextClassifier.load(trained_model(), "cpu"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_nothing_is_replaced_unasked(tmp_path: Path) -> None:
    classifier = TextClassifier.load(trained_model(), "cpu")
    (tmp_path / "labels.json").write_text("mine")
    with pytest.raises(WriteError, match=r"must not hold an export yet; got labels"):
        export_onnx(classifier, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["labels.json"]
    assert (tmp_path / "labels.json").read_text() == "mine"
    export_onnx(classifier, tmp_path, overwrite=True)
    assert (tmp_path / "model.onnx").is_file()


def test_model_folder_is_never_a_target(tmp_path: Path) -> None:
    folder = model_copy(tmp_path)
    before = (folder / "tokenizer.json").read_bytes()
    said = refusal("export", folder, "--out", folder, "--overwrite")
    assert "must not be a model folder" in said
    assert (folder / "tokenizer.json").read_bytes() == before


def test_mistakes_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "format must be onnx; got 'tflite'" in refusal(
        "export", trained_model(), "--format", "tflite"
    )
    assert "must be a model folder" in refusal("export", tmp_path)
    (tmp_path / "file").write_text("")
    assert "must be a folder; got a file" in refusal(
        "export", trained_model(), "--out", tmp_path / "file"
    )
    monkeypatch.setitem(sys.modules, "onnx", None)
    said = refusal("export", trained_model(), "--out", tmp_path / "new")
    assert "pip install 'textcapsules[onnx]'" in said


def test_missing_runtime_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    said = refusal("export", trained_model(), "--out", tmp_path / "new")
    assert "onnxruntime must be installed" in said
    assert not (tmp_path / "new").exists()


def test_random_texts_are_of_every_length_and_kind() -> None:
    classifier = TextClassifier.load(trained_model(), "cpu")
    texts = random_texts(classifier, 200, seed=0)
    limit = classifier.config.text.max_tokens
    lengths = np.array([len(text.split()) for text in texts])
    assert len(texts) == 200 and texts == random_texts(classifier, 200, seed=0)
    assert {0, 1, 2} <= set(lengths) and lengths.max() > limit
    readable = [len(ids) > 0 for ids in classifier.encode(texts)]
    assert 20 <= readable.count(False) <= 60
