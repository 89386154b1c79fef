"""Parsing of the text after a mention: commands, text, options and typing errors."""

from decimal import Decimal

import pytest

from patchwright.resolver.command_parser import RunOptions, parse_request
from patchwright.resolver.request.plan_texts import render_invalid_command


@pytest.mark.parametrize(
    ("text", "verb", "words"),
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
        ("set up", "setup", ""),
        ("setup the CI", "work", "setup the CI"),
        ("resume", "resume", ""),
        ("Resume: but leave the tests alone", "resume", "but leave the tests alone"),
        ("go", "go", ""),
        ("Go ahead!", "go", ""),
        ("approve", "approve", ""),
        ("reject, use pip instead", "reject", "use pip instead"),
        ("go, but leave the CLI alone", "go", "but leave the CLI alone"),
        ("plan", "plan", ""),
        ("please plan the move to httpx", "plan", "the move to httpx"),
        ("explain why `add` subtracts?", "explain", "why `add` subtracts?"),
    ],
)
def test_a_command_is_recognized_and_polite_words_are_ignored(text: str, verb: str, words: str) -> None:
    parsed = parse_request(text)
    assert (parsed.verb, parsed.remainder, parsed.error) == (verb, words, None)


@pytest.mark.parametrize(
    "text",
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
def test_any_other_text_is_a_request_for_work(text: str) -> None:
    parsed = parse_request(text)
    assert parsed == ("work", text, text, RunOptions(), None)


@pytest.mark.parametrize(
    ("expected_text", "text", "options"),
    [
        ("model=gpt-5 fix it", "fix it", RunOptions(model="gpt-5")),
        ("fix it budget=1.50, please", "fix it", RunOptions(usd=Decimal("1.50"))),
        ("$2 fix it", "fix it", RunOptions(usd=Decimal(2))),
        ("budget=$3 fix it", "fix it", RunOptions(usd=Decimal(3))),
        ("fix it, based on base=release/1.x.", "fix it, based on", RunOptions(base="release/1.x")),
        ("use base=dev for this", "use base=dev for this", RunOptions(base="dev")),
        ("MODEL=`a/b-c` fix it", "fix it", RunOptions(model="a/b-c")),
        ("model=a model=a fix it", "fix it", RunOptions(model="a")),
        ("agent=codeact fix it", "fix it", RunOptions(agent="codeact")),
        ("use typo-fixer: correct it", "correct it", RunOptions(agent="typo-fixer")),
        ("budget=1 Use `a.b`: fix it", "fix it", RunOptions(agent="a.b", usd=Decimal(1))),
        ("please use typo-fixer: now", "please use typo-fixer: now", RunOptions()),
        ("use the parser: it is new", "use the parser: it is new", RunOptions()),
        ("use it, and test it", "use it, and test it", RunOptions()),
        (
            "base=dev model=m fix it budget=1",
            "fix it",
            RunOptions(model="m", usd=Decimal(1), base="dev"),
        ),
    ],
)
def test_options_work_outside_code_and_are_removed_at_the_ends(
    expected_text: str, text: str, options: RunOptions
) -> None:
    parsed = parse_request(expected_text)
    assert (parsed.verb, parsed.text, parsed.options, parsed.error) == ("work", text, options, None)


def test_commands_accept_options() -> None:
    assert parse_request("retry model=m")[:4:3] == ("retry", RunOptions(model="m"))
    assert parse_request("plan $3 the move")[::2] == ("plan", "the move", None)
    assert parse_request("plan $3 the move").options == RunOptions(usd=Decimal(3))
    assert parse_request("explain use finder: where?")[2:4] == ("where?", RunOptions(agent="finder"))
    assert parse_request("use finder: plan it")[::3] == ("plan", RunOptions(agent="finder"))
    assert parse_request("use finder.")[1:4] == ("", "", RunOptions(agent="finder"))
    assert parse_request("go budget=1 and add docs")[2:4] == ("and add docs", RunOptions(usd=Decimal(1)))


def test_options_round_trip_as_text_and_later_ones_override() -> None:
    early, late = parse_request("model=a budget=2 agent=b x").options, parse_request("budget=1 x").options
    assert late.override(early).as_text == "model=a budget=1 agent=b"
    assert parse_request(f"{late.override(early).as_text} x").options == late.override(early)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (
            "retyr",
            "`retyr` is not a command. Did you mean `retry`? If you meant a request, describe it in a few "
            "more words.",
        ),
        (
            "sotp please",
            "`sotp` is not a command. Did you mean `stop`? If you meant a request, describe it in a few more "
            "words.",
        ),
        (
            "modle=gpt-5 fix it",
            (
                "There is no option `modle=gpt-5`. Did you mean `model=`? If you did not mean an option, put this "
                "text in backticks."
            ),
        ),
        (
            "fix it bugdet=1",
            (
                "There is no option `bugdet=1`. Did you mean `budget=`? If you did not mean an option, put this "
                "text in backticks."
            ),
        ),
        (
            "effort=high fix it",
            "There is no option `effort=high`. The options are `model=`, `budget=`, `base=` and `agent=`. "
            "If you did not mean an option, put this text in backticks.",
        ),
        (
            "please retry timeout=60",
            "There is no option `timeout=60`. The options are `model=`, `budget=`, `base=` and `agent=`. "
            "If you did not mean an option, put this text in backticks.",
        ),
        ("fix it model=", "`model=` has no value. Write, for example, `model=NAME`."),
        ("budget=lots fix it", "`budget=lots` is not a dollar amount. Write, for example, `budget=1.50`."),
        ("budget=1,50 fix it", "`budget=1,50` is not a dollar amount. Write, for example, `budget=1.50`."),
        ("budget=0 fix it", "`budget=0` is not a dollar amount. Write, for example, `budget=1.50`."),
        ("budget=-1 fix it", "`budget=-1` is not a dollar amount. Write, for example, `budget=1.50`."),
        ("fix it agent=a/b", "`agent=a/b` is not a valid name of an agent."),
        ("fix it base=a..b", "`base=a..b` is not a valid branch name."),
        ("fix it base=<branch>", "`base=<branch>` is not a valid branch name."),
        ("fix it model=a model=b", "`model=` appears twice with different values."),
        ("model=" + "x" * 300 + " go", f"`model={'x' * 54}` is not a valid model name."),
    ],
)
def test_a_typing_error_gets_a_suggestion(text: str, answer: str) -> None:
    slip = parse_request(text).error
    assert slip is not None
    assert render_invalid_command(slip) == answer
