"""Texts for people neutralize untrusted input and are honest about costs."""

import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from patchwright.resolver.activity.summary import StepSummary, Summary
from patchwright.resolver.conditions import Condition
from patchwright.resolver.domain import Issue, ModelReview, TestRun, Usage, User, Verdict
from patchwright.resolver.errors import SettingsError
from patchwright.resolver.prompts.initial_prompt import (
    PreparedSandbox,
    RepositoryFacts,
    RequestToAgent,
    build_initial_prompt,
    render_initial_prompt,
)
from patchwright.resolver.prompts.system_prompt import SandboxDescription, render_system_prompt
from patchwright.resolver.proof.condition_finder import find_conditions
from patchwright.resolver.publishing import reply_texts
from patchwright.resolver.pull_request import follow_up_texts
from patchwright.resolver.rendering import filters
from patchwright.resolver.rendering.jinja_templates import set_template_directory
from patchwright.resolver.rendering.subjects import MAX_PULL_REQUEST_TITLE, build_subject
from patchwright.resolver.rendering.template_renderer import render_prompt, render_reply
from patchwright.resolver.run_events import RunConfigured
from patchwright.resolver.tool_actions.control_actions import Finish
from tests.resolver.pull_requests import pull

THREAD = Issue(number=7, title="t", body="", author=User(id=1, login="a"), trusted=True, open=True, url="")
STORY = Summary(finish=None, stop_detail="", steps=(), usage=Usage(), model="m", sandbox="docker")


@pytest.mark.parametrize(
    "loud",
    ["@team look", "fixes #12", "Closes: GH-3", "resolved https://x.test/o/r/issues/1", "<img src=x>",
     "![](http://x)", "fix o/r#1"],
)  # fmt: skip
def test_untrusted_text_is_neutralized_and_stays_readable(loud: str) -> None:
    quiet = filters.neutralize(loud)
    assert quiet != loud
    assert quiet.replace("\u200b", "") == loud


def test_ordinary_text_is_not_changed() -> None:
    text = "Round first: `a < b`, see tests (3 of 4) and user@"
    assert filters.neutralize(text) == text


def test_a_code_block_cannot_be_ended_by_its_content() -> None:
    assert filters.code_block("a\n```\nb\n`````", "diff").splitlines()[0] == "``````diff"


@pytest.mark.parametrize(
    ("spent", "words"),
    [
        (Usage(usd=Decimal("0.0123")), "$0.0123"),
        (Usage(usd=Decimal("1.5")), "$1.50"),
        (Usage(unpriced=True), "cost unknown (no price is known for this model)"),
        (Usage(usd=Decimal("0.5"), unpriced=True), "at least $0.5000"),
        (Usage(usd=Decimal("0.009977"), unpriced=True), "at least $0.0099"),
        (Usage(usd=Decimal("0.009977")), "$0.0100"),
        (Usage(usd=Decimal("0.00004")), "less than $0.0001"),
        (Usage(usd=Decimal("0.00004"), unpriced=True), "more than $0.00"),
        (Usage(steps=1), "$0.00"),
        (Usage(seconds=3), ""),
    ],
)
def test_costs_show_what_is_known(spent: Usage, words: str) -> None:
    assert filters.format_usage(spent) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.42, "0.4 s"), (42, "42 s"), (200, "3 min 20 s"), (3900, "1 h 5 min"), (180, "3 min"), (7210, "2 h")],
)
def test_durations_are_readable(seconds: float, words: str) -> None:
    assert filters.format_duration(seconds) == words


