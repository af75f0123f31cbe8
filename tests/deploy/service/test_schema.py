"""Requests made up from the service's own description: none may be a fault of ours."""

import pytest
from hypothesis import HealthCheck, Phase, settings

from serving import running, toy_service
from textcapsules.deploy.service.answers import Service
from textcapsules.deploy.service.app import create_app
from textcapsules.deploy.service.limits import Limits

schemathesis = pytest.importorskip("schemathesis")
from schemathesis.specs.openapi.checks import positive_data_acceptance  # noqa: E402

pytestmark = pytest.mark.slow

empty = Service({}, Limits())  # the description does not depend on the models
schema = schemathesis.openapi.from_dict(create_app(empty).openapi())


@pytest.fixture(scope="module")
def url():
    with running(toy_service()) as client:
        yield str(client.base_url).rstrip("/")


@schema.parametrize()
@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
def test_no_made_up_request_is_a_fault(case, url):
    # A threshold for the highest label alone has the right form, and is refused.
    case.call_and_validate(url, excluded_checks=[positive_data_acceptance])
