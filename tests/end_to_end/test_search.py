"""A complete run that searches the code and the web."""

import pytest

from patchwright.demo.recorded_model import RecordedTurn
from patchwright.resolver.actions import ExternalToolResult
from patchwright.resolver.tool_actions.lookup_actions import SearchWeb
from patchwright.runtime.actions import SearchCode
from patchwright.runtime.observations import TextResult
from tests.end_to_end.conftest import FIX_TURNS, Scenario
from tests.end_to_end.scripted_models import (
    SHOW_FAILURE,
    call_results,
    resolve_to_pull_request,
    use_ordered_model,
)
from tests.resolver.search_apis import EXA, Api, served

pytestmark = pytest.mark.slow

KEY = "canary-of-the-search-4711"


async def test_an_agent_searches_code_and_the_web_without_leaking_the_key(scenario: Scenario) -> None:
    with served(Api(answer=EXA)) as api:
        await use_ordered_model(
            scenario,
            RecordedTurn(
                "Look.", SHOW_FAILURE, SearchCode(query="add", what="definitions"), SearchCode(query="asserd")
            ),
            RecordedTurn("Ask.", SearchWeb(query="python add subtracts"), SearchWeb(query=f"who has {KEY}")),
            *FIX_TURNS,
            search_api_key=KEY,
            search_provider=f"exa={api.url}",
        )
        body = await resolve_to_pull_request(scenario)
    results = [result for _, result in call_results(scenario)][1:5]
    assert isinstance(results[0], TextResult) and results[0].text.startswith("calc.py:1-2: def add(a, b):\n")
    assert isinstance(results[1], TextResult) and results[1].text.startswith("[no line found in ")
    assert (
        isinstance(results[2], ExternalToolResult)
        and "Exa found 2 pages; this search cost $0.007." in results[2].text
    )
    assert isinstance(results[3], ExternalToolResult)
    queries = [request.body["query"] for request in api.requests]
    assert queries == ["python add subtracts", "who has <secret-hidden>"]  # masked in the model's own call
    assert api.requests[0].headers["x-api-key"] == KEY

    tools = {tool["function"]["name"]: tool for tool in scenario.endpoint.requests[0]["tools"]}
    assert "search_web" in tools and "- search_code: " in tools["use_tool"]["function"]["description"]
    messages = str(scenario.endpoint.requests)
    logs = "".join(path.read_text() for path in scenario.data.glob("runs/*/*") if path.is_file())
    for text in (messages, logs, body):
        assert KEY not in text
