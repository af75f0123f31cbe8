"""Public downloads to the canonical files of the folder of corpora.

A converter is a pure function from the bytes of the raw files, by name, to the
uncompressed bytes of the canonical files, by path in the folder of corpora. It uses
neither disk nor network; `fetch` writes what it returns.
"""

import csv
import io
import json
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping

from textcapsules.base.errors import CorpusError
from textcapsules.data.catalogue import Card

__all__ = [
    "ag_news",
    "constituents",
    "convert",
    "marked_lines",
    "reuters",
    "sst",
    "table",
    "trec",
]

AG_CLASSES = {"1": "World", "2": "Sports", "3": "Business", "4": "Sci/Tech"}


def table(rows: Iterable[tuple[str, str]]) -> bytes:
    """Return rows of label and text in the canonical form."""
    return "".join(f"{label}\t{text}\n" for label, text in rows).encode()


def _decode(content: bytes) -> str:
    """Decode UTF-8 or, as Pang and Lee's files are, Windows-1252."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content.decode("cp1252")


def marked_lines(
    source: str, target: str, labels: Mapping[str, str]
) -> Callable[[Mapping[str, bytes]], dict[str, bytes]]:
    """Return a converter of lines ``mark text``; it writes one class after the other.

    Args:
        source: The raw file.
        target: The canonical file.
        labels: The label of each mark, in the order of the canonical file.
    """

    def converter(raw: Mapping[str, bytes]) -> dict[str, bytes]:
        texts: dict[str, list[str]] = {mark: [] for mark in labels}
        for line in _decode(raw[source]).split("\n"):
            mark, _, text = line.partition(" ")
            if text.strip():  # a few lines have a mark and nothing else
                texts[mark].append(text.strip())
        rows = ((labels[mark], text) for mark in labels for text in texts[mark])
        return {target: table(rows)}

    return converter


def trec(raw: Mapping[str, bytes]) -> dict[str, bytes]:
    """Convert lines ``COARSE:fine question``, once with each kind of label."""
    files = {}
    for part, source in (("train", "train_5500.label"), ("test", "TREC_10.label")):
        # Latin-1: one question has a stray byte 0xF0.
        lines = raw[source].decode("latin-1").removesuffix("\n").split("\n")
        pairs = [line.split(" ", 1) for line in lines]
        files[f"trec/{part}.tsv.gz"] = table(
            (label.split(":")[0], text) for label, text in pairs
        )
        files[f"trec/{part}_fine.tsv.gz"] = table(
            (label, text) for label, text in pairs
        )
    return files


def ag_news(raw: Mapping[str, bytes]) -> dict[str, bytes]:
    """Convert CSV rows of class number, title and description."""
    files = {}
    for part in ("train", "test"):
        text = raw[f"ag_news_{part}.csv"].decode("utf-8")
        rows = csv.reader(io.StringIO(text, newline=""), strict=True)
        files[f"ag_news/{part}.tsv.gz"] = table(
            (AG_CLASSES[number], f"{title} {description}".replace("\n", " ").strip())
            for number, title, description in rows
        )
    return files


FINE = ("very negative", "negative", "neutral", "positive", "very positive")
BINARY = {0: "negative", 1: "negative", 3: "positive", 4: "positive"}  # 2 is neutral

# An opening bracket with its score, a word, or a closing bracket. Words may hold a
# no-break space, so only the plain space separates them.
TOKEN = re.compile(r"\((\d) |([^() ]+)|(\))")


def constituents(tree: str) -> list[tuple[int, str]]:
    """Return score and text of every constituent, children before their parent.

    >>> constituents("(3 (2 A) (4 (4 good) (2 film)))")
    [(2, 'A'), (4, 'good'), (2, 'film'), (4, 'good film'), (3, 'A good film')]
    """
    open_nodes: list[tuple[int, list[str]]] = []
    closed = []
    for score, word, _ in TOKEN.findall(tree):
        if score:
            open_nodes.append((int(score), []))
        elif word:
            open_nodes[-1][1].append(word)
        else:
            value, words = open_nodes.pop()
            closed.append((value, " ".join(words)))
            if open_nodes:
                open_nodes[-1][1].extend(words)
    if open_nodes or not closed:
        raise ValueError(f"tree must close all its brackets; got {tree[:40]!r}")
    return closed


def _phrases(trees: list[list[tuple[int, str]]]) -> Iterator[tuple[str, str]]:
    """Yield Kim's phrases: the first of each lower-cased text, unless it is neutral."""
    seen = set()
    for tree in trees:
        for score, text in tree:
            if text.lower() not in seen:
                seen.add(text.lower())
                if score in BINARY:
                    yield BINARY[score], text


def sst(raw: Mapping[str, bytes]) -> dict[str, bytes]:
    """Convert the Stanford Sentiment Treebank: sentences, phrases, and the trees."""
    files = {}
    with zipfile.ZipFile(io.BytesIO(raw["trainDevTestTrees_PTB.zip"])) as archive:
        contents = {
            part: archive.read(f"trees/{part}.txt") for part in ("train", "dev", "test")
        }
    for part, content in contents.items():
        lines = content.decode("utf-8").removesuffix("\n").split("\n")
        trees = [constituents(line) for line in lines]
        roots = [tree[-1] for tree in trees]
        files[f"sst/trees/{part}.txt.gz"] = content
        files[f"sst/{part}_fine.tsv.gz"] = table((FINE[s], text) for s, text in roots)
        files[f"sst2/{part}.tsv.gz"] = table(
            (BINARY[score], text) for score, text in roots if score in BINARY
        )
        if part == "train":
            files["sst2/train_phrases.tsv.gz"] = table(_phrases(trees))
    return files


