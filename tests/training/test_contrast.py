"""The warm-up in which an encoder alone learns which texts belong together."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from run_folders import folder_content
from textcapsules.base.errors import ConfigError
from textcapsules.config import RunConfig, preset
from textcapsules.model.network import Network
from textcapsules.text.batch import make_batch
from textcapsules.text.encoder_training import LearningEncoder
from textcapsules.training import run
from textcapsules.training.contrast import (
    draw_partners,
    mean_states,
    pair_batches,
    pair_loss,
    warm_up,
)
from textcapsules.training.loop import Step
from textcapsules.training.prepare import Encoded, Prepared, prepare
from textcapsules.training.run import resume, train
from tiny_encoder import write_encoder
from toy import TINY_TRAIN, toy_file

CPU = torch.device("cpu")
SMALL = {"filters": 8, "capsule_types": 2, "capsule_size": 4}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("contrast")
    write_encoder(folder / "encoder")
    toy_file(folder)
    return folder


def options(place: Path, n_passes: int, way: str = "light", **train: Any) -> RunConfig:
    return preset("encoder-frozen").replace(
        data={"source": str(place / "toy.csv")},
        text={"encoder": str(place / "encoder")},
        model=SMALL,
        train={
            **TINY_TRAIN,
            "epochs": 2,
            "encoder_training": way,
            "encoder_layers": 1,
            "encoder_rate": 3e-3,
            "contrastive_epochs": n_passes,
            **train,
        },
    )


def warmed(config: RunConfig, **watch: Any) -> tuple[Prepared, Network]:
    prepared = prepare(config)
    network = prepared.network
    assert isinstance(network, Network)
    encoder = network.embedding
    assert isinstance(encoder, LearningEncoder)
    warm_up(config, network, encoder, prepared.train, CPU, **watch)
    return prepared, network


def random_targets(n_texts: int, n_labels: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2, (n_texts, n_labels)).astype("f4")


def test_the_loss_is_that_of_a_plain_loop() -> None:
    torch.manual_seed(0)
    vectors = torch.randn(7, 5, dtype=torch.float64)
    targets = random_targets(7, 3)
    targets[6] = 0  # a text without labels
    pairs = [(0, 1), (2, 3), (0, 4), (5, 6), (6, 2)]
    errors = []
    for a, b in pairs:
        u, v = vectors[a].numpy(), vectors[b].numpy()
        cosine = u @ v / np.sqrt((u @ u) * (v @ v))
        mine, other = set(np.flatnonzero(targets[a])), set(np.flatnonzero(targets[b]))
        overlap = len(mine & other) / len(mine | other) if mine | other else 0.0
        errors.append((cosine - overlap) ** 2)
    numbers = torch.from_numpy(targets).double(), torch.tensor(pairs)
    assert float(pair_loss(vectors, *numbers)) == pytest.approx(np.mean(errors))


@pytest.mark.parametrize("n_labels", [2, 6])
def test_one_partner_shares_a_label_and_the_other_does_not(n_labels: int) -> None:
    targets = random_targets(40, n_labels)
    partners = draw_partners(targets, 3)
    for row, (near, far) in enumerate(partners):
        shares = (targets[row] * targets).sum(1) > 0
        alone = not (shares & (np.arange(40) != row)).any()
        assert near == row if alone else shares[near] and near != row
        assert far == row if shares.all() else not shares[far]
    assert np.array_equal(partners, draw_partners(targets, 3))
    assert not np.array_equal(partners, draw_partners(targets, 4))


def test_every_other_text_may_be_a_partner() -> None:
    targets = np.eye(2, dtype="f4")[[0, 0, 0, 1, 1]]
    draws = np.stack([draw_partners(targets, seed) for seed in range(100)])
    assert set(draws[:, 1, 0]) == {0, 2}
    assert set(draws[:, 1, 1]) == {3, 4}


def test_a_pass_has_every_text_with_its_partners(place: Path) -> None:
    config = options(place, 1)
    targets = np.eye(4, dtype="f4")[[0, 0, 0, 1, 1, 2, 3, 3]]
    documents = [np.full(1 + row % 3, row + 20, np.int32) for row in range(8)]
    found = []
    for pairs in pair_batches(config, Encoded(documents, targets), 0):
        assert len(np.unique(pairs)) <= config.train.batch_size
        for first, second in pairs.tolist():
            shared = bool((targets[first] * targets[second]).any())
            found.append((first, shared))
    alone = {(5, True)}  # the only text of its label
    everything = {(row, shared) for row in range(8) for shared in (True, False)}
    assert len(found) == 15
    assert set(found) == everything - alone


@pytest.mark.parametrize("way", ["light", "tuned"])
@pytest.mark.parametrize("by", ["sentences", "texts"])
def test_texts_of_one_label_come_closer(place: Path, way: str, by: str) -> None:
    seen: list[Step] = []
    config = options(place, 4, way).replace(text={"encode_by": by})
    (documents, targets), before = (start := prepare(config)).train, start.network
    _, after = warmed(config, on_step=seen.append)
    batch = make_batch(documents, targets, np.arange(len(documents)))
    same = torch.from_numpy(targets @ targets.T > 0)
    gaps = []
    for network in (before, after):
        assert isinstance(network, Network)
        encoder = network.eval().embedding
        assert isinstance(encoder, LearningEncoder)
        with torch.no_grad():
            vectors = mean_states(encoder, batch)
        unit = torch.nn.functional.normalize(vectors)
        cosines = unit @ unit.T
        gaps.append(float(cosines[same].mean() - cosines[~same].mean()))
    assert gaps[1] > gaps[0] + 0.1
    n_steps = seen[0].n_steps
    assert len(seen) == 4 * n_steps
    assert {step.n_epochs for step in seen} == {4}
    assert {step.stage for step in seen} == {"contrastive warm-up"}
    first, last = ([s.loss for s in seen if s.epoch == e] for e in (0, 3))
    assert np.mean(last) < np.mean(first)


def test_the_encoder_alone_learns_and_repeats_itself(place: Path) -> None:
    config = options(place, 1, weight_decay=0.1)
    fresh = prepare(config).network
    assert isinstance(fresh, Network)
    (_, once), (_, again) = warmed(config), warmed(config)
    before, after, second = (n.state_dict() for n in (fresh, once, again))
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved and all(name.startswith("embedding.learnt.") for name in moved)
    assert all(torch.equal(after[name], second[name]) for name in after)


def test_texts_of_one_label_have_nothing_to_contrast(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = options(place, 1)
    prepared = prepare(config)
    network, train = prepared.network, prepared.train
    assert isinstance(network, Network)
    encoder = network.embedding
    assert isinstance(encoder, LearningEncoder)
    before = {n: t.clone() for n, t in network.state_dict().items()}
    alike = Encoded(train.documents, np.ones_like(train.targets))
    warm_up(config, network, encoder, alike, CPU)
    assert "warm-up is left out" in caplog.text
    after = network.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_without_passes_there_is_no_warm_up(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(run, "warm_up", lambda *_: calls.append(1))
    config = options(place, 0, epochs=1)
    train(config, tmp_path / "model", test_reasons=False)
    assert not calls


def test_the_record_names_the_passes(place: Path, tmp_path: Path) -> None:
    found = {}
    for n_passes in (0, 1):
        config, folder = options(place, n_passes, epochs=1), tmp_path / str(n_passes)
        found[n_passes] = train(config, folder, test_reasons=False).record
    assert "contrastive_epochs" not in found[0]["vectors"]
    assert found[1]["vectors"]["contrastive_epochs"] == 1
    losses = {record["epochs"][0]["loss"] for record in found.values()}
    assert len(losses) == 2


def test_an_encoder_that_stays_as_it_is_is_refused(place: Path) -> None:
    with pytest.raises(ConfigError, match="contrastive_epochs must be 0 unless the"):
        prepare(options(place, 2, "frozen"))


@pytest.mark.slow
@pytest.mark.parametrize("during", ["warm-up", "epochs"])
def test_an_interrupted_run_ends_as_the_whole(
    place: Path, tmp_path: Path, during: str
) -> None:
    def stop_early(step: Step) -> None:
        if step.stage != "epoch" and step.step == 2:
            raise KeyboardInterrupt

    def stop_late(_record: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    warming = during == "warm-up"
    on_step, on_epoch = (stop_early, None) if warming else (None, stop_late)
    config = options(place, 1, average_weights=0.9)
    train(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "cut", on_step=on_step, on_epoch=on_epoch)
    torch.manual_seed(7)
    stages: set[str] = set()
    resume(tmp_path / "cut", on_step=lambda step: stages.add(step.stage))
    assert (len(stages) == 1) == (not warming)  # a warm-up once made stays
    assert folder_content(tmp_path / "cut") == folder_content(tmp_path / "whole")
