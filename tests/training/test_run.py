import json
import logging
import math
import sys
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.optim.optimizer import register_optimizer_step_pre_hook

from run_folders import figures, vectors_file, weights
from textcapsules.base.errors import ConfigError, TextCapsulesError
from textcapsules.config import preset as preset_run
from textcapsules.model.classifier import MODEL_FILES, TextClassifier
from textcapsules.training.calibrate import THRESHOLD_RULES, Thresholds
from textcapsules.training.join import joined_pairs, with_joined
from textcapsules.training.loop import Step, Trainer
from textcapsules.training.prepare import prepare
from textcapsules.training.run import train
from textcapsules.training.selection import DevSet
from textcapsules.training.steps import EagerSteps
from toy import TOPICS, tiny_config, toy_file, toy_rows, write_csv


def test_same_seed_gives_same_weights_and_records(source, tmp_path):
    config = tiny_config(source, model={"dropout": 0.3}, train={"joined": 0.5})
    one = train(config, tmp_path / "one")
    torch.manual_seed(99)  # whatever happened before must not matter
    np.random.seed(99)
    two = train(config, tmp_path / "two")
    assert weights(tmp_path / "one") == weights(tmp_path / "two")
    assert figures(one) == figures(two)
    assert one.labels == two.labels


def test_other_seed_gives_other_weights(source, tmp_path):
    train(tiny_config(source, train={"epochs": 1}), tmp_path / "one")
    train(tiny_config(source, train={"epochs": 1, "seed": 1}), tmp_path / "two")
    assert weights(tmp_path / "one") != weights(tmp_path / "two")


def test_loss_falls_and_topics_are_learnt(source, tmp_path):
    classifier = train(tiny_config(source), tmp_path / "model")
    losses = [record["loss"] for record in classifier.record["epochs"]]
    assert losses[-1] < losses[0] / 2
    found = classifier.predict([" ".join(words) for words in TOPICS.values()])
    assert [prediction.labels for prediction in found] == [(name,) for name in TOPICS]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("architecture", "loss", "rate"),
    [
        ("capsule-a", {"loss": "binary-cross-entropy", "absent_weight": 0.5}, 0.02),
        ("cnn", {"loss": "entropy", "entropy_weight": 0.5}, 0.001),
    ],
)
def test_topics_are_learnt_where_other_labels_may_be_true(
    tmp_path, architecture, loss, rate
):
    config = tiny_config(
        toy_file(tmp_path, 150),
        model={
            "architecture": architecture,
            "filters": 8,
            "capsule_types": 4,
            "conv_types": 4,
        },
        loss=loss,
        train={"epochs": 8, "learning_rate": rate},
    )
    classifier = train(config, tmp_path / "model")
    found = classifier.predict([" ".join(words) for words in TOPICS.values()])
    assert [int(prediction.scores.argmax()) for prediction in found] == [0, 1, 2]


def test_records_hold_what_is_needed_to_tell_the_run(source, tmp_path):
    record = train(tiny_config(source), tmp_path / "model").record
    assert record["finished"] is True
    assert record["texts"] == {"train": 54, "dev": 6}
    assert [epoch["epoch"] for epoch in record["epochs"]] == [1, 2, 3, 4]
    best = max(epoch["dev_accuracy"] for epoch in record["epochs"])
    assert record["epochs"][record["best_epoch"] - 1]["dev_accuracy"] == best
    assert record["versions"]["torch"] == torch.__version__
    # words: the padding and unknown rows, 18 topic words and 9 fillers
    assert record["words"] == 29


def test_model_folder_holds_exactly_the_five_files(source, tmp_path):
    train(tiny_config(source, train={"epochs": 1}), tmp_path / "model")
    found = sorted(path.name for path in (tmp_path / "model").iterdir())
    assert found == sorted(MODEL_FILES)
    assert len(found) == 5


