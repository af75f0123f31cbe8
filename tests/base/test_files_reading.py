"""What must be a file is one, and of a size that can be read."""

import os
import re
from pathlib import Path

import pytest

from textcapsules.base.files import check_regular, read_regular


def test_regular_file_is_read_through_a_link_too(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\x00abc")
    (tmp_path / "b").symlink_to("a")
    for name in ("a", "b"):
        assert read_regular(tmp_path / name, 4) == b"\x00abc"
        check_regular(str(tmp_path / name))


def test_pipe_folder_and_device_are_named_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    places = {"a pipe": "pipe", "a folder": "folder", "a device": "/dev/zero"}
    for kind, place in places.items():
        for refused in (lambda path: read_regular(path, 4), check_regular):
            with pytest.raises(OSError, match=f"{kind} in place of a file"):
                refused(tmp_path / place)


def test_file_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.truncate(1 << 40)
    match = re.escape("1,099,511,627,776 bytes, more than 1,024")
    with pytest.raises(OSError, match=match):
        read_regular(tmp_path / "a", 1024)


def test_missing_file_is_told_as_ever(tmp_path: Path) -> None:
    for refused in (lambda path: read_regular(path, 4), check_regular):
        with pytest.raises(FileNotFoundError):
            refused(tmp_path / "none")
