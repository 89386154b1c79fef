"""Branch names from templates: valid for git and different for every issue."""

import pytest

from patchwright.resolver.branch_names import (
    is_branch_name,
    make_branch_names,
    slugify,
    validate_template,
)


@pytest.mark.parametrize(
    ("template", "names"),
    [
        ("issue-{number}", ("patchwright/issue-7", "patchwright/issue-7-89abcdef")),
        ("{slug}/{number}", ("patchwright/the-sum-is-wrong/7", "patchwright/the-sum-is-wrong/7-89abcdef")),
        ("{number}-{run}", ("patchwright/7-89abcdef", "patchwright/7-89abcdef-89abcdef")),
    ],
)
def test_a_branch_name_is_prefix_and_template(template: str, names: tuple[str, str]) -> None:
    run = "acme-sample-7-0123456789ABCDEF"
    assert make_branch_names(template, "patchwright/", 7, "The sum is wrong!", run) == names


@pytest.mark.parametrize(
    ("title", "named"),
    [
        ("", "change"),
        ("日本語", "change"),
        ("Größe & Ümlaut", "groe-umlaut"),
        ("../../main.lock~^:?*[\\ @{", "main-lock"),
        ("a" * 100, "a" * 40),
        ("one two three four five six seven eight nine ten", "one-two-three-four-five-six-seven-eight"),
        ("x\n$(touch /tmp/x); `id`", "x-touch-tmp-x-id"),
    ],
)
def test_any_title_becomes_a_valid_slug(title: str, named: str) -> None:
    assert slugify(title) == named
    assert is_branch_name(f"patchwright/{named}-7")


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("always", "must contain"),
        ("{slug}", "must contain"),
        ("{title}-{number}", "the only placeholders are"),
        ("{number.__class__}", "the only placeholders are"),
        ("{number!r}{0}", "the only placeholders are"),
        ("{number", "the only placeholders are"),
        ("{number}.lock", "is not a valid branch name"),
        ("a b{number}", "is not a valid branch name"),
        ("../{number}", "is not a valid branch name"),
        ("{number}/", "is not a valid branch name"),
    ],
)
def test_a_template_with_invalid_names_is_rejected(template: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        validate_template(template)


@pytest.mark.parametrize(
    "name",
    ["", "-x", "a..b", "a//b", "/a", "a/", "a.", ".a", "a/.b", "a.lock/b", "@", "a@{b", "a\tb", "é" * 101],
)
def test_names_that_git_rejects_are_rejected(name: str) -> None:
    assert not is_branch_name(name)


@pytest.mark.parametrize("name", ["main", "release/1.x", "größe", "a-b_c#1", "x@y"])
def test_names_that_git_accepts_are_accepted(name: str) -> None:
    assert is_branch_name(name)
