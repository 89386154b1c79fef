"""Every template of a prompt is held by a golden file, and the operator's template of its name replaces it."""

import os
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace as Values
from typing import Any

import pytest
from jinja2 import meta

from patchwright.resolver.actions import SubagentResult
from patchwright.resolver.domain import ModelReview, TestRun, Usage
from patchwright.resolver.llm.model import AssistantMessage, RawToolCall, ToolMessage, ToolSpec, UserMessage
from patchwright.resolver.preparation.attachments import ThreadAttachments
from patchwright.resolver.preparation.instructions import select_instructions
from patchwright.resolver.prompts.initial_prompt import (
    PreparedSandbox,
    RepositoryFacts,
    RequestToAgent,
    build_initial_prompt,
    describe_baseline,
)
from patchwright.resolver.pull_request.pr_context import CurrentDiff, EarlierRun, PullRequestContext
from patchwright.resolver.rendering.jinja_templates import get_environment, set_template_directory
from patchwright.resolver.rendering.template_renderer import render
from patchwright.resolver.skills.skills import RepoSkill, RepoSkills
from patchwright.resolver.text.untrusted import quote
from patchwright.resolver.tool_actions.control_actions import Plan
from patchwright.runtime.tool_action import PlanItem
from tests.resolver.prompts.test_initial_prompt import SUITE, issue
from tests.resolver.pull_requests import comment, job, pull
from tests.resolver.sample_runs import RUN, verdict

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests/golden/prompts"
TEMPLATES = {path.name.removesuffix(".md.j2") for path in (ROOT / "templates/prompts").glob("*.md.j2")}
ELSEWHERE = {"system": "system_prompts/docker.md", "browsing": "browsing_prompt.md"}
"""Templates whose golden files other tests hold."""

TEXT = quote("Mind zero.\nAnd <!-- hidden --> floats.", 19)
SKILL = RepoSkill(name="flaky", path=".agents/skills/flaky/SKILL.md", kind="triggered", text="Run twice.",
                  description="How to treat flaky tests.", triggers=("flaky",))  # fmt: skip
AGENT = SKILL.model_copy(update={"name": "editor", "edits": True, "author": "operator"})
ALWAYS = SKILL.model_copy(
    update={"name": "AGENTS.md", "path": "AGENTS.md", "kind": "always", "text": "Use ruff."}
)
SKILLS = RepoSkills(skills=(ALWAYS, SKILL), problems=("x.md is not UTF-8",))
TOOL = ToolSpec(
    name="look", description="Look at a file.",
    parameters={"properties": {"path": {"type": "string", "description": "The file."}, "lines": {
        "type": "array", "default": [], "items": {"properties": {"at": {"type": "integer"}}, "required": ["at"]},
    }}, "required": ["path"]},
)  # fmt: skip
BASELINE = TestRun(command="pytest", results={"t.py::a": "passed", "t.py::b": "failed"}, exit_code=1, seconds=2,
                   output="No module named 'yaml'")  # fmt: skip
SANDBOX = {"root": "/workspace", "scratch": "/tmp/scratch"}
USAGE = Usage(steps=2, usd=Decimal("0.02"), seconds=9)
ANSWER = SubagentResult(run=RUN, status="answered", text="It is 42.", usage=USAGE, task="What is it?")
SHAKY = verdict().model_copy(update={"kind": "unproven", "reason": "No test shows the fix.", "fail_to_pass": (),
    "review": ModelReview(approved=False, reasons="It misses zero.", model="m")})  # fmt: skip
BROKEN = verdict().model_copy(
    update={"kind": "regressed", "pass_to_fail": ("t.py::a",), "reverted_test_config": ("c.py",)}
)
MESSAGES = (UserMessage(text="Issue 7"), ToolMessage(tool_call_id="a", text="ok"), AssistantMessage(
    text="I look.", tool_calls=(RawToolCall(id="a", name="run_shell", arguments="{}"),), model="m"))  # fmt: skip
FOUND = Values(
    provider="Tavily",
    cost="1 credit",
    answer="42.",
    results=[Values(url="https://a.test", title="A", snippet="")],
)
NOT_FOUND = Values(provider="Exa", cost="", answer="", results=[])
PUSH_RATING = Values(risk="high", reason="it pushes")
SEARCH_FAILURES = "key credit busy query broken silent unreachable other".split()
PULL = PullRequestContext(
    diff=CurrentDiff(merge_base="b" * 40, has_merge_base=True, files="1 0 a.py", diff=TEXT, omitted_files=("b.py",)),
    threads=(), omitted_threads=1, resolved_threads=2, review=(comment("Mind zero."), TEXT), merge=None,
    earlier_runs=(EarlierRun(opened_pull_request=True, verdict="fixed", reason="1 test passes now.", cause=TEXT,
                             change=TEXT, testing=TEXT),),
)  # fmt: skip


