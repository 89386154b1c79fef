"""Compares the declared packages (`package_table.py`) with the imports, and the code's shape with its limits."""

import ast
import os
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.package_table import PACKAGES

ROOT = Path(__file__).parent.parent

SHAPE = {
    "functions of more than 60 lines": 0,
    "functions with more than 7 parameters": 0,
    "functions with more than 2 inner functions": 0,
    "files of fewer than 40 lines": 24,
    "lines": 82_390,
}
"""No number may grow. If you make one smaller, lower it here."""


def product_files() -> dict[str, str]:
    """Returns the source of each module of the product, such as `resolver.git.merge`. A package ends in `__init__`."""
    paths = (
        path
        for layer in ("runtime", "resolver", "sdk", "bot")
        for path in sorted((ROOT / layer).rglob("*.py"))
    )
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text() for path in paths}


def package_of(module: str) -> str:
    return module.rpartition(".")[0]


def imported_names(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def package_imports(files: Mapping[str, str]) -> dict[str, set[str]]:
    """Returns the packages that each package imports. Imports inside functions and under TYPE_CHECKING count."""
    packages = {package_of(module) for module in files}
    found: dict[str, set[str]] = {package: set() for package in packages if f"{package}.__init__" in files}
    for module, source in files.items():
        for name in imported_names(source):
            target = name.removeprefix("patchwright.")
            while target and target not in files and target not in packages:
                target = package_of(target)
            package = target if target in packages else package_of(target)
            if package and package != package_of(module):
                found.setdefault(package_of(module), set()).add(package)
    return found


def find_module_circle(files: Mapping[str, str]) -> list[str]:
    """Returns modules that import each other in a circle; none if there is no circle."""
    graph: dict[str, set[str]] = {module: set() for module in files}
    for module, source in files.items():
        for name in imported_names(source):
            target = name.removeprefix("patchwright.")
            while target and target not in files:
                target = package_of(target)
            if target and target != module:
                graph[module].add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as exc:
        return list(exc.args[1])
    return []


def upward_imports(table: Mapping[str, Iterable[str]]) -> list[str]:
    """Returns the imports of packages that the table names later. Without any, there is no cycle."""
    order = list(table)
    return [
        f"{package} imports {other}"
        for position, package in enumerate(order)
        for other in table[package]
        if other not in order[:position]
    ]


def measure_shape(files: Mapping[str, str]) -> dict[str, int]:
    functions = [
        node
        for source in files.values()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    lengths = [node.end_lineno - node.lineno + 1 for node in functions if node.end_lineno]
    parameters = [len(n.args.posonlyargs) + len(n.args.args) + len(n.args.kwonlyargs) for n in functions]
    inner = [
        sum(isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) for part in ast.walk(node)) - 1
        for node in functions
    ]
    lines = {module: source.count("\n") for module, source in files.items()}
    return {
        "functions of more than 60 lines": sum(length > 60 for length in lengths),
        "functions with more than 7 parameters": sum(number > 7 for number in parameters),
        "functions with more than 2 inner functions": sum(number > 2 for number in inner),
        "files of fewer than 40 lines": sum(
            number < 40 for module, number in lines.items() if not module.endswith("__init__")
        ),
        "lines": sum(lines.values()),
    }


def test_every_package_imports_exactly_what_the_table_permits() -> None:
    files = product_files()
    real = package_imports(files)
    scripts = {
        package for package in real if not f"{package}.".startswith(("bot.", "resolver.", "runtime.", "sdk."))
    }
    declared = {package: set(others.split()) for package, others in PACKAGES.items()}
    wrong = [
        f"{package}: {other} is {'not declared' if other in real.get(package, ()) else 'not needed'}"
        for package in declared.keys() | real.keys() - scripts
        for other in declared.get(package, set()) ^ real.get(package, set())
    ]
    assert wrong == []
    assert declared.keys() == {package_of(module) for module in files if module.endswith(".__init__")}


def test_no_package_imports_one_that_stands_below_it() -> None:
    assert upward_imports({package: others.split() for package, others in PACKAGES.items()}) == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert find_module_circle(product_files()) == []


def test_a_circle_of_modules_is_found_even_if_only_types_close_it() -> None:
    types = "if TYPE_CHECKING:\n    from patchwright.runtime.b import B"
    files = {"runtime.a": types, "runtime.b": "from patchwright.runtime import c", "runtime.c": ""}
    assert find_module_circle(files) == []
    assert set(find_module_circle(files | {"runtime.c": "import patchwright.runtime.a"})) == set(files)


def test_an_import_in_a_circle_is_found() -> None:
    table = {"a": ["b"], "b": [], "c": ["a", "b"]}
    assert upward_imports(table) == ["a imports b"]


@pytest.mark.parametrize(
    "source",
    [
        "from patchwright.bot.web import server",
        "import patchwright.bot.web.server",
        "from patchwright.bot.web.server import run_server",
        "def f():\n    from patchwright.bot.web.server import run_server",
    ],
)
def test_every_form_of_an_import_is_found(source: str) -> None:
    files = {"bot.__init__": "", "bot.web.__init__": "", "bot.web.server": "", "bot.cli": source}
    assert package_imports(files) == {"bot": {"bot.web"}, "bot.web": set()}


def test_every_package_says_what_it_is_for() -> None:
    files = product_files()
    assert [
        package for package in PACKAGES if not ast.get_docstring(ast.parse(files[f"{package}.__init__"]))
    ] == []


def test_the_code_keeps_its_shape() -> None:
    """The limits are the numbers of today, so that a change for the better lowers them for good."""
    shape = measure_shape(product_files())
    assert {name: number for name, number in shape.items() if number > SHAPE[name]} == {}
    # Lines may grow a little between two commits; the other numbers are exact.
    assert {name: number for name, number in shape.items() if name != "lines" and number < SHAPE[name]} == {}


def test_what_is_out_of_shape_is_counted() -> None:
    long = "def f():\n" + "    x = 1\n" * 61
    wide = "def g(a, b, c, d, *, e, f, g, h):\n    pass\n"
    nested = "def h():\n    def a(): ...\n    def b(): ...\n    def c(): ...\n"
    assert measure_shape({"a": long, "b": wide + nested}) == {
        "functions of more than 60 lines": 1,
        "functions with more than 7 parameters": 1,
        "functions with more than 2 inner functions": 1,
        "files of fewer than 40 lines": 1,
        "lines": 68,
    }


def draw_levels(table: Mapping[str, Iterable[str]]) -> str:
    """Draws the packages in levels. Each one imports only packages of the levels below it."""
    levels: dict[str, int] = {}
    for package, others in table.items():
        levels[package] = 1 + max((levels[other] for other in others), default=-1)
    rows = [
        [package for package, at in levels.items() if at == level]
        for level in range(max(levels.values()) + 1)
    ]
    return "\n".join(f"{level:2}  {'  '.join(rows[level])}" for level in reversed(range(len(rows))))


def test_the_picture_in_the_docs_shows_the_packages_of_the_table() -> None:
    """Set PATCHWRIGHT_REGENERATE to renew the picture."""
    path = ROOT / "docs" / "internals" / "architecture.md"
    before, begin, rest = path.read_text().partition(
        "<!-- The packages: drawn by tests/test_packages.py -->\n"
    )
    _, end, after = rest.partition("\n<!-- end of the packages -->")
    picture = (
        f"```text\n{draw_levels({package: others.split() for package, others in PACKAGES.items()})}\n```"
    )
    drawn = before + begin + picture + end + after
    if os.environ.get("PATCHWRIGHT_REGENERATE"):
        path.write_text(drawn)
    assert path.read_text() == drawn
