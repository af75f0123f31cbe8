"""Files appear whole or not at all."""

import errno
import hashlib
import json
import os
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from textcapsules.base.errors import WriteError
from textcapsules.base.files import (
    atomic_path,
    file_sha256,
    remove_leftovers,
    write_bytes,
    write_json,
    write_tensors,
    write_text,
)

NO_SPACE = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_content_replaces_the_old_and_leaves_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    for content in (b"old", b"\x00new\xff", b""):
        write_bytes(path, content)
        assert only_file(tmp_path).read_bytes() == content


def test_text_is_utf8_and_missing_folders_are_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "a.txt"
    write_text(str(path), "naïve 🚀\n")
    assert path.read_bytes() == "naïve 🚀\n".encode()


def test_json_is_indented_readable_and_reads_back(tmp_path: Path) -> None:
    value = {"labels": ["ä", "退款"], "n": 1.5, "none": None}
    write_json(tmp_path / "a.json", value)
    content = (tmp_path / "a.json").read_text(encoding="utf-8")
    assert json.loads(content) == value
    assert content.endswith("}\n")
    assert '  "labels"' in content
    assert "退款" in content


def test_value_that_is_no_json_leaves_the_old_file(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"old": 1})
    with pytest.raises(TypeError, match="set"):
        write_json(tmp_path / "a.json", {"new": {1, 2}})
    assert json.loads(only_file(tmp_path).read_text()) == {"old": 1}


@pytest.mark.parametrize("error", [RuntimeError("stop"), KeyboardInterrupt()], ids=repr)
def test_failure_in_the_middle_keeps_the_old_content(
    tmp_path: Path, error: BaseException
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(type(error)), atomic_path(path) as temporary:
        temporary.write_text("half of the n")
        raise error
    assert only_file(tmp_path).read_text() == "old"


def test_reader_sees_the_old_content_until_the_new_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with atomic_path(path) as temporary:
        temporary.write_text("half")
        assert path.read_text() == "old"
        assert temporary.parent == tmp_path  # one file system, so a rename is atomic
        temporary.write_text("whole")
    assert path.read_text() == "whole"


@pytest.mark.parametrize("step", ["write_bytes", "fsync", "replace"])
def test_full_disk_is_one_message_and_keeps_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")

    def full(*_: object) -> None:
        raise NO_SPACE

    def half(self: Path, content: bytes) -> None:
        with self.open("wb") as file:
            file.write(content[:2])
        raise NO_SPACE

    if step == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    else:
        monkeypatch.setattr(Path, step, half if step == "write_bytes" else full)
    message = r"a\.txt must be writable; got No space left on device\. .*nothing was"
    with pytest.raises(WriteError, match=message):
        write_text(path, "new content")
    monkeypatch.undo()
    assert only_file(tmp_path).read_text() == "old"


def test_new_bytes_reach_the_disk_before_the_name_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, order = tmp_path / "a.txt", []
    sync, rename = os.fsync, Path.replace

    def watched_sync(descriptor: int) -> None:
        order.append("sync")
        sync(descriptor)

    def watched_rename(self: Path, target: Path) -> Path:
        order.append("rename")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", watched_sync)
    monkeypatch.setattr(Path, "replace", watched_rename)
    write_text(path, "new")
    assert order == ["sync", "rename"]


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "No space left on device. Free some space or name another"),
        (errno.EROFS, "Read-only file system. Name a place on a disk that is not"),
        (errno.EACCES, "Permission denied. Get the permission to write there"),
        (errno.ENAMETOOLONG, "File name too long. Give it a shorter name"),
        (errno.ENOTDIR, "Not a directory. Name a place that is not below a file"),
        (errno.EIO, "Input/output error. Name another place"),
    ],
)
def test_advice_fits_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, advice: str
) -> None:
    def refuse(self: Path, *_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), str(self))

    monkeypatch.setattr(Path, "touch", refuse)
    with pytest.raises(WriteError) as caught:
        write_text(tmp_path / "a.txt", "new")
    assert f"a.txt must be writable; got {advice}" in str(caught.value)


def test_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(WriteError, match=r"a\.txt must be writable; got File exists"):
        write_text(tmp_path / "file" / "a.txt", "new")
    (tmp_path / "folder").mkdir()
    with pytest.raises(WriteError, match=r"folder must be writable; got .*directory"):
        write_text(tmp_path / "folder", "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_file_is_as_readable_as_the_users_umask_leaves_it(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with atomic_path(tmp_path / "a") as temporary:
            temporary.write_text("as some libraries make files")
            temporary.chmod(0o600)
    finally:
        os.umask(before)
    assert only_file(tmp_path).stat().st_mode & 0o777 == 0o640


def test_leftovers_of_killed_processes_are_removed_and_nothing_else(
    tmp_path: Path,
) -> None:
    kept = ["a.txt", ".a.txt.notes.tmp", ".b.txt.12.tmp", ".a.txt"]
    for name in [*kept, ".a.txt.12.tmp", ".a.txt.34567.tmp"]:
        (tmp_path / name).touch()
    remove_leftovers(tmp_path / "a.txt")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)


def test_tensors_read_back_with_their_metadata(tmp_path: Path) -> None:
    tensors = {"a": torch.arange(3), "b": torch.rand(2, 2)}
    write_tensors(tmp_path / "w.safetensors", tensors, {"kind": "test"})
    with safe_open(only_file(tmp_path), "pt") as file:
        assert file.metadata() == {"kind": "test"}
        assert all(torch.equal(file.get_tensor(name), tensors[name]) for name in "ab")


def test_tensors_on_a_full_disk_keep_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(b"old")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(WriteError, match=r"must be writable; got No space left on"):
        write_tensors(path, {"a": torch.ones(1)})
    assert only_file(tmp_path).read_bytes() == b"old"


def test_sha256_is_that_of_the_bytes(tmp_path: Path) -> None:
    content = bytes(range(256)) * 5000  # more than one buffer
    (tmp_path / "a").write_bytes(content)
    assert file_sha256(tmp_path / "a") == hashlib.sha256(content).hexdigest()
    (tmp_path / "empty").write_bytes(b"")
    assert file_sha256(str(tmp_path / "empty")) == (
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    )
