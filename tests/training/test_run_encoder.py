"""Runs in which a pretrained encoder learns with the network above it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

from run_folders import folder_content
from textcapsules.config import RunConfig, preset
from textcapsules.deploy.service.answers import Service
from textcapsules.deploy.service.app import create_app
from textcapsules.deploy.service.limits import Limits
from textcapsules.inference.estimator import CapsuleClassifier
from textcapsules.model.classifier import TextClassifier, encoder_states
from textcapsules.model.network import Network
from textcapsules.text import encoder as encoders
from textcapsules.text import encoder_training
from textcapsules.training.optimise import parameter_groups
from textcapsules.training.prepare import prepare
from textcapsules.training.run import resume, train
from textcapsules.training.steps import EagerSteps, GraphSteps
from tiny_encoder import write_encoder
from toy import TINY_TRAIN, refusal, run_cli, toy_file

WAYS = ("light", "tuned")
TEXTS = ["My cat purrs at the kitten. The dog barks!", "the bird sings", ""]
SMALL = {"filters": 8, "capsule_types": 2, "capsule_size": 4}
FAST = {"encoder_rate": 1e-3, "encoder_layers": 1}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("learning")
    write_encoder(folder / "encoder")
    toy_file(folder)
    return folder


def options(place: Path, way: str, **train: Any) -> RunConfig:
    return preset("encoder-frozen").replace(
        data={"source": str(place / "toy.csv")},
        text={"encoder": str(place / "encoder")},
        model=SMALL,
        train={**TINY_TRAIN, **FAST, "epochs": 2, "encoder_training": way, **train},
    )


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_trained_model_works_in_every_command(
    place: Path, tmp_path: Path, way: str
) -> None:
    data, model = place / "toy.csv", tmp_path / "model"
    flags = [
        *("--data", data, "--encoder", place / "encoder", "--encoder-training", way),
        *("--encoder-layers", 1, "--encoder-rate", 1e-3, "--epochs", 1),
        *("--filters", 8, "--capsule-types", 2, "--capsule-size", 4),
        *("--task", "multi-label", "--out", model),
    ]
    assert run_cli("train", *flags).code == 0
    classifier = TextClassifier.load(model, "cpu")
    facts = classifier.record["vectors"]
    assert facts["training"] == way
    assert facts["rate"] == 1e-3
    start = encoders.load_encoder(str(place / "encoder")).states.tensors
    states = encoder_states(classifier.network)
    assert states is not None
    learnt = states.tensors
    assert any(not torch.equal(start[key], learnt[key]) for key in start)
    for command in (
        ["predict", model, TEXTS[0], "--scores"],
        ["explain", model, TEXTS[0]],
        ["evaluate", model, "--data", data],
        ["calibrate", model, "--data", data],
    ):
        ran = run_cli(*command)
        assert ran.code == 0, ran.err
    classifier = TextClassifier.load(model, "cpu")
    service = Service({"model": classifier}, Limits(), threads=1)
    with TestClient(create_app(service, hosts=["testserver"])) as client:
        reply = client.post("/v1/predict", json={"model": "model", "texts": TEXTS})
    served = [each["scores"] for each in reply.json()["predictions"]]
    expected = classifier.scores(TEXTS)
    for found, row in zip(served, expected, strict=True):
        names = classifier.labels.names
        np.testing.assert_allclose([found[name] for name in names], row, atol=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("end", [KeyboardInterrupt, KeyError])
def test_an_interrupted_run_ends_as_the_whole(
    place: Path, tmp_path: Path, way: str, end: type[BaseException]
) -> None:
    def stop(record: dict[str, Any]) -> None:
        if record["epoch"] == 1:
            raise end

    # Dropout in the encoder, joined texts, an average of the weights, a falling rate.
    config = options(place, way, average_weights=0.9, joined=0.5, epochs=3)
    train(config, tmp_path / "whole")
    with pytest.raises(end):
        train(config, tmp_path / "cut", on_epoch=stop)
    torch.manual_seed(7)
    resume(tmp_path / "cut")
    assert folder_content(tmp_path / "cut") == folder_content(tmp_path / "whole")


@pytest.mark.slow
def test_patience_ends_a_run_whose_encoder_learns(place: Path, tmp_path: Path) -> None:
    config = options(place, "light", epochs=20, patience=1)
    record = train(config, tmp_path / "model", test_reasons=False).record
    epochs = record["epochs"]
    assert len(epochs) < 20
    judged = [(each["dev_score"], -each["dev_loss"]) for each in epochs]
    assert record["best_epoch"] == 1 + judged.index(max(judged))


@pytest.mark.parametrize("way", ["frozen", *WAYS])
def test_states_that_no_memory_holds_are_computed_again(
    place: Path, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = options(place, way, epochs=1)
    kept = train(config, tmp_path / "kept", test_reasons=False).scores(TEXTS)
    encoders.load_files.cache_clear()
    monkeypatch.setattr(encoders, "CACHED_NUMBERS", 300)  # about one sentence
    fresh = train(config, tmp_path / "fresh", test_reasons=False)
    encoders.load_files.cache_clear()
    states = encoder_states(fresh.network)
    assert states is not None and states.n_cached <= 300
    # In other batches, products may be rounded in another way.
    np.testing.assert_allclose(fresh.scores(TEXTS), kept, atol=2e-2)


def test_what_lies_below_the_layers_that_learn_is_stored(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEXTCAPSULES_STATES", str(tmp_path / "states"))
    monkeypatch.setattr(encoders, "FEWEST_STORED", 1)
    config, calls = options(place, "light", epochs=1), []
    whole = encoder_training.LowerStates.run

    def counted(self: Any, sentences: list, device: torch.device) -> Any:
        calls.append(len(sentences))
        return whole(self, sentences, device)

    monkeypatch.setattr(encoder_training.LowerStates, "run", counted)
    seen: list[tuple[int, int]] = []
    first = train(config, tmp_path / "one", on_encode=lambda *n: seen.append(n))
    assert sum(calls) > 40
    assert seen and max(done for done, _ in seen) == seen[-1][1]  # special ones apart
    calls.clear()
    second = train(config, tmp_path / "two")
    assert calls == [1]  # the sentence on which a cut model is tried
    assert np.array_equal(first.scores(TEXTS), second.scores(TEXTS))


def test_lower_layers_have_lower_rates(place: Path) -> None:
    changes = {"encoder_rate": 1e-4, "encoder_decay": 0.5, "weight_decay": 0.01}
    prepared = prepare(options(place, "tuned", learning_rate=2e-3, **changes))
    network = prepared.network
    assert isinstance(network, torch.nn.Module)
    groups = parameter_groups(network, prepared.config)
    rates: dict[str, float] = {}
    names = {id(p): name for name, p in network.named_parameters()}
    for group in groups:
        for parameter in group["params"]:
            rates[names[id(parameter)]] = 2e-3 * group["share"]
    for name, rate in rates.items():
        expected = 2e-3  # the capsules'
        for part, own in (
            ("embedding.learnt.encoder.layer.1.", 1e-4),
            ("embedding.learnt.encoder.layer.0.", 5e-5),
            ("embedding.learnt.embeddings.", 2.5e-5),
        ):
            expected = own if name.startswith(part) else expected
        assert rate == pytest.approx(expected), name
    assert len({round(rate, 9) for rate in rates.values()}) == 4
    frozen = {n for n, p in network.named_parameters() if not p.requires_grad}
    assert frozen and not frozen & set(rates)  # the pooler


def test_the_preset_for_accuracy_lets_the_last_layers_learn(place: Path) -> None:
    frozen, light = preset("encoder-frozen"), preset("encoder")
    assert frozen.train.encoder_training == "frozen"
    alone = frozen.replace(model={"piece_size": 0})  # whose pieces have no vectors
    assert (light.text, light.model) == (alone.text, alone.model)
    model = CapsuleClassifier(
        preset="encoder", encoder=str(place / "encoder"), epochs=1, options=SMALL
    )
    model.fit(["my cat purrs", "the dog barks"] * 10, ["cat", "dog"] * 10)
    facts = model.model_.record["vectors"]
    assert (facts["training"], facts["layers"]) == ("light", 2)


def test_an_estimator_takes_the_option(place: Path) -> None:
    model = CapsuleClassifier(
        encoder=str(place / "encoder"),
        epochs=1,
        options={**SMALL, **FAST, "encoder_training": "light"},
    )
    model.fit(["my cat purrs", "the dog barks"] * 10, ["cat", "dog"] * 10)
    assert model.model_.record["vectors"]["layers"] == 1
    assert model.predict_proba(TEXTS).shape == (3, 2)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--encoder-training", "light"], "encoder must be given for --encoder-traini"),
        (["--encoder", "E", "--encoder-training", "half"], "encoder-training"),
        (
            ["--encoder", "E", "--encoder-training", "light", "--encoder-layers", "9"],
            "encoder_layers must be at most 2, the layers of this encoder; got 9",
        ),
        (
            ["--encoder", "E", "--encoder-layers", "0"],
            "encoder_layers must be a whole number",
        ),
        (["--encoder", "E", "--encoder-rate", "-1"], "encoder-rate must be"),
        (["--encoder", "E", "--encoder-decay", "2"], "encoder-decay must be"),
        (
            ["--encoder", "E", "--encoder-training", "tuned", "--encoder-rate", "1e9"],
            "Lower --learning-rate, --encoder-rate",
        ),
    ],
)
def test_wrong_options_get_one_line(
    place: Path, tmp_path: Path, flags: list[str], message: str
) -> None:
    named = [str(place / "encoder") if flag == "E" else flag for flag in flags]
    small = ["--epochs", "1", "--filters", "8", "--out", str(tmp_path / "model")]
    found = refusal("train", "--data", place / "toy.csv", *named, *small)
    assert message.replace("-", "_") in found.replace("-", "_")


@pytest.mark.parametrize("head", ["capsule-b", "encoder-linear"])
def test_whole_texts_train_as_texts_of_one_sentence_do(
    place: Path, tmp_path: Path, head: str
) -> None:
    """All of the toy's texts are one sentence: only the way there is another."""
    found = []
    for by in ("sentences", "texts"):
        config = options(place, "tuned", clip_norm=1.0).replace(
            text={"encode_by": by},
            model={"architecture": head, "dropout": 0.0},
            baseline={"output_dropout": 0.0},
        )
        kinds = [EagerSteps] if by == "sentences" else [EagerSteps, GraphSteps]
        for kind in kinds:  # what cannot be captured here is run as it is
            prepared = prepare(config)
            network = prepared.network
            assert isinstance(network, Network)
            assert network.capturable == (by == "texts")
            for part in network.modules():
                if isinstance(part, torch.nn.Dropout):
                    part.p = 0.0
            steps = kind(config, network, torch.device("cpu"))
            steps.set_rate(1e-3)
            documents, targets = prepared.train
            rows = np.array_split(np.arange(len(documents)), 5)
            losses = [
                float(loss)
                for epoch in range(2)
                for loss in steps.run(documents, targets, rows, epoch)
            ]
            found.append(losses)
    assert found[0][-1] < found[0][0]
    for others in found[1:]:
        np.testing.assert_allclose(others, found[0], rtol=2e-2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_steps_of_a_tuned_encoder_are_captured(place: Path) -> None:
    config = options(place, "tuned", device="cuda").replace(text={"encode_by": "texts"})
    prepared = prepare(config)
    assert isinstance(prepared.network, Network)
    device = torch.device("cuda")
    steps = GraphSteps(config, prepared.network.to(device), device)
    steps.set_rate(1e-3)
    documents, targets = prepared.train
    size = config.train.batch_size
    rows = [np.arange(start, start + size) for start in (0, 1, 2, 3)]
    losses = [
        float(x) for e in range(3) for x in steps.run(documents, targets, rows, e)
    ]
    assert steps.graphs and not steps.refused
    assert losses[-1] < losses[0]


def test_a_model_on_whole_texts_is_saved_loaded_and_joined_as_a_whole(
    place: Path, tmp_path: Path
) -> None:
    config = options(place, "tuned", epochs=1, task="multi-label").replace(
        text={"encode_by": "texts"}
    )
    prepared = prepare(config)
    assert prepared.n_pieces is None
    model = train(config, tmp_path / "model", test_reasons=False)
    again = TextClassifier.load(tmp_path / "model", "cpu")
    # The encoder that is kept looks up what is in a batch, which no capture allows.
    for network in (model.network, again.network):
        assert isinstance(network, Network) and not network.capturable
    np.testing.assert_allclose(again.scores(TEXTS), model.scores(TEXTS), atol=1e-5)
    kept = train(config, tmp_path / "none", test_reasons=False, keep_model=False)
    np.testing.assert_array_equal(kept.scores(TEXTS), model.scores(TEXTS))
    assert kept.record["finished"]
    assert not list((tmp_path / "none").glob("*.safetensors"))


def test_the_encoder_of_an_unfinished_run_is_not_written(
    place: Path, tmp_path: Path
) -> None:
    def stop(record: dict[str, Any]) -> None:
        raise KeyError

    with pytest.raises(KeyError):
        train(options(place, "light"), tmp_path / "model", on_epoch=stop)
    assert not (tmp_path / "model" / "encoder.safetensors").exists()
