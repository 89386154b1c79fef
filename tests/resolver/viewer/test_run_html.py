"""A run as one HTML file: its content, and that nothing in it is executed."""

import base64
import hashlib
import re
import struct
import unicodedata
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args

import pytest

from patchwright import templates
from patchwright.resolver.activity.summary import count_tool_calls
from patchwright.resolver.domain import JobId, ModelReview, Rejected, RunId
from patchwright.resolver.events import (
    Event,
    JobCompleted,
    Message,
    Trajectory,
    VerificationCompleted,
)
from patchwright.resolver.proof.condition_finder import find_conditions
from patchwright.resolver.rendering import jinja_templates
from patchwright.resolver.rendering.filters import format_duration
from patchwright.resolver.run_events import RunConfigured, RunResumed, SubagentSpawned
from patchwright.resolver.secrets import SECRET_PLACEHOLDER, Secrets
from patchwright.resolver.text.untrusted import escape_invisible
from patchwright.resolver.tool_actions.control_actions import Plan, Think
from patchwright.resolver.tool_actions.subagent_actions import Browse, Delegate
from patchwright.resolver.tool_actions.unchecked_actions import CallTool, MalformedCall
from patchwright.resolver.viewer.blocks import ImageCollection, build_diff_block
from patchwright.resolver.viewer.cost_curve import build_cost_curve
from patchwright.resolver.viewer.run_html import MAX_FILE_BYTES, render_run_html
from patchwright.runtime.actions import ReplaceText, RunPython, RunShell, UseBrowser, ViewFile
from patchwright.runtime.observations import ActionFailure, CellResult, EditResult, ImageData, TextResult
from patchwright.runtime.tool_action import PlanItem
from tests.resolver.sample_runs import (
    CHILD,
    DIFF,
    RUN,
    child_run,
    full_run,
    model_reply,
    page,
    png,
    run_of,
    shell_result,
    started,
    step,
    verdict,
)

SECRET = "hunter2-hunter2"


