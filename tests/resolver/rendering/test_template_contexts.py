"""Each text is rendered with exactly the values that its template uses, and no function only forwards values."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from jinja2 import meta, nodes

from patchwright.resolver.rendering.jinja_templates import get_environment
from patchwright.resolver.rendering.template_renderer import render

ROOT = Path(__file__).parents[3]
DIRECTORIES = {"render": "", "render_reply": "replies/", "render_prompt": "prompts/"}


def find_variables(template: str) -> tuple[set[str], set[str]]:
    """Returns the variables that a template needs, and those that it can use. A template can also assign a variable
    itself. The templates that it includes count, too.
    """
    render("prompts/finish_accepted.md.j2")  # Registers the filters.
    environment = get_environment()
    assert environment.loader is not None
    tree = environment.parse(environment.loader.get_source(environment, template)[0])
    included = [find_variables(name) for name in meta.find_referenced_templates(tree) if name]
    assigned = {name.name for name in tree.find_all(nodes.Name) if name.ctx == "store"}
    undeclared = meta.find_undeclared_variables(tree)
    needed = undeclared.union(*(needed for needed, _ in included)) - assigned - set(environment.globals)
    used = undeclared.union(*(used for _, used in included))
    return needed, used


def product_trees() -> Iterator[tuple[str, ast.Module]]:
    for layer in ("bot", "resolver"):
        for path in sorted((ROOT / layer).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())


def find_renderings() -> Iterator[tuple[str, str, set[str]]]:
    """Yields where each template is rendered, its name, and the names of the values that it gets."""
    for path, tree in product_trees():
        for node in ast.walk(tree):
            match node:
                case ast.Call(
                    func=ast.Name(id=function), args=[ast.Constant(value=str(name))], keywords=keywords
                ) if function in DIRECTORIES and all(keyword.arg for keyword in keywords):
                    values = {keyword.arg for keyword in keywords if keyword.arg}
                    yield f"{path}:{node.lineno}", f"{DIRECTORIES[function]}{name}", values
                case _:
                    continue


@pytest.mark.parametrize(("place", "template", "values"), list(find_renderings()))
def test_a_template_gets_exactly_the_values_that_it_uses(place: str, template: str, values: set[str]) -> None:
    needed, used = find_variables(template)
    assert needed <= values <= used


def is_forwarder(function: ast.FunctionDef) -> bool:
    """Returns True if the function only renders a template with its own parameters."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    parameters = {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}
    match body:
        case [ast.Return(value=value)]:
            while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
                value = value.func.value
            return (
                isinstance(value, ast.Call)
                and isinstance(value.func, ast.Name)
                and value.func.id in DIRECTORIES
                and all(
                    isinstance(part.value, ast.Name) and part.value.id in parameters
                    for part in value.keywords
                )
            )
        case _:
            return False


def test_a_function_that_only_forwards_to_a_template_is_used_in_several_places() -> None:
    trees = dict(product_trees())
    forwarders = {
        node.name for tree in trees.values() for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name not in DIRECTORIES and is_forwarder(node)
    }  # fmt: skip
    names = [
        getattr(node, "attr", getattr(node, "id", "")) for tree in trees.values() for node in ast.walk(tree)
    ]
    assert {name for name in forwarders if names.count(name) < 3} == set()