def test_weights_file_has_the_mode_of_other_files(source, tmp_path):
    train(tiny_config(source, train={"epochs": 1}), tmp_path / "model")
    (tmp_path / "plain").touch()
    modes = {path.stat().st_mode for path in (tmp_path / "model").iterdir()}
    assert modes == {(tmp_path / "plain").stat().st_mode}


def judged(
    monkeypatch: pytest.MonkeyPatch, scores: list[float], losses: Any = None
) -> None:
    """Let the dev set give these scores, epoch by epoch, and guessing reach 0.3."""
    left = zip(scores, losses or [1.0] * len(scores), strict=True)

    def judge(self, network):
        score, loss = next(left)
        return {"dev_score": score, "dev_accuracy": score, "dev_loss": loss}

    monkeypatch.setattr(DevSet, "judge", judge)
    monkeypatch.setattr(DevSet, "majority_limit", 0.3)


@pytest.mark.parametrize("select", ["accuracy", "last"])
def test_patience_stops_when_dev_score_stays(source, tmp_path, monkeypatch, select):
    judged(monkeypatch, [0.5, 0.6, 0.6, 0.4, 0.9, 0.9])
    changes = {"epochs": 6, "patience": 2, "select": select}
    record = train(tiny_config(source, train=changes), tmp_path / "model").record
    assert len(record["epochs"]) == 4  # 0.6 was not surpassed twice
    assert record["best_epoch"] == (2 if select == "accuracy" else 4)


def test_of_epochs_with_equal_dev_scores_the_surest_is_kept(
    source, tmp_path, monkeypatch
):
    """Few dev texts are soon all right: a network has then hardly learnt anything."""
    judged(monkeypatch, [0.9, 1.0, 1.0, 1.0], [0.9, 0.8, 0.2, 0.3])
    record = train(tiny_config(source), tmp_path / "model").record
    assert record["best_epoch"] == 3


def test_patience_waits_for_a_network_to_begin(source, tmp_path, monkeypatch):
    """A plateau no better than guessing is a start to come, not an end."""
    judged(monkeypatch, [0.3, 0.2, 0.2, 0.2, 0.9, 0.8, 0.8, 0.9])
    changes = {"epochs": 8, "patience": 2}
    record = train(tiny_config(source, train=changes), tmp_path / "model").record
    assert (len(record["epochs"]), record["best_epoch"]) == (7, 5)


def test_no_patience_never_stops_early(source, tmp_path, monkeypatch):
    judged(monkeypatch, [0.9, 0.1, 0.1, 0.1])
    record = train(tiny_config(source), tmp_path / "model").record
    assert (len(record["epochs"]), record["best_epoch"]) == (4, 1)


@pytest.mark.parametrize(("select", "kept"), [("accuracy", 2), ("last", 4)])
def test_selected_epoch_is_the_one_saved(source, tmp_path, monkeypatch, select, kept):
    judged(monkeypatch, [0.3, 0.8, 0.8, 0.2])
    seen = []
    ended = Trainer.run_epoch

    def spy(self, epoch, on_step):
        record = ended(self, epoch, on_step)
        seen.append({k: v.clone() for k, v in self.network.state_dict().items()})
        return record

    monkeypatch.setattr(Trainer, "run_epoch", spy)
    train(tiny_config(source, train={"select": select}), tmp_path / "model")
    saved = load_file(tmp_path / "model" / "model.safetensors")
    same = [all(torch.equal(saved[k], w[k]) for k in saved) for w in seen]
    assert same == [epoch == kept for epoch in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("calibrate_on", "on"),
    [
        ("joined", "joined dev documents"),
        ("single+joined", "single and joined dev documents"),
    ],
)
def test_select_joined_looks_at_exact_match_of_joined_documents(
    calibrate_on, on, source, tmp_path
):
    changes = {"select": "joined", "calibrate_on": calibrate_on}
    record = train(tiny_config(source, train=changes), tmp_path / "model").record
    values = [epoch["dev_exact_match"] for epoch in record["epochs"]]
    assert values[record["best_epoch"] - 1] == max(values)
    assert record["calibration"]["on"] == on
    assert record["calibration"]["value"] == max(values)
    best = record["epochs"][record["best_epoch"] - 1]
    for part in ("single", "joined"):
        value = record["calibration"][f"value_{part}"]
        assert best[f"dev_exact_match_{part}"] == value
    labels = json.loads((tmp_path / "model" / "labels.json").read_text())["labels"]
    assert {row["threshold"] for row in labels} == {record["calibration"]["threshold"]}