def first_message(thread: Any, task: Any, context: PullRequestContext | None = None) -> dict[str, Any]:
    facts = RepositoryFacts("0123456789abcdef", ("a.py",), SUITE, BASELINE, select_instructions(
        SKILLS, thread, "It is flaky.", 1_000))  # fmt: skip
    attachments = ThreadAttachments(problems=("a.png: too large",))
    sandbox = PreparedSandbox(
        "/workspace", "python3", uploaded_attachments=attachments, linked_hosts=("a.test",)
    )
    request = RequestToAgent("Mind zero.", task, "maintainer", has_demonstration=task == "plan")
    prompt = build_initial_prompt(thread, request, facts, sandbox, context)
    return vars(prompt.request) | vars(prompt.repository) | vars(prompt.sandbox) | vars(prompt)


def each(field: str, /, *values: Any, **others: Any) -> list[dict[str, Any]]:
    return [{field: value, **others} for value in values]


ASKED = issue(comments=(comment("It is flaky."),)).model_copy(update={"question": "Which one?"})
CASES: dict[str, list[dict[str, Any]]] = {
    "initial_prompt": [first_message(ASKED, "work"), first_message(ASKED, "plan"), first_message(ASKED, "explain"),
                       first_message(pull(), "work", PULL)],
    "another_attempt": [{"number": 1, "max_attempts": 2, "verdict": SHAKY}],
    "answer": each("answer", TEXT, job=job()),
    "baseline": [describe_baseline(BASELINE)],
    "browsing_unfinished": each("page", None, Values(url="http://a.test", title="A"), detail="Stopped.", thought="Hm."),
    "call_decision": [
        {"is_expired": expired, "approved": approved, "includes_similar": approved, "person": "m", "remark": TEXT}
        for expired, approved in ((True, False), (False, True), (False, False))
    ],
    "challenge": each("challenge", "a CAPTCHA", "a consent page"),
    "challenged": [{"url": "http://a.test", "challenge": "a CAPTCHA"}],
    "commit_writer": [{"text": "Write it."}],
    "condensation": [
        {"replies": 9, "summary": "It is the sign.", "steps": None, "plan": Plan(items=(PlanItem(text="Fix it"),))},
        {"replies": 9, "summary": None, "steps": [Values(number=1, action="ls", result="exit code 0")], "plan": None},
    ],
    "condense_request": each("messages", MESSAGES),
    "conversation": [
        SANDBOX | {"kind": kind, "network": network, "tools": tools, "instructions": "Be brief."}
        for kind, network, tools in (("docker", "none", []), ("docker", "open", ["finish"]), ("local", "none", []))
    ],
    "edits_undone": each("is_undone", True, False, problem="It failed."),
    "explain_system": [
        SANDBOX | {"kind": kind, "network": "open", "is_pull_request": kind == "docker", "max_length": 8_000}
        for kind in ("docker", "local")
    ],
    "external_tool": [{"text": "Looks.", "server": "docs"}],
    "finish_rejected": [{"missing": ["No test was run."]}],
    "formed_report": [{"max_report_length": 8_000}],
    "found_on_web": each("results", FOUND, NOT_FOUND, used=1, max_searches=5),
    "guessed": [{"url": "http://a.test"}],
    "investigator_system": [
        SANDBOX | {"kind": kind, "steps": 9, "max_report_length": 8_000, "skill": skill, "text": "Do it."}
        for kind, skill in (("docker", None), ("local", None), ("docker", AGENT), ("docker", SKILL))
    ],
    "investigator_unfinished": [{"detail": "Stopped.", "thought": "Hm."}],
    "lost_call": [{"is_saved": saved, "is_same_sandbox": same} for saved, same in ((1, 1), (0, 1), (0, 0))],
    "malformed_call": [{"problems": ["`path` is missing."], "tool": TOOL}],
    "masked_result": each("label", "output", "diff", "answer", size=9_000, facts="[exit code 0]"),
    "message": each("job", job(), job().model_copy(update={"requester": None}), comment=TEXT),
    "message_prefix": [{"repo": job().repo}], "message_suffix": [{"repo": job().repo}],
    "system_prefix": [{"repo": job().repo}], "system_suffix": [{"repo": job().repo}],
    "micro_agent": each("skill", SKILL, AGENT), "micro_agent_task": each("skill", SKILL, AGENT, text="Do it."),
    "missing_url": [{"url": "http://a.test"}],
    "multimodal_system": each("frames", None, 3),
    "new_sandbox": each("reason", None, "it ran out of memory.", scratch="/tmp/scratch"),
    "no_action": each("cut_off", True, False),
    "no_call": each("final_tool", "finish", "propose_plan", "report", tools=["run_shell"]),
    "not_delegated": [{"is_too_deep": True, "count": 1}, {"is_too_deep": False, "count": 2}],
    "not_searched": each("max_searches", 5, None, provider="Exa"),
    "nudge": [
        {"pattern": Values(kind=kind, times=3, calls=("ls",)), "final_tool": tool}
        for kind, tool in (("same call", "finish"), ("two calls in turn", "propose_plan"), ("same error", "report"))
    ],
    "off_form": [{"problem": "`text` is missing"}],
    "plan_approval": [{"requester": "maintainer", "comment": TEXT}],
    "plan_feedback": [{"requester": "maintainer", "comment": TEXT}],
    "plan_request": [{"requester": "maintainer", "root": "/workspace"}],
    "planning": each("has_list", True, False),
    "resume_message": each("comment", TEXT, quote("", 9), job=job(), stop_reason="A limit."),
    "review_request": each("is_truncated", True, title="It breaks", issue=TEXT, verdict=SHAKY, diff="+1"),
    "search_failed": each("reason", *SEARCH_FAILURES, provider="Exa", seconds=9),
    "skill": each("next_line", None, 90, skill=SKILL, text="Run twice.", start=1),
    "steps_left": each("final_tool", "finish", "propose_plan", "report", steps=5),
    "subagent_result": each("result", ANSWER, ANSWER.model_copy(update={"results": (ANSWER,)}), ANSWER.model_copy(
        update={"status": "infeasible", "guessed_urls": ("http://a.test",)})),
    "text_tools": each("tools", [TOOL]), "tool_fields": each("tool", TOOL),
    "too_many_calls": [{"count": 40, "limit": 32}],
    "too_risky": each("cause", "too_long", "nobody", "", rating=PUSH_RATING, max_length=1_000),
    "triggered_skill": [{"included": select_instructions(SKILLS, ASKED, "", 1_000).included[1]}],
    "truncated": each("tool", None, "create_file"),
    "instructions": each("instructions", select_instructions(SKILLS, ASKED, "", 1_000)),
    "system_instructions": each("instructions", select_instructions(SKILLS, ASKED, "", 1_000)),
    "unknown_skill": each("names", [], ["flaky"], name="x"),
    "unknown_tool": each("suggestions", None, "look", name="loo", known=["look"]),
    "unsettled_verdict": each("verdict", SHAKY), "use_tool": each("tools", [("look", "Look at a file.")]),
    "verification_failed": each("verdict", BROKEN, SHAKY),
}  # fmt: skip
"""For each template, the values of each rendering. A template without values is not listed."""


