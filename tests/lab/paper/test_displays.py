import pytest

from textcapsules.lab.paper.displays import DISPLAYS, display_cell
from textcapsules.lab.paper.place import QUICK
from textcapsules.lab.paper.plan import Plan


@pytest.mark.parametrize(("name", "size"), [("table6", 3), ("a3", 1)])
def test_models_are_the_papers_without_convolutional_capsules(name, size):
    config = display_cell(Plan(), name).config
    assert config.model.ngram_sizes == (size,)
    assert not config.model.conv_capsules
    assert (config.model.architecture, config.model.iterations) == ("capsule-b", 3)
    assert config.model.orphan and config.model.leaky and config.model.amendment
    assert config.data.source == "reuters-full"
    assert config.text.vectors is not None
    assert (config.train.epochs, config.train.batch_size) == (20, 25)


def test_settings_are_the_searched_ones_and_epochs_the_callers():
    chosen = {("capsule_b", "reuters-full"): {"model": {"dropout": 0.25}}}
    config = display_cell(Plan(chosen=chosen), "a3", epochs=7).config
    assert config.model.dropout == 0.25
    assert config.train.epochs == 7
    assert not config.model.conv_capsules


def test_a_quick_one_is_tiny():
    for name in DISPLAYS:
        config = display_cell(Plan(adjust=QUICK), name, epochs=9).config
        assert config.train.epochs == 1
        assert config.model.embedding_size == QUICK["model"]["embedding_size"]