def test_a_pull_request_shows_the_verdict_first_and_closes_its_issue_alone() -> None:
    thread = Issue(
        number=7,
        title="Fix @all, fixes #1",
        body="",
        author=User(id=1, login="a"),
        trusted=True,
        open=True,
        url="",
    )
    run = TestRun(command="make | test", results={"t::a": "failed"}, exit_code=1, seconds=1, output="")
    verdict = Verdict(
        kind="fixed",
        fail_to_pass=("t::a",),
        before=run,
        after=run.model_copy(update={"results": {"t::a": "passed"}}),
    )
    story = Summary(
        finish=Finish(cause="closes #2 by @x", change="c", testing="d"),
        stop_detail="",
        steps=(StepSummary(number=1, action="$ echo `fixes #3`", result="exit code 0"),),
        usage=Usage(steps=1, seconds=3),
        model="m",
        sandbox="docker",
    )
    untested = Verdict(kind="untested", reason="It said: @x, fixes #1 <img src=x>.", before=run, after=run)
    for text in (
        reply_texts.render_pull_request_body(thread, untested, story),
        render_reply(
            "no_pull_request.md.j2",
            reason="no",
            branch=None,
            verdict=untested.model_copy(update={"kind": "regressed"}),
            summary=story,
            pasted_patch="",
            advice="",
        ),
    ):
        assert not any(live in text for live in ("@x", "#1", "<img"))
    assert "Patchwright could not run the repository's tests." in reply_texts.render_pull_request_body(
        thread, untested, story
    )
    body = reply_texts.render_pull_request_body(thread, verdict, story)
    assert body.startswith("**Fixed:** 1 test that failed before passes now, and no test broke.")
    assert "| failed | 1 | 0 |" in body
    assert "`make \\| test`" in body
    assert body.endswith("Fixes #7\n")
    for live in ("#1", "#2", "#3", "@x", "@all"):
        assert live not in body + build_subject(thread.title, (), MAX_PULL_REQUEST_TITLE)
    assert "\n\n\n" not in body


def test_no_code_and_no_prompt_mentions_a_benchmark() -> None:
    root = Path(reply_texts.__file__).parents[2]
    files = [
        path for part in ("resolver", "runtime", "templates", "bot") for path in (root / part).rglob("*")
    ]
    names = r"swe.?bench web.?arena humaneval hotpot gaia\b sympy astropy (?<!pytest-)django\b"
    known = re.compile("|".join(names.split()), re.IGNORECASE)
    named = {path.name for path in files if path.suffix in (".py", ".j2") and known.search(path.read_text())}
    assert named == set()


# --- custom templates ---------------------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "prompts").mkdir()
    yield tmp_path
    set_template_directory(None)


def test_a_custom_template_replaces_only_the_built_in_one_of_its_name(own: Path) -> None:
    noted = render_prompt("finish_accepted.md.j2")
    (own / "prompts/system.md.j2").write_text("You work at {{ root }}.")
    set_template_directory(own)
    assert (
        render_system_prompt(SandboxDescription("/workspace", "/tmp/s", "docker"))
        == "You work at /workspace.\n"
    )
    assert render_prompt("finish_accepted.md.j2") == noted
    set_template_directory(None)
    assert "# How to work" in render_system_prompt(SandboxDescription("/workspace", "/tmp/s", "docker"))


def test_a_partial_template_can_be_replaced_alone(own: Path) -> None:
    (own / "prompts/instructions.md.j2").write_text("Ask nobody.")
    set_template_directory(own)
    issue = Issue(
        number=1, title="t", body="b", author=User(id=1, login="a"), trusted=False, open=True, url=""
    )
    prompt = build_initial_prompt(
        issue, RequestToAgent(), RepositoryFacts("0" * 40, ()), PreparedSandbox("/w")
    )
    assert render_initial_prompt(prompt).endswith("\nAsk nobody.\n")


def test_an_unknown_custom_template_is_an_error_with_a_suggestion(own: Path) -> None:
    (own / "prompts/sytem.md.j2").write_text("x")
    with pytest.raises(
        SettingsError, match=r"sytem.md.j2 matches no built-in template; did you mean prompts/system.md.j2"
    ):
        set_template_directory(own)
    with pytest.raises(SettingsError, match="does not exist"):
        set_template_directory(own / "none")


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a/__init__.py, line 2: `x_y*`; *.lock.", "`a/__init__.py`, line 2: `x_y*`; `*.lock`."),
        ("(tests/test_reading.py)", "(`tests/test_reading.py`)"),
        ("~5 of a <b> ` b_c", "\\~5 of a \\<\u200bb> \\` `b_c`"),
        ("README.md has 1 check fewer.", "README.md has 1 check fewer."),
    ],
)
def test_our_own_sentences_show_names_literally(text: str, written: str) -> None:
    assert filters.escape_markdown(text) == written


