"""Reads the documentation of the Python session's functions from their source code. The code is not executed
on the host.
"""

import ast
from dataclasses import dataclass
from importlib.resources import files

MAINTAINER_NOTE = "(Why agents need this function: "
"""Marks the start of the part of a docstring that is only for maintainers."""


@dataclass(frozen=True, slots=True)
class SkillDoc:
    """The documentation of one function."""

    signature: str
    """Signature of the function, such as `scroll_down() -> None`."""
    description: str

    @property
    def name(self) -> str:
        return self.signature.partition("(")[0]

    @property
    def needs_vision(self) -> bool:
        """True if the function only works if the run has a model that accepts images."""
        return self.name in ("parse_image", "parse_video")

    @property
    def is_reader(self) -> bool:
        """True if the function reads documents or media. The system prompt describes only these functions. It
        lists the other functions by name, because the agent has tools for the same work.
        """
        return self.name.startswith("parse_")


def load_skill_docs() -> tuple[SkillDoc, ...]:
    """Returns the documentation of each function of `runtime/skills`, in the order of its `__all__`."""
    modules = {
        path.name: ast.parse(path.read_text(encoding="utf-8"))
        for path in files("patchwright.runtime.skills").iterdir()
        if path.name.endswith(".py")
    }
    functions = {
        node.name: node
        for tree in modules.values()
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any(ast.unparse(decorator) == "print_errors" for decorator in node.decorator_list)
    }
    return tuple(_parse_doc(functions[name]) for name in _exported_names(modules["__init__.py"]))


def _exported_names(package: ast.Module) -> list[str]:
    for node in package.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    raise LookupError("the skills define no __all__")


def _parse_doc(function: ast.FunctionDef) -> SkillDoc:
    signature = f"{function.name}({ast.unparse(function.args)}) -> None"
    text, _, _ = (ast.get_docstring(function) or "").partition(MAINTAINER_NOTE)
    return SkillDoc(signature, " ".join(text.split()))
