"""Checks that every benchmark runs. People judge the figures."""

import asyncio
import importlib
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from websockets.asyncio.server import ServerConnection, serve

from benchmarks import log, server_section
from benchmarks.__main__ import NOT_MEASURES
from benchmarks.conversation_server import TEXT, Watchers
from benchmarks.measure import table
from benchmarks.played.billing import bill, count_tokens
from benchmarks.played.task import load_tasks
from benchmarks.real_fixes.patches import make_patches
from patchwright.evaluation.package_instances import select_pairs

MODULES = sorted(
    path.stem
    for path in (Path(__file__).parent.parent / "benchmarks").glob("*.py")
    if path.stem not in NOT_MEASURES
)


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_can_be_run_and_says_what_it_measures(name: str) -> None:
    module = importlib.import_module(f"benchmarks.{name}")
    assert callable(module.measure) and module.__doc__


@pytest.mark.slow
def test_writing_and_reading_a_log_is_held_against_the_papers_figures() -> None:
    results = {result.name: result for result in log.measure()}
    timed = {f"log_{what}{kind}" for what in ("append", "replay", "recovery") for kind in ("", "_p95")}
    assert timed == set(results) - {"log_size"}
    assert all(result.value > 0 and result.peers[log.PAPER] for result in results.values())
    printed = table([results["log_recovery"], results["log_recovery_p95"]]).splitlines()[1:]
    assert [line.rsplit(f"{log.PAPER} ")[1].split(",")[0] for line in printed] == ["7.4", "14.9"]
    assert len(log.events()) >= 358


def test_the_server_section_is_typed_as_the_readme_has_it() -> None:
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    typed = server_section.commands(readme)
    assert typed.splitlines()[-1] == ".venv/bin/patchwright serve"
    assert f"```sh\n{typed}```" in readme
    with pytest.raises(RuntimeError, match="no commands"):
        server_section.commands(readme.replace("### On a server", "### Elsewhere"))


def test_a_real_fix_that_breaks_other_functions_is_still_valid_code() -> None:
    code = "def stub(\n    a,\n): ...\n\n\ndef add(a, b):\n    return a - b\n\n\ndef one():\n    return 1\n"
    old = {"calc.py": code.encode(), "tests/test_calc.py": b"from calc import add, one, stub\n"}
    broken = make_patches("pypi", old, old | {"calc.py": code.replace("a - b", "a + b").encode()})[
        "breaks_others"
    ]
    assert compile(broken["calc.py"], "calc.py", "exec")
    assert b'def one():\n    raise RuntimeError("broken")\n' in broken["calc.py"]


@pytest.mark.slow
async def test_watchers_who_are_greeted_miss_no_event_after_they_are_ready() -> None:
    registered: list[ServerConnection] = []

    async def greet(socket: ServerConnection) -> None:
        await asyncio.sleep(0.5)  # It is open, but not registered yet.
        registered.append(socket)
        await socket.send("welcome")
        await socket.wait_closed()

    async with serve(greet, "127.0.0.1", 0) as server:
        (address,) = (one.getsockname() for one in server.sockets)
        urls = [f"ws://127.0.0.1:{address[1]}"] * 2
        async with Watchers(urls, 1, {}, is_greeted=True) as watchers:
            event = json.dumps({"timestamp": datetime.now(UTC).isoformat(), "text": TEXT})
            for socket in registered:
                await socket.send(event)
            assert len((await watchers.relayed()).waits) == 2
        async with Watchers(urls, 1, {}, is_greeted=True) as watchers:
            for socket in registered[2:]:
                await socket.close()
            with pytest.raises(RuntimeError, match="disconnected"):
                await watchers.relayed()


def test_a_played_task_names_a_pair_and_contains_its_own_finish() -> None:
    tasks = load_tasks([])
    assert len(tasks) >= 8 and len(select_pairs([task.pair for task in tasks])) == len(tasks)
    for task in tasks:
        assert task.replies[-1].calls[-1].name == "finish" and task.peer.requests > 1, task.pair
    assert [task.pair for task in load_tasks(["flake8", "npm:ini"])] == ["pypi:flake8", "npm:ini"]


def test_a_bill_counts_what_a_provider_reads_again() -> None:
    first = {"tools": [], "messages": [{"role": "user", "content": "one"}]}
    call = {"id": "a", "function": {"name": "run_shell", "arguments": "{}"}}
    answer = {"role": "assistant", "content": "two", "tool_calls": [call]}
    second = {"tools": [], "messages": [*first["messages"], answer]}
    tools, user, reply = map(count_tokens, ("[]", "user\none", "assistant\ntwo\nrun_shell\n{}"))
    kept = bill([first, second], ["x", "y z"])
    assert kept == (2, tools + user + reply, tools + user, count_tokens("x") + count_tokens("y z"), 0)
    assert kept.billed == kept.fresh + 0.1 * kept.cached + 5 * kept.written
    changed = bill([first, {"tools": [call], "messages": first["messages"]}], ["x", "y z"])
    assert (changed.cached, changed.changed_bytes) == (0, len("[]user\none"))
