"""docs/troubleshooting.md: the words that it explains are words that the program says."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/troubleshooting.md").read_text()
GAP = "\0"
SYMPTOMS = re.findall(r'`"(.+?)"`', PAGE)


@cache
def product_texts() -> str:
    """All that the program can say: texts of templates and of code, with a gap for what differs."""
    templates = [template.read_text() for template in (ROOT / "templates").rglob("*.j2")]
    texts = [
        re.sub(r"\{\{.*?\}\}|\{%.*?%\}", GAP, template, flags=re.DOTALL) for template in templates
    ] + templates
    for layer in ("bot", "resolver", "runtime"):
        for module in (ROOT / layer).rglob("*.py"):
            texts += literals(ast.parse(module.read_text()))
    return "\n".join(texts)


def literals(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else GAP for part in node.values)


def missing_parts(symptom: str) -> list[str]:
    """The parts of these words that the program does not say."""
    return [part for part in symptom.split("...") if part.strip() and part.strip() not in product_texts()]


@pytest.mark.slow
@pytest.mark.parametrize("symptom", SYMPTOMS)
def test_every_quoted_message_exists_in_the_product(symptom: str) -> None:
    assert missing_parts(symptom) == []


def test_an_unknown_message_is_detected() -> None:
    assert missing_parts("The GitHub App needs more permissions here") == []
    assert missing_parts("the moon ... The GitHub App needs more permissions here") == ["the moon "]


def test_the_page_has_enough_rows_and_messages() -> None:
    rows = [
        line
        for line in PAGE.splitlines()
        if line.startswith("| ") and not line.startswith(("| ---", "| You see"))
    ]
    assert len(rows) >= 60
    assert len(SYMPTOMS) >= 50


def test_every_failure_reason_is_explained() -> None:
    template = (ROOT / "templates/replies/failure_reason.md.j2").read_text()
    sentences = re.findall(r"""(?:^|")((?:The|GitHub|My|This)\b[^{.":\n]*)""", template, re.MULTILINE)
    assert len(sentences) == 12
    assert [sentence for sentence in sentences if sentence.strip() not in PAGE] == []
