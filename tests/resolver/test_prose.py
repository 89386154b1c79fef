"""What is shown to people is quiet, honest about money, and cannot be broken out of."""

import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from resolver import prose
from resolver.actions import Finish
from resolver.brief import brief
from resolver.circumstances import Configured
from resolver.domain import Issue, Opinion, Spent, SuiteRun, User, Verdict
from resolver.errors import SettingsError
from resolver.pull import follow_up_prose
from resolver.summary import Step, Summary
from resolver.words import wording
from resolver.words.texts import use_templates
from tests.resolver.pull_requests import pull

THREAD = Issue(number=7, title="t", body="", author=User(id=1, login="a"), trusted=True, open=True, url="")
STORY = Summary(account=None, ending="", steps=(), spent=Spent(), model="m", sandbox="docker")


@pytest.mark.parametrize(
    "loud",
    ["@team look", "fixes #12", "Closes: GH-3", "resolved https://x.test/o/r/issues/1", "<img src=x>",
     "![](http://x)", "fix o/r#1"],
)  # fmt: skip
def test_foreign_text_is_made_quiet_and_stays_readable(loud: str) -> None:
    quiet = wording.quiet(loud)
    assert quiet != loud
    assert quiet.replace("\u200b", "") == loud


def test_ordinary_text_is_left_alone() -> None:
    text = "Round first: `a < b`, see tests (3 of 4) and user@"
    assert wording.quiet(text) == text


def test_a_code_block_cannot_be_ended_by_its_content() -> None:
    assert wording.fenced("a\n```\nb\n`````", "diff").splitlines()[0] == "``````diff"


@pytest.mark.parametrize(
    ("spent", "words"),
    [
        (Spent(usd=Decimal("0.0123")), "$0.0123"),
        (Spent(usd=Decimal("1.5")), "$1.50"),
        (Spent(unpriced=True), "cost unknown (no price is known for this model)"),
        (Spent(usd=Decimal("0.5"), unpriced=True), "at least $0.5000"),
        (Spent(usd=Decimal("0.009977"), unpriced=True), "at least $0.0099"),
        (Spent(usd=Decimal("0.009977")), "$0.0100"),
    ],
)
def test_money_is_told_as_far_as_it_is_known(spent: Spent, words: str) -> None:
    assert wording.money(spent) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.42, "0.4 s"), (42, "42 s"), (200, "3 min 20 s"), (3900, "1 h 5 min"), (180, "3 min"), (7210, "2 h")],
)
def test_durations_are_told_as_people_do(seconds: float, words: str) -> None:
    assert wording.duration(seconds) == words


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
    run = SuiteRun(command="make | test", results={"t::a": "failed"}, exit_code=1, seconds=1, output="")
    verdict = Verdict(
        kind="fixed",
        newly_passing=("t::a",),
        before=run,
        after=run.model_copy(update={"results": {"t::a": "passed"}}),
    )
    story = Summary(
        account=Finish(cause="closes #2 by @x", change="c", checked="d"),
        ending="",
        steps=(Step(number=1, did="$ echo `fixes #3`", came="exit code 0"),),
        spent=Spent(steps=1, seconds=3),
        model="m",
        sandbox="docker",
    )
    untested = Verdict(kind="untested", reason="It said: @x, fixes #1 <img src=x>.", before=run, after=run)
    for text in (
        prose.pull_body(thread, untested, story, (), ()),
        prose.declined("no", None, untested.model_copy(update={"kind": "regressed"}), story),
    ):
        assert not any(live in text for live in ("@x", "#1", "<img"))
    assert "The program could get no run of the repository's tests." in prose.pull_body(
        thread, untested, story, (), ()
    )
    body = prose.pull_body(thread, verdict, story, ("a.py",), ())
    assert body.startswith(
        "**Fixed:** 1 test that failed before passes now, and nothing that passed before fails."
    )
    assert "| failed | 1 | 0 |" in body
    assert "`make \\| test`" in body
    assert body.endswith("Fixes #7\n")
    for live in ("#1", "#2", "#3", "@x", "@all"):
        assert live not in body + prose.pull_title(thread)
    assert "\n\n\n" not in body


def test_no_code_and_no_prompt_knows_a_benchmark() -> None:
    root = Path(prose.__file__).parent.parent
    files = [
        path for part in ("resolver", "runtime", "templates", "bot") for path in (root / part).rglob("*")
    ]
    names = r"swe.?bench web.?arena humaneval hotpot gaia\b sympy astropy (?<!pytest-)django\b"
    known = re.compile("|".join(names.split()), re.IGNORECASE)
    named = {path.name for path in files if path.suffix in (".py", ".j2") and known.search(path.read_text())}
    assert named == set()