def names_in(template: str) -> set[str]:
    """Returns the names of the templates that a template includes, directly or not."""
    environment = get_environment()
    assert environment.loader is not None
    source = environment.loader.get_source(environment, f"prompts/{template}.md.j2")[0]
    names = {name[8:-6] for name in meta.find_referenced_templates(environment.parse(source)) if name}
    return names.union(*map(names_in, names))


@pytest.mark.parametrize("name", sorted(name for name in TEMPLATES - ELSEWHERE.keys() if name[0] != "_"))
def test_a_prompt_equals_its_golden_file(name: str) -> None:
    """`script/regenerate` renews the files."""
    path = GOLDEN / f"{name}.md"
    text = "\n----------\n\n".join(
        render(f"prompts/{name}.md.j2", **values) for values in CASES.get(name, [{}])
    )
    if os.environ.get("PATCHWRIGHT_REGENERATE"):
        path.write_text(text)
    assert text == path.read_text()


def test_every_template_of_a_prompt_has_a_golden_file() -> None:
    render("prompts/finish_accepted.md.j2")  # Registers the filters.
    held = {path.stem for path in GOLDEN.glob("*.md")} | ELSEWHERE.keys()
    assert held.union(*map(names_in, held)) == TEMPLATES
    assert all((GOLDEN.parent / path).exists() for path in ELSEWHERE.values())


def test_the_operators_template_replaces_each_prompt_and_each_reply(tmp_path: Path) -> None:
    files = [path for name in ("prompts", "replies") for path in (ROOT / "templates" / name).glob("*.j2")]
    names = [f"{path.parent.name}/{path.name}" for path in files]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"My {name}.")
    try:
        set_template_directory(tmp_path)
        assert {name: render(name) for name in names} == {name: f"My {name}.\n" for name in names}
    finally:
        set_template_directory(None)
