import json

import pytest

from textcapsules.base.errors import DataError
from textcapsules.lab.paper.plan import Plan, select
from textcapsules.lab.paper.records import Records, choose, read_choices
from textcapsules.lab.paper.systems import SYSTEMS

CELLS = select(Plan().cells("search"), ["cnn_rand/mr"])


def records_of(folder, scores: list[float | None]) -> Records:
    records = Records(folder)
    for cell, score in zip(CELLS, scores, strict=True):
        if score is not None:
            plain = {"key": cell.key, "system": cell.system, "corpus": "search"}
            records.add({**plain, "test": {}, "dev": {"dev_score": score}})
    return records


@pytest.mark.parametrize(
    ("scores", "best"), [([0.7, 0.9, 0.9, 0.8], 1), ([0.5] * 4, 0), ([0, 0, 0, 1], 3)]
)
def test_dev_chooses_and_the_first_of_equals_wins(tmp_path, scores, best):
    choose(CELLS, records_of(tmp_path, scores), (), tmp_path / "search")
    options = SYSTEMS["cnn_rand"].settings[best]
    assert read_choices(tmp_path / "search") == {("cnn_rand", "mr"): options}
    written = json.loads((tmp_path / "search" / "cnn_rand.mr.json").read_text())
    assert written["chosen"] == best
    assert [row["dev_score"] for row in written["settings"]] == scores
    # The record of the choice is no record of a run, and is not taken for one.
    assert len(Records(tmp_path).by_key) == 4


def test_nothing_is_chosen_before_all_settings_are_known(tmp_path):
    records = records_of(tmp_path, [0.7, None, 0.9, 0.8])
    choose(CELLS, records, (), tmp_path / "search")
    assert read_choices(tmp_path / "search") == {}


def test_a_setting_that_fails_is_not_chosen_nor_waited_for(tmp_path):
    records = records_of(tmp_path, [0.7, None, 0.6, 0.8])
    choose(CELLS, records, {CELLS[1].key}, tmp_path / "search")
    options = SYSTEMS["cnn_rand"].settings[3]
    assert read_choices(tmp_path / "search") == {("cnn_rand", "mr"): options}


def test_a_setting_tried_on_folds_has_their_mean(tmp_path):
    cells = select(Plan().cells("search"), ["vd_cnn/subj"])
    assert [(cell.setting, cell.config.data.fold) for cell in cells] == [
        (str(number), fold) for number in range(4) for fold in range(3)
    ]
    lucky_once = [0.9, 0.5, 0.5]
    scores = [*lucky_once, 0.8, 0.8, 0.8, *lucky_once, 0.7, 0.7, 0.7]
    records = Records(tmp_path)
    for cell, score in zip(cells[:-1], scores, strict=False):
        plain = {"key": cell.key, "system": cell.system, "corpus": "search"}
        records.add({**plain, "test": {}, "dev": {"dev_score": score}})
    choose(cells, records, (), tmp_path / "search")
    assert read_choices(tmp_path / "search") == {}  # one fold is still to come
    choose(cells, records, {cells[-1].key}, tmp_path / "search")
    options = SYSTEMS["vd_cnn"].settings[1]
    assert read_choices(tmp_path / "search") == {("vd_cnn", "subj"): options}


def test_nothing_is_chosen_where_all_fail(tmp_path):
    failed = {cell.key for cell in CELLS}
    choose(CELLS, Records(tmp_path), failed, tmp_path / "search")
    assert read_choices(tmp_path / "search") == {}


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "{}",
        '{"system": "cnn_rand", "corpus": "mr", "options": {"model": {"dropout": 1}}}',
        '{"system": "gru", "corpus": "mr", "options": {}}',
    ],
)
def test_damaged_choice_is_named(tmp_path, content):
    (tmp_path / "cnn_rand.mr.json").write_text(content)
    with pytest.raises(DataError, match=r"cnn_rand\.mr\.json must hold the setting"):
        read_choices(tmp_path)