# --- texts of the operator's own ----------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "prompts").mkdir()
    yield tmp_path
    use_templates(None)


def test_a_text_of_the_operators_takes_the_place_of_ours_and_the_others_stay(own: Path) -> None:
    noted = prose.finish_noted()
    (own / "prompts/system.md.j2").write_text("You work at {{ root }}.")
    use_templates(own)
    assert prose.system("/workspace", "/tmp/s", "docker") == "You work at /workspace.\n"
    assert prose.finish_noted() == noted
    use_templates(None)
    assert "# How to work" in prose.system("/workspace", "/tmp/s", "docker")


def test_a_part_of_a_text_can_be_replaced_alone(own: Path) -> None:
    (own / "prompts/instructions.md.j2").write_text("Ask nobody.")
    use_templates(own)
    issue = Issue(
        number=1, title="t", body="b", author=User(id=1, login="a"), trusted=False, open=True, url=""
    )
    told = brief(issue, "", root="/w", base="0" * 40, files=(), machine="", suite=None, before=None)
    assert "Ask nobody.\nStart by reproducing" in prose.brief(told)


def test_a_text_that_replaces_none_is_an_error_that_names_the_nearest(own: Path) -> None:
    (own / "prompts/sytem.md.j2").write_text("x")
    with pytest.raises(
        SettingsError, match=r"sytem.md.j2 has the name of no text; did you mean prompts/system.md.j2"
    ):
        use_templates(own)
    with pytest.raises(SettingsError, match="there is no directory"):
        use_templates(own / "none")


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("a/__init__.py, line 2: `x_y*`; *.lock.", "`a/__init__.py`, line 2: `x_y*`; `*.lock`."),
        ("(tests/test_reading.py)", "(`tests/test_reading.py`)"),
        ("~5 of a <b> ` b_c", "\\~5 of a \\<\u200bb> \\` `b_c`"),
        ("README.md has 1 check fewer.", "README.md has 1 check fewer."),
    ],
)
def test_a_sentence_of_the_programs_shows_names_as_they_are_written(said: str, written: str) -> None:
    assert wording.literal(said) == written


def test_new_tests_are_told_with_how_they_did_on_the_old_code() -> None:
    before = SuiteRun(command="pytest", results={"t::a": "passed"}, exit_code=0, seconds=1, output="")
    now = {"t::a": "passed", "t::b": "passed", "t::c": "passed", "t::d": "passed"}
    verdict = Verdict(
        kind="fixed", newly_passing=("t::b", "t::c"), before=before, after=before.model_copy(update={"results": now}),
        on_old_code={"t::b": "failed", "t::c": "error", "t::d": "passed"},
    )  # fmt: skip
    said = prose.pull_body(THREAD, verdict, STORY, ("a.py",), ())
    assert said.startswith(
        "**Fixed:** 2 new tests fail without this change and pass with it, and nothing that passed before fails.\n\n"
        "| `pytest` | before | after |\n"
        "| --- | ---: | ---: |\n"
        "| passed | 1 | 4 |\n"
        "| failed | 0 | 0 |\n"
        "| new tests, on the old code too | 1 failed, 1 with errors, 1 passed | 3 passed |\n"
    )
    assert "\nFail on the old code, pass now:\n- `t::b`\n- `t::c`\n" in said
    changed = {"on_old_code": {"t::a": "failed"}, "newly_passing": ("t::a", "t::e")}
    said = prose.pull_body(THREAD, verdict.model_copy(update=changed), STORY, ("a.py",), ())
    assert said.startswith(
        "**Fixed:** 1 test that failed before passes now, 1 new or changed test fails without this change and passes "
        "with it, and nothing that passed before fails."
    )
    assert "| new or changed tests, on the old code too | 1 failed | 1 passed |" in said
    assert "Failed before, pass now:\n- `t::e`" in said


@pytest.mark.parametrize(
    ("spent", "tokens", "limits"),
    [
        (Spent(), None, "at most 100 steps, $2.00 and 1 h."),
        (Spent(), 50_000, "at most 100 steps, $2.00, 50,000 tokens and 1 h."),
        (
            Spent(unpriced=True),
            None,
            "at most 100 steps and 1 h; no limit in dollars, as the model's price is unknown.",
        ),
        (
            Spent(usd=Decimal("0.5"), unpriced=True),
            None,
            "at most 100 steps, $2.00 (as far as prices are known) and 1 h.",
        ),
    ],
)
def test_a_limit_in_dollars_is_told_only_where_it_holds(
    spent: Spent, tokens: int | None, limits: str
) -> None:
    under = Configured(
        version="1.2.3", models={}, steps=100, seconds=3600, usd=Decimal("2.00"), repository={},
        settings={"max_tokens": tokens},
    )  # fmt: skip
    story = STORY.model_copy(update={"spent": spent, "under": under, "capped": Decimal(9)})
    said = prose.pull_body(THREAD, Verdict(kind="untested", reason="No tests."), story, (), ())
    assert f"\nPatchwright 1.2.3; {limits}\n" in said
    assert ("at most $2.00, not the $9 that were asked for" in said) == (spent.cost is not None)


