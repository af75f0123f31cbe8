"""The systems that are compared have the same data and the same calibration."""

from textcapsules.config import preset
from textcapsules.inference.compare.rivals import linear_settings, list_rivals


def test_rivals_have_the_same_data_and_are_calibrated_alike() -> None:
    config = preset("best").replace(train={"task": "multi-label", "seed": 7})
    rivals = list_rivals(config, encoder="some/encoder")
    assert [rival.name for rival in rivals] == [
        "tfidf-svm",
        "cnn",
        "capsules",
        "encoder-linear",
        "encoder-capsules",
    ]
    names = ("task", "seed", "threshold_for", "calibrate_on", "thresholds", "joined_by")
    for rival in rivals:
        for setting in rival.settings:
            assert setting.data == config.data
            for name in names:
                assert getattr(setting.train, name) == getattr(config.train, name)
    for rival in rivals:
        joined = {setting.train.joined for setting in rival.settings}
        is_on_states = rival.name.startswith("encoder")
        assert joined == ({0.0} if is_on_states else {0.0, 1.0})
    alone = list_rivals(config.replace(train={"task": "single-label"}))
    assert {s.train.joined for rival in alone for s in rival.settings} == {0.0}
    assert alone[0].settings[0].baseline.tfidf_c == 1.0
    assert [len(rival.settings) for rival in alone] == [3, 1, 1]


def test_linear_rival_of_a_model_on_an_encoder_reads_words() -> None:
    config = preset("encoder-frozen").replace(
        text={"encoder": "some/encoder"},
        data={"source": "mine.csv"},
        train={"task": "multi-label", "seed": 7, "thresholds": "per-label"},
    )
    for each in linear_settings(config):
        assert (each.preset, each.text.encoder) == ("best", None)
        assert each.data == config.data
        assert (each.train.seed, each.train.thresholds) == (7, "per-label")
