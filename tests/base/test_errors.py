import logging

from textcapsules.base.errors import collect_warnings, collected_warnings, warn


def test_warning_is_logged_and_kept_once_in_every_collector(caplog):
    with collect_warnings() as outer:
        warn("first")
        with collect_warnings() as inner:
            warn("first")
            warn("second %s")
        assert collected_warnings() == ["first", "second %s"]
        warn("second %s")
    assert (outer, inner) == (["first", "second %s"], ["first", "second %s"])
    assert collected_warnings() == []
    assert [(r.levelno, r.getMessage()) for r in caplog.records] == [
        (logging.WARNING, "first"),
        (logging.WARNING, "second %s"),
    ]


def test_without_a_collector_every_warning_is_logged(caplog):
    warn("again")
    warn("again")
    assert len(caplog.records) == 2
