"""Fenced blocks, as models write them."""

import pytest

from resolver.llm.fences import Block, blocks


def read(reply: str) -> list[tuple[str, str]]:
    return [(block.language, block.text) for block in blocks(reply)]


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        ("I click it.\n```\nclick('10')\n```", [("", "click('10')")]),
        ("I click it.\n```python\nclick('10')\n```\n", [("python", "click('10')")]),
        ('In order to answer I click. ```click("10")```', [("", 'click("10")')]),
        ("```click('1')\nclick('2')```", [("", "click('1')\nclick('2')")]),
        ("```\nfirst\n```\nor rather\n```\nsecond\n```", [("", "first"), ("", "second")]),
        ("  ```Bash\n  ls\n  ```", [("bash", "  ls")]),
        ("```\nclick('1')\n\nclick('2')\n\n```", [("", "click('1')\n\nclick('2')\n")]),
        ("````\na\n```\nb\n````", [("", "a\n```\nb")]),
        ("```\nfill('3', 'use ```js``` here')\n```", [("", "fill('3', 'use ```js``` here')")]),
        ("```\nclick('1')```", [("", "click('1')")]),
        ("```\n```", [("", "")]),
        ("```bash\r\nls\r\n```", [("bash", "ls")]),
    ],
)
def test_a_block_is_found(reply: str, found: list[tuple[str, str]]) -> None:
    assert read(reply) == found


@pytest.mark.parametrize("reply", ["", "click('10')", "`click('10')`", "```\nclick('10')", "Done. ```"])
def test_what_is_no_closed_block_is_none(reply: str) -> None:
    assert read(reply) == []


def test_a_block_knows_where_it_stands() -> None:
    reply = "First\n```\nx\n```\nlast"
    (block,) = blocks(reply)
    assert block == Block("", "x", 6, 15)
    assert reply[block.start : block.end] == "```\nx\n```"


@pytest.mark.parametrize("piece", ["```", "``` ", "```x\n", "```\n", " ", "\n", "````\n```x\n", "a```"])
@pytest.mark.timeout(100)  # linear: 0.5 s; what looks again from each fence takes hours
def test_a_flood_of_fences_comes_to_an_end(piece: str) -> None:
    assert len(blocks(piece * 200_000)) <= 200_000