def test_each_label_has_its_own_threshold_where_that_was_asked_for(
    source, tmp_path, monkeypatch
):
    each = np.array([0.125, 0.5, 0.96875])
    chosen = Thresholds(each, 0.25, 1.0)
    monkeypatch.setitem(THRESHOLD_RULES, "per-label", lambda *_: chosen)
    changes = {"thresholds": "per-label", "task": "multi-label", "epochs": 1}
    record = train(tiny_config(source, train=changes), tmp_path / "model").record
    assert record["calibration"]["thresholds"] == each.tolist()
    assert record["calibration"]["threshold"] == 0.25
    assert record["epochs"][0]["dev_threshold"] == 0.25
    classifier = TextClassifier.load(tmp_path / "model")
    assert classifier.labels.thresholds == tuple(each)
    texts = [text for text, _ in toy_rows(20)]
    for prediction in classifier.predict(texts):
        lengths = zip(TOPICS, prediction.scores, each, strict=True)
        expected = {name for name, length, least in lengths if length >= least}
        assert set(prediction.labels) == expected


def test_multi_label_task_selects_on_joined_documents(source, tmp_path):
    config = tiny_config(source, train={"task": "multi-label", "epochs": 1})
    classifier = train(config, tmp_path / "model")
    assert classifier.config.train.select == "joined"
    assert "dev_exact_match" in classifier.record["epochs"][0]
    assert classifier.labels.task == "multi-label"


def test_threshold_for_micro_f1_is_recorded(source, tmp_path):
    changes = {"select": "joined", "threshold_for": "micro-f1", "epochs": 1}
    record = train(tiny_config(source, train=changes), tmp_path / "model").record
    assert record["calibration"]["objective"] == "micro-f1"
    assert "dev_micro_f1" in record["epochs"][0]


def trainer_of(config) -> Trainer:
    prepared = prepare(config)
    dev = DevSet(prepared.config, prepared.dev)
    device = torch.device("cpu")
    network: Any = prepared.network
    return Trainer(prepared.config, network, prepared.train, dev, device)


def test_clip_norm_bounds_the_gradient(source):
    norms = []

    def spy(optimiser, *_):
        grads = [p.grad for group in optimiser.param_groups for p in group["params"]]
        norms.append(math.sqrt(sum(float(g.square().sum()) for g in grads)))

    with register_optimizer_step_pre_hook(spy):
        list(trainer_of(tiny_config(source, train={"epochs": 1})).epochs())
        free, norms = norms, []
        limit = min(free) / 2
        changes = {"epochs": 1, "clip_norm": limit}
        list(trainer_of(tiny_config(source, train=changes)).epochs())
    assert len(norms) == len(free) == 9
    # torch divides by the norm plus 1e-6, in single precision
    assert norms == pytest.approx([limit] * 9, rel=1e-3)


def test_rate_decay_multiplies_the_rate_each_epoch(source, tmp_path):
    config = tiny_config(source, train={"rate_decay": 0.5, "epochs": 3})
    record = train(config, tmp_path / "model").record
    rates = [epoch["learning_rate"] for epoch in record["epochs"]]
    assert rates == [0.05, 0.025, 0.0125]


def test_rate_that_changes_nothing_leaves_weights_as_drawn(source, tmp_path):
    config = tiny_config(source, train={"learning_rate": 1e-50, "epochs": 2})
    train(config, tmp_path / "model")
    network: Any = prepare(config).network
    drawn = network.state_dict()
    saved = load_file(tmp_path / "model" / "model.safetensors")
    assert saved.keys() == drawn.keys()
    assert all(torch.equal(saved[name], drawn[name]) for name in saved)


