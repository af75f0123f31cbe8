"""Binary trees: hand-made s-expressions, and trees made of dependencies."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from textcapsules.base.errors import ConfigError, CorpusError
from textcapsules.data.corpora import compress
from textcapsules.text.trees import dependency_document, read_treebank, tree_document

LABELS = ("negative", "positive")
WORDS = {"a": 1, "good": 2, "film": 3, "does": 4, "n't": 5, "work": 6}


def encode(leaf: str) -> list[int]:
    """Know a few words, split at hyphens, and drop everything else."""
    return [WORDS[part] for part in leaf.lower().split("-") if part in WORDS]


def brackets(document: np.ndarray) -> Sequence:
    """Return the trees of a document as nested tuples of word ids."""
    rows = document.tolist()

    def build(place: int) -> object:
        below = {
            row[2]: build(k)
            for k, row in enumerate(rows)
            if row[1] and k + row[1] == place
        }
        return (below[0], below[1]) if below else rows[place][0]

    return [build(place) for place, row in enumerate(rows) if not row[1]]


def test_tree_is_read_in_post_order_with_labels() -> None:
    nodes = tree_document("(3 (2 A) (4 (4 good) (1 film)))", encode, LABELS)
    assert nodes.dtype == np.int32
    assert nodes.tolist() == [
        [1, 4, 0, 0],
        [2, 2, 0, 2],
        [3, 1, 1, 1],
        [0, 1, 1, 2],
        [0, 0, 0, 2],
    ]


def test_labels_follow_the_models_order() -> None:
    tree = "(0 (4 good) (2 film))"
    assert tree_document(tree, encode, LABELS)[:, 3].tolist() == [2, 0, 1]
    assert tree_document(tree, encode, LABELS[::-1])[:, 3].tolist() == [1, 0, 2]
    assert tree_document(tree, encode)[:, 3].tolist() == [0, 0, 0]


def test_unfit_labels_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"labels must be negative.*got 'objective'"):
        tree_document("(2 a)", encode, ("objective", "subjective"))


def test_leaf_without_tokens_goes_and_its_sibling_moves_up() -> None:
    nodes = tree_document("(3 (1 (2 good) (2 film)) (2 .))", encode, LABELS)
    assert brackets(nodes) == [(2, 3)]
    assert nodes[-1].tolist() == [0, 0, 0, 2]  # the label of the larger phrase
    left = tree_document("(1 (2 (2 .) (2 ,)) (4 good))", encode, LABELS)
    assert left.tolist() == [[2, 0, 0, 1]]


def test_leaf_of_several_tokens_branches_to_the_left() -> None:
    nodes = tree_document("(2 (3 a-good-film) (1 work))", encode, LABELS)
    assert brackets(nodes) == [(((1, 2), 3), 6)]
    assert nodes[:, 3].tolist() == [0, 0, 0, 0, 2, 1, 0]


@pytest.mark.parametrize("tree", ["(2 .)", "(2 (2 .) (1 ,))"])
def test_tree_without_tokens_is_empty(tree: str) -> None:
    assert tree_document(tree, encode).shape == (0, 4)


def test_no_break_space_does_not_part_a_leaf() -> None:
    assert tree_document("(2 (2 9\xa01/2) (2 film))", encode).tolist() == [[3, 0, 0, 0]]


def write_trees(folder: Path, *lines: str) -> Path:
    (folder / "sst" / "trees").mkdir(parents=True)
    for part in ("train", "dev", "test"):
        path = folder / "sst" / "trees" / f"{part}.txt.gz"
        path.write_bytes(compress("\n".join([*lines, ""]).encode()))
    return folder


def test_treebank_is_found_by_sentence(tmp_path: Path) -> None:
    trees = ["(3 (2 A) (4 (4 good) (1 film)))", "(2 (2 -LRB-) (2 9\xa01/2))"]
    sentences = read_treebank(write_trees(tmp_path, *trees))
    assert sentences == {"A good film": trees[0], "-LRB- 9\xa01/2": trees[1]}


@pytest.mark.parametrize("line", ["(3 (2 A)", "A film", "", "(2 a))"])
def test_damaged_treebank_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(CorpusError, match=r"train\.txt\.gz must hold one tree per"):
        read_treebank(write_trees(tmp_path, line))


def test_missing_treebank_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="data fetch sst2"):
        read_treebank(tmp_path)


# "the(1) cat(2) sat(3) on(4) the(5) mat(6)", and its heads.
HEADS = [1, 1, 0, -1, 1, -2]


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        ([], []),
        ([0], [1]),
        (HEADS, [((1, 2), (3, (4, (5, 6))))]),
        ([2, 1, 0], [(1, (2, 3))]),
        ([0, -1, -2], [((1, 2), 3)]),
        ([1, 0, -1], [(1, (2, 3))]),
        ([0, 0, -1], [1, (2, 3)]),
        ([5, 0, -7], [1, 2, 3]),  # cut off
        ([1, -1, -1], [1, 2, 3]),  # a cycle stays words
    ],
)
def test_dependencies_become_binary_trees(
    offsets: list[int], expected: Sequence
) -> None:
    ids = list(range(1, len(offsets) + 1))
    nodes = dependency_document(ids, offsets)
    assert nodes.shape == (max(0, 2 * len(ids) - len(expected)), 4)
    assert brackets(nodes) == expected
    if len(nodes):
        assert (nodes[:, 1] >= 0).all()  # children precede their parents


def test_long_chains_are_no_trouble() -> None:
    nodes = dependency_document(np.ones(3000, int), [*[1] * 2999, 0])
    assert len(nodes) == 5999
    assert (nodes[:, 1] == 0).sum() == 1
