import json

import pytest

from textcapsules.base.errors import DataError
from textcapsules.lab.paper.records import Records


def record(key: str, **more) -> dict:
    plain = {"key": key, "system": "lstm", "corpus": "mr", "test": {}, "dev": {}}
    return plain | more


def test_records_are_lines_of_one_file_per_system_and_corpus(tmp_path):
    records = Records(tmp_path)
    records.add(record("a"))
    records.add(record("b", corpus="trec"))
    records.add(record("c"))
    records.add(record("a", seed=1))  # done again
    lines = (tmp_path / "mr" / "lstm.jsonl").read_text().splitlines()
    assert [json.loads(line)["key"] for line in lines] == ["c", "a"]
    again = Records(tmp_path)
    assert again.by_key.keys() == {"a", "b", "c"}
    assert again.get("a") == record("a", seed=1)
    assert again.get("z") is None


def test_files_of_another_machine_are_put_beside(tmp_path):
    here, there = Records(tmp_path / "here"), Records(tmp_path / "there")
    here.add(record("a"))
    there.add(record("b"))
    source = tmp_path / "there" / "mr" / "lstm.jsonl"
    source.rename(tmp_path / "here" / "mr" / "lstm.h200.jsonl")
    merged = Records(tmp_path / "here")
    assert "a" in merged
    assert "b" in merged


def test_another_command_may_add_to_the_same_file(tmp_path):
    one, other = Records(tmp_path), Records(tmp_path)
    one.add(record("a"))
    other.add(record("b"))
    assert Records(tmp_path).by_key.keys() == {"a", "b"}


@pytest.mark.parametrize(
    "damage", ['{"key": "b", "syst', "", "[]", "null", '{"key": "b"}', "\x00"]
)
def test_damaged_line_is_named(tmp_path, damage):
    records = Records(tmp_path)
    records.add(record("a"))
    path = tmp_path / "mr" / "lstm.jsonl"
    path.write_text(path.read_text() + damage + "\n")
    with pytest.raises(DataError, match=r"lstm\.jsonl must hold .* in line 2\. Remove"):
        Records(tmp_path)


def test_bytes_that_are_no_text_are_named(tmp_path):
    (tmp_path / "x.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"x\.jsonl must be a readable file"):
        Records(tmp_path)


def test_text_with_other_line_breaks_stays_on_its_line(tmp_path):
    records = Records(tmp_path)
    records.add(record("a", device="odd\u2028name\x85"))
    assert Records(tmp_path).get("a") == record("a", device="odd\u2028name\x85")