class Markup(HTMLParser):
    """The elements of a page, and its visible text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self._words: list[str] = []
        self._inside = ""
        self.feed(html)
        self.text = re.sub(r"\s+", " ", " ".join(self._words))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside not in ("script", "style"):
            self._words.append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


def render(trajectory: Trajectory, secrets: Secrets | None = None, **others: Trajectory) -> str:
    return render_run_html(
        RUN, trajectory, lambda run: others.get(run.replace("-", "_")), secrets or Secrets()
    )


def shown(*events: Event) -> Markup:
    return Markup(render(run_of(started(), *events)))


WHOLE = {CHILD.replace("-", "_"): child_run()}


@pytest.fixture(scope="module")
def whole() -> Markup:
    return Markup(render(full_run(), **WHOLE))


# Content


def test_the_verdict_and_the_cost_come_first(whole: Markup) -> None:
    first = whole.text[: whole.text.index("Summary by the agent")]
    expected = (
        "add() subtracts", "acme/calc#7", "✓ fixed", "1 test failed before and passes now.", "Pull request #8 is open.",
        "Cost $0.55", "Working time ", "Steps 6", "Model vendor/model-1", "network allowlist",
    )  # fmt: skip
    assert [each for each in expected if each not in first] == []
    links = [link["href"] for link in whole.all("a") if not link["href"].startswith("#")]
    assert links == ["https://forge.test/acme/calc/issues/7", "https://forge.test/acme/calc/pull/8"]


def test_an_unknown_cost_is_shown_with_its_effect_on_the_limit() -> None:
    under = next(event for event in full_run() if isinstance(event, RunConfigured))
    reply = model_reply("a", RunShell(command="ls"))
    some = reply.model_copy(update={"usage": reply.usage.model_copy(update={"usd": None})})
    none_known, some_known = (shown(under, *replies).text for replies in ((some,), (reply, some)))
    assert "Cost unknown (no price is known for this model); the limit of $2 has no effect" in none_known
    assert "Tokens 1,000 read, 50 written" in none_known
    assert f"Limits {under.steps} steps, {format_duration(under.seconds)}" in none_known
    assert f"Limits {under.steps} steps, $2, {format_duration(under.seconds)}" in some_known
    assert "Cost at least $0.0100; the limit of $2 covers only known prices" in some_known


def test_the_test_results_before_and_after_are_in_a_table(whole: Markup) -> None:
    assert "Before 1 1 1 1.5 python3 -m pytest After 2 0 0 1.5 python3 -m pytest" in whole.text
    assert "tests/test_calc.py::test_add failed passed passes now" in whole.text


def test_changes_to_tests_are_shown_with_the_results() -> None:
    harmed = verdict().model_copy(
        update={
            "patch_tests_failing": ("tests/test_new.py::test_it",), "weakened_tests": ("test_a.py asks less.",),
            "deleted_test_files": ("test_old.py",), "reverted_test_config": ("conftest.py",),
            "review": ModelReview(approved=False, reasons="It misses <floats>.", model="second"),
        }
    )  # fmt: skip
    harmed = harmed.model_copy(update={"conditions": find_conditions(harmed, b"")})
    text = shown(VerificationCompleted(verdict=harmed)).text
    for message in (
        "tests/test_new.py::test_it absent absent from the patch, and fails",
        "`test_old.py` is deleted. test_a.py asks less. The repository's tests ran without the change to "
        "`conftest.py`.",
        "A second model (second), whose opinion does not affect the verdict, would not accept the change: "
        "It misses <floats>.",
    ):
        assert message in text


def test_every_kind_of_event_is_shown_in_order(whole: Markup) -> None:
    line = whole.text[whole.text.index("Search") :]
    expected = [
        "Settings of the run",
        "The repository's setup completed", "The agent received its initial prompt",
        "Reproduce it first.", "$ pytest -q",
        "✗ exit code 1", "1 failed", "edit calc.py", "The conversation was condensed", "45,000 → 12,000 tokens",
        "browse: What is the answer?", "Steps of the subagent", "I open it.", "Screenshot of http://localhost:8000/",
        "think: Hm.", "The sandbox used the network", "evil.test: it is not on the allowlist", "Three steps are left.",
        "Not yet: run the tests.", "The agent finished.", "Verdict: fixed", "The job completed: published",
    ]  # fmt: skip
    places = [line.find(each) for each in expected]
    assert -1 not in places and places == sorted(places), dict(zip(expected, places, strict=True))


def test_a_plan_is_a_checklist_with_accessible_labels(whole: Markup) -> None:
    boxes = [span["aria-label"] for span in whole.all("span") if "aria-label" in span]
    assert boxes == ["done", "open"] * 2  # in the sidebar and in the timeline
    assert "☑ Reproduce it" in whole.text and "☐ Fix it" in whole.text


def test_every_message_source_has_a_title() -> None:
    sources = get_args(Message.model_fields["source"].annotation)
    text = shown(*(Message(text=f"words of {source}", source=source) for source in sources)).text
    assert [source for source in sources if f"words of {source}" not in text] == []
    assert (
        "Someone resumed the run" in shown(Message(text="t", source="resume", trigger_id=JobId("next"))).text
    )


def test_an_edit_is_shown_as_a_diff() -> None:
    shown = build_diff_block("calc.py", DIFF, 10_000)
    assert (shown.added, shown.removed) == (2, 2)
    assert [(kind, lines.split("\n")) for kind, lines in shown.runs if kind in ("ins", "del")] == [
        ("del", ["--- a comment", "-    return a - b"]),
        ("ins", ["+    return a + b", "+# done"]),
    ]
    assert [lines for kind, lines in shown.runs if kind == "file"] == ["--- a/calc.py\n+++ b/calc.py"]


def test_a_failed_edit_shows_the_requested_edit(whole: Markup) -> None:
    edit = ReplaceText(path="a.py", old="was here", new="comes here")
    text = shown(*step("a", edit, ActionFailure(reason="missing", message="No such text."))).text
    assert "was here" in text and "comes here" in text and "✗ failed: missing" in text


def test_a_missing_subagent_log_is_reported() -> None:
    assert f"The log of {CHILD} is not available" in Markup(render(full_run())).text


def test_the_steps_of_parallel_subagents_are_shown_under_their_tasks() -> None:
    first, second = RunId("job-sub-1"), RunId("job-sub-2")
    run = run_of(
        model_reply("a", Delegate(tasks=("Who calls it?", "What is promised?"))),
        SubagentSpawned(call_id="a", run=first, role="investigate", task="Who calls it?"),
        SubagentSpawned(call_id="a", run=second, role="investigate", task="What is promised?"),
    )
    works = {
        "job_sub_1": run_of(model_reply("x", RunShell(command="grep -rn one"))),
        "job_sub_2": run_of(model_reply("x", RunShell(command="grep -rn two"))),
    }
    page = Markup(render(run, **works))
    expected = ("1 of 2: Who calls it?", "grep -rn one", "2 of 2: What is promised?", "grep -rn two")
    assert [page.text.count(each) > 0 for each in expected] == [True] * 4
    assert sorted(expected, key=page.text.index) == list(expected)


def test_subagents_that_reference_each_other_do_not_recurse() -> None:
    loop = run_of(model_reply("a", Browse(task="x")), SubagentSpawned(call_id="a", run=CHILD, task="x"))
    assert Markup(render(loop, **{CHILD.replace("-", "_"): loop})).text.count("browse: x") == 2


def test_a_call_without_a_result_is_a_failure() -> None:
    assert "✗ no result" in shown(model_reply("a", RunShell(command="sleep 60"))).text


@pytest.mark.parametrize(
    ("trajectory", "expected"),
    [
        (run_of(), "This run has no events yet."),
        (run_of(RunResumed(run=RunId("acme-calc-1"))), "continued in the run acme-calc-1"),
        (run_of(JobCompleted(outcome=Rejected(explanation="You may not."))), "You may not."),
        (child_run(), "the run acme-calc-7"),
    ],
)
def test_an_incomplete_run_is_shown(trajectory: Trajectory, expected: str) -> None:
    assert expected in Markup(render(trajectory)).text


def test_the_cost_curve_includes_subagents_and_falls_back_to_tokens() -> None:
    curve = build_cost_curve(full_run())
    assert curve is not None and curve.format_total(curve.totals[-1]) == "$0.5500"
    assert len(curve.totals) == 5 and curve.condensed_steps == (3,) and curve.polyline.endswith("720,0.0")
    free = run_of(*(model_reply(str(n), Think(thought="x"), usd="0") for n in range(3)))
    curve = build_cost_curve(free)
    assert curve is not None and curve.format_total(curve.totals[-1]) == "3,150 tokens"
    assert build_cost_curve(run_of(model_reply("a"))) is None
    unknown = model_reply("b").model_copy(
        update={"usage": model_reply("b").usage.model_copy(update={"usd": None})}
    )
    curve = build_cost_curve(run_of(unknown, model_reply("a")))  # no step is shown as free
    assert curve is not None and curve.format_total(curve.totals[0]) == "1,050 tokens"


def test_tool_calls_are_counted_with_percentages(whole: Markup) -> None:
    assert "Calls Tool Calls Share plan 1 17 %" in whole.text
    assert count_tool_calls(full_run())[0] == ("plan", 1, 17)
    assert sum(count for _, count, _ in count_tool_calls(full_run())) == 6


# Images


def test_a_repeated_image_is_stored_once(whole: Markup) -> None:
    assert [image["src"][:22] for image in whole.all("img")] == ["data:image/png;base64,"] * 2
    assert whole.text.count("the same image as above") == 1


def test_the_largest_images_are_omitted_beyond_the_limit() -> None:
    album = ImageCollection(max_characters=600)
    small, large = album.add(png(1, side=20), "small", "1"), album.add(png(2, side=3000), "large", "2")
    assert album.get_data_url(small) and album.get_data_url(large) is None


def test_an_image_with_too_many_pixels_is_omitted() -> None:
    bomb = png().data.replace(struct.pack(">II", 40, 40), struct.pack(">II", 60_000, 60_000), 1)
    album = ImageCollection()
    shot = album.add(ImageData(media_type="image/png", data=bomb), "bomb", "1")
    assert album.get_dimensions(shot) == (60_000, 60_000) and album.get_data_url(shot) is None


# Limits


@pytest.mark.slow
def test_ten_megabytes_of_output_are_clipped_with_their_count() -> None:
    html = render(run_of(*step("a", RunShell(command="yes"), shell_result("yes\n" * 2_500_000))))
    assert len(html) < 200_000
    assert re.search(r"lines 2,501-2,497,500 of 2,500,000 left out: 9,980,000 characters", html)


@pytest.mark.slow
def test_one_line_of_ten_megabytes_is_clipped_too() -> None:
    long = "x" * 10_000_000
    events = (
        *step("a", RunShell(command=long), shell_result(long)),
        *step("b", ViewFile(path=long), EditResult(path=long, diff=long)),
    )
    assert len(render(run_of(*events))) < 300_000


@pytest.mark.slow
def test_a_run_with_hundreds_of_long_steps_fits() -> None:
    hostile = ("<&'\"\u202e" * 2000 + "\n") * 6  # grows most when escaped
    steps = (
        each for n in range(400) for each in step(str(n), RunShell(command=hostile), shell_result(hostile))
    )
    assert len(render(run_of(*steps)).encode()) <= MAX_FILE_BYTES


@pytest.mark.slow
def test_an_endless_run_is_clipped() -> None:
    text = shown(*(Message(text="x", source="program") for _ in range(5000))).text
    assert "more entries are in the log" in text


# Escaping

HOSTILE = (
    "</pre></details><script>alert(1)</script><img src=https://evil.test/x onerror=alert(2)>"
    "\"' onclick=alert(3) x='{{ 7*7 }}"
)
EVERYWHERE = (
    *step("a", RunShell(command=HOSTILE), shell_result(HOSTILE, 1), thought=HOSTILE),
    *step("b", RunPython(code=HOSTILE), CellResult(output=HOSTILE, ok=False, seconds=1, note=HOSTILE)),
    *step("c", Plan(items=(PlanItem(text=HOSTILE),)), TextResult(text=HOSTILE)),
    *step("d", MalformedCall(name=HOSTILE, arguments=HOSTILE, problem=HOSTILE),
          ActionFailure(reason="io", message=HOSTILE)),
    *step("e", CallTool(name=HOSTILE, arguments={HOSTILE: HOSTILE}), shell_result("")),
    *step("g", ViewFile(path=HOSTILE), EditResult(path=HOSTILE, diff=HOSTILE, warning=HOSTILE)),
    *step("f", UseBrowser(code=HOSTILE), page(png(), url=HOSTILE, error=HOSTILE)),
    Message(text=HOSTILE, source="comment"),
)  # fmt: skip


def test_hostile_markup_is_escaped() -> None:
    html = render(run_of(started(title=HOSTILE, url="javascript:alert(4)"), *EVERYWHERE))
    found = Markup(html)
    assert len(found.all("script")) == len(found.all("style")) == 1
    assert [image["src"].startswith("data:image/png;base64,") for image in found.all("img")] == [True]
    assert all(link["href"].startswith("#") for link in found.all("a"))
    named = {name for _, attributes in found.elements for name in attributes}
    assert not [name for name in named if name.startswith("on") or name in ("style", "srcdoc", "action")]
    assert found.text.count("alert(1)") >= 15 and "{{ 7*7 }}" in html


def test_control_characters_are_shown_as_code_points() -> None:
    output = "\x1b[31mred\x07\u202eevil\u202c\u200b\U000e0041\u2028\x9b"
    html = render(
        run_of(started(title=f"t {output}"), *step("a", RunShell(command=output), shell_result(output)))
    )
    left = {char for char in html if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert left == {"\n"}
    assert "␛[31mred␇⟦U+202E⟧evil⟦U+202C⟧⟦U+200B⟧⟦U+E0041⟧⟦U+2028⟧⟦U+009B⟧" in html
    assert escape_invisible("tab\tnew\nline é 漢 🙂") == "tab\tnew\nline é 漢 🙂"


def test_the_file_contains_no_secret() -> None:
    picture = png().model_copy(update={"data": png().data + SECRET.encode()})
    encoded = base64.b64encode(f"user:{SECRET}".encode()).decode()
    events = (
        *step("a", RunShell(command=f"curl {SECRET}"), shell_result(f"{SECRET} {encoded}"), thought=SECRET),
        *step("b", CallTool(name=SECRET, arguments={SECRET: [SECRET]}), page(picture, url=f"http://x/{SECRET}")),
        model_reply("look", Browse(task=SECRET)), SubagentSpawned(call_id="look", run=CHILD, task=SECRET),
    )  # fmt: skip
    child = {
        CHILD.replace("-", "_"): run_of(*step("z", RunShell(command=SECRET), shell_result(SECRET[::-1])))
    }
    html = render(run_of(started(title=SECRET), *events), Secrets([SECRET]), **child)
    pictures = b"".join(base64.b64decode(src) for src in re.findall(r'base64,([^"]+)"', html))
    assert png().data in pictures  # the image is shown
    for spelling in (SECRET, SECRET[::-1], encoded, encoded[8:24]):
        assert spelling not in html and spelling.encode() not in pictures
    assert Markup(html).text.count(SECRET_PLACEHOLDER) >= 12


def test_the_content_security_policy_allows_only_the_own_script_and_style() -> None:
    html = render(full_run())
    (policy,) = (meta["content"] for meta in Markup(html).all("meta") if "http-equiv" in meta)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    for tag in ("script", "style"):
        (source,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        assert rules.pop(f"{tag}-src") == f"'sha256-{digest}'"
    assert rules == {
        "default-src": "'none'", "img-src": "data:", "base-uri": "'none'", "form-action": "'none'",
    }  # fmt: skip
    assert html.index("Content-Security-Policy") < html.index("<style>")


def test_html_templates_escape_and_markdown_templates_do_not() -> None:
    escapes = jinja_templates.get_environment().autoescape
    assert callable(escapes)
    for template in Path(templates.__file__).parent.rglob("*.j2"):
        assert escapes(template.name) == template.name.endswith(".html.j2"), template
    assert jinja_templates.get_environment().from_string("{{ '<' }}").render() == "<"
