"""Reuters-21578: SGML to one JSON object a document, ModApte split.

Keeps documents that were looked at by an indexer (``TOPICS="YES"``), belong to the
Lewis split's training or test part, and carry a topic that occurs in both parts.
"""

import io
import json
import re
import tarfile
from collections.abc import Iterator, Mapping

__all__ = ["reuters"]

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
    """Convert the archive of SGML files."""
    with tarfile.open(fileobj=io.BytesIO(raw["reuters21578.tar.gz"])) as archive:
        names = sorted(name for name in archive.getnames() if name.endswith(".sgm"))
        streams = [archive.extractfile(name) for name in names]
        texts = [stream.read().decode("latin-1") for stream in streams if stream]
    found = [document for text in texts for document in _documents(text)]
    by_part = {
        part: {
            topic for kind, _, topics, _ in found if kind == part for topic in topics
        }
        for part in PARTS
    }
    shared = by_part["TRAIN"] & by_part["TEST"]
    found = [document for document in found if set(document[2]) & shared]
    found.sort(key=lambda document: (document[0] == "TEST", document[1]))
    lines = (_line(*document, shared) for document in found)
    return {"reuters/documents.jsonl.gz": "".join(lines).encode()}


def _documents(sgml: str) -> Iterator[tuple[str, int, list[str], str]]:
    """Yield part, number, topics and SGML text of the documents that count."""
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
    rest = re.sub(r"\A\s*\*{6}", "", rest)  # the mark of a brief
    rest = re.sub(r"\A\s*\n", "", rest)  # keeps the first line's indentation
    return SIGNATURE.sub("", rest).rstrip()


def _plain(sgml: str) -> str:
    """Resolve references and make control characters spaces, line feeds apart."""

    def character(match: re.Match[str]) -> str:
        return chr(int(match[1])) if match[1] else NAMED[match[2]]

    return CONTROL.sub(" ", REFERENCE.sub(character, sgml))