DOCUMENT = re.compile(r"<REUTERS ([^>]*)>(.*?)</REUTERS>", re.S)
ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
TOPICS = re.compile(r"<TOPICS>(.*?)</TOPICS>", re.S)
TEXT = re.compile(r"<TEXT[^>]*>(.*?)</TEXT>", re.S)
TITLE = re.compile(r"<TITLE>(.*?)</TITLE>", re.S)
BODY = re.compile(r"<BODY>(.*?)</BODY>", re.S)
OTHER = re.compile(r"<(TITLE|AUTHOR|DATELINE)>.*?</\1>", re.S)
REFERENCE = re.compile(r"&(?:#(\d+)|(lt|gt|amp|quot));")
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
SIGNATURE = re.compile(r"\s*\b(?:Reuter|REUTER)[.\s]*\Z")
NAMED = {"lt": "<", "gt": ">", "amp": "&", "quot": '"'}
PARTS = {"TRAIN": ("train", "training"), "TEST": ("test", "test")}


def reuters(raw: Mapping[str, bytes]) -> dict[str, bytes]:
    """Convert the SGML files of Reuters-21578 to one JSON object per document.

    Keeps the documents that an indexer has read (``TOPICS="YES"``), that are in the
    training or test part of the Lewis split, and that have a topic of both parts.
    """
    with tarfile.open(fileobj=io.BytesIO(raw["reuters21578.tar.gz"])) as archive:
        names = sorted(name for name in archive.getnames() if name.endswith(".sgm"))
        streams = [archive.extractfile(name) for name in names]
        texts = [stream.read().decode("latin-1") for stream in streams if stream]
    documents = [document for text in texts for document in _documents(text)]
    by_part = {
        part: {
            topic
            for kind, _, topics, _ in documents
            if kind == part
            for topic in topics
        }
        for part in PARTS
    }
    shared = by_part["TRAIN"] & by_part["TEST"]
    documents = [document for document in documents if set(document[2]) & shared]
    documents.sort(key=lambda document: (document[0] == "TEST", document[1]))
    lines = (_line(*document, shared) for document in documents)
    return {"reuters/documents.jsonl.gz": "".join(lines).encode()}


def _documents(sgml: str) -> Iterator[tuple[str, int, list[str], str]]:
    """Yield part, number, topics and SGML text of the documents to keep."""
    for head, inside in DOCUMENT.findall(sgml):
        attributes = dict(ATTRIBUTE.findall(head))
        topics, text = TOPICS.search(inside), TEXT.search(inside)
        if attributes["TOPICS"] != "YES" or attributes["LEWISSPLIT"] not in PARTS:
            continue
        if not topics or not text:
            raise ValueError(f"document {attributes['NEWID']} has no topics or no text")
        names = sorted(set(re.findall(r"<D>(.*?)</D>", topics[1])))
        yield attributes["LEWISSPLIT"], int(attributes["NEWID"]), names, text[1]


def _line(part: str, number: int, topics: list[str], text: str, shared: set) -> str:
    split, prefix = PARTS[part]
    title = TITLE.search(text)
    document = {
        "id": f"{prefix}/{number}",
        "split": split,
        "topics": [topic for topic in topics if topic in shared],
        "title": _plain(title[1]).replace("\n", " ").strip() if title else "",
        "body": _body(text),
    }
    if document["topics"] != topics:
        document["topics_all"] = topics
    return json.dumps(document, ensure_ascii=False) + "\n"


def _body(text: str) -> str:
    """Return the story without signature; briefs and unprocessed texts have no BODY."""
    body = BODY.search(text)
    if body:
        return SIGNATURE.sub("", _plain(body[1])).strip()
    rest = _plain(OTHER.sub("", text))
    rest = re.sub(r"\A\s*\*{6}", "", rest)  # what marks a brief
    rest = re.sub(r"\A\s*\n", "", rest)  # keeps the first line's indentation
    return SIGNATURE.sub("", rest).rstrip()


def _plain(sgml: str) -> str:
    """Resolve references; turn control characters except line feeds into spaces."""

    def character(match: re.Match[str]) -> str:
        return chr(int(match[1])) if match[1] else NAMED[match[2]]

    return CONTROL.sub(" ", REFERENCE.sub(character, sgml))


Converter = Callable[[Mapping[str, bytes]], dict[str, bytes]]

# By the folder of the corpus.
CONVERTERS: dict[str, Converter] = {
    "mr": marked_lines(
        "rt-polarity.all", "mr/all.tsv.gz", {"1": "positive", "0": "negative"}
    ),
    "subj": marked_lines(
        "subj.all", "subj/all.tsv.gz", {"1": "objective", "0": "subjective"}
    ),
    "cr": marked_lines(
        "custrev.all", "cr/all.tsv.gz", {"1": "positive", "0": "negative"}
    ),
    "trec": trec,
    "sst2": sst,
    "ag_news": ag_news,
    "reuters": reuters,
}


def convert(entry: Card, raw: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return a corpus's canonical files, uncompressed, made from its raw ones.

    Args:
        entry: The corpus's card.
        raw: The bytes of each of its sources, by file name.
    """
    try:
        return CONVERTERS[entry.folder](raw)
    except (
        ValueError,
        LookupError,
        EOFError,
        OSError,
        zlib.error,
        tarfile.TarError,
        zipfile.BadZipFile,
    ) as error:
        names = ", ".join(raw)
        raise CorpusError(
            f"{names} must be the public {entry.name} download; got something that "
            f"does not read as it ({error}). Delete the download and fetch again."
        ) from error
