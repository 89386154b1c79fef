"""Titles of pull requests and subjects of commits have one heading and no invisible characters."""

import pytest

from patchwright.resolver.rendering.filters import first_sentences, list_tests
from patchwright.resolver.rendering.subjects import MAX_PULL_REQUEST_TITLE, build_subject, defuse
from patchwright.resolver.rendering.template_renderer import render, render_reply
from tests.resolver.pull_requests import job, pull


@pytest.mark.parametrize(
    ("title", "files", "subject"),
    [
        ("show() writes 60s", ("a.py",), "Fix: show() writes 60s"),
        ("[Bug] Fix: x fails (#3)", ("a.py",), "Fix: x fails"),
        ("Feature request: support TOML", ("a.py",), "Add: support TOML"),
        ("feat(cli): a --json option", ("a.py",), "Add: a --json option"),
        ("Add a --json option", ("a.py", "docs/cli.md"), "Add: a --json option"),
        ("Add a page about setup", ("docs/setup.md",), "Docs: Add a page about setup"),
        ("Typo", ("README.md", "docs/conf.py"), "Docs: Typo"),
        ("Feature flags are ignored", ("a.py",), "Fix: Feature flags are ignored"),
        ("add is wrong", ("a.py",), "Fix: add is wrong"),
        ("Add doesn't round", ("a.py",), "Fix: Add doesn't round"),
        ("Support fails on Windows", ("a.py",), "Fix: Support fails on Windows"),
        ("Add is_even and return types", ("a.py",), "Add: is_even and return types"),
        ("[Windows] Added files vanish", ("a.py",), "Fix: [Windows] Added files vanish"),
        ("Fix:", (), "Fix: Fix:"),
    ],
)
def test_a_subject_has_the_one_heading_that_fits_the_change(
    title: str, files: tuple[str, ...], subject: str
) -> None:
    assert build_subject(title, files) == subject


@pytest.mark.parametrize(
    ("text", "harmless"),
    [
        ("fixes #12, says @team", "fixes # 12, says @ team"),
        ("Closes: GH-3 and o/r#1", "Closes: GH- 3 and o/r# 1"),
        ("resolved https://x.test/o/r/issues/1", "resolved issue https://x.test/o/r/issues/1"),
        ("a\u200bb\u202ec", "abc"),
        ("a < b, user@", "a < b, user@"),
    ],
)
def test_a_commit_message_is_harmless_without_invisible_characters(text: str, harmless: str) -> None:
    assert defuse(text) == harmless


def test_the_commits_of_a_pull_request_do_not_stack_headings() -> None:
    mine = pull(title="Fix: the \u200bsum (#7)")
    subjects = [
        message.partition("\n")[0]
        for message in (
            render(
                "replies/commit_follow_up.txt.j2",
                pull=mine,
                job=job(),
                finish=None,
                merge=None,
                author="",
                written=None,
            ),
            render_reply("commit_salvage.txt.j2", thread=mine),
            build_subject(mine.title, ("a.py",), MAX_PULL_REQUEST_TITLE),
        )
    ]
    assert subjects == ["Address the review of the sum", "Unfinished: the sum", "Fix: the sum"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("It subtracted. The sign was wrong.", "It subtracted."),
        ("See `a. B` first. Then more.", "See `a. B` first."),
        ("It uses e.g. Python. More.", "It uses e.g. Python."),
        ("Two problems: 1. It fails. More.", "Two problems: 1. It fails."),
        ("One\nline", "One line"),
        ("word " * 50, "word " * 40 + "…"),
    ],
)
def test_the_first_sentence_of_a_report_is_shown(text: str, shown: str) -> None:
    assert first_sentences(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("It adds. It is right. No more.", "It adds. It is right."),
        ("It adds now.", "It adds now."),
        (f"It adds. {'Word ' * 40}", "It adds."),
        (
            "Two problems in `a.py`:\n1. `b` fails.\n2. It hangs.",
            "Two problems in `a.py`: `b` fails; It hangs.",
        ),
        ("- `b` fails\n- it hangs", "`b` fails; it hangs"),
    ],
)
def test_two_sentences_of_a_report_are_shown_if_they_are_short(text: str, shown: str) -> None:
    assert first_sentences(text, 2) == shown


def test_three_tests_are_named_and_the_others_are_counted() -> None:
    assert list_tests([f"tests/a.py::A::test_{n}" for n in range(5)]) == (
        "`test_0`, `test_1`, `test_2` and 2 more"
    )
