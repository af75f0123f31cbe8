import json
import logging
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from starlette.testclient import TestClient

from serving import Gate, multi_label, running, single_label, toy_service
from textcapsules.deploy.service.answers import Scored, Service
from textcapsules.deploy.service.app import create_app
from textcapsules.deploy.service.limits import Limits
from textcapsules.model.classifier import TextClassifier
from textcapsules.training.run import train
from toy import (
    OFF_TOPIC,
    TOPICAL,
    TOPICS,
    refusing_model,
    tiny_config,
    toy_file,
    toy_rows,
    toy_text,
)

LIMITS = Limits(max_texts=40, max_explained=3, max_characters=500, max_bytes=30_000)
AWKWARD = [
    "",
    "   \n\t ",
    "cat",
    "zzz qqq xxx",
    "😀 cat 👩‍👩‍👧 purr",
    "<script>alert('cat')</script> & \"dog\"",
    "قطة cat كلب dog",
    "bird\x00wing\u202e feather",
    "meow " * 99,
]


@pytest.fixture(scope="module")
def client():
    app = create_app(toy_service(LIMITS), hosts=["testserver"])
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def predict(client, **request):
    reply = client.post("/v1/predict", json={"model": "tags", **request})
    assert reply.status_code == 200, reply.text
    return reply.json()["predictions"]


def refused(client, status, **request):
    reply = client.post("/v1/predict", json={"model": "tags", **request})
    assert reply.status_code == status, reply.text
    return reply.json()["error"]["message"]


def check_answers(answers, classifier, texts, **decision):
    """Compare answers with what the library says of the same texts, one by one."""
    for answer, text in zip(answers, texts, strict=True):
        (expected,) = classifier.predict([text], **decision)
        assert answer["labels"] == list(expected.labels)
        assert list(answer["scores"]) == list(classifier.labels.names)
        np.testing.assert_allclose(
            list(answer["scores"].values()), expected.scores, rtol=0, atol=1e-6
        )
        assert answer["readable"] == bool(expected.scores.any())
        assert (answer["known"], answer["words"]) == (expected.known, expected.words)


