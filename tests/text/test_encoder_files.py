"""The files of an encoder: found, fetched, checked; and models that only name them."""

import importlib.util
import json
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
from huggingface_hub.utils import disable_progress_bars, enable_progress_bars

from fake_hub import FakeHub, fake_hub
from textcapsules import push_to_hub
from textcapsules.base.errors import ConfigError, ModelFolderError
from textcapsules.base.files import file_sha256
from textcapsules.config import RunConfig, preset
from textcapsules.model.classifier import TextClassifier
from textcapsules.text import encoder_files
from textcapsules.text.encoder import ENCODER_FILES, load_encoder
from textcapsules.text.encoder_files import SOURCE_FILE, Package
from textcapsules.training.run import train
from tiny_encoder import write_encoder
from toy import TINY_TRAIN, refusal, run_cli, toy_file

TEXTS = ["My cat purrs. The dog barks!", "the bird sings", ""]
SMALL = {"filters": 8, "capsule_types": 2, "capsule_size": 4}
NAME = "someone/tiny"


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    return write_encoder(tmp_path / "bert")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no-such-folder", "encoder must be a folder, .* got 'no-such-folder'"),
        ("./missing/folder", "encoder must be a folder"),
        ("a/b/c", "encoder must be a folder"),
    ],
)
def test_a_name_that_is_nothing_is_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_encoder(name)


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json"])
def test_a_folder_without_a_file_is_refused(bert: Path, file: str) -> None:
    (bert / file).unlink()
    with pytest.raises(ConfigError, match=f"without {file}"):
        load_encoder(str(bert))


def test_pickles_are_refused(bert: Path) -> None:
    (bert / "model.safetensors").rename(bert / "pytorch_model.bin")
    with pytest.raises(ConfigError, match=r"safetensors.*only pytorch_model\.bin"):
        load_encoder(str(bert))


def test_damaged_files_are_named(bert: Path) -> None:
    (bert / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ModelFolderError, match=r"model\.safetensors must be"):
        load_encoder(str(bert))
    (bert / "config.json").write_text("[")
    with pytest.raises(ModelFolderError, match=r"config\.json must be a readable"):
        load_encoder(str(bert))


def test_a_hub_that_cannot_be_reached_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import huggingface_hub

    def refuse(*_: object, **__: object) -> None:
        raise OSError("no route to host\nand more")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(ConfigError, match="'a/b', which could not be fetched") as told:
        load_encoder("a/b")
    assert "\n" not in str(told.value)


