import gzip
import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest

from textcapsules.base.errors import ConfigError, CorpusError
from textcapsules.data.catalogue import CATALOGUE, card
from textcapsules.data.corpora import available, data_folder, describe, read_corpus

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
needs_corpora = pytest.mark.skipif(
    not SHARED.is_dir(), reason="the public corpora are not beside the checkout"
)


def put(root: Path, name: str, content: str | bytes) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(raw, mtime=0))
    return path


def rows(label: str, n_rows: int) -> str:
    return "".join(f"{label}\t{label} text {number}\n" for number in range(n_rows))


@pytest.fixture
def mr(tmp_path):
    put(tmp_path, "mr/all.tsv.gz", rows("positive", 60) + rows("negative", 40))
    return tmp_path


def test_folds_cover_the_corpus_once(mr):
    everything = []
    for fold in range(10):
        corpus = read_corpus("mr", mr, fold=fold)
        assert (len(corpus.train), len(corpus.dev), len(corpus.test)) == (81, 9, 10)
        parts = [*corpus.train, *corpus.dev, *corpus.test]
        assert len(set(parts)) == 100
        assert Counter(example.labels for example in corpus.test) == {
            ("positive",): 6,
            ("negative",): 4,
        }
        everything += corpus.test
    assert len(set(everything)) == len(everything) == 100


def test_seed_draws_other_folds_and_fold_is_recorded(mr):
    one, again, other = (read_corpus("mr", mr, fold=3, seed=s) for s in (0, 0, 1))
    assert one == again
    assert one.test != other.test
    assert (one.facts["fold"], other.facts["seed"]) == (3, 1)


def test_given_sets_are_kept_and_dev_is_cut_from_train(tmp_path):
    put(tmp_path, "trec/train.tsv.gz", rows("NUM", 30) + rows("LOC", 20))
    put(tmp_path, "trec/test.tsv.gz", rows("HUM", 3))
    corpus = read_corpus("trec", tmp_path, fold=7, dev_fraction=0.2)
    assert (len(corpus.train), len(corpus.dev), len(corpus.test)) == (40, 10, 3)
    assert Counter(example.labels[0] for example in corpus.dev) == {"NUM": 6, "LOC": 4}
    assert corpus.facts["fold"] is None
    assert corpus.labels == card("trec").labels


def test_phrases_train_and_sentences_test(tmp_path):
    put(tmp_path, "sst2/train.tsv.gz", rows("positive", 2))
    put(tmp_path, "sst2/train_phrases.tsv.gz", rows("negative", 9))
    put(tmp_path, "sst2/dev.tsv.gz", rows("positive", 3))
    put(tmp_path, "sst2/test.tsv.gz", rows("negative", 4))
    sentences, phrases = (read_corpus(n, tmp_path) for n in ("sst2", "sst2-phrases"))
    assert (len(sentences.train), len(phrases.train)) == (2, 9)
    assert sentences.dev == phrases.dev and len(phrases.dev) == 3
    assert sentences.test == phrases.test and len(phrases.test) == 4
    assert phrases.facts["seed"] is None  # nothing was drawn


def test_subset_is_taken_only_without_the_full_file_and_says_so(tmp_path):
    put(tmp_path, "ag_news/test.tsv.gz", rows("World", 2))
    put(tmp_path, "ag_news/train_subset.tsv.gz", rows("Sports", 10))
    subset = read_corpus("ag-news", tmp_path)
    assert "subset" in subset.facts["title"]
    assert any("60,343 of the 120,000" in text for text in subset.facts["remarks"])
    put(tmp_path, "ag_news/train.tsv.gz", rows("Sports", 20))
    full = read_corpus("ag-news", tmp_path)
    assert len(full.train) == 18 and "subset" not in full.facts["title"]
    assert full.facts["files"]["ag_news/train.tsv.gz"]["matches_catalogue"] is None


def document(split: str, topics: list[str], number: int) -> dict:
    return {
        "id": f"{split}/{number}",
        "split": split,
        "topics": topics,
        "title": f"TITLE {number}",
        "body": f"body of {number}",
    }


