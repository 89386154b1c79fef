"""A layer works without the vendors of the others."""

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_architecture import LAYERS, imports

ROOT = Path(__file__).parents[1]
PRELOADING = ROOT / "tests" / "preloaded_command.py"  # Imports all that is there, to save time.

IMPORTS = """
import importlib, pkgutil, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if {{name, name.partition(".")[0]}} & {absent}:
            raise ModuleNotFoundError(f"there is no {{name}}", name=name)

sys.meta_path.insert(0, Absent())
package = importlib.import_module({package!r})
names = [each.name for each in pkgutil.walk_packages(package.__path__, {package!r} + ".")]
for name in names:
    if name not in {vendors}:
        importlib.import_module(name)
print(len(names))
"""

VENDORS = {"docker", "fastapi", "githubkit", "arq", "redis", "playwright", "ipykernel", "litellm"}


def imported(
    package: str, absent: set[str], vendors: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    code = IMPORTS.format(package=package, absent=absent, vendors=vendors)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_the_resolver_is_importable_without_the_dependencies_of_other_layers() -> None:
    done = imported("resolver", VENDORS)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 60


def test_the_runtime_is_importable_without_the_resolver() -> None:
    done = imported("patchwright.runtime", {"patchwright.resolver", "patchwright.sdk", "patchwright.bot"})
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 60
    assert "patchwright.runtime" in imported("patchwright.resolver", {"patchwright.runtime"}).stderr


@functools.cache
def read_imports(path: Path) -> tuple[str, ...]:
    return tuple(name for name, _ in imports(ast.parse(path.read_text())))


def read_tests_of(layer: str) -> dict[str, str]:
    """Returns what the tests of a layer import, also by the modules of tests that they use, and a file that does so."""
    seen: dict[str, str] = {}
    todo = sorted((ROOT / "tests" / layer).rglob("*.py"))
    for path in todo:
        if path == PRELOADING:
            continue
        for name in read_imports(path):
            top, *below = name.removeprefix("patchwright.").split(".")
            seen.setdefault("sdk" if top == "patchwright" else top, path.relative_to(ROOT).as_posix())
            module = (ROOT / "tests").joinpath(*below).with_suffix(".py") if top == "tests" else path
            if module.is_file() and module not in todo:
                todo.append(module)
    return seen


@pytest.mark.parametrize("layer", ["runtime", "resolver", "sdk", "bot"])
def test_the_tests_of_a_layer_need_only_this_layer_and_those_below(layer: str) -> None:
    others = {*LAYERS} - {layer, "demo", *LAYERS[layer]}
    assert {top: file for top, file in read_tests_of(layer).items() if top in others} == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer", "absent"), [("runtime", {"patchwright.resolver", "litellm"}), ("resolver", {"docker"})]
)
def test_the_tests_of_a_layer_can_be_collected_alone(layer: str, absent: set[str]) -> None:
    absent |= {"patchwright.sdk", "patchwright.bot", "fastapi", "githubkit", "arq"}
    program = IMPORTS.format(package="json", absent=absent, vendors=()) + (
        f"import pytest; sys.exit(pytest.main(['--collect-only', '-q', '-n', '0', 'tests/{layer}', '-m', 'not slow']))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]


def test_the_recorded_model_of_the_tests_needs_no_bot() -> None:
    code = IMPORTS.format(
        package="patchwright.runtime", absent={"patchwright.bot", "patchwright.sdk"}, vendors=()
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport patchwright.demo.recorded_model"], timeout=120
    )
    assert done.returncode == 0


def test_a_missing_dependency_is_detected() -> None:
    assert "there is no jinja2" in imported("resolver", {"jinja2"}).stderr
