"""What the words after a mention ask for: command, words, options, and slips."""

from decimal import Decimal

import pytest

from resolver.request.planning_prose import unclear
from resolver.request.request import Options, request


@pytest.mark.parametrize(
    ("said", "verb", "words"),
    [
        ("stop", "stop", ""),
        ("Stop!", "stop", ""),
        ("please stop, thanks :)", "stop", ""),
        ("stop\n\n🙏", "stop", ""),
        ("stop" + "!" * 500, "stop", ""),
        ("retry, please", "retry", ""),
        ("help?", "help", ""),
        ("rebase", "rebase", ""),
        ("run-ci", "run-ci", ""),
        ("run ci, please", "run-ci", ""),
        ("resume", "resume", ""),
        ("Resume: but leave the tests alone", "resume", "but leave the tests alone"),
        ("go", "go", ""),
        ("Go ahead!", "go", ""),
        ("approve", "go", ""),
        ("go, but leave the CLI alone", "go", "but leave the CLI alone"),
        ("plan", "plan", ""),
        ("please plan the move to httpx", "plan", "the move to httpx"),
        ("explain why `add` subtracts?", "explain", "why `add` subtracts?"),
    ],
)
def test_a_command_is_known_by_its_word_and_courtesies_are_none(said: str, verb: str, words: str) -> None:
    asked = request(said)
    assert (asked.verb, asked.words, asked.unclear) == (verb, words, None)


@pytest.mark.parametrize(
    "said",
    [
        "",
        "please",
        "stop using tabs",
        "don't stop",
        "stopwatch",
        "retry three times when the server is away",
        "help the parser along",
        "rebase of a stack loses a commit",
        "resumes are broken",
        "go.mod is broken",
        "planning fails",
        "fix `model=x` in the docs",
        "a=b in a sentence is text",
        "the parser fails on a=b",
        "it crashes when mode=strict",
        "x==1 is never true",
        "call client(model=x) and see",
        "the total is $3 too high",
        "fix it\n```\nmodel=x\nbudget=none\n```",
        "test",
    ],
)
def test_all_else_is_work_in_the_persons_own_words(said: str) -> None:
    asked = request(said)
    assert asked == ("work", said, said, Options(), None)


@pytest.mark.parametrize(
    ("said", "text", "options"),
    [
        ("model=gpt-5 fix it", "fix it", Options(model="gpt-5")),
        ("fix it budget=1.50, please", "fix it", Options(usd=Decimal("1.50"))),
        ("$2 fix it", "fix it", Options(usd=Decimal(2))),
        ("budget=$3 fix it", "fix it", Options(usd=Decimal(3))),
        ("fix it, based on base=release/1.x.", "fix it, based on", Options(base="release/1.x")),
        ("use base=dev for this", "use base=dev for this", Options(base="dev")),
        ("MODEL=`a/b-c` fix it", "fix it", Options(model="a/b-c")),
        ("model=a model=a fix it", "fix it", Options(model="a")),
        (
            "base=dev model=m fix it budget=1",
            "fix it",
            Options(model="m", usd=Decimal(1), base="dev"),
        ),
    ],
)
def test_options_stand_anywhere_outside_code_and_those_at_the_ends_are_no_text(
    said: str, text: str, options: Options
) -> None:
    asked = request(said)
    assert (asked.verb, asked.text, asked.options, asked.unclear) == ("work", text, options, None)


def test_commands_take_options_too() -> None:
    assert request("retry model=m")[:4:3] == ("retry", Options(model="m"))
    assert request("plan $3 the move")[::2] == ("plan", "the move", None)
    assert request("plan $3 the move").options == Options(usd=Decimal(3))
    assert request("go budget=1 and add docs")[2:4] == ("and add docs", Options(usd=Decimal(1)))


def test_options_are_written_as_they_are_read_and_the_later_ones_count() -> None:
    early, late = request("model=a budget=2 x").options, request("budget=1 x").options
    assert late.over(early).written == "model=a budget=1"
    assert request(f"{late.over(early).written} x").options == late.over(early)


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (
            "retyr",
            "`retyr` is no command of mine. Did you mean `retry`? "
            "If it is something to be done, say it in a few words more.",
        ),
        (
            "sotp please",
            "`sotp` is no command of mine. Did you mean `stop`? "
            "If it is something to be done, say it in a few words more.",
        ),
        (
            "modle=gpt-5 fix it",
            "I know no option `modle=gpt-5`. Did you mean `model=`? If it is no option, put it into backticks.",
        ),
        (
            "fix it bugdet=1",
            "I know no option `bugdet=1`. Did you mean `budget=`? If it is no option, put it into backticks.",
        ),
        (
            "effort=high fix it",
            "I know no option `effort=high`. There are `model=`, `budget=` and `base=`. "
            "If it is no option, put it into backticks.",
        ),
        ("fix it model=", "`model=` has no value behind it: write for example `model=NAME`."),
        ("budget=lots fix it", "`budget=lots` is no number of dollars: write for example `budget=1.50`."),
        ("budget=1,50 fix it", "`budget=1,50` is no number of dollars: write for example `budget=1.50`."),
        ("budget=0 fix it", "`budget=0` is no number of dollars: write for example `budget=1.50`."),
        ("budget=-1 fix it", "`budget=-1` is no number of dollars: write for example `budget=1.50`."),
        ("fix it base=a..b", "`base=a..b` cannot be the name of a branch."),
        ("fix it base=<branch>", "`base=<branch>` cannot be the name of a branch."),
        ("fix it model=a model=b", "`model=` stands there twice, with two values."),
        ("model=" + "x" * 300 + " go", f"`model={'x' * 54}` cannot be the name of a model."),
    ],
)
def test_a_slip_is_named_with_what_was_probably_meant(said: str, answer: str) -> None:
    slip = request(said).unclear
    assert slip is not None
    assert unclear(slip) == answer
