"""A run as one HTML file: what it tells, and that nothing in it can act."""

import base64
import hashlib
import re
import struct
import unicodedata
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args

import pytest

import templates
from resolver.actions import Browse, CallTool, Delegate, Malformed, Plan, PlanItem, Think
from resolver.circumstances import Configured
from resolver.domain import JobId, Opinion, Refused, RunId
from resolver.events import Delegated, Event, Judged, Resumed, Settled, Told, Trajectory
from resolver.secrets import HIDDEN, Secrets
from resolver.viewer.exhibits import Album, diff, inert
from resolver.viewer.spending import spending
from resolver.viewer.viewer import MOST, tool_counts, view
from resolver.words import texts
from resolver.words.wording import duration
from runtime.actions import ReplaceText, RunPython, RunShell, UseBrowser, ViewFile
from runtime.observations import Edited, Failed, Picture, RanPython, Viewed
from tests.resolver.seen_runs import (
    CHILD,
    DIFF,
    RUN,
    child_run,
    decided,
    page,
    png,
    ran,
    run_of,
    started,
    step,
    verdict,
    whole_run,
)

SECRET = "hunter2-hunter2"


class Markup(HTMLParser):
    """The elements of a page, and the text that is read in it."""

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


def seen(trajectory: Trajectory, secrets: Secrets | None = None, **others: Trajectory) -> str:
    return view(RUN, trajectory, lambda run: others.get(run.replace("-", "_")), secrets or Secrets())


def shown(*events: Event) -> Markup:
    return Markup(seen(run_of(started(), *events)))


WHOLE = {CHILD.replace("-", "_"): child_run()}


@pytest.fixture(scope="module")
def whole() -> Markup:
    return Markup(seen(whole_run(), **WHOLE))


# What it tells


def test_the_verdict_and_what_it_cost_come_first(whole: Markup) -> None:
    first = whole.text[: whole.text.index("What the agent says")]
    told = (
        "add() subtracts", "acme/calc#7", "✓ fixed", "1 test failed before and passes now.", "Pull request #8 is open.",
        "Cost $0.55", "Steps 6", "Model vendor/model-1", "network allow-list",
    )  # fmt: skip
    assert [each for each in told if each not in first] == []
    links = [link["href"] for link in whole.all("a") if not link["href"].startswith("#")]
    assert links == ["https://forge.test/acme/calc/issues/7", "https://forge.test/acme/calc/pull/8"]


def test_a_cost_that_nobody_knows_says_so_and_that_its_limit_cannot_hold() -> None:
    under = next(event for event in whole_run() if isinstance(event, Configured))
    asked = decided("a", RunShell(command="ls"))
    some = asked.model_copy(update={"usage": asked.usage.model_copy(update={"usd": None})})
    none_known, some_known = (shown(under, *replies).text for replies in ((some,), (asked, some)))
    assert "Cost unknown (no price is known for this model); the limit of $2 cannot hold" in none_known
    assert "Tokens 1,000 read, 50 written" in none_known
    assert f"At most {under.steps} steps, {duration(under.seconds)}" in none_known
    assert f"At most {under.steps} steps, $2, {duration(under.seconds)}" in some_known
    assert "Cost at least $0.0100; the limit of $2 holds for what is known" in some_known


def test_the_tests_stand_before_and_after_in_a_table(whole: Markup) -> None:
    assert "Before 1 1 1 1.5 python3 -m pytest After 2 0 0 1.5 python3 -m pytest" in whole.text
    assert "tests/test_calc.py::test_add failed passed passes now" in whole.text


def test_what_the_change_does_to_tests_is_told_with_them() -> None:
    harmed = verdict().model_copy(
        update={
            "still_failing": ("tests/test_new.py::test_it",), "weakened": ("test_a.py asks less.",),
            "deleted": ("test_old.py",), "set_aside": ("conftest.py",),
            "opinion": Opinion(approves=False, words="It misses <floats>.", model="second"),
        }
    )  # fmt: skip
    text = shown(Judged(verdict=harmed)).text
    for told in (
        "tests/test_new.py::test_it not there not there is new, and fails",
        "test_a.py asks less. test_old.py, which held tests, was deleted. "
        "The tests were run without the change to conftest.py.",
        "A second model (second), which decides nothing here, would not take it: It misses <floats>.",
    ):
        assert told in text


