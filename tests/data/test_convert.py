import csv
import gzip
import hashlib
import io
import json
import tarfile
import zipfile
from pathlib import Path

import pytest

from textcapsules.base.errors import CorpusError
from textcapsules.data.catalogue import card
from textcapsules.data.convert import convert

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
needs_corpora = pytest.mark.skipif(
    not SHARED.is_dir(), reason="the public corpora are not beside the checkout"
)


def zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tarred(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            content = text.encode("latin-1")
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def test_marked_lines_are_sorted_stripped_and_decoded():
    raw = "0 dull caf\xe9 . \n1  \x85 fine film . \n1 \n0 poor\n".encode("latin-1")
    assert convert(card("mr"), {"rt-polarity.all": raw}) == {
        "mr/all.tsv.gz": (
            "positive\t… fine film .\nnegative\tdull café .\nnegative\tpoor\n".encode()
        )
    }


def test_marked_lines_may_be_utf8():
    files = convert(card("cr"), {"custrev.all": "1 naïve\n0 no\n".encode()})
    assert files["cr/all.tsv.gz"].decode() == "positive\tnaïve\nnegative\tno\n"


def test_subj_puts_plots_first():
    files = convert(card("subj"), {"subj.all": b"0 i think so\n1 it rains\n"})
    assert files["subj/all.tsv.gz"] == b"objective\tit rains\nsubjective\ti think so\n"


def test_trec_keeps_both_kinds_of_label():
    raw = {
        "train_5500.label": b"LOC:city Where is x\xf0y ?\nNUM:count How many ?\n",
        "TREC_10.label": b"HUM:ind Who ?\n",
    }
    assert {
        name: text.decode() for name, text in convert(card("trec"), raw).items()
    } == {
        "trec/train.tsv.gz": "LOC\tWhere is xðy ?\nNUM\tHow many ?\n",
        "trec/train_fine.tsv.gz": "LOC:city\tWhere is xðy ?\nNUM:count\tHow many ?\n",
        "trec/test.tsv.gz": "HUM\tWho ?\n",
        "trec/test_fine.tsv.gz": "HUM:ind\tWho ?\n",
    }


def test_sst_makes_sentences_and_phrases():
    train = b"(3 (2 A) (4 (4 Good) (2 cat)))\n(2 (2 a) (1 (1 bad) (2 cat)))\n"
    trees = {
        "train": train,
        "dev": b"(0 (0 Bad) (2 .))\n",
        "test": b"(2 (2 So) (2 .))\n",
    }
    archive = zipped({f"trees/{part}.txt": trees[part] for part in trees})
    files = convert(card("sst2"), {"trainDevTestTrees_PTB.zip": archive})
    assert set(files) == set(card("sst2").files)
    assert files["sst/trees/train.txt.gz"] == train
    assert files["sst2/train.tsv.gz"] == b"positive\tA Good cat\n"
    assert files["sst2/test.tsv.gz"] == b""
    assert files["sst/dev_fine.tsv.gz"] == b"very negative\tBad .\n"
    assert files["sst/test_fine.tsv.gz"] == b"neutral\tSo .\n"
    assert files["sst2/train_phrases.tsv.gz"].decode().splitlines() == [
        "positive\tGood",
        "positive\tGood cat",
        "positive\tA Good cat",
        "negative\tbad",
        "negative\tbad cat",
    ]


def test_ag_news_joins_title_and_description():
    raw = {
        "ag_news_train.csv": b'"3","Oil up","Says ""who"" "\n"1","A","B\\C"\n',
        "ag_news_test.csv": b'"4","T"," X"\n',
    }
    assert {n: text.decode() for n, text in convert(card("ag-news"), raw).items()} == {
        "ag_news/train.tsv.gz": 'Business\tOil up Says "who"\nWorld\tA B\\C\n',
        "ag_news/test.tsv.gz": "Sci/Tech\tT  X\n",
    }


def story(number: int, part: str, topics: str, text: str, used: str = "YES") -> str:
    marks = "".join(f"<D>{topic}</D>" for topic in topics.split())
    return (
        f'<REUTERS TOPICS="{used}" LEWISSPLIT="{part}" OLDID="9" NEWID="{number}">\n'
        f"<DATE>today</DATE>\n<TOPICS>{marks}</TOPICS>\n<PLACES><D>uk</D></PLACES>\n"
        f"<UNKNOWN>&#5;x</UNKNOWN>\n{text}\n</REUTERS>\n"
    )


NORMAL = (
    "<TEXT>&#2;\n<TITLE>A &lt;B> DEAL\n</TITLE>\n<AUTHOR> by X, Reuters</AUTHOR>"
    "<DATELINE> HERE, May 1 - </DATELINE><BODY>First &amp; last\n    more.\n Reuter\n"
    "&#3;</BODY></TEXT>"
)
BRIEF = '<TEXT TYPE="BRIEF">&#2;\n******<TITLE>SHORT\n</TITLE>Filler.\n&#3;\n\n</TEXT>'
PLAIN = '<TEXT TYPE="UNPROC">&#2;\n    Table 1\n 2 3\n\n REUTER...\n&#3;\n\n</TEXT>'
TWICE = "<TEXT><BODY>End. REUTER\n Reuter\n&#3;</BODY></TEXT>"
TEXTLESS = story(1, "TEST", "earn", "")


def reuters(*stories: str) -> list[dict]:
    half = len(stories) // 2
    files = {
        "reut2-001.sgm": "<!DOCTYPE lewis>\n" + "".join(stories[:half]),
        "reut2-000.sgm": "<!DOCTYPE lewis>\n" + "".join(stories[half:]),
        "README.txt": "not read",
    }
    raw = {"reuters21578.tar.gz": tarred(files)}
    (content,) = convert(card("reuters-full"), raw).values()
    return [json.loads(line) for line in content.decode().splitlines()]


def test_reuters_selects_the_modapte_documents():
    found = reuters(
        story(3, "TEST", "earn ship", BRIEF),
        story(2, "TRAIN", "ship earn gold", BRIEF),  # gold is in train alone
        story(1, "TRAIN", "earn", BRIEF),
        story(4, "TRAIN", "gold", BRIEF),
        story(5, "TRAIN", "", BRIEF),
        story(6, "NOT-USED", "earn", BRIEF),
        story(7, "TEST", "earn", BRIEF, used="NO"),
    )
    assert [document["id"] for document in found] == [
        "training/1",
        "training/2",
        "test/3",
    ]
    assert [document["split"] for document in found] == ["train", "train", "test"]
    assert found[1]["topics"] == ["earn", "ship"]
    assert found[1]["topics_all"] == ["earn", "gold", "ship"]
    assert "topics_all" not in found[0]


@pytest.mark.parametrize(
    ("text", "title", "body"),
    [
        (NORMAL, "A <B> DEAL", "First & last\n    more."),
        (BRIEF, "SHORT", "Filler."),
        (PLAIN, "", "    Table 1\n 2 3"),
        (TWICE, "", "End. REUTER"),  # one signature is taken off, not two
    ],
)
def test_reuters_cleans_the_text(text, title, body):
    found = reuters(story(1, "TRAIN", "earn", text), story(2, "TEST", "earn", text))
    assert [(each["title"], each["body"]) for each in found] == [(title, body)] * 2


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("mr", {"rt-polarity.all": b"2 no such mark\n"}),
        ("trec", {"train_5500.label": b"nothing\n", "TREC_10.label": b""}),
        ("sst2", {"trainDevTestTrees_PTB.zip": b"no archive"}),
        ("sst2", {"trainDevTestTrees_PTB.zip": zipped({"trees/train.txt": b"(2"})}),
        ("ag-news", {"ag_news_train.csv": b'"9","a","b"\n', "ag_news_test.csv": b""}),
        ("ag-news", {"ag_news_train.csv": b'"1","a"\n', "ag_news_test.csv": b""}),
        ("reuters-full", {"reuters21578.tar.gz": b"\x1f\x8b\x08 cut"}),
        ("reuters-full", {"reuters21578.tar.gz": tarred({"a.sgm": TEXTLESS})}),
    ],
)
def test_download_of_another_kind_is_refused(name, raw):
    file = next(iter(raw))
    with pytest.raises(
        CorpusError, match=f"{file}.* must be the public {name} download"
    ):
        convert(card(name), raw)