def mixed_texts(n_texts: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    texts = [toy_text(draw.choice(list(TOPICS)), draw) for _ in range(n_texts)]
    return [" ".join(text.split()[: draw.randint(1, 12)]) for text in texts]


@pytest.mark.parametrize(
    "decision",
    [
        {},
        {"threshold": 0.3},
        {"multi_label": True},
        {"multi_label": False},
        {"threshold": 0.0},
        {"threshold": 1.0, "multi_label": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["pets", "tags"])
def test_answers_are_those_of_predict(client, name, decision):
    classifier = {"pets": single_label(), "tags": multi_label()}[name]
    texts = [*mixed_texts(20, 3), *AWKWARD]
    answers = predict(client, model=name, texts=texts, **decision)
    check_answers(answers, classifier, texts, **decision)


def test_answers_do_not_depend_on_who_else_is_asking():
    service = toy_service(Limits(batch=16))
    texts = mixed_texts(120, 4)
    alone = single_label().scores
    seen = []
    service.batcher._on_batch = lambda n_texts, seconds: seen.append(n_texts)
    with running(service) as client, ThreadPoolExecutor(12) as pool:

        def ask(text: str) -> dict:
            return predict(client, model="pets", texts=text)[0]

        answers = list(pool.map(ask, texts))
    check_answers(answers, single_label(), texts)
    assert max(seen) > 1  # some did share a batch
    scores = np.array([list(answer["scores"].values()) for answer in answers])
    together = alone(texts)
    np.testing.assert_allclose(scores, together, rtol=0, atol=1e-6)


def test_answers_tell_how_many_words_are_known(client):
    texts = ["my cat zzz", "zzz zzz", "", "cat " * 90]
    answers = predict(client, texts=texts)
    counts = [(answer["known"], answer["words"]) for answer in answers]
    assert counts == [(2, 3), (0, 2), (0, 0), (90, 90)]
    assert [answer["readable"] for answer in answers] == [True, False, False, True]


def test_one_text_is_a_list_of_one(client):
    assert predict(client, texts="my cat purr") == predict(
        client, texts=["my cat purr"]
    )


def test_the_only_model_need_not_be_named():
    service = toy_service()
    del service.models["pets"]
    with TestClient(create_app(service, hosts=["*"])) as client:
        reply = client.post("/v1/predict", json={"texts": "dog"}).json()
    assert reply["model"] == "tags"


def test_explanations_point_into_the_text(client):
    text = "😀 my cat 👍🏽 purr and the dog bark"
    (answer,) = predict(client, model="pets", texts=text, explain=True, phrases=2)
    found = answer["explanation"]
    words = [text[token["start"] : token["end"]] for token in found["tokens"]]
    assert {"cat", "purr", "dog"} <= set(words)
    assert list(found["labels"]) == list(single_label().labels.names)
    for spoken in (*found["labels"].values(), found["background"]):
        assert len(spoken["tokens"]) == len(words)
        assert len(spoken["phrases"]) <= 2
        for phrase in spoken["phrases"]:
            assert text[phrase["start"] : phrase["end"]] == phrase["text"]
    assert found["sentences"][0]["labels"][0]["label"] in answer["labels"]
    assert 0 <= found["background_share"] <= 1
    assert 0 <= found["unclaimed"] <= 1
    plain = predict(client, model="pets", texts=text)[0]
    assert answer["labels"] == plain["labels"]
    assert answer["scores"] == pytest.approx(plain["scores"], abs=1e-6)


def test_a_strength_is_what_the_score_loses_without_the_phrase(client):
    text = "my cat and the purr of a kitten"
    (answer,) = predict(client, model="pets", texts=text, explain=True, changes=True)
    (label,) = answer["labels"]
    found = answer["explanation"]["labels"][label]
    phrase = found["phrases"][0]
    rest = f"{text[: phrase['start']]} {text[phrase['end'] :]}"
    (without,) = predict(client, model="pets", texts=rest)
    fall = answer["scores"][label] - without["scores"][label]
    assert phrase["strength"] == pytest.approx(fall, abs=1e-4)
    assert all(against["strength"] < 0 for against in found["against"])
    for change in (found["change"],) if found["change"] else ():
        rest = text
        for place in sorted(change["deleted"], key=lambda p: -p["start"]):
            assert text[place["start"] : place["end"]] == place["text"]
            rest = f"{rest[: place['start']]} {rest[place['end'] :]}"
        (changed,) = predict(client, model="pets", texts=rest)
        assert label not in changed["labels"]
        assert changed["scores"][label] == pytest.approx(change["score"], abs=1e-4)


def test_a_method_may_be_asked_for(client):
    models = {m["name"]: m for m in client.get("/v1/models").json()["models"]}
    assert models["pets"]["method"] in models["pets"]["methods"]
    asked = {"model": "pets", "texts": "my cat", "explain": True}
    (answer,) = predict(client, **asked, method="couplings")
    assert answer["explanation"]["method"] == "couplings"
    reply = client.post("/v1/predict", json={**asked, "method": "magic"})
    assert reply.status_code == 422
    assert "method must be one of" in reply.json()["error"]["message"]


@pytest.mark.parametrize("text", AWKWARD, ids=ascii)
def test_awkward_texts_are_explained(client, text):
    (answer,) = predict(client, texts=text, explain=True)
    found = answer["explanation"]
    assert bool(found["tokens"]) == answer["readable"]


def test_models_are_listed_with_thresholds_and_limits(client):
    reply = client.get("/v1/models").json()
    assert [model["name"] for model in reply["models"]] == ["pets", "tags"]
    assert [model["task"] for model in reply["models"]] == [
        "single-label",
        "multi-label",
    ]
    assert reply["models"][1]["labels"] == [
        {"name": name, "threshold": 0.5} for name in ("birds", "cats", "dogs")
    ]
    assert all(model["explains"] for model in reply["models"])
    assert {model["reads"] for model in reply["models"]} == {"words"}
    assert reply["limits"] == {
        "texts": 40,
        "explained": 3,
        "characters": 500,
        "bytes": 30_000,
    }


def test_a_model_that_cannot_be_explained_still_predicts(monkeypatch):
    service = toy_service()
    monkeypatch.setattr("textcapsules.reasons.methods.MODELS_OF_WORDS", str)  # not ours
    with TestClient(create_app(service, hosts=["*"])) as client:
        models = client.get("/v1/models").json()["models"]
        assert [model["explains"] for model in models] == [False, False]
        message = refused(client, 422, texts="cat", explain=True)
        assert message == "explain must be false for 'tags', which cannot be explained"
        check_answers(predict(client, texts="cat"), multi_label(), ["cat"])


@pytest.mark.parametrize(
    ("request_", "status", "message"),
    [
        ({"texts": []}, 422, "texts must have at least 1 item"),
        ({"texts": ["a", 3]}, 422, "texts.1 must be a valid string"),
        ({"texts": None}, 422, "texts must be a valid list"),
        ({}, 422, "texts must be there; got none"),
        ({"texts": "a", "colour": 1}, 422, "'colour' is not a field"),
        ({"texts": "a", "threshold": 1.1}, 422, "threshold must be less than or equal"),
        ({"texts": "a", "threshold": True}, 422, "threshold must be a valid number"),
        ({"texts": "a", "explain": "yes"}, 422, "explain must be a valid boolean"),
        ({"texts": "a", "phrases": 0}, 422, "phrases must be greater than"),
        (
            {"texts": "a", "threshold": 0.5, "multi_label": False},
            422,
            "threshold must go with all labels",
        ),
        ({"texts": ["a"] * 41}, 422, "texts must be at most 40; got 41"),
        (
            {"texts": ["a"] * 4, "explain": True},
            422,
            "texts to explain must be at most 3; got 4",
        ),
        (
            {"texts": ["a", "b" * 501]},
            422,
            "texts.1 must have at most 500 characters; got 501",
        ),
        ({"texts": "a", "model": None}, 422, "model must be one of pets, tags"),
        ({"texts": "a", "model": "cars"}, 404, "one of pets, tags; got 'cars'"),
        ({"texts": ["c" * 40_000]}, 413, "body must have at most 30000 bytes"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_request_is_told_why(client, request_, status, message):
    assert message in refused(client, status, **request_)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 422),
        (b"", 422),
        (b"3", 422),
        (b"null", 422),
        (b'{"texts": "\\ud800"}', 422),
        (b'{"texts": "a", "model": "\\ud800"}', 404),
        (b'{"texts": "a", "\\ud800": 1}', 422),
        (b'{"texts": "\xff"}', 400),
        (b'{"texts": "a", "threshold": NaN}', 422),
        (b'{"texts": "a", "threshold": 1e999}', 422),
        (b'{"texts": ' + b"[" * 20_000, 400),
        (b'{"texts": "a", "phrases": ' + b"9" * 9000 + b"}", 400),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_body_that_cannot_be_read_is_refused(client, body, status):
    headers = {"content-type": "application/json"}
    reply = client.post("/v1/predict", content=body, headers=headers)
    assert reply.status_code == status, reply.text
    assert set(reply.json()["error"]) == {"reason", "message"}
    assert len(reply.text) < 300


def test_another_content_type_is_refused(client):
    reply = client.post(
        "/v1/predict", content=b'{"texts": "a"}', headers={"content-type": "text/plain"}
    )
    assert reply.status_code == 422
    assert "application/json" in reply.json()["error"]["message"]


def test_unknown_paths_and_methods_are_refused_in_the_same_form(client):
    assert client.get("/v2/predict").json()["error"]["reason"] == "not_found"
    assert client.get("/../../etc/passwd").status_code == 404
    assert client.get("/%2e%2e/app.py").status_code == 404
    assert client.put("/v1/predict").json()["error"]["reason"] == "method_not_allowed"


def test_health_and_readiness_are_told():
    service = toy_service()
    app = create_app(service, hosts=["*"])
    with TestClient(app) as client:
        assert client.get("/healthz").json() == {"status": "ok"}
        assert client.get("/readyz").json() == {"status": "ready"}
        service.batcher.stop()
        assert client.get("/healthz").status_code == 200
        assert client.get("/readyz").status_code == 503


def test_metrics_count_what_happened():
    with TestClient(create_app(toy_service(), hosts=["*"])) as client:
        predict(client, texts=["a", "b", "c"])
        predict(client, model="pets", texts="d", explain=True)
        client.get("/private words in a path")
        reply = client.get("/metrics")
        while "batch_texts_sum 4.0" not in reply.text:  # counted after its answer
            reply = client.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain")
    lines = reply.text.splitlines()
    assert 'textcapsules_texts_total{explained="false",model="tags"} 3.0' in lines
    assert 'textcapsules_texts_total{explained="true",model="pets"} 1.0' in lines
    assert (
        'textcapsules_requests_total{method="POST",path="/v1/predict",status="200"} 2.0'
        in lines
    )
    assert (
        'textcapsules_requests_total{method="GET",path="other",status="404"} 1.0'
        in lines
    )
    assert "textcapsules_queue_texts 0.0" in lines
    assert any(line.startswith("process_resident_memory_bytes") for line in lines)
    assert "private" not in reply.text


def test_a_fault_is_answered_and_logged_without_the_text(caplog):
    service = toy_service()
    secret = "my cat has a secret"

    def broken(kind, texts):
        raise ValueError(f"cannot read {texts}")

    service.batcher._work = broken
    app = create_app(service, hosts=["*"])
    with TestClient(app) as client, caplog.at_level(logging.DEBUG):
        reply = client.post("/v1/predict", json={"model": "pets", "texts": secret})
        client.get(f"/{secret}?text={secret}")
        client.post("/v1/predict", json={"texts": [secret], "oops": secret})
    assert reply.status_code == 500
    assert reply.json()["error"]["reason"] == "internal_error"
    assert "secret" not in reply.text
    ours = [r for r in caplog.records if not r.name.startswith(("httpx", "httpcore"))]
    logged = "\n".join(record.getMessage() for record in ours)
    assert "ValueError" in logged
    assert "POST /v1/predict 500" in logged
    assert "GET other 404" in logged
    assert "secret" not in logged


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scores_that_are_no_numbers_are_503(value):
    service = toy_service()

    def broken(kind, texts):
        return [Scored(np.full(3, value, np.float32), 1, 1, None) for _ in texts]

    service.batcher._work = broken
    with TestClient(create_app(service, hosts=["*"])) as client:
        message = refused(client, 503, texts="cat")
    assert message == "the scores of 'tags' must be finite; got NaN or infinity"


def test_a_full_queue_is_429_and_loses_no_accepted_request():
    service = toy_service(Limits(max_texts=4, queue=8, batch=4))
    gate = Gate(service)
    rows = toy_rows(200, seed=9)
    texts = [text for text, _ in rows]
    with running(service) as client, ThreadPoolExecutor(50) as pool:
        pool.submit(predict, client, model="pets", texts="held")
        assert gate.entered.wait(30)

        def ask(place: int):
            return client.post(
                "/v1/predict", json={"model": "pets", "texts": texts[place : place + 4]}
            )

        asked = [pool.submit(ask, place) for place in range(0, 200, 4)]
        while sum(future.done() for future in asked) < 48:  # all but those that wait
            pass
        gate.open.set()
        replies = [future.result() for future in asked]
        after = predict(client, model="pets", texts=texts[:4])
    statuses = [reply.status_code for reply in replies]
    assert statuses.count(429) == 48
    assert statuses.count(200) == 2
    for place, reply in zip(range(0, 200, 4), replies, strict=True):
        if reply.status_code == 200:
            answers = reply.json()["predictions"]
            check_answers(answers, single_label(), texts[place : place + 4])
        else:
            assert int(reply.headers["retry-after"]) >= 1
            assert reply.json()["error"]["reason"] == "queue_full"
    check_answers(after, single_label(), texts[:4])


def test_an_answer_that_takes_too_long_is_504():
    service = toy_service(Limits(time_limit=0.2))
    gate = Gate(service)
    with running(service) as client:
        message = refused(client, 504, texts="cat")
        assert "0.2 s" in message
        refused(client, 504, texts="dog")  # waits behind the first, then is dropped
        gate.open.set()
        check_answers(predict(client, texts="bird"), multi_label(), ["bird"])
    assert gate.batches == [["cat"], ["bird"]]


def test_openapi_describes_every_route(client):
    schema = client.get("/openapi.json").json()
    assert set(schema["paths"]) == {
        "/v1/predict",
        "/v1/models",
        "/healthz",
        "/readyz",
        "/metrics",
    }
    assert {"200", "413", "422", "429", "504"} <= set(
        schema["paths"]["/v1/predict"]["post"]["responses"]
    )
    assert "http" not in json.dumps(schema["paths"])  # no outside address


def test_a_cnn_is_explained_without_votes(tmp_path):
    config = tiny_config(toy_file(tmp_path)).replace(
        model={"architecture": "cnn"}, train={"epochs": 1}
    )
    models = {"cnn": train(config, tmp_path / "m")}
    service = Service(models, Limits(), threads=1)
    with TestClient(create_app(service, hosts=["*"])) as client:
        assert client.get("/v1/models").json()["models"][0]["explains"]
        reply = predict(client, model="cnn", texts="cat purr kitten", explain=True)
        found = reply[0]["explanation"]
        assert found["method"] == "gradient"
        assert (found["background"], found["background_share"]) == (None, None)
        assert found["unclaimed"] is None


def test_text_outside_the_topics_is_said_to_be():
    model = TextClassifier.load(refusing_model(), "cpu")
    app = create_app(Service({"tags": model}, LIMITS, threads=1), hosts=["testserver"])
    texts = [TOPICAL, OFF_TOPIC, ""]
    with TestClient(app, raise_server_exceptions=False) as client:
        answers = predict(client, texts=texts)
        kept = predict(client, texts=texts, refuse=False)
        message = refused(client, 422, texts=texts, refuse="no")
        (explained,) = predict(client, texts=[OFF_TOPIC], explain=True)
    assert [answer["outside"] for answer in answers] == [False, True, False]
    assert [bool(answer["labels"]) for answer in answers] == [True, False, False]
    assert answers[1]["scores"]["cats"] > 0
    assert [answer["outside"] for answer in kept] == [False, True, False]
    assert [bool(answer["labels"]) for answer in kept] == [True, True, False]
    assert "refuse" in message
    assert explained["explanation"]["labels"]["cats"]["phrases"]
