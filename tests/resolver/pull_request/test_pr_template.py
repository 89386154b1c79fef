"""A repository's pull request template keeps its text and is filled under matching headings."""

import pytest

from patchwright.resolver.pull_request.pr_template import TEMPLATE_PATHS, fill_pr_template
from patchwright.resolver.tool_actions.control_actions import Finish

ACCOUNT = Finish(cause="It subtracted.", change="It adds, says @team.", testing="pytest passes.")


@pytest.mark.parametrize(
    "path",
    [
        "pull_request_template.md",
        ".github/PULL_REQUEST_TEMPLATE.md",
        "docs/Pull_Request_Template.txt",
        "PULL_REQUEST_TEMPLATE",
    ],
)
def test_a_template_is_found_where_github_looks(path: str) -> None:
    assert TEMPLATE_PATHS.fullmatch(path)


@pytest.mark.parametrize("path", ["src/pull_request_template.md", ".github/PULL_REQUEST_TEMPLATE/bug.md"])
def test_a_template_elsewhere_is_ignored(path: str) -> None:
    assert not TEMPLATE_PATHS.fullmatch(path)


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
def test_empty_sections_are_filled_once_and_others_stay(form: str, becomes: str) -> None:
    assert fill_pr_template(form, ACCOUNT) == becomes


def test_without_a_report_only_html_comments_are_removed() -> None:
    assert fill_pr_template("## Summary\n<!-- hint -->\n", None) == "## Summary"


def test_a_hostile_template_takes_linear_time() -> None:
    assert fill_pr_template("<!--" * 5_000 + "# " * 5_000, ACCOUNT) == ""
