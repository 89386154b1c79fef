"""Generated requests to a server with its own Redis: no server error, and no answer that the description lacks."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, assume, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from patchwright.bot.conversation_models import WorkspaceRecord, WorkspaceSpec
from patchwright.bot.redis.conversation_records import ConversationRecords
from patchwright.bot.redis.embedded_redis import running_redis_url

ROOT = Path(__file__).parents[3]
TOKEN = "operator-token-of-a-test"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
CASES = int(os.environ.get("API_TEST_CASES", "300"))
"""Most cases that are generated for each operation. With `-s`, pytest prints how many requests were sent for all."""

# A request can be invalid although its form is described: a command is any text, but `stop` is not a request for a run.
EXCLUDED = [positive_data_acceptance]

AGENT = {
    "kind": "Agent",
    "llm": {"kind": "LLM", "model": "openai/m", "base_url": "http://127.0.0.1:9", "api_key": "k"},
}
EXISTING = {"/jobs": "nightly-7", "/conversations": "generated", "/workspaces": "generated"}
"""The id of one resource of each kind."""

WITHOUT_ENGINE = os.environ | {"DOCKER_HOST": "tcp://127.0.0.1:9"}
SERVER = """
import asyncio, sys
from functools import partial
from pathlib import Path
from patchwright.bot.composition.conversation_factory import open_conversations
from patchwright.bot.http_server import open_listener
from patchwright.bot.web.server import ServerExtensions, run_server
from patchwright.resolver.settings.settings import Settings

settings = Settings(data=Path(sys.argv[1]), webhook_secret="story-webhook-secret", operator_token=sys.argv[2])
with open_listener("127.0.0.1", 0) as listener:
    extensions = ServerExtensions(open_conversations=partial(open_conversations, settings, {}))
    asyncio.run(run_server(settings, (), {}, listener, extensions=extensions))
"""

pytestmark = pytest.mark.slow
schema = schemathesis.openapi.from_path(ROOT / "docs" / "openapi.json")
# A command that is too long can also make the body too large. Schemathesis does not count this status as a rejection.
REJECTION = schema.config.checks.negative_data_rejection
REJECTION.expected_statuses = [*REJECTION.expected_statuses, "413"]
# The server has no engine: each use of a container is answered with 503, which the description lists.
SERVER_ERROR = schema.config.checks.not_a_server_error
SERVER_ERROR.expected_statuses = [*SERVER_ERROR.expected_statuses, "503"]


async def save_workspace(redis_url: str, workspace: WorkspaceRecord) -> None:
    records = ConversationRecords(redis_url)
    await records.save_workspace(workspace)
    await records.close()


@pytest.fixture(scope="module")
def statuses() -> Iterator[Counter[int]]:
    """Yields the number of responses with each status, and prints them at the end."""
    counter: Counter[int] = Counter()
    yield counter
    print(f"\n{counter.total()} generated requests, with these statuses: {dict(sorted(counter.items()))}")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir="/tmp") as data:
        process = subprocess.Popen(
            (sys.executable, "-c", SERVER, data, TOKEN),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            env=WITHOUT_ENGINE,
        )
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1].removesuffix("/webhook")
        body = {"repository": "acme/sample", "number": 7, "id": "nightly-7"}
        try:
            with httpx.Client(base_url=url, headers=AUTHORIZED, timeout=60) as client:
                assert client.post("/jobs", json=body).status_code == 202
                workspace = WorkspaceRecord(
                    id="generated", spec=WorkspaceSpec(), created_at=datetime.now(UTC)
                )
                asyncio.run(save_workspace(running_redis_url(Path(data)) or "", workspace))
                conversation = {"id": "generated", "workspace": "generated", "agent": AGENT}
                assert client.post("/conversations", json=conversation).status_code == 201
            yield url
        finally:
            process.terminate()
            process.wait(60)


@pytest.mark.timeout(1800)
@pytest.mark.redis
@schema.parametrize()
@settings(max_examples=CASES, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_answer_to_a_generated_request_is_described(
    case: schemathesis.Case, server: str, statuses: Counter[int]
) -> None:
    # The URL does not contain such a parameter, so the request is valid.
    assume(not any(value in ([], {}, None) for value in case.query.values()))
    existing = EXISTING.get(case.path.partition("/{id}")[0], "")
    # About half of the requests name a resource that exists.
    if (
        existing
        and "{id}" in case.path
        and case.method != "DELETE"
        and len(str(case.path_parameters["id"])) % 2
    ):
        case.path_parameters = {**case.path_parameters, "id": existing}
    response = case.call_and_validate(base_url=server, headers=AUTHORIZED, excluded_checks=EXCLUDED)
    statuses[response.status_code] += 1
