"""Word vectors without compression: every run reads them, so they are unpacked once.

A try of every cell in minutes: a few texts, tiny networks, one epoch.

The figures mean nothing; that every cell of every table can be run does. Texts are
taken from the corpora where they are, and made up where they are not, in the same
canonical form; word vectors are drawn for whatever words there are.
"""

import gzip
import json
import random
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from textcapsules.data.catalogue import CATALOGUE, Card
from textcapsules.data.corpora import compress, data_folder, read_content
from textcapsules.lab.paper.runs import Place
from textcapsules.lab.paper.systems import Options

__all__ = ["QUICK", "quick_place", "unpacked", "write_tiny_corpora"]


@contextmanager
def unpacked(vectors: str | None) -> Iterator[str | None]:
    """Yield a file of the same name and content that is quicker to read.

    Only a compressed `.npz` is copied. Anything else, a file that is missing or damaged
    among it, is left as it is: who reads it says what is wrong.
    """
    if vectors is None or not is_compressed(vectors):
        yield vectors
        return
    with tempfile.TemporaryDirectory(prefix="textcapsules-vectors-") as folder:
        copy = Path(folder) / Path(vectors).name
        with zipfile.ZipFile(vectors) as packed, zipfile.ZipFile(copy, "w") as plain:
            for name in packed.namelist():
                plain.writestr(name, packed.read(name))
        yield str(copy)


def is_compressed(path: str) -> bool:
    """Tell a compressed zip archive, as `numpy.savez_compressed` writes."""
    try:
        with zipfile.ZipFile(path) as archive:
            stored = (entry.compress_type for entry in archive.infolist())
            return any(kind != zipfile.ZIP_STORED for kind in stored)
    except (OSError, zipfile.BadZipFile):
        return False


TRAINED, JUDGED = 5, 2  # texts of each label to learn from, and to judge by
VECTOR_SIZE = 8

# On top of every run's options.
QUICK: Options = {
    "text": {"max_tokens": 40},
    "model": {
        "embedding_size": VECTOR_SIZE,
        "filters": 4,
        "capsule_types": 2,
        "capsule_size": 4,
        "conv_types": 2,
    },
    "baseline": {"hidden_size": 4, "feature_maps": 2, "fasttext_epochs": 1},
    "train": {"epochs": 1, "patience": 0, "batch_size": 25},
}


@contextmanager
def quick_place(
    quick: bool, data_dir: str | None, vectors: str | None, device: str
) -> Iterator[Place]:
    """Yield where runs find their texts; for a quick try, a folder made for it."""
    if not quick:
        with unpacked(vectors) as file:
            yield Place(data_dir, file, device)
        return
    with tempfile.TemporaryDirectory(prefix="textcapsules-quick-") as folder:
        root = Path(folder)
        words = write_tiny_corpora(root, data_folder(data_dir))
        file = root / "vectors.npz"
        drawn = np.random.default_rng(0).uniform(-0.25, 0.25, (len(words), VECTOR_SIZE))
        np.savez(file, words=np.array(words), vectors=drawn.astype(np.float32))
        yield Place(str(root), str(file), device)


def write_tiny_corpora(root: Path, source: Path) -> list[str]:
    """Write a few texts of every corpus below `root`, and return their words."""
    words: set[str] = set()
    for entry in CATALOGUE.values():
        for name in dict.fromkeys([entry.train[0], entry.dev, entry.test]):
            if name is None:
                continue
            lines = tiny_file(entry, name, source)
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(compress("".join(lines).encode()))
            words.update(word for line in lines for word in line.lower().split())
    write_trees(root)
    return sorted(words)


def write_trees(root: Path) -> None:
    """Write a right-branching tree for every sentence of SST-2."""
    for part in ("train", "dev", "test"):
        rows = gzip.decompress((root / f"sst2/{part}.tsv.gz").read_bytes()).decode()
        lines = []
        for row in rows.splitlines():
            label, _, text = row.partition("\t")
            *words, last = text.split(" ")
            score = 3 if label == "positive" else 1
            start = "".join(f"({score} (2 {word}) " for word in words)
            lines.append(f"{start}(2 {last}){')' * len(words)}\n")
        path = root / f"sst/trees/{part}.txt.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(compress("".join(lines).encode()))


def tiny_file(entry: Card, name: str, source: Path) -> list[str]:
    """Return lines of a real file, or made-up ones if there is none."""
    there = [source / each for each in entry.train] if name in entry.train else []
    found = [path for path in [*there, source / name] if path.is_file()]
    is_reuters = entry.layout == "reuters"
    if not found:
        return made_up_documents(entry) if is_reuters else made_up_rows(entry, name)
    file = str(found[0].relative_to(source))
    content = read_content(source, file, "Fetch the corpus again.").decode()
    kept = [f"{line}\n" for line in content.split("\n") if line]
    if is_reuters:
        return sample(kept, kind_of_document, lambda kind: limit(kind.split()[0]))
    return sample(kept, kind_of_row, lambda _: limit(name))


def limit(part: str) -> int:
    """Return how many texts of each label a part or its file has."""
    return JUDGED if "test" in part or "dev" in part else TRAINED


def sample(
    lines: list[str], kind: Callable[[str], str], most: Callable[[str], int]
) -> list[str]:
    """Return the first few lines of every kind, in their order."""
    counts: dict[str, int] = {}
    kept = []
    for line in lines:
        name = kind(line)
        counts[name] = counts.get(name, 0) + 1
        if counts[name] <= most(name):
            kept.append(line)
    return kept


def kind_of_row(line: str) -> str:
    """Return a row's label."""
    return line.partition("\t")[0]


def kind_of_document(line: str) -> str:
    """Return a document's split and first topic, and whether it has several."""
    document = json.loads(line)
    topics = document["topics"]
    several = ["several"] if len(topics) > 1 else []
    return " ".join([document["split"], *topics[:1], *several])


def made_up_text(label: str, draw: random.Random) -> str:
    """Return a text in which its label speaks."""
    own = [f"{label.lower().replace('/', ' ')}{number}" for number in range(5)]
    fillers = ["the", "a", "film", "was", "not", "very", "good", "said", "of", "and"]
    return " ".join(draw.choice(draw.choice([own, fillers])) for _ in range(12))


def made_up_rows(entry: Card, name: str) -> list[str]:
    """Return a table's rows, labels in turn."""
    draw = random.Random(name)
    return [
        f"{label}\t{made_up_text(label, draw)}\n"
        for _ in range(limit(name))
        for label in entry.labels
    ]


def made_up_documents(entry: Card) -> list[str]:
    """Return training documents of one topic each, and test documents with two."""
    draw = random.Random(entry.folder)
    lines = []
    for label, other in zip(entry.labels, reversed(entry.labels), strict=True):
        kinds = [("train", [label])] * TRAINED
        kinds += [("test", [label]), ("test", [label, other])] * JUDGED
        for split, topics in kinds:
            body = " ".join(made_up_text(topic, draw) for topic in topics)
            document = {"split": split, "topics": topics, "title": label}
            lines.append(json.dumps(document | {"body": body}) + "\n")
    return lines
