import json

from textcapsules.base.errors import DownloadError
from textcapsules.data import fetch as fetching
from textcapsules.data.catalogue import CATALOGUE
from textcapsules.data.fetch import Fetched
from textcapsules.data.tickets import TICKETS
from toy import refusal, run_cli, toy_file


def test_list_tells_what_is_here(tmp_path):
    ran = run_cli("data", "list", "--data-dir", tmp_path, "--json")
    values = json.loads(ran.out.splitlines()[-1])
    assert ran.code == 0
    assert values["folder"] == str(tmp_path)
    present = {record["name"]: record["present"] for record in values["corpora"]}
    assert set(CATALOGUE) < set(present)
    assert present["tickets"] and not present["mr"]
    assert all(name in ran.out for name in present)


def test_show_counts_a_file(tmp_path):
    path = toy_file(tmp_path)
    ran = run_cli("data", "show", path, "--json")
    values = json.loads(ran.out.splitlines()[-1])
    assert values["labels"] == ["birds", "cats", "dogs"]
    assert {s: v["texts"] for s, v in values["splits"].items()} == {
        "train": 54,
        "dev": 6,
        "test": 0,
    }
    assert values["splits"]["train"]["per_label"]["cats"] == 18
    assert values["splits"]["train"]["mean_words"] == 12


def test_show_tickets_says_they_are_synthetic_and_their_licence():
    ran = run_cli("data", "show", "tickets")
    assert ran.code == 0
    assert "synthetic" in ran.out.lower()
    assert f"licence: {TICKETS.licence}" in ran.out


def test_show_takes_one_corpus_only(tmp_path):
    path = toy_file(tmp_path)
    assert run_cli("data", "show", "--data", path) == run_cli("data", "show", path)
    message = refusal("data", "show", path, "--data", "tickets")
    assert message.startswith("data must be named once")


def fake(monkeypatch, results):
    asked = []

    def fetch(name, data_dir=None, *, overwrite=False):
        asked.append((name, data_dir, overwrite))
        return results[name]

    monkeypatch.setattr(fetching, "fetch", fetch)
    return asked


def test_fetch_tells_what_was_written_and_kept(monkeypatch, tmp_path):
    results = {
        "mr": Fetched("mr", tmp_path, ("mr/all.tsv.gz",), (), ("differs.",)),
        "trec": Fetched("trec", tmp_path, (), ("trec/a.gz", "trec/b.gz"), ()),
    }
    asked = fake(monkeypatch, results)
    ran = run_cli("data", "fetch", "mr", "trec", "--data-dir", tmp_path, "--json")
    assert ran.code == 0
    assert asked == [("mr", str(tmp_path), False), ("trec", str(tmp_path), False)]
    *said, last = ran.out.splitlines()
    assert said == [
        f"mr: wrote mr/all.tsv.gz in {tmp_path}",
        "note: differs.",
        f"trec: kept trec/a.gz, trec/b.gz in {tmp_path}",
    ]
    assert json.loads(last)["fetched"]["trec"] == {
        "name": "trec",
        "data_dir": str(tmp_path),
        "written": [],
        "kept": ["trec/a.gz", "trec/b.gz"],
        "remarks": [],
    }


def test_fetch_all_asks_for_every_corpus(monkeypatch, tmp_path):
    empty = {name: Fetched(name, tmp_path, (), (), ()) for name in CATALOGUE}
    asked = fake(monkeypatch, empty)
    assert run_cli("data", "fetch", "all", "--overwrite").code == 0
    assert asked == [(name, None, True) for name in CATALOGUE]


def test_fetch_tells_a_wrong_name_before_downloading(monkeypatch, tmp_path):
    asked = fake(monkeypatch, {"mr": Fetched("mr", tmp_path, (), (), ())})
    assert "got 'movies'" in refusal("data", "fetch", "mr", "movies")
    assert asked == []


def test_fetch_without_network_is_one_line(monkeypatch):
    def fetch(*args, **options):
        raise DownloadError("rt.txt must be a download; got no connection.")

    monkeypatch.setattr(fetching, "fetch", fetch)
    assert "no connection" in refusal("data", "fetch", "mr")


def test_missing_name_is_told():
    assert "Missing argument" in refusal("data", "fetch")
    assert "data must be named once; got no name" in refusal("data", "show")
