"""Vectors of every form against the arrays they were written from."""

import gzip

import numpy as np
import pytest

from textcapsules.base.errors import DataError
from textcapsules.text.vectors import (
    coverage,
    load_vectors,
    other_words,
    random_vectors,
    words_with_vectors,
)

WORDS = ["the", "Paris", "café", "日本", "</s>"]
ARRAY = np.random.default_rng(7).normal(size=(5, 6)).astype(np.float32)
VOCABULARY = ["[PAD]", "[UNK]", "日本", "paris", "the", "café"]


def as_npz(path, dtype="float32"):
    with path.open("wb") as file:
        np.savez(file, words=np.array(WORDS), vectors=ARRAY.astype(dtype))


def as_binary(path, end=b"\n"):
    records = [
        word.encode() + b" " + row.astype("<f4").tobytes() + end
        for word, row in zip(WORDS, ARRAY, strict=True)
    ]
    path.write_bytes(b"5 6\n" + b"".join(records))


def as_glove(path, header=b"", end=b"\n"):
    lines = [
        word.encode() + b" " + " ".join(map(repr, row.tolist())).encode() + end
        for word, row in zip(WORDS, ARRAY, strict=True)
    ]
    path.write_bytes(header + b"".join(lines))


FORMS = {
    "npz": as_npz,
    "binary": as_binary,
    "binary-no-newlines": lambda path: as_binary(path, b""),
    "glove": as_glove,
    "word2vec-text": lambda path: as_glove(path, b"5 6\n", b" \n"),
    "crlf": lambda path: as_glove(path, b"5 6\r\n", b"\r\n"),
}


@pytest.fixture(params=FORMS)
def path(request, tmp_path):
    FORMS[request.param](tmp_path / "vectors")
    return tmp_path / "vectors"


@pytest.fixture(params=[False, True], ids=["plain", "gzipped"])
def any_path(request, path):
    if request.param:
        path.write_bytes(gzip.compress(path.read_bytes()))
    return path


def test_every_form_gives_the_same_matrix(any_path):
    vectors = load_vectors(any_path, VOCABULARY, seed=1)
    assert vectors.matrix.dtype == np.float32
    assert vectors.matrix.shape == (6, 6)
    np.testing.assert_array_equal(vectors.matrix[[2, 4, 5]], ARRAY[[3, 0, 2]])
    assert vectors.is_found.tolist() == [False, False, True, False, True, True]
    assert vectors.n_found == 3
    assert not vectors.matrix[0].any()
    assert np.abs(vectors.matrix[[1, 3]]).max() <= 0.25


def test_words_with_vectors_are_found(any_path):
    assert words_with_vectors(any_path, ["x", "café", "the"]) == ["café", "the"]


def everything(_word: str) -> bool:
    return True


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (9, (["the", "Paris", "日本", "</s>"], 0)),
        (4, (["the", "Paris", "日本", "</s>"], 0)),
        (2, (["the", "Paris"], 2)),
        (0, ([], 4)),
    ],
)
def test_the_files_first_other_words_are_listed(any_path, most, expected):
    others = other_words(any_path, ["café"], limit=most, is_token=everything)
    assert others == expected


def test_words_that_no_text_can_hold_take_no_place(any_path):
    others = other_words(any_path, [], limit=2, is_token=str.islower)
    assert others == (["the", "café"], 2)  # what comes after the last is not looked at


def test_further_words_are_kept_in_half_precision(any_path):
    vectors = load_vectors(any_path, VOCABULARY[:4], ["café", "the"], seed=1)
    assert vectors.extra.dtype == np.float16
    np.testing.assert_array_equal(vectors.extra, ARRAY[[2, 0]].astype(np.float16))
    alone = load_vectors(any_path, VOCABULARY[:4], seed=1)
    np.testing.assert_array_equal(vectors.matrix, alone.matrix)
    assert vectors.is_found.tolist() == [False, False, True, False, True, True]
    assert vectors.is_real is None
    assert alone.extra.shape == (0, 6)


def test_numbers_too_large_for_half_precision_are_refused(tmp_path):
    (tmp_path / "v.txt").write_text("the 1 2\na 1 70000\n")
    load_vectors(tmp_path / "v.txt", ["[PAD]", "a"], ["the"], seed=0)
    with pytest.raises(DataError, match=r"at most 65504.*got 70000 for 'a'\. Scale"):
        load_vectors(tmp_path / "v.txt", ["[PAD]", "the"], ["a"], seed=0)


def test_an_archive_may_tell_true_vectors_from_estimates(tmp_path):
    arrays = {"words": np.array(WORDS), "vectors": ARRAY}
    real = np.array([True, True, False, True, True])
    np.savez(tmp_path / "v.npz", **arrays, real=real)
    vectors = load_vectors(tmp_path / "v.npz", VOCABULARY[:5], ["café"], seed=1)
    assert vectors.is_found.tolist() == [False, False, True, False, True, True]
    assert vectors.is_real is not None
    assert vectors.is_real.tolist() == [False, False, True, False, True, False]


@pytest.mark.parametrize("real", [np.ones(5), np.ones(4, bool)])
def test_an_array_of_that_name_may_be_something_else(tmp_path, real):
    np.savez(tmp_path / "v.npz", words=np.array(WORDS), vectors=ARRAY, real=real)
    assert load_vectors(tmp_path / "v.npz", VOCABULARY, seed=1).is_real is None


