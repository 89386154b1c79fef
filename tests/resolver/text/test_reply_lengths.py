"""Each comment is short: what a reader sees before opening a section is held by golden files."""

import json
import os
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from patchwright.resolver.activity.summary import StepSummary, Summary
from patchwright.resolver.ci.ci_hold import CiHold
from patchwright.resolver.domain import (
    Issue,
    SalvagedWork,
    TestRun,
    TestStatus,
    Usage,
    User,
    Verdict,
)
from patchwright.resolver.pipeline.publish import QUESTION_ADVICE
from patchwright.resolver.proof.condition_finder import find_conditions
from patchwright.resolver.publishing import publishing_texts, reply_texts
from patchwright.resolver.rendering.template_renderer import render_reply
from patchwright.resolver.run_events import RunConfigured
from patchwright.resolver.tool_actions.control_actions import Finish
from tests.resolver.pull_requests import job, pull

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests/golden/replies"
BRANCH = "patchwright/issue-1"
MAX_WORDS = {
    "pull_request": 120, "pull_request_draft": 150, "pull_request_conditional": 180,
    "published": 40, "regressed": 100, "forbidden": 130,
    "no_change": 100, "rejection": 25, "queued": 12, "salvaged": 50, "question": 40, "withdrawn": 30,
    "failed": 25,
}  # fmt: skip
"""The words above the first folded section, at most."""


def demo_finish() -> Finish:
    """The report of the demo's agent."""
    recording = json.loads((ROOT / "demo/sample/recording.json").read_text())
    (call,) = recording[-1]["calls"]
    return Finish.model_validate(call["arguments"])


def demo_verdict() -> Verdict:
    """The verdict on the demo's change."""
    existing: dict[str, TestStatus] = {f"tests/test_reading.py::test_{n}": "passed" for n in range(20)}
    cases = ("3599.7-1h", "59.6-1m", "86399.9-1d")
    fixed = tuple(f"tests/test_writing.py::test_a_fraction_is_carried[{case}]" for case in cases)
    new: dict[str, TestStatus] = dict.fromkeys(fixed, "passed")
    before = TestRun(
        command="python3 -m pytest", results=existing, exit_code=0, seconds=1.5, output="",
        command_reason="No test command is configured.",
    )  # fmt: skip
    return Verdict(
        kind="fixed",
        fail_to_pass=fixed,
        new_tests_at_base=dict.fromkeys(fixed, "failed"),
        before=before,
        after=before.model_copy(update={"results": {**existing, **new}}),
        reason="3 tests failed without the patch and passed with it; none broke.",
    )


DIFF = b"""\
diff --git a/tests/test_reading.py b/tests/test_reading.py
--- a/tests/test_reading.py
+++ b/tests/test_reading.py
@@ -4,4 +4,4 @@ from durations import read

 def test_1():
-    assert read("1h") == 60
+    assert read("1h") == 3600

@@ -12,2 +12,3 @@ def test_2():
-    assert read("1.6") == 1
+    # Half a second is rounded up.
+    assert read("1.6") == 2

diff --git a/tox.ini b/tox.ini
--- a/tox.ini
+++ b/tox.ini
@@ -2 +2 @@ [pytest]
-addopts = -x
+addopts = -q
"""


def add_conditions(verdict: Verdict, diff: bytes = b"", **update: Any) -> Verdict:
    """The verdict with these lists and the conditions that follow from them."""
    changed = verdict.model_copy(update=update)
    return changed.model_copy(update={"conditions": find_conditions(changed, diff)})


def demo_summary() -> Summary:
    """The summary of the demo's run."""
    steps = (StepSummary(number=1, action="$ python3 -m pytest -q", result="exit code 1: 1 failed"),)
    usage = Usage(steps=10, seconds=62, unpriced=True)
    return Summary(
        finish=demo_finish(), stop_detail="The agent finished the work.", steps=steps, usage=usage,
        model="openai/recorded", sandbox="docker",
    )  # fmt: skip


