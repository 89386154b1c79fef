"""A repository's own pull request template: kept as it is, filled where it asks for what we know."""

import pytest

from resolver.actions import Finish
from resolver.pull.form import PLACES, filled

ACCOUNT = Finish(cause="It subtracted.", change="It adds, says @team.", checked="pytest passes.")


@pytest.mark.parametrize(
    "path",
    [
        "pull_request_template.md",
        ".github/PULL_REQUEST_TEMPLATE.md",
        "docs/Pull_Request_Template.txt",
        "PULL_REQUEST_TEMPLATE",
    ],
)
def test_it_is_found_where_github_looks(path: str) -> None:
    assert PLACES.fullmatch(path)


@pytest.mark.parametrize("path", ["src/pull_request_template.md", ".github/PULL_REQUEST_TEMPLATE/bug.md"])
def test_elsewhere_it_is_nobodys_default(path: str) -> None:
    assert not PLACES.fullmatch(path)


@pytest.mark.parametrize(
    ("form", "becomes"),
    [
        ("", ""),
        ("Just words.", "Just words."),
        ("<!-- hint -->\n## Summary\n<!-- hint", "## Summary\n\nIt adds, says @\u200bteam."),
        ("**Why**\r\n\r\n**Testing:**\r\n", "**Why**\n\nIt subtracted.\n\n**Testing:**\n\npytest passes."),
        (
            "## Description\nTheirs.\n## Changes\n",
            "## Description\nTheirs.\n## Changes\n\nIt adds, says @\u200bteam.",
        ),
        ("## Tests\n- [ ] I ran them", "## Tests\n- [ ] I ran them"),
        ("## What\n\n## What else\n", "## What\n\nIt adds, says @\u200bteam.\n\n## What else"),
    ],
)
def test_empty_sections_get_the_agents_words_once_and_others_stay(form: str, becomes: str) -> None:
    assert filled(form, ACCOUNT) == becomes


def test_without_an_account_only_the_hints_are_gone() -> None:
    assert filled("## Summary\n<!-- hint -->\n", None) == "## Summary"


def test_a_hostile_template_costs_no_time() -> None:
    assert filled("<!--" * 5_000 + "# " * 5_000, ACCOUNT) == ""
