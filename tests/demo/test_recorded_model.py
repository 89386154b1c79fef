"""The recorded model: keyed by turn, faithful to what a real one would do after a crash."""

import json
from collections.abc import Sequence
from typing import Any

import httpx

from patchwright.demo.recorded_model import (
    LOST_RESULT,
    RecordedModel,
    RecordedTurn,
    common_prefix_length,
    find_next_calls,
    rate_limited,
)
from patchwright.resolver.tool_actions.control_actions import Finish
from patchwright.runtime.actions import RunShell, ViewFile

FINISH = Finish(cause="a", change="b", testing="c")
TURNS = [RecordedTurn("Look.", RunShell(command="one"), ViewFile(path="two")), RecordedTurn("Done.", FINISH)]


def conversation(*replies: Sequence[str]) -> list[dict[str, Any]]:
    """A conversation in which each reply's calls were answered so."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Issue 7"}]
    for number, answers in enumerate(replies):
        ids = [f"c{number}-{n}" for n in range(len(answers))]
        calls = [{"id": id, "function": {"name": "x", "arguments": "{}"}} for id in ids]
        messages.append({"role": "assistant", "content": "", "tool_calls": calls})
        for id, answer in zip(ids, answers, strict=True):
            messages.append({"role": "tool", "tool_call_id": id, "content": answer})
    return messages


def upcoming(*replies: Sequence[str]) -> tuple[int, list[str]]:
    turn, calls = find_next_calls(conversation(*replies), TURNS)
    return turn, [call.name for call in calls]


def test_the_turn_is_derived_from_the_conversation() -> None:
    assert upcoming() == (0, ["run_shell", "view_file"])
    assert upcoming(["ok", "ok"]) == (1, ["finish"])
    assert upcoming(["ok", "ok"], ["ok"]) == (2, [])


def test_only_a_lost_reply_is_repeated() -> None:
    assert upcoming([LOST_RESULT, LOST_RESULT]) == (0, ["run_shell", "view_file"])
    assert upcoming(["ok", LOST_RESULT]) == (0, ["view_file"])
    assert upcoming(["ok", LOST_RESULT], [LOST_RESULT]) == (0, ["view_file"])
    assert upcoming(["ok", LOST_RESULT], ["ok"]) == (1, ["finish"])


async def ask(endpoint: RecordedModel, messages: list[dict[str, Any]], key: str = "k") -> httpx.Response:
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {key}"}) as client:
        return await client.post(
            f"{endpoint.base_url}/chat/completions", json={"model": "m", "messages": messages}
        )


async def test_it_responds_like_openai() -> None:
    turns: list[int] = []
    async with RecordedModel(TURNS, key="k", on_request=lambda turn, body: turns.append(turn)) as endpoint:
        endpoint.add_faults(rate_limited(retry_after=2))
        limited = await ask(endpoint, conversation())
        assert (limited.status_code, limited.headers["retry-after"]) == (429, "2")
        reply = (await ask(endpoint, conversation())).json()
        assert reply["choices"][0]["finish_reason"] == "tool_calls"
        shell, view = reply["choices"][0]["message"]["tool_calls"]
        assert json.loads(shell["function"]["arguments"])["command"] == "one"
        assert shell["id"] != view["id"]
        assert reply["usage"]["prompt_tokens"] > 0

        assert (await ask(endpoint, conversation(), key="other")).status_code == 401
        assert (await ask(endpoint, conversation(["ok"])[:-1])).status_code == 400
        assert (await ask(endpoint, conversation(["ok", "ok"], ["ok"]))).status_code == 400
        long = [{"role": "user", "content": "x" * 8000}]
        assert (await ask(endpoint, long)).json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        again = (await ask(endpoint, [*long, {"role": "user", "content": "more"}])).json()["usage"]
        assert again["prompt_tokens_details"]["cached_tokens"] == 1920
    assert turns == [0, 0, 2, 0, 0]


def test_the_common_prefix_is_measured_exactly() -> None:
    assert [
        common_prefix_length(a, b) for a, b in (("", "x"), ("abc", "abd"), ("abc", "abc"), ("b", "a"))
    ] == [
        0,
        2,
        3,
        0,
    ]