def render_all() -> dict[str, str]:
    """Renders each typical outcome of the demo's run."""
    title = (ROOT / "demo/sample/issue.md").read_text().partition("\n")[0].lstrip("# ")
    author = User(id=1, login="reporter")
    issue = Issue(number=1, title=title, body="", author=author, trusted=False, open=True, url="")
    summary = demo_summary()
    limits = RunConfigured(
        version="1.2.3", models={}, steps=100, seconds=3600, usd=Decimal(2), settings={"max_tokens": 2_000_000},
        repository={},
    )  # fmt: skip
    configured = summary.model_copy(update={"configuration": limits})
    verdict = demo_verdict()
    unproven = Verdict(
        kind="unproven", before=verdict.before, after=verdict.after,
        reason="No test fails without the patch and passes with it, so no test shows the fix.",
    )  # fmt: skip
    changed = ("tests/test_reading.py::test_1", "tests/test_reading.py::test_2")
    conditional = add_conditions(
        verdict, DIFF, kind="conditional", modified_tests_failing=changed, reverted_test_config=("tox.ini",)
    )
    broken = "tests/test_reading.py::test_1"
    regressed = unproven.model_copy(
        update={
            "kind": "regressed", "pass_to_fail": (broken,), "patch_tests_failing": (broken,),
            "reason": "1 test passed without the patch and failed with it, twice.",
        }
    )  # fmt: skip
    hold = CiHold(state="held", outsiders=("reporter",)).render_notice("@agent")
    body, context = reply_texts.render_pull_request_body, reply_texts.PullRequestRemarks
    refused = publishing_texts.render_no_pull_request_reason("forbidden")
    advice = publishing_texts.render_pull_request_forbidden(
        "https://forge.test/acme/durations", "main", BRANCH, "@agent", is_actions=True
    )
    nothing = render_reply("nothing_changed.md.j2", summary=summary).strip()
    work = SalvagedWork(branch=f"{BRANCH}-after-10-steps", files=("durations/writing.py",))
    return {
        "pull_request": body(issue, verdict, configured, context(ci=hold)),
        "pull_request_draft": body(
            issue, unproven, summary, context(open_points=("The suite was not run.",), ci=hold)
        ),
        "pull_request_conditional": body(issue, conditional, summary, context(ci=hold, is_draft=True)),
        "published": render_reply(
        "published.md.j2", pull=pull(number=2), verdict=verdict, summary=summary, already_open=False
    ),
        "regressed": render_reply(
        "no_pull_request.md.j2",
        reason=regressed.reason,
        branch=BRANCH,
        verdict=regressed,
        summary=summary,
        pasted_patch="",
        advice="",
    ),
        "forbidden": render_reply(
        "no_pull_request.md.j2",
        reason=refused,
        branch=BRANCH,
        verdict=verdict,
        summary=summary,
        pasted_patch="",
        advice=advice,
    ),
        "no_change": render_reply(
        "no_pull_request.md.j2",
        reason=nothing,
        branch=None,
        verdict=Verdict(kind="empty"),
        summary=summary,
        pasted_patch="",
        advice=QUESTION_ADVICE.format(mention="@agent"),
    ),
        "rejection": reply_texts.render_rejection(
            reply_texts.render_rejection_reason("permission", job())
        ),
        "queued": render_reply(
        "queue_notice.md.j2",
        ahead=0,
        mention="@agent",
        same_thread=False,
        building_images=False,
    ),
        "salvaged": render_reply(
        "salvaged.md.j2",
        reason="the operator stopped this run.",
        work=work,
        verdict=None,
        summary=summary,
        run="run-1",
        mention="@agent",
        is_permanent=True,
    ),
        "question": render_reply("question.md.j2", question="Does 1.5 round up or to even?", summary=summary).strip(),
        "withdrawn": render_reply(
            "withdrawn.md.j2", explanation=reply_texts.render_rejection_reason("withdrawn", job()), summary=summary
        ),
        "failed": render_reply(
            "failed.md.j2", sentence="the container engine failed.", run="run-1", workflow_url=None, is_repeated=False
        ),
    }  # fmt: skip


RENDERED = render_all()


def above_the_fold(text: str) -> str:
    return re.sub(r"<details>.*?</details>", "", text, flags=re.DOTALL)


@pytest.mark.parametrize("name", MAX_WORDS)
def test_each_comment_equals_its_golden_file(name: str) -> None:
    """Set PATCHWRIGHT_REGENERATE to renew the files."""
    path = GOLDEN / f"{name}.md"
    if os.environ.get("PATCHWRIGHT_REGENERATE"):
        path.write_text(RENDERED[name])
    assert RENDERED[name] == path.read_text()


@pytest.mark.parametrize(("name", "limit"), MAX_WORDS.items())
def test_each_comment_is_short_above_the_fold(name: str, limit: int) -> None:
    shown = above_the_fold(RENDERED[name])
    assert len(shown.split()) <= limit
    assert not re.search(r"::\w+\[|Why this command|\d+ steps of", shown), "details belong below the fold"


def test_every_comment_has_a_limit() -> None:
    assert RENDERED.keys() == MAX_WORDS.keys() == {path.stem for path in GOLDEN.glob("*.md")}


def test_a_pull_request_says_the_verdict_then_the_change_then_what_is_asked() -> None:
    parts = [
        "**Fixed:**", "**What was wrong:**", "**What changed:**", "**Please check, then merge:**",
        "**To ask for changes,** mention `@agent` in a comment.", "<summary>Test evidence",
        "<summary>How the agent worked", "<summary>Limits and cost", "Fixes #1",
    ]  # fmt: skip
    places = [RENDERED["pull_request"].index(part) for part in parts]
    assert places == sorted(places)


def test_a_regression_names_each_test_once_above_the_fold_and_once_in_the_evidence() -> None:
    text = RENDERED["regressed"]
    assert text.startswith(
        "**Regressed:** 1 test that passed before fails with this change. I opened no pull request."
    )
    assert (above_the_fold(text).count("::test_1"), text.count("::test_1")) == (1, 2)
