"""The skills of the Python session as text, read from their source: nothing of it is run on the host."""

import ast
from dataclasses import dataclass
from importlib.resources import files

WHY = "(A skill because: "
"""Begins what a docstring says to whoever maintains the skills."""


@dataclass(frozen=True, slots=True)
class SkillDoc:
    """One skill as a model reads it."""

    signature: str
    """Such as `scroll_down() -> None`."""
    description: str


def skill_docs() -> tuple[SkillDoc, ...]:
    """Each skill of `runtime/skills`, in the order of its `__all__`."""
    modules = {
        path.name: ast.parse(path.read_text(encoding="utf-8"))
        for path in files("runtime.skills").iterdir()
        if path.name.endswith(".py")
    }
    functions = {
        node.name: node
        for tree in modules.values()
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and any(ast.unparse(by) == "told" for by in node.decorator_list)
    }
    return tuple(_doc(functions[name]) for name in _named(modules["__init__.py"]))


def _named(package: ast.Module) -> list[str]:
    for node in package.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    raise LookupError("the skills name no __all__")


def _doc(function: ast.FunctionDef) -> SkillDoc:
    signature = f"{function.name}({ast.unparse(function.args)}) -> None"
    said, _, _ = (ast.get_docstring(function) or "").partition(WHY)
    return SkillDoc(signature, " ".join(said.split()))
