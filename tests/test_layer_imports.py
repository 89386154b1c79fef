"""A layer works without the vendors of the others."""

import subprocess
import sys

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


def test_a_missing_dependency_is_detected() -> None:
    assert "there is no jinja2" in imported("resolver", {"jinja2"}).stderr
