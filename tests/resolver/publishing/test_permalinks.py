"""Code references in comments become permalinks."""

from typing import Any

import pytest

from patchwright.resolver.conditions import Condition
from patchwright.resolver.domain import Verdict
from patchwright.resolver.publishing.permalinks import add_permalinks, link_conditions
from tests.resolver.sample_runs import started

AT = started().model_copy(update={"source": "https://forge.test/acme/calc.git", "base_sha": "c0ffee"})
TREE = "https://forge.test/acme/calc/blob/c0ffee"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("see `calc.py:2`.", f"see [`calc.py:2`]({TREE}/calc.py#L2)."),
        ("see `src/a-b/c.py:2-14`", f"see [`src/a-b/c.py:2-14`]({TREE}/src/a-b/c.py#L2-L14)"),
        ("`.github/w.yml:1` and `Makefile:3`", f"[`.github/w.yml:1`]({TREE}/.github/w.yml#L1) and "
         f"[`Makefile:3`]({TREE}/Makefile#L3)"),
    ],
)  # fmt: skip
def test_a_code_reference_becomes_a_permalink(text: str, shown: str) -> None:
    assert add_permalinks(text, AT) == shown


@pytest.mark.parametrize(
    "text",
    [
        "calc.py:2 in prose",
        "`calc.py:0`",
        "`calc.py`",
        "`a b.py:2`",
        "`/etc/passwd:2`",
        "`../calc.py:2`",
        "`src/../../calc.py:2`",
        "`http://host/x.py:2`",
        '`calc.py:2"onload=x`',
        "```\n`calc.py:2`\n```",
        "``calc.py:2``",
    ],
)
def test_other_text_is_unchanged(text: str) -> None:
    assert add_permalinks(text, AT) == text


@pytest.mark.parametrize(
    ("fields", "url"),
    [
        ({"path": "t.py", "lines": (3, 3)}, "patched/t.py#L3"),
        ({"path": "a b/t.py", "lines": (3, 9)}, "patched/a%20b/t.py#L3-L9"),
        ({"path": "t.py", "version": "base"}, "c0ffee/t.py"),
        ({}, ""),
    ],
)
def test_a_condition_is_linked_to_its_lines(fields: dict[str, Any], url: str) -> None:
    verdict = Verdict(
        kind="conditional", conditions=(Condition(kind="tests_not_run", sentence="t.py", **fields),)
    )
    (condition,) = link_conditions(verdict, AT, "patched").conditions
    assert condition.url == (url and f"https://forge.test/acme/calc/blob/{url}")
    local = AT.model_copy(update={"source": "/home/me/calc"})
    assert link_conditions(verdict, local, "patched") == verdict


def test_a_local_repository_gets_no_permalinks() -> None:
    at = AT.model_copy(update={"source": "/srv/calc"})
    assert add_permalinks("see `calc.py:2`", at) == "see `calc.py:2`"
