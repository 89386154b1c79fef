"""Fenced code blocks in the forms that models write."""

import pytest

from patchwright.resolver.llm.code_blocks import CodeBlock, parse_code_blocks


def parse(reply: str) -> list[tuple[str, str]]:
    return [(block.language, block.text) for block in parse_code_blocks(reply)]


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
def test_a_code_block_is_found(reply: str, found: list[tuple[str, str]]) -> None:
    assert parse(reply) == found


@pytest.mark.parametrize("reply", ["", "click('10')", "`click('10')`", "```\nclick('10')", "Done. ```"])
def test_an_unclosed_block_is_not_found(reply: str) -> None:
    assert parse(reply) == []


def test_a_block_has_its_offsets() -> None:
    reply = "First\n```\nx\n```\nlast"
    (block,) = parse_code_blocks(reply)
    assert block == CodeBlock("", "x", 6, 15)
    assert reply[block.start : block.end] == "```\nx\n```"


@pytest.mark.slow
@pytest.mark.parametrize("piece", ["```", "``` ", "```x\n", "```\n", " ", "\n", "````\n```x\n", "a```"])
@pytest.mark.timeout(100)  # linear: 0.5 s; a quadratic parser takes hours
def test_many_fences_are_parsed_in_linear_time(piece: str) -> None:
    assert len(parse_code_blocks(piece * 200_000)) <= 200_000
