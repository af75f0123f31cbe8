"""Where runs find their texts and word vectors: the user's files, or tiny ones.

A quick try runs every cell of every table in minutes, on a few texts, with tiny
networks and one epoch. Its figures mean nothing; it shows that every cell can be run.
Its texts are taken from the corpora that are there, and invented for the others, in the
same canonical form; its word vectors are random.
"""

import gzip
import json
import random
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from textcapsules.config import RunConfig
from textcapsules.data.catalogue import CATALOGUE, Card
from textcapsules.data.corpora import compress, data_folder, read_content
from textcapsules.lab.paper.systems import Options

__all__ = ["QUICK", "Place", "open_place", "unpacked", "write_tiny_corpora"]

NEVER = 1e9  # seconds between checkpoints: an interrupted run is repeated as a whole
TRAINED, JUDGED = 5, 2  # texts per label of a quick try, in training and in a test
VECTOR_SIZE = 8

# Options of a quick try, on top of every run's own.
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


@dataclass(frozen=True)
class Place:
    """The files and the device of the runs."""

    data_dir: str | None
    vectors: str | None
    device: str
    encoder: str | None = None  # its name or folder, as the user gave it

    def localise(self, config: RunConfig) -> RunConfig:
        """Return the options with this machine's files and device."""
        vectors = None if config.text.vectors is None else self.vectors
        encoder = None if config.text.encoder is None else self.encoder
        return config.replace(
            data={"data_dir": self.data_dir},
            text={"vectors": vectors, "encoder": encoder},
            train={"device": self.device, "checkpoint_seconds": NEVER},
        )


@contextmanager
def open_place(
    quick: bool,
    data_dir: str | None,
    vectors: str | None,
    device: str,
    encoder: str | None = None,
) -> Iterator[Place]:
    """Yield where runs find their texts; for a quick try, a temporary folder."""
    if not quick:
        with unpacked(vectors) as file:
            yield Place(data_dir, file, device, encoder)
        return
    with tempfile.TemporaryDirectory(prefix="textcapsules-quick-") as folder:
        root = Path(folder)
        words = write_tiny_corpora(root, data_folder(data_dir))
        file = root / "vectors.npz"
        drawn = np.random.default_rng(0).uniform(-0.25, 0.25, (len(words), VECTOR_SIZE))
        np.savez(file, words=np.array(words), vectors=drawn.astype(np.float32))
        yield Place(str(root), str(file), device, encoder)


@contextmanager
def unpacked(vectors: str | None) -> Iterator[str | None]:
    """Yield an uncompressed copy of a file of word vectors, which every run reads.

    Only a compressed `.npz` is copied. Any other file is yielded itself, even a missing
    or damaged one: its reader reports what is wrong.
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
    """Return whether a file is a zip archive as `numpy.savez_compressed` writes it."""
    try:
        with zipfile.ZipFile(path) as archive:
            stored = (entry.compress_type for entry in archive.infolist())
            return any(kind != zipfile.ZIP_STORED for kind in stored)
    except (OSError, zipfile.BadZipFile):
        return False


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
    """Return lines of a real file, or invented ones if there is none."""
    names = [*(entry.train if name in entry.train else ()), name]
    file = next((each for each in names if (source / each).is_file()), None)
    is_reuters = entry.layout == "reuters"
    if file is None:
        return invent_documents(entry) if is_reuters else invent_rows(entry, name)
    content = read_content(source, file, "Fetch the corpus again.").decode()
    kept = [f"{line}\n" for line in content.split("\n") if line]
    if is_reuters:
        return sample(kept, kind_of_document, lambda kind: limit(kind.split()[0]))
    return sample(kept, kind_of_row, lambda _: limit(name))


def limit(part: str) -> int:
    """Return how many texts per label a part of a corpus gets."""
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


def invent_text(label: str, draw: random.Random) -> str:
    """Return a text with words of its label among common words."""
    label_words = [f"{label.lower().replace('/', ' ')}{number}" for number in range(5)]
    fillers = ["the", "a", "film", "was", "not", "very", "good", "said", "of", "and"]
    return " ".join(draw.choice(draw.choice([label_words, fillers])) for _ in range(12))


def invent_rows(entry: Card, name: str) -> list[str]:
    """Return the rows of a table, one label after the other."""
    draw = random.Random(name)
    return [
        f"{label}\t{invent_text(label, draw)}\n"
        for _ in range(limit(name))
        for label in entry.labels
    ]


def invent_documents(entry: Card) -> list[str]:
    """Return training documents of one topic each, and test documents with two."""
    draw = random.Random(entry.folder)
    lines = []
    for label, other in zip(entry.labels, reversed(entry.labels), strict=True):
        kinds = [("train", [label])] * TRAINED
        kinds += [("test", [label]), ("test", [label, other])] * JUDGED
        for split, topics in kinds:
            body = " ".join(invent_text(topic, draw) for topic in topics)
            document = {"split": split, "topics": topics, "title": label}
            lines.append(json.dumps(document | {"body": body}) + "\n")
    return lines