def test_a_hub_gives_the_files_alone(
    bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    asked: list[object] = []

    def give(name: str, *, allow_patterns: list[str], **_: object) -> str:
        asked.extend([name, *allow_patterns])
        return str(bert)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", give)
    assert load_encoder("someone/bert").facts["encoder"] == "someone/bert"
    assert "*.safetensors" in asked
    assert not any("py" in str(part) or "bin" in str(part) for part in asked)


def test_a_package_is_read_by_its_files_and_its_sum(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "carrier"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('code was run')")
    bert.rename(package / "files")
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setitem(
        encoder_files.PACKAGES, "tiny", Package("carrier", "files", "0" * 64)
    )
    with pytest.raises(ConfigError, match="must have the SHA-256 0000"):
        load_encoder("tiny")
    right = file_sha256(package / "files" / "model.safetensors")
    monkeypatch.setitem(
        encoder_files.PACKAGES, "tiny", Package("carrier", "files", right)
    )
    assert load_encoder("tiny").facts["encoder"] == "tiny"


def test_a_package_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(encoder_files.PACKAGES, "tiny", Package("no_such", "files", ""))
    with pytest.raises(ConfigError, match=r"textcapsules\[encoder-offline\]"):
        load_encoder("tiny")


def test_without_transformers_the_extra_is_named(
    bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: None if name == "transformers" else find(name),
    )
    with pytest.raises(ConfigError, match=r"textcapsules\[encoder\]"):
        load_encoder(str(bert))


def options(folder: Path, encoder: Path | str, **text: object) -> RunConfig:
    return preset("encoder-frozen").replace(
        data={"source": str(toy_file(folder))},
        text={"encoder": str(encoder), "embed_encoder": False, **text},
        model=SMALL,
        train={**TINY_TRAIN, "epochs": 1},
    )


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub with one encoder, and a cache of its own."""
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    files = write_encoder(tmp_path / "published").iterdir()
    with fake_hub() as served:
        served.create(NAME, private=False)
        served.commits[NAME].append({file.name: file.read_bytes() for file in files})
        download = partial(
            huggingface_hub.snapshot_download,
            endpoint=served.url,
            cache_dir=tmp_path / "cache",
        )
        monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
        disable_progress_bars()
        yield served
        enable_progress_bars()


def test_a_model_may_name_its_encoder_only(bert: Path, tmp_path: Path) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    trained = train(options(tmp_path, bert), small)
    train(options(tmp_path, bert, embed_encoder=True), large)
    names = {path.name for path in small.iterdir()}
    assert SOURCE_FILE in names and not names & set(ENCODER_FILES)
    source = json.loads((small / SOURCE_FILE).read_text())
    assert source["sha256"] == {
        name: file_sha256(bert / name) for name in ("config.json", "model.safetensors")
    }
    loaded = TextClassifier.load(small, "cpu")
    assert np.array_equal(loaded.scores(TEXTS), trained.scores(TEXTS))
    embedded = TextClassifier.load(large, "cpu")
    assert np.array_equal(loaded.scores(TEXTS), embedded.scores(TEXTS))
    # Saved again, and by another run in the same folder.
    loaded.save(tmp_path / "copy")
    copy = TextClassifier.load(tmp_path / "copy", "cpu")
    assert np.array_equal(copy.scores(TEXTS), loaded.scores(TEXTS))
    train(options(tmp_path, bert, embed_encoder=True), small, overwrite=True)
    assert {path.name for path in small.iterdir()} == {
        path.name for path in large.iterdir()
    }


def test_an_encoder_that_is_gone_or_another_is_told(bert: Path, tmp_path: Path) -> None:
    train(options(tmp_path, bert), tmp_path / "model")
    write_encoder(bert, seed=1)
    told = refusal("predict", tmp_path / "model", "my cat")
    assert "model.safetensors must have the SHA-256" in told
    assert "Restore that encoder, or train anew" in told
    shutil.rmtree(bert)
    told = refusal("predict", tmp_path / "model", "my cat")
    assert f"model must find its encoder '{bert}', which it does not hold" in told
    assert "--embed-encoder" in told


@pytest.mark.parametrize("content", ["[", "{}", '{"name": "x", "sha256": {}}'])
def test_a_damaged_source_is_told(bert: Path, tmp_path: Path, content: str) -> None:
    train(options(tmp_path, bert), tmp_path / "model")
    (tmp_path / "model" / SOURCE_FILE).write_text(content)
    assert SOURCE_FILE in refusal("predict", tmp_path / "model", "my cat")


def test_a_changed_source_is_refused(bert: Path, tmp_path: Path) -> None:
    train(options(tmp_path, bert), tmp_path / "model")
    other = write_encoder(tmp_path / "other", seed=1)
    load_encoder(str(other)).states.save(tmp_path / "model", embed=False)
    with pytest.raises(ModelFolderError, match=f"{SOURCE_FILE} must be as it was"):
        TextClassifier.load(tmp_path / "model", "cpu")


def test_a_revision_of_the_hub_is_found_in_the_cache_or_fetched(
    hub: FakeHub, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    trained = train(options(tmp_path, NAME), model)
    revision = hub.commit_id(NAME, "main")
    assert json.loads((model / SOURCE_FILE).read_text())["revision"] == revision
    assert trained.record["vectors"]["revision"] == revision
    asked = len(hub.tokens)
    loaded = TextClassifier.load(model, "cpu")
    assert len(hub.tokens) == asked  # the cache has it
    assert np.array_equal(loaded.scores(TEXTS), trained.scores(TEXTS))
    # The name has other weights now, and the cache is empty.
    shutil.rmtree(tmp_path / "cache")
    newer = write_encoder(tmp_path / "newer", seed=1).iterdir()
    hub.commits[NAME].append({file.name: file.read_bytes() for file in newer})
    again = TextClassifier.load(model, "cpu")
    assert np.array_equal(again.scores(TEXTS), trained.scores(TEXTS))
    # Neither a cache nor the hub.
    shutil.rmtree(tmp_path / "cache")
    hub.commits.clear()
    told = refusal("predict", model, "my cat")
    assert "which could not be fetched" in told and "must find its encoder" in told


def test_a_shared_model_needs_nothing_of_this_machine(
    hub: FakeHub, bert: Path, tmp_path: Path
) -> None:
    train(options(tmp_path, bert), tmp_path / "local")
    push_to_hub(tmp_path / "local", "me/local", endpoint=hub.url)
    assert set(ENCODER_FILES) <= set(hub.files("me/local"))
    assert SOURCE_FILE not in hub.files("me/local")
    train(options(tmp_path, NAME), tmp_path / "public")
    push_to_hub(tmp_path / "public", "me/public", endpoint=hub.url)
    assert SOURCE_FILE in hub.files("me/public")
    assert not set(ENCODER_FILES) & set(hub.files("me/public"))


def test_what_learns_must_be_in_the_folder(bert: Path, tmp_path: Path) -> None:
    flags = ["--encoder", bert, "--no-embed-encoder", "--out", tmp_path / "model"]
    flags += ["--epochs", 1, "--filters", 8]
    data = toy_file(tmp_path)
    told = refusal("train", "--data", data, *flags, "--encoder-training", "light")
    assert "embed_encoder must be true with --encoder-training light" in told
    assert run_cli("train", "--data", data, *flags).code == 0
    assert (tmp_path / "model" / SOURCE_FILE).is_file()
    assert run_cli("predict", tmp_path / "model", "my cat").code == 0
