"""Generated requests to a server with its own Redis: no server error, and no answer that the description lacks."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

ROOT = Path(__file__).parents[3]
TOKEN = "operator-token-of-a-test"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
CASES = int(os.environ.get("API_TEST_CASES", "100"))  # requests for each operation

# A request can be invalid although its form is described: a command is any text, but `stop` is not a request for a run.
EXCLUDED = [positive_data_acceptance]

SERVER = """
import asyncio, sys
from pathlib import Path
from patchwright.bot.http_server import open_listener
from patchwright.bot.web.server import run_server
from patchwright.resolver.settings.settings import Settings

settings = Settings(data=Path(sys.argv[1]), webhook_secret="story-webhook-secret", operator_token=sys.argv[2])
with open_listener("127.0.0.1", 0) as listener:
    asyncio.run(run_server(settings, (), {}, listener))
"""

pytestmark = pytest.mark.slow
schema = schemathesis.openapi.from_path(ROOT / "docs" / "openapi.json")
# A command that is too long can also make the body too large. Schemathesis does not count this status as a rejection.
REJECTION = schema.config.checks.negative_data_rejection
REJECTION.expected_statuses = [*REJECTION.expected_statuses, "413"]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir="/tmp") as data:
        process = subprocess.Popen(
            (sys.executable, "-c", SERVER, data, TOKEN), cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1].removesuffix("/webhook")
        body = {"repository": "acme/sample", "number": 7, "id": "nightly-7"}
        try:
            assert httpx.post(f"{url}/jobs", json=body, headers=AUTHORIZED, timeout=60).status_code == 202
            yield url
        finally:
            process.terminate()
            process.wait(60)


@pytest.mark.timeout(1800)
@pytest.mark.redis
@schema.parametrize()
@settings(max_examples=CASES, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_answer_to_a_generated_request_is_described(case: schemathesis.Case, server: str) -> None:
    case.call_and_validate(base_url=server, headers=AUTHORIZED, excluded_checks=EXCLUDED)
