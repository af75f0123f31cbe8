"""Review over HTTP: decisions, undo, thresholds, export, and what is refused."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from serving import running
from textcapsules.base.errors import ConfigError
from textcapsules.data.reviews import log_path
from textcapsules.deploy.service.answers import Service
from textcapsules.deploy.service.app import create_app
from textcapsules.deploy.service.limits import Limits
from textcapsules.deploy.service.run import ReviewFiles, open_desk, serve
from textcapsules.model.classifier import TextClassifier
from toy import model_copy, toy_rows, write_csv

TRUTH = dict(toy_rows(24, seed=3))


class Site:
    """A service that can be started again and again on the same files."""

    def __init__(self, folder: Path) -> None:
        self.model = model_copy(folder)
        rows = [[text] for text in TRUTH]
        self.files = ReviewFiles(
            write_csv(folder / "new.csv", rows, ["text"]), folder / "reviewed.csv"
        )

    def app(self, **options):
        models = {"pets": TextClassifier.load(self.model, "cpu")}
        desk = open_desk(self.files, {"pets": self.model}, models)
        service = Service(models, Limits(), threads=1)
        return create_app(service, hosts=["*"], desk=desk, **options)

    def actions(self) -> list[str]:
        lines = log_path(self.files.out).read_text().splitlines()
        return [json.loads(line)["action"] for line in lines]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture
def client(site: Site) -> Iterator[TestClient]:
    with TestClient(site.app()) as client:
        yield client


def post(client, path: str, status: int = 200, **value):
    reply = client.post(f"/v1/review/{path}", json=value)
    assert reply.status_code == status, reply.text
    return reply.json()


def decide(client, state):
    text = state["item"]["text"]
    return post(client, "decision", text=text, labels=[TRUTH[text]])


def test_state_has_the_next_text_with_labels_scores_and_reasons(client, site) -> None:
    state = client.get("/v1/review").json()
    assert (state["reviewed"], state["left"], state["last"]) == (0, 24, None)
    assert [label["name"] for label in state["labels"]] == ["birds", "cats", "dogs"]
    item = state["item"]
    predicted = TextClassifier.load(site.model, "cpu").predict(
        item["text"], multi_label=True
    )
    assert item["labels"] == list(predicted.labels)
    assert set(item["scores"]) == {"birds", "cats", "dogs"}
    phrase = item["explanation"]["labels"]["cats"]["phrases"][0]
    assert item["text"][phrase["start"] : phrase["end"]] == phrase["text"]
    assert client.get("/v1/models").json()["review"] is True


def test_a_decision_is_on_the_disk_before_its_answer(client, site) -> None:
    first = client.get("/v1/review").json()
    second = decide(client, first)
    assert site.actions() == ["label"]
    assert second["reviewed"] == 1
    assert second["item"]["text"] != first["item"]["text"]
    assert second["last"]["text"] == first["item"]["text"]
    third = post(client, "decision", text=second["item"]["text"], skip=True)
    assert (third["skipped"], third["left"]) == (1, 22)
    back = post(client, "undo", id=third["last"]["id"])
    assert back["item"]["text"] == second["item"]["text"]
    assert site.actions() == ["label", "skip", "undo"]


def test_a_new_service_goes_on_where_a_killed_one_was(site) -> None:
    with TestClient(site.app()) as client:
        state = decide(client, client.get("/v1/review").json())
    again = TestClient(site.app())  # the first one's log is all it has
    with again as client:
        assert client.get("/v1/review").json() == state


def test_two_pages_do_not_overwrite_each_other(client, site) -> None:
    one, two = client.get("/v1/review").json(), client.get("/v1/review").json()
    decide(client, one)
    text = two["item"]["text"]
    state = post(client, "decision", text=text, labels=[])  # the same text: it wins
    assert state["reviewed"] == 1
    state = decide(client, state)
    assert state["reviewed"] == 2
    assert site.actions() == ["label"] * 3
    table = client.get("/v1/review/export")
    rows = list(csv.DictReader(io.StringIO(table.text)))
    assert [row["label"] for row in rows] == ["", TRUTH[rows[1]["text"]]]


def test_new_thresholds_apply_at_once_and_to_the_folder(client, site) -> None:
    before = TextClassifier.load(site.model, "cpu").labels.thresholds
    state = client.get("/v1/review").json()
    refused = post(client, "recalibrate", status=422)
    assert "at least 5" in refused["error"]["message"]
    while state["reviewed"] < 10:
        assert state["estimate"] is None
        state = decide(client, state)
    assert "all labels right in" in state["estimate"]
    result = post(client, "recalibrate", force=True)
    assert result["is_taken"]
    assert result["texts"] == 10
    folder = TextClassifier.load(site.model, "cpu").labels.thresholds
    assert folder == tuple(result["after"]) != before
    served = client.get("/v1/models").json()["models"][0]["labels"]
    assert [label["threshold"] for label in served] == result["after"]
    # A second time the prior is the same, so no text counts twice.
    assert post(client, "recalibrate", force=True)["after"] == result["after"]


def test_export_is_a_table_for_calibrate(client, site) -> None:
    state = client.get("/v1/review").json()
    for _ in range(3):
        state = decide(client, state)
    reply = client.get("/v1/review/export")
    assert reply.headers["content-type"].startswith("text/csv")
    assert 'filename="reviewed.csv"' in reply.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(reply.text)))
    assert {row["text"]: row["label"] for row in rows}.items() <= TRUTH.items()
    assert site.files.out.read_bytes() == reply.content


def test_what_is_refused_changes_nothing(client, site) -> None:
    text = next(iter(TRUTH))
    for value in (
        {"text": "unheard of", "labels": []},
        {"text": text, "labels": ["fish"]},
        {"text": text, "labels": "cats"},
        {"labels": []},
        {"text": text, "more": 1},
    ):
        message = post(client, "decision", status=422, **value)["error"]["message"]
        assert "unheard" not in message
        assert "fish" not in message
    # No form of another site can send JSON without being asked first.
    for path in ("decision", "undo", "recalibrate"):
        reply = client.post(
            f"/v1/review/{path}", content="{}", headers={"content-type": "text/plain"}
        )
        assert reply.status_code == 422
        assert client.post(f"/v1/review/{path}").status_code == 422
    assert not log_path(site.files.out).exists()


def test_review_needs_the_token(site) -> None:
    with TestClient(site.app(token="a-token-of-some-length")) as client:
        assert client.get("/v1/review").status_code == 401
        assert client.get("/v1/review/export").status_code == 401
        headers = {"Authorization": "Bearer a-token-of-some-length"}
        assert client.get("/v1/review", headers=headers).status_code == 200


def test_without_a_review_there_is_none() -> None:
    from serving import toy_service

    with running(toy_service()) as client:
        assert client.get("/v1/review").status_code == 404
        assert client.get("/v1/models").json()["review"] is False


def test_review_of_two_models_is_refused(site) -> None:
    places = [f"a={site.model}", f"b={site.model}"]
    with pytest.raises(ConfigError, match="review must go with one model"):
        serve(places, port=0, review=site.files)