def test_joined_documents_join_two_labels_anew_each_epoch(source):
    trainer = trainer_of(tiny_config(source, train={"joined": 0.5}))
    n_single = len(trainer.train.documents)
    first, again, second = (
        with_joined(trainer.config, trainer.train, epoch) for epoch in (0, 0, 1)
    )
    assert len(first.documents) == len(first.targets) == n_single + n_single // 2
    assert (first.targets[:n_single].sum(1) == 1).all()
    assert (first.targets[n_single:].sum(1) == 2).all()
    whole = [ids.tolist() for ids in first.documents]
    assert whole == [ids.tolist() for ids in again.documents]
    assert whole != [ids.tolist() for ids in second.documents]


@pytest.mark.parametrize("joined_by", ["texts", "labels"])
def test_training_texts_are_joined_by_texts_or_by_labels(tmp_path, joined_by):
    rows = toy_rows(180)
    few = {"cats": 12, "dogs": 24}  # and all 60 of birds
    kept = [
        (text, name) for i, (text, name) in enumerate(rows) if i < few.get(name, 180)
    ]
    source = write_csv(tmp_path / "uneven.csv", kept)
    changes = {"joined": 4.0, "joined_by": joined_by}
    trainer = trainer_of(tiny_config(source, train=changes))
    documents, targets = with_joined(trainer.config, trainer.train, 3)
    n_single = len(trainer.train.documents)
    assert len(documents) == 5 * n_single
    pairs = joined_pairs(trainer.train.targets, 4 * n_single, [0, 3], by=joined_by)
    one, other = (trainer.train.targets[rows] for rows in pairs.T)
    assert targets[n_single:].tolist() == (one + other).tolist()
    shares = targets[n_single:].mean(0)
    # Two of three labels are in a pair; 250 pairs leave each share a deviation of 0.03.
    is_even = bool((np.abs(shares - 2 / 3) < 0.15).all())
    assert is_even == (joined_by == "labels")


def test_epochs_left_open_are_settled_and_told_from_the_first_step_on(source, tmp_path):
    steps: list[Step] = []

    def on_step(step: Step) -> None:
        steps.append(step)
        raise KeyboardInterrupt

    config = tiny_config(source, train={"epochs": None, "schedule": "linear"})
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "model", on_step=on_step)
    assert [step[:4] for step in steps] == [(0, 0, 40, 9)]  # 54 texts, six in a batch
    kept = json.loads((tmp_path / "model" / "config.json").read_text())
    assert kept["train"]["epochs"] == 40


def test_list_labels_make_a_multi_label_model(tmp_path):
    rows = toy_rows(40)
    lines = [
        {"text": f"{one} {other}", "label": [a, b]}
        if a != b
        else {"text": one, "label": a}
        for (one, a), (other, b) in zip(rows, rows[1:] + rows[:1], strict=True)
    ]
    source = tmp_path / "toy.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    classifier = train(tiny_config(source, train={"epochs": 2}), tmp_path / "model")
    assert classifier.labels.names == tuple(TOPICS)
    assert classifier.labels.task == "multi-label"
    assert classifier.record["calibration"]["on"] == "dev documents"
    assert prepare(tiny_config(source)).train.targets.sum(1).max() == 2


def test_separator_parts_labels(tmp_path):
    rows = [(text, f"{label} | shared") for text, label in toy_rows(12)]
    config = tiny_config(
        write_csv(tmp_path / "toy.csv", rows),
        data={"separator": "|"},
        train={"epochs": 1},
    )
    names = train(config, tmp_path / "model").labels.names
    assert names == ("birds", "cats", "dogs", "shared")


