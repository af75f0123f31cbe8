from pathlib import Path

import numpy as np
import pytest

from textcapsules.lab.paper.place import unpacked


def test_compressed_vectors_are_copied_once_and_removed(tmp_path):
    words = np.array(["a", "ü", "[x]"])
    vectors = np.arange(6, dtype=np.float16).reshape(3, 2)
    path = tmp_path / "v.npz"
    np.savez_compressed(path, words=words, vectors=vectors, real=vectors[:, 0] > 1)
    with unpacked(str(path)) as copy:
        assert copy is not None
        assert Path(copy).name == "v.npz"
        assert Path(copy) != path
        with np.load(copy, allow_pickle=False) as arrays:
            assert set(arrays) == {"words", "vectors", "real"}
            assert arrays["words"].tolist() == words.tolist()
            assert arrays["vectors"].dtype == np.float16
            assert (arrays["vectors"] == vectors).all()
    assert not Path(copy).exists()
    assert path.exists()


@pytest.mark.parametrize("content", [None, b"", b"2 2\na 1 2\nb 3 4\n", b"PK\x03\x04"])
def test_other_files_are_left_as_they_are(tmp_path, content):
    path = tmp_path / "v.txt"
    if content is not None:
        path.write_bytes(content)
    with unpacked(str(path)) as same:
        assert same == str(path)
    with unpacked(None) as nothing:
        assert nothing is None


def test_plain_archive_is_left_as_it_is(tmp_path):
    np.savez(tmp_path / "v.npz", words=np.array(["a"]), vectors=np.ones((1, 2)))
    with unpacked(str(tmp_path / "v.npz")) as same:
        assert same == str(tmp_path / "v.npz")
