"""Raw public files to canonical ones.

A converter is a pure function from the bytes of the raw files, by name, to the
uncompressed bytes of the canonical files, by path in the folder of corpora. It touches
neither disk nor network, so nothing half-made can be left behind; `fetch` writes what
it returns.
"""

import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping

from textcapsules.data.catalogue import Card
from textcapsules.data.convert.reuters import reuters
from textcapsules.data.convert.tables import ag_news, marked_lines, trec
from textcapsules.data.convert.trees import sst
from textcapsules.errors import CorpusError

__all__ = ["convert"]

Converter = Callable[[Mapping[str, bytes]], dict[str, bytes]]

# By the folder of the corpus; the pairs say which mark stands for which label, in the
# order of the canonical file.
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