@pytest.fixture
def reuters(tmp_path):
    documents = [
        *(document("train", ["earn"], number) for number in range(20)),
        document("train", ["acq", "earn"], 20),  # several labels: joins the test pool
        document("train", ["corn", "grain"], 21),  # corn never stands alone: dropped
        document("train", ["cocoa", "earn"], 22),  # a topic outside the ten: dropped
        document("test", ["ship"], 23),
        document("test", ["crude", "trade"], 24),
        document("test", ["wheat"], 25),
        document("test", ["jobs"], 26),
    ]
    lines = "".join(json.dumps(each) + "\n" for each in documents)
    put(tmp_path, "reuters/documents.jsonl.gz", lines)
    return tmp_path


def test_reuters_follows_the_papers_protocol(reuters):
    full = read_corpus("reuters-full", reuters)
    assert (len(full.train), len(full.dev)) == (18, 2)
    assert [example.labels for example in full.test] == [
        ("earn", "acq"),
        ("ship",),
        ("crude", "trade"),
    ]
    assert full.test[0].text == "TITLE 20\nbody of 20"
    assert (full.task, full.rule) == ("multi-label", "reuters")


def test_reuters_multi_tests_on_several_labels_only(reuters):
    multi, full = (read_corpus(f"reuters-{n}", reuters) for n in ("multi", "full"))
    assert multi.train == full.train and multi.dev == full.dev
    assert [example.labels for example in multi.test] == [
        ("earn", "acq"),
        ("crude", "trade"),
    ]


def test_facts_hold_the_sum_of_the_text_and_whether_it_is_known(mr):
    facts = read_corpus("mr", mr).facts
    text = gzip.decompress((mr / "mr/all.tsv.gz").read_bytes())
    assert facts["files"]["mr/all.tsv.gz"] == {
        "sha256": hashlib.sha256(text).hexdigest(),
        "matches_catalogue": False,
    }
    assert facts["matches_catalogue"] is False
    assert any("another version" in remark for remark in facts["remarks"])
    assert facts["licence"] == card("mr").terms
    assert facts["source"] == list(card("mr").sources[0].urls)


def test_text_may_hold_tabs_and_odd_line_marks(tmp_path):
    content = "positive\ta\tb\u2028c\x85d\r\n" + rows("negative", 19)
    put(tmp_path, "mr/all.tsv.gz", content)
    corpus = read_corpus("mr", tmp_path)
    texts = [example.text for part in corpus[2:5] for example in part]
    assert "a\tb\u2028c\x85d" in texts and len(texts) == 20


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"positive\tgood\npositive good\n", r"tab .* got 'positive good' in line 2"),
        (b"positive\t \n", r"tab .* in line 1"),
        (b"positive\tgood\nnice\tfilm\n", r"label must be one of negative, positive; "),
        (b"positive\tgood\nnegative\t\xff\n", r"UTF-8; got the byte 0xff in line 2"),
        (b"", r"must hold texts; got an empty file"),
    ],
)
def test_broken_table_is_refused(tmp_path, content, message):
    put(tmp_path, "mr/all.tsv.gz", content)
    with pytest.raises(CorpusError, match=message):
        read_corpus("mr", tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '{"split": "train", "topics": ["earn"], "title": "T"}',
        '{"split": "dev", "topics": [], "title": "T", "body": "B"}',
        '{"split": "train", "topics": [1], "title": "T", "body": "B"}',
    ],
)
def test_broken_document_is_refused(tmp_path, line):
    put(tmp_path, "reuters/documents.jsonl.gz", line + "\n")
    with pytest.raises(CorpusError, match=r"object with split.* in line 1"):
        read_corpus("reuters-full", tmp_path)


def test_missing_folder_and_file_name_the_command(tmp_path):
    with pytest.raises(CorpusError, match=r"data_dir must .*absent.* data fetch mr'"):
        read_corpus("mr", tmp_path / "absent")
    with pytest.raises(CorpusError, match=r"all\.tsv\.gz must .* data fetch cr'"):
        read_corpus("cr", tmp_path)


