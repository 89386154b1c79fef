"""What a person at a terminal of 80 columns reads."""

from datetime import UTC, datetime, timedelta

from bot.terminal.lines import Narrator, folded, plain
from bot.terminal.lines import tests_table as table
from resolver.circumstances import Chosen, Connected, Prepared
from resolver.domain import SuiteRun, Verdict
from resolver.events import Call, Decided, Ended, Entry, Event, Observed
from resolver.llm.model import Usage
from runtime.actions import RunShell
from runtime.egress.egress import Visit
from runtime.observations import Ran

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def told(*events: Event) -> list[str]:
    lines: list[str] = []
    narrator = Narrator(lines.append)
    for number, event in enumerate(events):
        narrator(Entry(seq=number, at=NOON + timedelta(seconds=number), event=event))
    return lines


def step(thought: str, command: str, output: str) -> tuple[Decided, Observed]:
    call = Call(id="c", action=RunShell(command=command))
    seen = Ran(exit_code=0, output=output, seconds=1.0, cwd="/workspace")
    return Decided(thought=thought, calls=(call,), usage=Usage(model="m")), Observed(
        call="c", observation=seen
    )


def test_a_step_is_one_short_line_and_its_result_beside_it() -> None:
    assert told(*step("Reproduce.", "python3 x.py", "60s\n")) == [
        "   0.0 s    1. Reproduce.",
        "   1.0 s       $ python3 x.py  → exit code 0: 60s",
    ]


def test_a_long_step_is_clipped_to_the_terminal_with_its_result_below() -> None:
    lines = told(*step("I think " * 50, "cat <<X\n" + "long " * 50, "much " * 50))
    assert [len(line) <= 80 for line in lines] == [True] * 4
    assert lines[0].startswith("   0.0 s    1. I think") and lines[1].startswith("   0.0 s       I think")
    assert lines[1].endswith(" …")
    assert lines[3].startswith("   1.0 s         → exit code 0: much")


def test_foreign_text_cannot_steer_the_terminal() -> None:
    assert plain("a\x1b[2Jb\u202ec\r\n") == "a[2Jbc\n"


def test_long_paragraphs_are_folded_and_lists_are_not() -> None:
    assert folded("one two three\n\n- one two three", width=9) == "one two\nthree\n\n- one two three"


def test_the_image_for_a_language_is_told_before_the_set_up() -> None:
    missed = Chosen(language="go", image="golang:1", problem="no such image")
    plain = Prepared(commands=(), warm=True, seconds=0, chosen=missed)
    chosen = missed.model_copy(update={"problem": None})
    lines = told(plain, plain.model_copy(update={"commands": ("make",), "chosen": chosen}))
    assert [line[10:] for line in lines] == [
        "the image for go could not be had: the usual one stands in",
        "  no such image",
        "the sandboxes for go are on golang:1",
        "the repository's set-up was kept",
    ]


def test_an_end_that_says_all_by_itself_is_told_once() -> None:
    lines = told(
        Ended(reason="finished", detail="The agent gave its account and ended the work."),
        Ended(reason="limit", detail="All 100 steps were taken."),
    )
    assert [line[10:] for line in lines if "proving" not in line] == [
        "the agent gave its account and ended the work.",
        "the agent's work ended (limit): All 100 steps were taken.",
    ]


def test_what_the_sandbox_was_refused_and_what_would_allow_it_are_told() -> None:
    visits = (
        Visit(host="pypi.org", port=443),
        Visit(host="h.example.test", port=443, refused="private"),
        *(Visit(host=f"h{n}.test", port=443, refused="unlisted") for n in range(6)),
    )
    done = Prepared(commands=("make",), warm=False, seconds=1)
    lines = told(
        done.model_copy(update={"missed": ("not to be had: x",)}),
        done.model_copy(update={"warm": True}),
        done.model_copy(update={"problem": "exit code 1"}),
        Connected(visits=visits),
    )
    assert all(len(line) <= 80 for line in lines)
    assert [line[10:] for line in lines] == [
        "the repository's set-up is done",
        "it went on without something that its developers use",
        "  not to be had: x",
        "the repository's set-up was kept",
        "the repository's set-up was not done: its tests run without it",
        "  exit code 1",
        "refused h.example.test: it leads to an address that is not public",
        "  (setting `allow_addresses`)",
        *(f"refused h{n}.test: it is not on the allow-list (setting `allow_hosts`)" for n in range(4)),
        "and 2 more",
    ]


def test_a_test_that_was_there_and_asks_for_more_is_not_called_new() -> None:
    before = SuiteRun(command="pytest", results={"t::a": "passed"}, exit_code=0, seconds=1, output="")
    after = before.model_copy(update={"results": {"t::a": "passed", "t::b": "passed"}})
    verdict = Verdict(kind="fixed", before=before, after=after, on_old_code={"t::b": "failed"})
    changed = verdict.model_copy(update={"on_old_code": {"t::a": "failed", "t::b": "failed"}})
    assert "\n  new tests: 1 failed on the old code; now 1 passed" in table(verdict)
    assert "\n  new or changed tests: 2 failed on the old code; now 2 passed" in table(changed)
