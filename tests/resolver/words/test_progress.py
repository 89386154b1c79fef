"""What the one comment of a run says while the run goes on."""

from pathlib import Path

import pytest

from resolver import prose
from resolver.actions import Action, Ask, Browse, CallTool, Delegate, Finish, Plan, PlanItem, Think
from resolver.domain import JobId, Verdict
from resolver.events import Ended, Judged, Told, Trajectory
from resolver.settings.settings import Settings
from resolver.words.doing import doing
from resolver.words.progress_prose import progress
from runtime.actions import (
    CreateFile,
    RunPython,
    RunShell,
    SearchCode,
    SendInput,
    UndoEdit,
    UseBrowser,
    ViewFile,
)
from tests.resolver.seen_runs import decided, ran, run_of, started, step

SETTINGS = Settings(data=Path("/nowhere"), public_url="https://bot.test")


def told(trajectory: Trajectory, settings: Settings = SETTINGS) -> str:
    return progress(JobId("acme-calc-9"), trajectory, settings)


def test_before_the_first_step_it_says_what_will_come_and_how_to_stop() -> None:
    assert told(run_of()) == (
        "I am working on this. This comment will say how it went.\n\n"
        "**Now:** fetching the repository\n\n"
        "**To stop me**, comment `@agent stop`. **To watch**, open [the page of this run]"
        "(https://bot.test/runs/acme-calc-9).\n"
    )


def test_it_says_the_plan_the_step_what_it_cost_and_how_to_stop() -> None:
    items = (PlanItem(text="Find the fault", state="done"), PlanItem(text="Mend it", state="doing"))
    trajectory = run_of(
        started(), *step("c1", Plan(items=items), ran("")), decided("c2", RunShell(command="pytest -q"))
    )
    assert told(trajectory) == (
        "I am working on this.\n\n"
        "**Now:** running `pytest -q`\n\n"
        "- [x] Find the fault\n"
        "- [ ] Mend it (now)\n\n"
        "So far: 2 steps of `vendor/model-1` · $0.0200 · 2,100 tokens · working time 3.0 s · docker sandbox\n\n"
        "**To stop me**, comment `@agent stop`. **To watch**, open [the page of this run]"
        "(https://bot.test/runs/acme-calc-7).\n"
    )


def test_a_page_that_only_the_server_s_machine_opens_is_named_as_one() -> None:
    here = SETTINGS.model_copy(update={"public_url": "http://127.0.0.1:8000"})
    assert told(run_of(), here).endswith(
        "open [the page of this run](http://127.0.0.1:8000/runs/acme-calc-9) (opens only on the machine of the "
        "server).\n"
    )


def test_it_says_that_checks_failed_where_nobody_asked() -> None:
    begun = started()
    job = begun.job.model_copy(update={"checks": "abc" * 13 + "d", "requester": None})
    assert told(run_of(begun.model_copy(update={"job": job}))).startswith(
        "I am working on this. This comment will say how it went.\n"
        "Checks failed on my commit abcabcabcabc, and I look into them.\n\n**Now:**"
    )


def test_in_a_workflow_the_workflow_is_what_to_cancel() -> None:
    settings = SETTINGS.model_copy(update={"workflow_url": "https://forge.test/runs/1"})
    assert told(run_of(started()), settings).endswith(
        "**To stop me**, cancel [the workflow run](https://forge.test/runs/1).\n"
    )
    silent = Settings(data=Path("/nowhere"), mention="@mend")
    assert told(run_of(started()), silent).endswith("**To stop me**, comment `@mend stop`.\n")


def test_what_the_model_says_mentions_closes_and_loads_nothing() -> None:
    evil = "`@owner` fixes #3 <img src=x> ![x](https://evil.test/a.png) </details>\n\n# Heading"
    items = (PlanItem(text=evil, state="doing"),)
    for action in (RunShell(command=evil), Browse(task=evil), SearchCode(query=evil), Think(thought=evil)):
        text = told(run_of(started(), *step("c1", Plan(items=items), ran("")), decided("c2", action)))
        for live in ("@owner", "#3", "fixes #", "<img", "![", "</details", "\n# "):
            assert live not in text, (action, live)
        assert text.count("`") % 2 == 0


STEPS: list[tuple[Action, tuple[str, str]]] = [
    (SendInput(text="y"), ("answering a command that waits", "")),
    (RunPython(code="1 + 1"), ("running Python,", "1 + 1")),
    (UseBrowser(code="goto('x')"), ("in the browser,", "goto('x')")),
    (Browse(task="Is it up?"), ("browsing to find out:", "Is it up?")),
    (Delegate(tasks=("Where?", "Who?")), ("finding out beside the work:", "Where?; Who?")),
    (ViewFile(path="calc.py"), ("reading", "calc.py")),
    (SearchCode(query="add"), ("searching the code for", "add")),
    (SearchCode(what="outline", path="calc.py"), ("looking around", "")),
    (CreateFile(path="a.py", content=""), ("writing", "a.py")),
    (UndoEdit(path="a.py"), ("taking back the last edit of", "a.py")),
    (CallTool(name="tracker__find", arguments={}), ("using the tool", "tracker__find")),
    (Ask(question="Which?"), ("asking", "")),
    (Finish(cause="c", change="c", checked="c"), ("finishing", "")),
    (Think(thought="Hm."), ("thinking", "")),
]


@pytest.mark.parametrize(("action", "words"), STEPS, ids=lambda value: getattr(value, "kind", ""))
def test_every_step_has_its_words(action: Action, words: tuple[str, str]) -> None:
    seen = doing(run_of(started(), decided("c1", action)))
    assert (seen.words, seen.what) == words


def test_what_goes_on_between_the_steps_is_said_too() -> None:
    agent = (started(), *step("c1", RunShell(command="ls"), ran("a")))
    ended = (*agent, Ended(reason="finished", detail="Done."))
    judged = (*ended, Judged(verdict=Verdict(kind="regressed")))
    words = {
        "fetching the repository": run_of(started()),
        "thinking about what came of the last step": run_of(*agent),
        "running the tests with the change": run_of(*ended),
        "publishing what came of it": run_of(*judged),
    }
    assert {doing(trajectory).words for trajectory in words.values()} == set(words)
    for expected, trajectory in words.items():
        assert doing(trajectory).words == expected
    again = run_of(*judged, Told(text="A test fails.", source="proof"))
    assert doing(again).words == "thinking about what came of the last step"
    several = run_of(started(), decided("c1", RunShell(command="a"), RunShell(command="b")))
    assert doing(several).words == "running (and 1 more at once)"


def test_its_first_sentence_tells_that_a_run_is_under_way() -> None:
    first = prose.working().partition(".")[0]
    assert all(told(trajectory).startswith(first) for trajectory in (run_of(), run_of(started())))
