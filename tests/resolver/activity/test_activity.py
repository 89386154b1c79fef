"""The status comment of a run in progress."""

from pathlib import Path

import pytest

from patchwright.resolver.actions import Action
from patchwright.resolver.activity.activity import get_activity, render_progress
from patchwright.resolver.activity.summary import summarize_run
from patchwright.resolver.domain import JobId, SalvagedWork, Verdict
from patchwright.resolver.events import (
    AgentStopped,
    Message,
    ModelReply,
    SystemPrompt,
    Trajectory,
    VerificationCompleted,
)
from patchwright.resolver.publishing import reply_texts
from patchwright.resolver.rendering.template_renderer import render_reply
from patchwright.resolver.settings.settings import Settings
from patchwright.resolver.tool_actions.control_actions import Ask, Finish, Plan, Think
from patchwright.resolver.tool_actions.subagent_actions import Browse, Delegate
from patchwright.resolver.tool_actions.unchecked_actions import CallTool
from patchwright.runtime.actions import (
    CreateFile,
    RunPython,
    RunShell,
    SearchCode,
    SendInput,
    UndoEdit,
    UseBrowser,
    ViewFile,
)
from patchwright.runtime.tool_action import PlanItem
from tests.resolver.pull_requests import pull
from tests.resolver.sample_runs import full_run, model_reply, run_of, shell_result, started, step

SETTINGS = Settings(data=Path("/nowhere"), public_url="https://bot.test")


def render_status(trajectory: Trajectory, settings: Settings = SETTINGS) -> str:
    return render_progress(JobId("acme-calc-9"), trajectory, settings)


def test_before_the_first_step_the_comment_says_how_to_stop() -> None:
    assert render_status(run_of()) == (
        "I am working on this. I will post the result in this comment.\n\n"
        "**Now:** fetching the repository\n\n"
        "**To stop me**, comment `@agent stop`. **To watch**, open [the "
        "dashboard](https://bot.test/runs/acme-calc-9).\n"
    )


def test_the_comment_shows_plan_step_cost_and_how_to_stop() -> None:
    items = (PlanItem(text="Find the fault", status="done"), PlanItem(text="Fix it", status="doing"))
    trajectory = run_of(
        started(),
        *step("c1", Plan(items=items), shell_result("")),
        model_reply("c2", RunShell(command="pytest -q")),
    )
    assert render_status(trajectory) == (
        "I am working on this.\n\n"
        "**Now:** running `pytest -q`\n\n"
        "- [x] Find the fault\n"
        "- [ ] Fix it (now)\n\n"
        "So far: 2 steps · $0.0200 · 3.0 s\n\n"
        "**To stop me**, comment `@agent stop`. **To watch**, open [the "
        "dashboard](https://bot.test/runs/acme-calc-7).\n"
    )


def test_a_loopback_dashboard_link_says_so() -> None:
    here = SETTINGS.model_copy(update={"public_url": "http://127.0.0.1:8000"})
    assert render_status(run_of(), here).endswith(
        "open [the dashboard](http://127.0.0.1:8000/runs/acme-calc-9) (opens only on the server's own "
        "machine).\n"
    )


def test_the_comment_names_failed_checks_without_a_requester() -> None:
    start = started()
    job = start.job.model_copy(update={"failed_checks_commit": "abc" * 13 + "d", "requester": None})
    assert render_status(run_of(start.model_copy(update={"job": job}))).startswith(
        "I am working on this. I will post the result in this comment.\n"
        "Checks failed on my commit abcabcabcabc. I am looking into them.\n\n**Now:**"
    )


def test_in_a_workflow_the_comment_says_to_cancel_the_workflow_run() -> None:
    settings = SETTINGS.model_copy(update={"workflow_url": "https://forge.test/runs/1"})
    assert render_status(run_of(started()), settings).endswith(
        "**To stop me**, cancel [the workflow run](https://forge.test/runs/1).\n"
    )
    silent = Settings(data=Path("/nowhere"), mention="@fix")
    assert render_status(run_of(started()), silent).endswith("**To stop me**, comment `@fix stop`.\n")


def test_model_text_in_the_comment_is_neutralized() -> None:
    evil = "`@owner` fixes #3 <img src=x> ![x](https://evil.test/a.png) </details>\n\n# Heading"
    items = (PlanItem(text=evil, status="doing"),)
    for action in (RunShell(command=evil), Browse(task=evil), SearchCode(query=evil), Think(thought=evil)):
        text = render_status(
            run_of(started(), *step("c1", Plan(items=items), shell_result("")), model_reply("c2", action))
        )
        for live in ("@owner", "#3", "fixes #", "<img", "![", "</details", "\n# "):
            assert live not in text, (action, live)
        assert text.count("`") % 2 == 0


