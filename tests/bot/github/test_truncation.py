"""Texts that are too long for GitHub are cut without breaking their Markdown."""

import pytest

from patchwright.bot.github.comments import truncate_body
from patchwright.resolver.forge import MAX_BODY


@pytest.mark.parametrize(
    ("opened", "closed"),
    [
        ("", ""),
        ("```python\n", "\n```"),
        ("````\n```\n", "\n````"),
        ("```\n```\n", ""),
        ("~~~\n", "\n~~~"),
        ("<details><summary>S</summary>\n", "\n</details>"),
        ("<details>\n\n```\n", "\n```\n</details>"),
    ],
)
def test_truncation_closes_open_markdown_blocks(opened: str, closed: str) -> None:
    text = truncate_body(opened + "word " * 50_000, MAX_BODY)
    assert len(text) <= MAX_BODY
    kept, _, note = text.rpartition("\n\n*")
    assert note.startswith("Truncated: this text")
    assert kept.startswith(opened) and kept.endswith(closed)
    assert set(kept.removeprefix(opened).removesuffix(closed)) == set("word ")
    assert truncate_body("short", MAX_BODY) == "short"