def test_new_tests_are_listed_with_their_results_at_base() -> None:
    before = TestRun(command="pytest", results={"t::a": "passed"}, exit_code=0, seconds=1, output="")
    now = {"t::a": "passed", "t::b": "passed", "t::c": "passed", "t::d": "passed"}
    verdict = Verdict(
        kind="fixed", fail_to_pass=("t::b", "t::c"), before=before, after=before.model_copy(update={"results": now}),
        new_tests_at_base={"t::b": "failed", "t::c": "error", "t::d": "passed"},
    )  # fmt: skip
    text = reply_texts.render_pull_request_body(THREAD, verdict, STORY)
    assert text.startswith(
        "**Fixed:** 2 new tests fail without this change and pass with it, and no test broke.\n\n"
    )
    assert (
        "<details><summary>Test evidence</summary>\n\n"
        "| `pytest` | before | after |\n"
        "| --- | ---: | ---: |\n"
        "| passed | 1 | 4 |\n"
        "| failed | 0 | 0 |\n"
        "| new tests, without and with the change | 1 failed, 1 error, 1 passed | 3 passed |\n"
    ) in text
    assert "\nFail without the change, pass with it:\n- `t::b`\n- `t::c`\n" in text
    changed = {"new_tests_at_base": {"t::a": "failed"}, "fail_to_pass": ("t::a", "t::e")}
    text = reply_texts.render_pull_request_body(THREAD, verdict.model_copy(update=changed), STORY)
    assert text.startswith(
        "**Fixed:** 1 test that failed before passes now, 1 new or changed test fails without this change and passes "
        "with it, and no test broke."
    )
    assert "| new or changed tests, without and with the change | 1 failed | 1 passed |" in text
    assert "Failed before, pass now:\n- `t::e`" in text


@pytest.mark.parametrize(
    ("spent", "tokens", "limits"),
    [
        (Usage(), None, "limits: 100 steps, $2.00 (if the model's price is known), 1 h."),
        (Usage(steps=1), None, "limits: 100 steps, $2.00, 1 h."),
        (Usage(steps=1), 50_000, "limits: 100 steps, $2.00, 50,000 tokens, 1 h."),
        (
            Usage(unpriced=True),
            None,
            "limits: 100 steps, 1 h; no dollar limit, because the model's price is unknown.",
        ),
        (
            Usage(usd=Decimal("0.5"), unpriced=True),
            None,
            "limits: 100 steps, $2.00 (as far as prices are known), 1 h.",
        ),
    ],
)
def test_a_dollar_limit_is_shown_only_if_it_is_enforced(
    spent: Usage, tokens: int | None, limits: str
) -> None:
    under = RunConfigured(
        version="1.2.3", models={}, steps=100, seconds=3600, usd=Decimal("2.00"), repository={},
        settings={"max_tokens": tokens},
    )  # fmt: skip
    story = STORY.model_copy(update={"usage": spent, "configuration": under, "requested_usd": Decimal(9)})
    text = reply_texts.render_pull_request_body(THREAD, Verdict(kind="untested", reason="No tests."), story)
    assert f"\nPatchwright 1.2.3; {limits}\n" in text
    assert ("limited to $2.00 instead of the requested $9" in text) == (
        not spent.unpriced or spent.cost is not None
    )
    comment = render_reply(
        "published.md.j2", pull=pull(), verdict=Verdict(kind="untested"), summary=story, already_open=False
    )
    applied = "limited to $2.00 instead of the requested $9"
    unlimited = "no dollar limit, because the model's price is unknown"
    assert (applied if applied in text else unlimited) in comment.splitlines()[-1]


def test_a_run_without_a_step_has_no_section_about_its_steps() -> None:
    def question(steps: int) -> str:
        return render_reply(
            "question.md.j2",
            question="Up?",
            summary=STORY.model_copy(update={"usage": Usage(steps=steps)}),
        ).strip()

    assert "How the agent worked: 1 step<" in question(1)
    assert "How the agent worked" not in question(0)