def test_tree_with_an_open_bracket_is_refused():
    trees = {f"trees/{part}.txt": b"(2 (2 a)\n" for part in ("train", "dev", "test")}
    with pytest.raises(CorpusError, match="must close all its brackets; got '"):
        convert(card("sst2"), {"trainDevTestTrees_PTB.zip": zipped(trees)})


def canonical(name: str) -> str:
    return gzip.decompress((SHARED / name).read_bytes()).decode()


def pairs(name: str) -> list[list[str]]:
    return [line.split("\t", 1) for line in canonical(name).split("\n")[:-1]]


def assert_is_catalogued(name: str, raw: dict[str, bytes], *skip: str) -> None:
    entry = card(name)
    for file, content in convert(entry, raw).items():
        if file not in skip:
            assert hashlib.sha256(content).hexdigest() == entry.files[file].sha256, file


@needs_corpora
def test_rebuilt_trec_is_the_published_download():
    raw = {}
    for part, source in zip(("train", "test"), card("trec").sources, strict=True):
        text = canonical(f"trec/{part}_fine.tsv.gz").replace("\t", " ")
        raw[source.file] = text.encode("latin-1")
        assert hashlib.sha256(raw[source.file]).hexdigest() == source.sha256
    assert_is_catalogued("trec", raw)


@needs_corpora
def test_real_trees_give_all_files_of_sst():
    parts = ("train", "dev", "test")
    trees = {
        f"trees/{p}.txt": canonical(f"sst/trees/{p}.txt.gz").encode() for p in parts
    }
    assert_is_catalogued("sst2", {"trainDevTestTrees_PTB.zip": zipped(trees)})


@needs_corpora
@pytest.mark.parametrize(
    ("name", "file", "first"),
    [
        ("mr", "rt-polarity.all", "positive"),
        ("subj", "subj.all", "objective"),
        ("cr", "custrev.all", "positive"),
    ],
)
def test_real_sentences_come_back(name, file, first):
    found = pairs(f"{name}/all.tsv.gz")
    lines = [f"{int(label == first)}  {text} \n" for label, text in found]
    raw = "".join(sorted(lines, key=lambda line: line[0])).encode("cp1252")
    assert_is_catalogued(name, {file: raw})


@needs_corpora
def test_real_news_come_back():
    number = {"World": 1, "Sports": 2, "Business": 3, "Sci/Tech": 4}
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, quoting=csv.QUOTE_ALL, lineterminator="\n")
    for label, text in pairs("ag_news/test.tsv.gz"):
        writer.writerow([number[label], *text.split(" ", 1)])
    raw = {"ag_news_test.csv": buffer.getvalue().encode(), "ag_news_train.csv": b""}
    assert_is_catalogued("ag-news", raw, "ag_news/train.tsv.gz")