def test_every_kind_of_event_is_told_in_order(whole: Markup) -> None:
    line = whole.text[whole.text.index("Search") :]
    told = [
        "The settings of the run",
        "The repository's set-up was done", "The agent got its brief", "Reproduce it first.", "$ pytest -q",
        "✗ exit code 1", "1 failed", "edit calc.py", "The conversation was shortened", "45,000 → 12,000 tokens",
        "browse: What is the answer?", "The other agent's own work", "I open it.", "Screenshot of http://localhost:8000/",
        "think: Hm.", "The sandbox used the network", "evil.test: it is not on the allow-list", "Three steps are left.",
        "Not yet: run the tests.", "The agent finished.", "Verdict: fixed", "The job ended: delivered",
    ]  # fmt: skip
    places = [line.find(each) for each in told]
    assert -1 not in places and places == sorted(places), dict(zip(told, places, strict=True))


def test_a_plan_is_a_list_of_boxes_that_also_have_names(whole: Markup) -> None:
    boxes = [span["aria-label"] for span in whole.all("span") if "aria-label" in span]
    assert boxes == ["done", "open"] * 2  # at the top, and where it was written down
    assert "☑ Reproduce it" in whole.text and "☐ Mend it" in whole.text


def test_every_kind_of_word_to_the_agent_has_a_line() -> None:
    sources = get_args(Told.model_fields["source"].annotation)
    told = shown(*(Told(text=f"words of {source}", source=source) for source in sources)).text
    assert [source for source in sources if f"words of {source}" not in told] == []
    assert "Somebody had the run go on" in shown(Told(text="t", source="resume", by=JobId("next"))).text


def test_an_edit_is_a_diff_whose_lines_keep_their_signs() -> None:
    shown = diff("calc.py", DIFF, 10_000)
    assert (shown.added, shown.removed) == (2, 2)
    assert [(kind, lines.split("\n")) for kind, lines in shown.runs if kind in ("ins", "del")] == [
        ("del", ["--- a comment", "-    return a - b"]),
        ("ins", ["+    return a + b", "+# done"]),
    ]
    assert [lines for kind, lines in shown.runs if kind == "file"] == ["--- a/calc.py\n+++ b/calc.py"]


def test_an_edit_that_failed_shows_what_was_asked(whole: Markup) -> None:
    edit = ReplaceText(path="a.py", old="was here", new="comes here")
    text = shown(*step("a", edit, Failed(reason="missing", message="No such text."))).text
    assert "was here" in text and "comes here" in text and "✗ not done: missing" in text


def test_a_delegate_whose_log_is_gone_is_said_to_be() -> None:
    assert f"The log of {CHILD} is not to be had" in Markup(seen(whole_run())).text


def test_the_work_of_all_that_one_call_asked_is_shown_each_under_its_question() -> None:
    first, second = RunId("job-sub-1"), RunId("job-sub-2")
    run = run_of(
        decided("a", Delegate(tasks=("Who calls it?", "What is promised?"))),
        Delegated(call="a", run=first, role="investigate", task="Who calls it?"),
        Delegated(call="a", run=second, role="investigate", task="What is promised?"),
    )
    works = {
        "job_sub_1": run_of(decided("x", RunShell(command="grep -rn one"))),
        "job_sub_2": run_of(decided("x", RunShell(command="grep -rn two"))),
    }
    page = Markup(seen(run, **works))
    said = ("1 of 2: Who calls it?", "grep -rn one", "2 of 2: What is promised?", "grep -rn two")
    assert [page.text.count(each) > 0 for each in said] == [True] * 4
    assert sorted(said, key=page.text.index) == list(said)


def test_delegates_that_name_each_other_end() -> None:
    loop = run_of(decided("a", Browse(task="x")), Delegated(call="a", run=CHILD, task="x"))
    assert Markup(seen(loop, **{CHILD.replace("-", "_"): loop})).text.count("browse: x") == 2


