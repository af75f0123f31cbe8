"""States on disk: found again, bounded, and never a reason to fail."""

import os
from pathlib import Path

import pytest
import torch

from textcapsules.text import state_store
from textcapsules.text.state_store import StateStore


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(state_store.FOLDER_VARIABLE, str(tmp_path / "states"))
    return tmp_path / "states"


def some_states(*sentences: str, size: int = 4) -> dict[bytes, torch.Tensor]:
    return {
        text.encode(): torch.full((len(text), size), n + 0.5, dtype=torch.float16)
        for n, text in enumerate(sentences)
    }


def files(root: Path) -> list[Path]:
    return sorted(root.rglob("*.states"))


def test_states_are_found_again_by_their_sentences() -> None:
    first, second = some_states("ab", "cde"), some_states("f")
    StateStore("x" * 64, 4).write(first)
    StateStore("x" * 64, 4).write(second)
    found = StateStore("x" * 64, 4).read([b"cde", b"f", b"unknown"])
    assert set(found) == {b"cde", b"f"}
    assert torch.equal(found[b"cde"], first[b"cde"])
    assert torch.equal(found[b"f"], second[b"f"])


def test_no_text_is_on_the_disk(root: Path) -> None:
    StateStore("x" * 64, 4).write(some_states("a secret sentence"))
    (file,) = files(root)
    assert b"secret" not in file.read_bytes()


def test_encoders_do_not_share_states() -> None:
    StateStore("x" * 64, 4).write(some_states("ab"))
    assert not StateStore("y" * 64, 4).read([b"ab"])


def test_a_damaged_file_is_removed_and_the_rest_is_read(root: Path) -> None:
    store = StateStore("x" * 64, 4)
    store.write(some_states("ab"))
    (damaged,) = files(root)
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    store.write(some_states("cde"))
    assert set(store.read([b"ab", b"cde"])) == {b"cde"}
    assert not damaged.exists()


def test_files_used_longest_ago_go_first(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = StateStore("x" * 64, 4)
    store.write(some_states("old"))
    (old,) = files(root)
    store.write(some_states("used"))
    (used,) = set(files(root)) - {old}
    for n, path in enumerate([used, old]):
        os.utime(path, (n, n))
    store.read([b"used"])
    monkeypatch.setattr(state_store, "MAX_BYTES", 2 * used.stat().st_size + 50)
    StateStore("y" * 64, 4).write(some_states("new"))
    assert not old.exists()
    assert used.exists()
    assert len(files(root)) == 2


def test_a_disk_that_refuses_is_no_error(root: Path) -> None:
    root.write_text("a file where the folder should be")
    store = StateStore("x" * 64, 4)
    store.write(some_states("ab"))
    assert not store.read([b"ab"])


def test_the_store_can_be_turned_off(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(state_store.FOLDER_VARIABLE, "off")
    store = StateStore("x" * 64, 4)
    store.write(some_states("ab"))
    assert not store.read([b"ab"])
    assert not root.exists()


def test_the_folder_is_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(state_store.FOLDER_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    assert state_store.store_folder() == Path("cache/textcapsules/states")
