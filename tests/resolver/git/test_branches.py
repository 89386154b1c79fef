"""Names of branches: a wish of the operator or the repository, that git takes and that no other issue has."""

import pytest

from resolver.git.branches import branch_names, checked, is_branch_name, slug


@pytest.mark.parametrize(
    ("template", "names"),
    [
        ("issue-{number}", ("patchwright/issue-7", "patchwright/issue-7-89abcdef")),
        ("{slug}/{number}", ("patchwright/the-sum-is-wrong/7", "patchwright/the-sum-is-wrong/7-89abcdef")),
        ("{number}-{run}", ("patchwright/7-89abcdef", "patchwright/7-89abcdef-89abcdef")),
    ],
)
def test_a_branch_is_named_by_the_template_below_the_prefix(template: str, names: tuple[str, str]) -> None:
    run = "acme-sample-7-0123456789ABCDEF"
    assert branch_names(template, "patchwright/", 7, "The sum is wrong!", run) == names


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
def test_any_title_is_a_harmless_part_of_a_name(title: str, named: str) -> None:
    assert slug(title) == named
    assert is_branch_name(f"patchwright/{named}-7")


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("always", "must name"),
        ("{slug}", "must name"),
        ("{title}-{number}", "nothing else in braces"),
        ("{number.__class__}", "nothing else in braces"),
        ("{number!r}{0}", "nothing else in braces"),
        ("{number", "nothing else in braces"),
        ("{number}.lock", "git takes no branch"),
        ("a b{number}", "git takes no branch"),
        ("../{number}", "git takes no branch"),
        ("{number}/", "git takes no branch"),
    ],
)
def test_a_template_that_names_no_branch_is_refused(template: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        checked(template)


@pytest.mark.parametrize(
    "name",
    ["", "-x", "a..b", "a//b", "/a", "a/", "a.", ".a", "a/.b", "a.lock/b", "@", "a@{b", "a\tb", "é" * 101],
)
def test_what_git_takes_for_no_branch_is_none(name: str) -> None:
    assert not is_branch_name(name)


@pytest.mark.parametrize("name", ["main", "release/1.x", "größe", "a-b_c#1", "x@y"])
def test_what_git_takes_is_one(name: str) -> None:
    assert is_branch_name(name)