def test_a_call_without_an_answer_is_trouble() -> None:
    assert "✗ no answer" in shown(decided("a", RunShell(command="sleep 60"))).text


@pytest.mark.parametrize(
    ("trajectory", "told"),
    [
        (run_of(), "Nothing has happened in this run."),
        (run_of(Resumed(run=RunId("acme-calc-1"))), "went on in the run acme-calc-1"),
        (run_of(Settled(outcome=Refused(explanation="You may not."))), "You may not."),
        (child_run(), "the run acme-calc-7"),
    ],
)
def test_a_run_that_is_not_a_whole_job_is_shown_too(trajectory: Trajectory, told: str) -> None:
    assert told in Markup(seen(trajectory)).text


def test_the_curve_counts_delegates_and_falls_back_to_tokens() -> None:
    curve = spending(whole_run())
    assert curve is not None and curve.told(curve.totals[-1]) == "$0.5500"
    assert len(curve.totals) == 5 and curve.shortened == (3,) and curve.line.endswith("720,0.0")
    free = run_of(*(decided(str(n), Think(thought="x"), usd="0") for n in range(3)))
    curve = spending(free)
    assert curve is not None and curve.told(curve.totals[-1]) == "3,150 tokens"
    assert spending(run_of(decided("a"))) is None
    unknown = decided("b").model_copy(update={"usage": decided("b").usage.model_copy(update={"usd": None})})
    curve = spending(run_of(unknown, decided("a")))  # no step is shown as if it had cost nothing
    assert curve is not None and curve.told(curve.totals[0]) == "1,050 tokens"


def test_tools_are_counted_with_their_shares() -> None:
    assert tool_counts(whole_run())[0] == ("plan", 1, 17)
    assert sum(count for _, count, _ in tool_counts(whole_run())) == 6


# Pictures


def test_a_picture_that_comes_twice_is_in_the_file_once(whole: Markup) -> None:
    assert [image["src"][:22] for image in whole.all("img")] == ["data:image/png;base64,"] * 2
    assert whole.text.count("the same picture as above") == 1


def test_the_largest_pictures_are_left_out_when_they_are_too_much() -> None:
    album = Album(most=600)
    small, large = album.add(png(1, side=20), "small", "1"), album.add(png(2, side=3000), "large", "2")
    assert album.source(small) and album.source(large) is None


def test_a_picture_that_would_stop_a_browser_is_left_out() -> None:
    bomb = png().data.replace(struct.pack(">II", 40, 40), struct.pack(">II", 60_000, 60_000), 1)
    album = Album()
    shot = album.add(Picture(media="image/png", data=bomb), "bomb", "1")
    assert album.measure(shot) == (60_000, 60_000) and album.source(shot) is None


# That it is bounded


def test_ten_megabytes_of_output_are_clipped_with_their_count() -> None:
    html = seen(run_of(*step("a", RunShell(command="yes"), ran("yes\n" * 2_500_000))))
    assert len(html) < 200_000
    assert re.search(r"lines 2,501-2,497,500 of 2,500,000 left out: 9,980,000 characters", html)


def test_one_line_of_ten_megabytes_is_clipped_too() -> None:
    long = "x" * 10_000_000
    events = (
        *step("a", RunShell(command=long), ran(long)),
        *step("b", ViewFile(path=long), Edited(path=long, diff=long)),
    )
    assert len(seen(run_of(*events))) < 300_000


@pytest.mark.slow
def test_a_run_of_hundreds_of_loud_steps_fits() -> None:
    hostile = ("<&'\"\u202e" * 2000 + "\n") * 6  # what grows most when it is made inert
    steps = (each for n in range(400) for each in step(str(n), RunShell(command=hostile), ran(hostile)))
    assert len(seen(run_of(*steps)).encode()) <= MOST


def test_a_run_without_end_ends() -> None:
    text = shown(*(Told(text="x", source="program") for _ in range(5000))).text
    assert "more entries stand in the log" in text


# That nothing in it acts