def test_loss_that_is_not_finite_stops_with_a_remedy(source, tmp_path, monkeypatch):
    honest = EagerSteps.update

    def spoilt(self, ids, mask, targets, epoch):
        loss = honest(self, ids, mask, targets, epoch)
        return loss * (math.nan if epoch == 1 else 1)

    monkeypatch.setattr(EagerSteps, "update", spoilt)
    with pytest.raises(
        TextCapsulesError, match=r"loss must stay finite; got nan in epoch 2\. Lower"
    ):
        train(tiny_config(source), tmp_path / "model")
    assert (tmp_path / "model" / "checkpoint.safetensors").exists()


def test_tensorboard_holds_every_epoch(source, tmp_path):
    config = tiny_config(source, train={"epochs": 3})
    record = train(config, tmp_path / "model", tensorboard=True).record
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logging.getLogger("tensorboard").setLevel(logging.ERROR)  # it remarks on many files
    logs = EventAccumulator(str(tmp_path / "model" / "tensorboard"))
    logs.Reload()
    losses = [(event.step, event.value) for event in logs.Scalars("loss")]
    expected = [(r["epoch"], pytest.approx(r["loss"])) for r in record["epochs"]]
    assert losses == expected  # approx: TensorBoard keeps single precision
    assert {"dev_accuracy", "learning_rate"} <= set(logs.Tags()["scalars"])


def test_no_tensorboard_unless_asked(source, tmp_path):
    train(tiny_config(source, train={"epochs": 1}), tmp_path / "model")
    assert not (tmp_path / "model" / "tensorboard").exists()


def test_missing_tensorboard_is_told_before_training(source, tmp_path, monkeypatch):
    for name in ("torch.utils.tensorboard", "torch.utils.tensorboard.writer"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(TextCapsulesError, match="tensorboard must be installed"):
        train(tiny_config(source), tmp_path / "model", tensorboard=True)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("kind", ["static", "non-static"])
def test_static_vectors_stay_and_others_move(source, tmp_path, kind):
    config = tiny_config(
        source,
        text={"vectors": str(vectors_file(tmp_path))},
        model={"embeddings": kind},
        train={"epochs": 1},
    )
    classifier = train(config, tmp_path / "model")
    row = classifier.tokenizer.words.index("cat")
    trained: Any = classifier.network
    vector = trained.embedding.weight[row].tolist()
    assert classifier.config.model.embedding_size == 5
    assert classifier.record["vectors"]["found"] == 2  # `zebra` is in no text
    assert (vector == [0.5] * 5) == (kind == "static")
    fresh: Any = prepare(config).network
    drawn = fresh.embedding.weight
    stays = torch.equal(trained.embedding.weight.detach(), drawn.detach())
    assert stays == (kind == "static")
    assert not trained.embedding.weight[0].any()  # padding never moves
    loaded = TextClassifier.load(tmp_path / "model")
    texts = ["the cat purr", "my dog"]
    assert np.array_equal(loaded.scores(texts), classifier.scores(texts))


def test_static_without_vectors_is_refused(source, tmp_path):
    config = tiny_config(source, model={"embeddings": "static"})
    with pytest.raises(ConfigError, match=r"got 'static'. Name a file with --vectors"):
        train(config, tmp_path / "model")


def test_random_with_vectors_is_refused(source, tmp_path):
    config = tiny_config(
        source,
        text={"vectors": str(vectors_file(tmp_path))},
        model={"embeddings": "random"},
    )
    with pytest.raises(ConfigError, match="got 'random'"):
        train(config, tmp_path / "model")


@pytest.mark.parametrize("preset", ["released", "sabour", "paper"])
def test_every_preset_trains_without_vectors(source, tmp_path, preset):
    sections = {
        "data": {"source": str(source)},
        "text": {"max_tokens": 20},
        "model": {"embedding_size": 8, "filters": 4, "capsule_types": 2},
        "train": {"epochs": 1, "device": "cpu"},
    }
    classifier = train(preset_run(preset).replace(**sections), tmp_path / "model")
    assert np.isfinite(classifier.scores(["my cat purr"])).all()
    assert TextClassifier.load(tmp_path / "model").config.preset == preset