def test_a_run_that_stopped_before_its_first_step_is_not_reported_as_unfinished() -> None:
    summary = summarize_run(run_of(started()))
    text = render_reply(
        "salvaged.md.j2",
        reason="the key is rejected.",
        work=SalvagedWork(),
        verdict=None,
        summary=summary,
        run="run-1",
        mention="@agent",
        is_permanent=True,
    )
    assert text.startswith("I had to stop before I started. The key is rejected.\n\nThe model had not "), text


def test_public_texts_do_not_show_the_reasoning_beside_calls() -> None:
    thought, block = (
        "I suspect the maintainer's arithmetic.",
        {"type": "thinking", "thinking": "Secretly, no."},
    )
    events = [
        event.model_copy(update={"thought": thought, "reasoning": (block,)})
        if isinstance(event, ModelReply)
        else event
        for event in full_run()
    ]
    texts = [render_status(run_of(*events[:end])) for end in range(len(events) + 1)]
    pending = run_of(started(), model_reply("c1", Think(thought=thought)))
    texts.append(render_status(pending))
    thread, finished = started().thread, run_of(*events)
    summary, verdict = summarize_run(finished), finished.verdict
    assert verdict and finished.replies()[-1].thought == thought
    work = SalvagedWork(branch="b", files=("calc.py",))
    texts += [
        reply_texts.render_pull_request_body(thread, verdict, summary),
        render_reply(
            "commit.txt.j2",
            thread=thread,
            finish=summary.finish,
            requester="",
            run="",
            files=(),
            written=None,
        ),
        render_reply(
            "published.md.j2", pull=pull(number=8), verdict=verdict, summary=summary, already_open=False
        ),
        render_reply(
            "no_pull_request.md.j2",
            reason=verdict.reason,
            branch="b",
            verdict=verdict,
            summary=summary,
            pasted_patch="",
            advice="",
        ),
        render_reply(
            "question.md.j2",
            question="Does it round?",
            summary=summary.model_copy(update={"configuration": None}),
        ).strip(),
        render_reply(
            "salvaged.md.j2",
            reason="somebody stopped it.",
            work=work,
            verdict=verdict,
            summary=summary,
            run="run-1",
            mention="@agent",
            is_permanent=True,
        ),
        render_reply("withdrawn.md.j2", explanation="The issue was closed.", summary=summary),
    ]
    for text in texts:
        assert "arithmetic" not in text and "Secretly" not in text


STEPS: list[tuple[Action, tuple[str, str]]] = [
    (SendInput(text="y"), ("sending input to a running command", "")),
    (RunPython(code="1 + 1"), ("running Python:", "1 + 1")),
    (UseBrowser(code="goto('x')"), ("using the browser:", "goto('x')")),
    (Browse(task="Is it up?"), ("browsing:", "Is it up?")),
    (Delegate(tasks=("Where?", "Who?")), ("delegating:", "Where?; Who?")),
    (ViewFile(path="calc.py"), ("reading", "calc.py")),
    (SearchCode(query="add"), ("searching the code for", "add")),
    (SearchCode(what="outline", path="calc.py"), ("exploring the code", "")),
    (CreateFile(path="a.py", content=""), ("writing", "a.py")),
    (UndoEdit(path="a.py"), ("undoing the last edit of", "a.py")),
    (CallTool(name="tracker__find", arguments={}), ("using the tool", "tracker__find")),
    (Ask(question="Which?"), ("asking a question", "")),
    (Finish(cause="c", change="c", testing="c"), ("finishing", "")),
    (Think(thought="Hm."), ("thinking", "")),
]


@pytest.mark.parametrize(("action", "words"), STEPS, ids=lambda value: getattr(value, "kind", ""))
def test_every_action_has_an_activity(action: Action, words: tuple[str, str]) -> None:
    activity = get_activity(run_of(started(), model_reply("c1", action)))
    assert (activity.verb, activity.target) == words


def test_phases_between_steps_have_an_activity() -> None:
    agent = (started(), *step("c1", RunShell(command="ls"), shell_result("a")))
    ended = (*agent, AgentStopped(reason="finished", detail="Done."))
    judged = (*ended, VerificationCompleted(verdict=Verdict(kind="regressed")))
    words = {
        "fetching the repository": run_of(started()),
        "waiting for the model's first reply": run_of(started(), SystemPrompt(text="", tools=())),
        "thinking about the last result": run_of(*agent),
        "running the tests with the change": run_of(*ended),
        "publishing the result": run_of(*judged),
    }
    assert {get_activity(trajectory).verb for trajectory in words.values()} == set(words)
    for expected, trajectory in words.items():
        assert get_activity(trajectory).verb == expected
    again = run_of(*judged, Message(text="A test fails.", source="verification"))
    assert get_activity(again).verb == "thinking about the last result"
    several = run_of(started(), model_reply("c1", RunShell(command="a"), RunShell(command="b")))
    assert get_activity(several).verb == "running (and 1 more in parallel)"


def test_the_first_sentence_says_that_a_run_is_in_progress() -> None:
    first = render_reply("working.md.j2").partition(".")[0]
    assert all(render_status(trajectory).startswith(first) for trajectory in (run_of(), run_of(started())))