HOSTILE = (
    "</pre></details><script>alert(1)</script><img src=https://evil.test/x onerror=alert(2)>"
    "\"' onclick=alert(3) x='{{ 7*7 }}"
)
EVERYWHERE = (
    *step("a", RunShell(command=HOSTILE), ran(HOSTILE, 1), thought=HOSTILE),
    *step("b", RunPython(code=HOSTILE), RanPython(output=HOSTILE, ok=False, seconds=1, note=HOSTILE)),
    *step("c", Plan(items=(PlanItem(text=HOSTILE),)), Viewed(text=HOSTILE)),
    *step("d", Malformed(name=HOSTILE, arguments=HOSTILE, problem=HOSTILE), Failed(reason="io", message=HOSTILE)),
    *step("e", CallTool(name=HOSTILE, arguments={HOSTILE: HOSTILE}), ran("")),
    *step("g", ViewFile(path=HOSTILE), Edited(path=HOSTILE, diff=HOSTILE, warning=HOSTILE)),
    *step("f", UseBrowser(code=HOSTILE), page(png(), url=HOSTILE, error=HOSTILE)),
    Told(text=HOSTILE, source="comment"),
)  # fmt: skip


def test_hostile_markup_stays_text() -> None:
    html = seen(run_of(started(title=HOSTILE, url="javascript:alert(4)"), *EVERYWHERE))
    found = Markup(html)
    assert len(found.all("script")) == len(found.all("style")) == 1
    assert [image["src"].startswith("data:image/png;base64,") for image in found.all("img")] == [True]
    assert all(link["href"].startswith("#") for link in found.all("a"))
    named = {name for _, attributes in found.elements for name in attributes}
    assert not [name for name in named if name.startswith("on") or name in ("style", "srcdoc", "action")]
    assert found.text.count("alert(1)") >= 15 and "{{ 7*7 }}" in html


def test_characters_that_steer_are_shown_by_name() -> None:
    output = "\x1b[31mred\x07\u202eevil\u202c\u200b\U000e0041\u2028\x9b"
    html = seen(run_of(started(title=f"t {output}"), *step("a", RunShell(command=output), ran(output))))
    left = {char for char in html if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert left == {"\n"}
    assert "␛[31mred␇⟦U+202E⟧evil⟦U+202C⟧⟦U+200B⟧⟦U+E0041⟧⟦U+2028⟧⟦U+009B⟧" in html
    assert inert("tab\tnew\nline é 漢 🙂") == "tab\tnew\nline é 漢 🙂"


def test_no_secret_is_in_the_file() -> None:
    picture = png().model_copy(update={"data": png().data + SECRET.encode()})
    encoded = base64.b64encode(f"user:{SECRET}".encode()).decode()
    events = (
        *step("a", RunShell(command=f"curl {SECRET}"), ran(f"{SECRET} {encoded}"), thought=SECRET),
        *step("b", CallTool(name=SECRET, arguments={SECRET: [SECRET]}), page(picture, url=f"http://x/{SECRET}")),
        decided("look", Browse(task=SECRET)), Delegated(call="look", run=CHILD, task=SECRET),
    )  # fmt: skip
    child = {CHILD.replace("-", "_"): run_of(*step("z", RunShell(command=SECRET), ran(SECRET[::-1])))}
    html = seen(run_of(started(title=SECRET), *events), Secrets([SECRET]), **child)
    pictures = b"".join(base64.b64decode(src) for src in re.findall(r'base64,([^"]+)"', html))
    assert png().data in pictures  # it is shown
    for spelling in (SECRET, SECRET[::-1], encoded, encoded[8:24]):
        assert spelling not in html and spelling.encode() not in pictures
    assert Markup(html).text.count(HIDDEN) >= 12


def test_the_policy_of_the_page_lets_in_its_own_script_and_style_and_nothing_else() -> None:
    html = seen(whole_run())
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


def test_templates_of_pages_escape_and_those_of_markdown_do_not() -> None:
    escapes = texts.environment().autoescape
    assert callable(escapes)
    for template in Path(templates.__file__).parent.rglob("*.j2"):
        assert escapes(template.name) == template.name.endswith(".html.j2"), template
    assert texts.environment().from_string("{{ '<' }}").render() == "<"