@pytest.mark.parametrize(
    ("page", "link"),
    [
        ("https://bot.test/runs/a", "[the whole run](https://bot.test/runs/a)\n"),
        (
            "http://127.0.0.1:8000/runs/a",
            "[the whole run](http://127.0.0.1:8000/runs/a) (opens only on the machine of the server)\n",
        ),
    ],
)
def test_a_link_that_opens_on_one_machine_alone_says_so(page: str, link: str) -> None:
    story = STORY.model_copy(update={"page": page, "spent": Spent(seconds=10)})
    said = prose.pull_body(THREAD, Verdict(kind="untested", reason="No tests."), story, (), ())
    assert f" · working time 10 s · docker sandbox, no network · {link}" in said


def test_many_names_are_folded_and_few_are_not() -> None:
    thread, story = THREAD, STORY
    few, many = tuple(f"{n}.py" for n in range(8)), tuple(f"{n}.py" for n in range(9))
    untested = Verdict(kind="untested", reason="No tests.")
    assert "### Files\n- `0.py`" in prose.pull_body(thread, untested, story, few, ())
    assert "<details><summary>9 files</summary>\n\n- `0.py`" in prose.pull_body(
        thread, untested, story, many, ()
    )


def test_a_mend_that_only_an_exit_code_shows_is_not_counted_in_tests() -> None:
    thread, story = THREAD, STORY
    before = SuiteRun(command="make test", results={}, exit_code=2, seconds=1, output="")
    after = before.model_copy(update={"exit_code": 0})
    reason = "The test command failed without the patch and passed with it, as a whole."
    verdict = Verdict(kind="fixed", reason=reason, before=before, after=after)
    body = prose.pull_body(thread, verdict, story, ("a.c",), ())
    assert body.startswith(f"**Fixed:** {reason}\n") and "| exit code | 2 | 0 |" in body


def test_what_a_change_does_to_tests_stands_with_the_verdict() -> None:
    thread, story = THREAD, STORY
    run = SuiteRun(
        command="pytest",
        results={"t::a": "passed"},
        exit_code=0,
        seconds=1,
        output="",
        why="ci.yml (step @x) runs it.",
    )
    opinion = Opinion(approves=False, words="It misses floats, says @team.", model="second")
    verdict = Verdict(
        kind="unproven", reason="None shows it.", before=run, after=run, weakened=("test_a.py asks less.",),
        deleted=("test_old.py",), set_aside=("conftest.py",), still_failing=("t::new",), rewritten=("t::a",),
        opinion=opinion,
    )  # fmt: skip
    body, _, _ = prose.pull_body(thread, verdict, story, ("a.py",), ()).partition("###")
    for expected in (
        "\nWhy this command: ci.yml (step @\u200bx) runs it.\n",
        "Added or changed by this change, and failing:\n- `t::new`",
        "as they were, they passed before and fail now:\n- `t::a`",
        "Files of tests that this change deletes:\n- `test_old.py`",
        "asks less of tests than they asked before:\n- `test_a.py` asks less.",
        "The tests were run without this change's version of `conftest.py`, which decide how tests run.",
        "A second model (`second`), which decides nothing here, read the issue and the change and would **not** take "
        "it: It misses floats, says @\u200bteam.",
    ):
        assert expected in body


@pytest.mark.parametrize(
    ("verdict", "begins"),
    [
        (Verdict(kind="unproven", reason="Tests alone."), "**Nothing breaks:** no test that passed before"),
        (
            Verdict(kind="unproven", reason="Less is tested.", missing=("t::a",)),
            "**Unproven:** Less is tested.",
        ),
        (Verdict(kind="untested", reason="No tests."), "**Untested:** no test run could be had"),
    ],
)
def test_below_a_pull_request_a_change_that_no_test_shows_is_not_spoken_ill_of(
    verdict: Verdict, begins: str
) -> None:
    """Not every remark wants a test, nor does what a formatter finds."""
    story = Summary(
        account=None, ending="", steps=(), spent=Spent(steps=0, seconds=0), model="m", sandbox="local"
    )
    said = follow_up_prose.followed_up(
        pull(), None, verdict, story, on_head=False, instead="No.", moved=False, told=(), unresolved=False,
        notes=(), left_out=(), left_open=(), merge=None,
    )  # fmt: skip
    assert f"\n\n{begins}" in said