def test_half_precision_is_widened(tmp_path):
    as_npz(tmp_path / "v.npz", "float16")
    matrix = load_vectors(tmp_path / "v.npz", VOCABULARY, seed=1).matrix
    expected = ARRAY[0].astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(matrix[4], expected)


def test_binary_records_may_straddle_reads(tmp_path, monkeypatch):
    monkeypatch.setattr("textcapsules.text.vectors._CHUNK", 7)
    as_binary(tmp_path / "v.bin")
    matrix = load_vectors(tmp_path / "v.bin", VOCABULARY, seed=1).matrix
    np.testing.assert_array_equal(matrix[[2, 4, 5]], ARRAY[[3, 0, 2]])


def test_drawn_rows_depend_on_seed_and_place_alone(path):
    first = load_vectors(path, VOCABULARY, seed=1)
    drawn = random_vectors(VOCABULARY, 6, seed=1)
    np.testing.assert_array_equal(first.matrix[[0, 1, 3]], drawn.matrix[[0, 1, 3]])
    other = load_vectors(path, VOCABULARY, seed=2)
    assert (first.matrix[1] != other.matrix[1]).any()
    assert drawn.n_found == 0


def test_padding_may_be_drawn_and_is_never_read(tmp_path):
    (tmp_path / "v.txt").write_text("[PAD] 9 9\nthe 1 2\n")
    drawn = load_vectors(tmp_path / "v.txt", VOCABULARY, seed=0, padding="random")
    assert 0 < np.abs(drawn.matrix[0]).max() <= 0.25
    assert not load_vectors(tmp_path / "v.txt", VOCABULARY, seed=0).matrix[0].any()


def test_range_of_drawn_numbers():
    matrix = random_vectors(["p"] + ["w"] * 500, 4, seed=0, low=1.0, high=2.0).matrix
    assert matrix[1:].min() >= 1.0
    assert matrix[1:].max() <= 2.0


def test_words_with_spaces_and_repeated_words_in_text_files(tmp_path):
    (tmp_path / "v.txt").write_text("a 1 2\nat x@y.z 3 4\nat 5 6\nat 7 8\n")
    vectors = load_vectors(tmp_path / "v.txt", ["[PAD]", "at"], seed=0)
    assert vectors.matrix[1].tolist() == [5, 6]
    others, left_out = other_words(tmp_path / "v.txt", [], limit=9, is_token=everything)
    assert (others, left_out) == (["a", "at x@y.z", "at"], 0)


def test_coverage_of_types_and_tokens():
    assert coverage(["a", "b"], {"a": 6, "c": 1, "d": 1}) == (1 / 3, 0.75)
    assert coverage([], {}) == (0.0, 0.0)


FAULTS = {
    "empty": (b"", "must be .npz, word2vec or GloVe"),
    "prose": (b"Once upon a time\nthere was\n", "got b'Once upon"),
    "one word": (b"hello\n", "got b'hello"),
    "columns": (
        b"a 1 2\nthe 1\n",
        "must hold 2 numbers after each word; got 1 as vector 2",
    ),
    "more columns": (b"a 1 2\nthe 1 2 3\n", "got 3 as vector 2"),
    "not numeric": (b"a 1 2\nthe 1 x\n", "must hold numbers .* got b'1 x' as vector 2"),
    "nan": (b"a 1 2\nthe 1 nan\n", "must hold finite numbers; got .*'the'"),
    "too few lines": (b"3 2\na 1 2\nthe 1 2\n", "must hold 3 words.*got 2"),
    "header only": (b"3 2\n", "must hold 3 words.*got 0"),
    "size 0": (b"3 0\n", "at least 1 number; got size 0"),
    "truncated binary": (b"2 4\nthe " + b"\x01" * 16 + b"\nto \x01", "words.*got 1"),
    "broken gzip": (b"\x1f\x8b\x08\x00rubbish", "must be a readable file"),
    "cut gzip": (gzip.compress(b"a 1 2\n" * 999)[:-20], "must be a readable file"),
    "broken zip": (b"PK\x03\x04rubbish", "must be a readable file"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_bad_files_get_one_clear_line(tmp_path, name):
    content, message = FAULTS[name]
    (tmp_path / "vectors.bin").write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        load_vectors(tmp_path / "vectors.bin", VOCABULARY, seed=0)
    assert str(caught.value).startswith(str(tmp_path / "vectors.bin"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"words": np.array(["a"], object), "vectors": np.ones((1, 2))},
            "pickles; got",
        ),
        ({"vectors": np.ones((1, 2))}, "must hold arrays.*words"),
        ({"words": np.array(["a"]), "vectors": np.ones((2, 2))}, r"got <U1 \(1,\)"),
        ({"words": np.array(["a"]), "vectors": np.ones((1, 2), int)}, "got .*int64"),
        (
            {"words": np.array([], "U1"), "vectors": np.ones((0, 2))},
            "must hold n words",
        ),
    ],
)
def test_bad_archives_are_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "v.npz", **arrays)
    with pytest.raises(DataError, match=message):
        load_vectors(tmp_path / "v.npz", VOCABULARY, seed=0)


def test_missing_file_and_folder_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"nope.txt must be .*got No such file"):
        words_with_vectors(tmp_path / "nope.txt", [])
    with pytest.raises(DataError, match="must be a readable file"):
        words_with_vectors(tmp_path, [])
