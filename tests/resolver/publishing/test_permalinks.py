"""Code references in comments become permalinks."""

import pytest

from patchwright.resolver.publishing.permalinks import add_permalinks
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


def test_a_local_repository_gets_no_permalinks() -> None:
    at = AT.model_copy(update={"source": "/srv/calc"})
    assert add_permalinks("see `calc.py:2`", at) == "see `calc.py:2`"