@pytest.mark.parametrize("cut", [10, -4])
def test_damaged_gzip_is_refused(mr, cut):
    path = mr / "mr/all.tsv.gz"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(CorpusError, match=r"whole gzip file; got .*data fetch mr"):
        read_corpus("mr", mr)


@pytest.mark.parametrize(
    ("folder", "name"), [(".", "./mr/all.tsv.gz"), ("mr", "all.tsv.gz")]
)
def test_file_unlike_its_recorded_sum_is_damaged(mr, folder, name):
    right = hashlib.sha256((mr / "mr/all.tsv.gz").read_bytes()).hexdigest()
    sums = mr / folder / "SHA256SUMS"
    sums.write_text(f"{right}  {name}\n")
    assert len(read_corpus("mr", mr).test) == 10
    sums.write_text(f"{'0' * 64}  {name}\n")
    with pytest.raises(CorpusError, match=f"lists, 0{{64}}; got {right}, so it is dam"):
        read_corpus("mr", mr)


def test_unreadable_list_of_sums_is_refused(mr):
    (mr / "SHA256SUMS").write_bytes(b"\xff\xfe")
    with pytest.raises(CorpusError, match="SHA256SUMS must be a readable list"):
        read_corpus("mr", mr)


@pytest.mark.parametrize("fold", [-1, 10])
def test_fold_out_of_range_is_refused(mr, fold):
    with pytest.raises(ConfigError, match=f"fold must be from 0 to 9; got {fold}"):
        read_corpus("mr", mr, fold=fold)


def test_folder_is_the_option_then_the_variable_then_the_cache(monkeypatch):
    monkeypatch.setenv("TEXTCAPSULES_DATA", "from-variable")
    monkeypatch.setenv("XDG_CACHE_HOME", "caches")
    assert data_folder("option") == Path("option")
    assert data_folder() == Path("from-variable")
    monkeypatch.delenv("TEXTCAPSULES_DATA")
    assert data_folder() == Path("caches/textcapsules")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_folder() == Path.home() / ".cache" / "textcapsules"


def test_available_tells_what_is_there(mr):
    by_name = {record["name"]: record for record in available(mr)}
    assert list(by_name) == list(CATALOGUE)
    assert [name for name in by_name if by_name[name]["present"]] == ["mr"]
    assert by_name["trec"]["missing"] == ["trec/train.tsv.gz", "trec/test.tsv.gz"]


def test_describe_counts_by_hand_and_is_json(reuters):
    facts = describe(read_corpus("reuters-full", reuters))
    assert json.loads(json.dumps(facts)) == facts
    test = facts["splits"]["test"]
    assert (test["texts"], test["several_labels"]) == (3, 2)
    assert test["per_label"]["earn"] == 1 and test["per_label"]["grain"] == 0
    assert (test["mean_words"], test["longest_words"]) == (5.0, 5)  # TITLE n body of n


@needs_corpora
@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("mr", (8_635, 960, 1_067)),
        ("subj", (8_100, 900, 1_000)),
        ("cr", (3_054, 339, 378)),
        ("trec", (4_907, 545, 500)),
        ("sst2", (6_920, 872, 1_821)),
        ("sst2-phrases", (76_961, 872, 1_821)),
        ("ag-news", (54_309, 6_034, 7_600)),
        ("reuters-multi", (4_952, 550, 339)),
        ("reuters-full", (4_952, 550, 2_529)),
    ],
)
def test_real_corpora_have_their_known_sizes(name, counts):
    corpus = read_corpus(name, SHARED)
    assert (len(corpus.train), len(corpus.dev), len(corpus.test)) == counts
    assert corpus.facts["matches_catalogue"]
    found = {label for part in corpus[2:5] for each in part for label in each.labels}
    assert found == set(corpus.labels)


@needs_corpora
def test_real_reuters_trains_on_the_counts_of_its_readme():
    corpus = read_corpus("reuters-full", SHARED)
    single = Counter(each.labels[0] for each in (*corpus.train, *corpus.dev))
    assert [single[label] for label in corpus.labels] == [
        2_840, 1_596, 222, 41, 253, 251, 191, 108,
    ]  # fmt: skip
    assert Counter(len(each.labels) for each in corpus.test) == {1: 2_190, 2: 337, 3: 2}
