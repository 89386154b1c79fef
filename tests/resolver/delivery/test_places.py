"""Places in the code that a comment names lead there."""

import pytest

from resolver.delivery.places import linked
from tests.resolver.seen_runs import started

AT = started().model_copy(update={"source": "https://forge.test/acme/calc.git", "base": "c0ffee"})
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
def test_a_code_span_that_is_a_place_is_a_link(text: str, shown: str) -> None:
    assert linked(text, AT) == shown


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
def test_nothing_else_is(text: str) -> None:
    assert linked(text, AT) == text


def test_a_repository_on_a_disk_has_no_page_to_lead_to() -> None:
    at = AT.model_copy(update={"source": "/srv/calc"})
    assert linked("see `calc.py:2`", at) == "see `calc.py:2`"
