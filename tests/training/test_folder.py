"""The folder of a run: what is kept, replaced and refused."""

import contextlib
from pathlib import Path

import pytest

from run_folders import weights
from textcapsules.base.errors import DataError, ModelFolderError
from textcapsules.model.classifier import MODEL_FILES
from textcapsules.training.run import resume, train
from toy import tiny_config


def test_finished_run_is_kept_unless_overwrite(source, tmp_path):
    folder = tmp_path / "model"
    train(tiny_config(source, train={"epochs": 1}), folder)
    before = weights(folder)
    other = tiny_config(source, train={"epochs": 1, "seed": 5})
    with pytest.raises(ModelFolderError, match=r"got an earlier run. Pass --resume"):
        train(other, folder)
    assert weights(folder) == before
    train(other, folder, overwrite=True)
    assert weights(folder) != before


def test_failing_overwrite_keeps_the_earlier_run(source, tmp_path):
    folder = tmp_path / "model"
    train(tiny_config(source, train={"epochs": 1}), folder)
    before = weights(folder)
    with pytest.raises(DataError, match="no such file"):
        train(tiny_config(tmp_path / "gone.csv"), folder, overwrite=True)
    assert weights(folder) == before


def test_overwrite_removes_traces_of_the_earlier_run(source, tmp_path):
    folder = tmp_path / "model"
    train(tiny_config(source, train={"epochs": 1}), folder, tensorboard=True)
    (folder / "checkpoint.safetensors").touch()
    train(tiny_config(source, train={"epochs": 1}), folder, overwrite=True)
    assert sorted(p.name for p in folder.iterdir()) == sorted(MODEL_FILES)


def test_overwriting_broken_off_can_be_done_again(source, tmp_path, monkeypatch):
    folder, config = tmp_path / "model", tiny_config(source, train={"epochs": 1})
    unlink, left = Path.unlink, [0]

    def failing(self, missing_ok=False):
        if self.parent == folder and not self.name.startswith("."):
            if left[0] == 0:
                raise KeyboardInterrupt
            left[0] -= 1
        return unlink(self, missing_ok)

    for moment in range(7):
        train(config, folder, overwrite=True)
        monkeypatch.setattr(Path, "unlink", failing)
        left[0] = moment
        with contextlib.suppress(KeyboardInterrupt):
            train(config, folder, overwrite=True)
            assert moment == 6  # the checkpoint and five files were removed before
        monkeypatch.setattr(Path, "unlink", unlink)
    assert resume(train(config, folder, overwrite=True) and folder).record["finished"]


FOREIGN = {
    "notes": {"notes.txt": "mine"},
    "weights alone": {"model.safetensors": "mine"},
    "another program's model": {
        "config.json": '{"model_type": "bert"}',
        "model.safetensors": "mine",
        "tokenizer.json": "{}",
    },
    "a config that is no JSON": {"config.json": "mine"},
    "a training.json of someone": {"training.json": '{"mine": 1}'},
    "a file beside a run's logs": {"tensorboard/mine.txt": "mine"},
}


@pytest.mark.parametrize("files", FOREIGN.values(), ids=FOREIGN.keys())
@pytest.mark.parametrize("overwrite", [False, True])
def test_folder_of_others_is_refused_and_untouched(source, tmp_path, files, overwrite):
    folder = tmp_path / "model"
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    with pytest.raises(ModelFolderError, match="Name another folder"):
        train(tiny_config(source), folder, overwrite=overwrite)
    found = {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }
    assert found == files


def test_own_run_with_a_foreign_file_is_refused_with_overwrite(source, tmp_path):
    folder = tmp_path / "model"
    train(tiny_config(source, train={"epochs": 1}), folder)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(ModelFolderError, match=r"got notes.txt. Name another folder"):
        train(tiny_config(source), folder, overwrite=True)
    assert {path.name for path in folder.iterdir()} == {*MODEL_FILES, "notes.txt"}


def test_out_that_is_a_file_is_refused(source):
    with pytest.raises(ModelFolderError, match="must be a folder; got a file"):
        train(tiny_config(source), source)
    assert source.read_text().startswith("text,label")