@pytest.mark.parametrize(
    ("page", "link"),
    [
        ("https://bot.test/runs/a", "[the whole run](https://bot.test/runs/a)\n"),
        (
            "http://127.0.0.1:8000/runs/a",
            "[the whole run](http://127.0.0.1:8000/runs/a) (opens only on the server's own machine)\n",
        ),
    ],
)
def test_a_localhost_link_is_marked_as_local(page: str, link: str) -> None:
    story = STORY.model_copy(update={"dashboard_url": page, "usage": Usage(seconds=10)})
    text = reply_texts.render_pull_request_body(THREAD, Verdict(kind="untested", reason="No tests."), story)
    assert f" · working time 10 s · docker sandbox, no network · {link}" in text


def test_a_fix_shown_by_an_exit_code_has_no_test_counts() -> None:
    thread, story = THREAD, STORY
    before = TestRun(command="make test", results={}, exit_code=2, seconds=1, output="")
    after = before.model_copy(update={"exit_code": 0})
    reason = "As a whole, the test command failed without the patch and passed with it."
    verdict = Verdict(kind="fixed", reason=reason, before=before, after=after)
    body = reply_texts.render_pull_request_body(thread, verdict, story)
    assert body.startswith(f"**Fixed:** {reason}\n") and "| exit code | 2 | 0 |" in body
    row = "| with this change's tests, without and with the rest of it | failed | passed |"
    assert row not in body
    by_new_tests = verdict.model_copy(update={"before": after, "new_tests_at_base": {"make test": "failed"}})
    body = reply_texts.render_pull_request_body(thread, by_new_tests, story)
    assert f"| exit code | 0 | 0 |\n{row}\n" in body


def test_test_edits_are_listed_with_the_verdict() -> None:
    thread, story = THREAD, STORY
    run = TestRun(
        command="pytest",
        results={"t::a": "passed"},
        exit_code=0,
        seconds=1,
        output="",
        command_reason="ci.yml (step @x) runs it.",
    )
    opinion = ModelReview(approved=False, reasons="It misses floats, says @team.", model="second")
    verdict = Verdict(
        kind="unproven", reason="None shows it.", before=run, after=run, weakened_tests=("test_a.py asks less.",),
        deleted_test_files=("test_old.py",), reverted_test_config=("conftest.py",), patch_tests_failing=("t::new",),
        modified_tests_failing=("t::a",), review=opinion,
    )  # fmt: skip
    verdict = verdict.model_copy(update={"conditions": find_conditions(verdict, b"")})
    body = reply_texts.render_pull_request_body(thread, verdict, story)
    for expected in (
        "\nWhy this command: ci.yml (step @\u200bx) runs it.\n",
        "Added or modified by this change, failing:\n- `t::new`",
        "Changes to what the tests check:\n"
        "- `a` now expects something else; its old version fails with this change.\n"
        "- `test_old.py` is deleted.\n- `test_a.py` asks less.\n"
        "- The repository's tests ran without the change to `conftest.py`.\n",
        "A second model (`second`) reviewed the issue and the change and does **not** approve the "
        "change. Its review does "
        "not affect the verdict: It misses floats, says @\u200bteam.",
    ):
        assert expected in body


LESS_TESTED = Condition(kind="tests_not_run", sentence="`a` is not run now.", tests=("t::a",))


@pytest.mark.parametrize(
    ("verdict", "begins"),
    [
        (Verdict(kind="unproven", reason="Tests alone."), "**No regressions:** no test that passed before"),
        (
            Verdict(kind="unproven", reason="Less is tested.", conditions=(LESS_TESTED,)),
            "**Unproven:** Less is tested.",
        ),
        (Verdict(kind="untested", reason="No tests."), "**Untested:** nothing proves this change. No tests."),
    ],
)
def test_a_follow_up_without_a_failing_test_is_worded_neutrally(verdict: Verdict, begins: str) -> None:
    """Not every remark needs a test, nor does a formatter's finding."""
    story = Summary(
        finish=None, stop_detail="", steps=(), usage=Usage(steps=0, seconds=0), model="m", sandbox="local"
    )
    report = follow_up_texts.FollowUpReport(
        pull(), None, verdict, story, is_on_head=False, reason="No.", has_moved=False, thread_results=(),
        unresolved=False, notes=(), excluded_changes=(), open_points=(), merge=None,
    )  # fmt: skip
    text = render_reply("follow_up.md.j2", **vars(report))
    assert f"\n\n{begins}" in text
