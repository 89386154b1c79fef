"""No file of the product makes a decision by the name of a model, except the table of facts about models."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.test_architecture import ROOT, product_files

MODEL_FAMILY = re.compile(
    r"(?<![.\w])(?:chatgpt|claude|codestral|devstral|gemma|glm|gpt|grok|haiku|kimi|llama|minimax|nemotron|opus|qwen|sonnet)"
    r"(?![a-z])|\b(?:(?:deepseek|gemini|mistral)-[\w.]|o[1-9](?:-mini|-pro)?\b)",
    re.IGNORECASE,
)
EXAMPLE = re.compile(r"\b[a-z]+/[\w.-]+")

EXCEPTIONS = {
    "resolver/llm/model_table.py": "the table of facts about models",
    "resolver/skills/skills.py": "names of files that other programs read",
}


def find_model_names(source: str) -> Iterator[str]:
    """Yields the strings with the name of a model family, except docstrings and examples in a sentence."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in docstrings:
                if MODEL_FAMILY.search(text if EXAMPLE.fullmatch(text) else EXAMPLE.sub("", text)):
                    yield f"line {node.lineno}: {text}"


def test_no_model_is_named_outside_the_table_of_models() -> None:
    layers = ("bot", "evaluation", "resolver", "runtime", "sdk")  # The demo has a model of its own.
    paths = [path.relative_to(ROOT).as_posix() for path in product_files()]
    named = [
        path for path in paths if path.startswith(layers) and any(find_model_names((ROOT / path).read_text()))
    ]
    assert named == sorted(EXCEPTIONS)


@pytest.mark.parametrize(
    "source",
    [
        "cached = 'claude' in name",
        "name = f'gpt-{version}'",
        "pattern = r'(.*/)?qwen3'",
        "name == 'gemini-2.5-pro'",
        "name == 'o3'",
    ],
)
def test_a_hard_coded_name_is_found(source: str) -> None:
    assert len(list(find_model_names(source))) == 1


def test_an_example_for_people_is_no_hard_coded_name() -> None:
    assert not list(find_model_names('"""As Claude does."""\nhint = "Set it, for example to openai/gpt-5."'))
