"""The programs in the sandbox that install a test environment, or what can be had of npm's packages."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from patchwright.resolver.preparation import environment_installer
from patchwright.resolver.preparation.environment_installer import choose_environment


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        ("pre-commit mypy-pkg py38-tests py38-mypy py311-tests py311-mypy py313-tests docs", "py311-tests"),
        ("lint py38-django32 py311-django32 py311-django42", "py311-django32"),
        ("lint 3.9 3.11", "3.11"),
        ("lint py39 py py3", "py"),
        ("py39 py310 docs", None),
        ("lint tests-3.9 tests-3.11 tests", "tests-3.11"),
        ("lint tests-3.9 tests", "tests"),
        ("lint unit_tests-3.11(django='4.2') unit_tests", "unit_tests-3.11(django='4.2')"),
        ("default lint test.py3.9 test.py3.11", "test.py3.11"),
        ("default docs", "default"),
        ("lint docs coverage-report", None),
        ("", None),
    ],
)
def test_the_test_environment_for_the_projects_python_is_chosen(names: str, chosen: str | None) -> None:
    assert choose_environment(names.split(), (3, 11)) == chosen


LISTED = {
    "tox": "lint\npy{0}{1}\n",
    "nox": json.dumps([{"session": "lint", "name": "lint"}, {"session": "tests-2.7", "name": "tests"}]),
    "hatch": json.dumps({"hatch-test.py{0}.{1}": {}, "default": {}}),
}
INSTALLED = {
    "tox": "run -e py{0}{1} --notest --skip-pkg-install --workdir SCRATCH",
    "nox": "-s tests --install-only --envdir SCRATCH --force-venv-backend virtualenv --force-python {0}.{1}",
    "hatch": "env create default",
}
FAKE_TOOL = """
import os, sys
if "list" in sys.argv or "--list" in sys.argv or "show" in sys.argv:
    print(os.environ["LISTED"])
else:
    scratch = os.environ["HATCH_DATA_DIR"]
    print("arguments:", *(word.replace(scratch, "SCRATCH") for word in sys.argv[1:]))
    print("targets:", os.environ["PIP_PYTHON"], os.environ["UV_PYTHON"])
"""


@pytest.mark.parametrize("tool", ["tox", "nox", "hatch"])
def test_the_tool_installs_into_the_projects_interpreter(tool: str, tmp_path: Path) -> None:
    """A fake tool reports how it was called."""
    version = sys.version_info[:2]
    (tmp_path / f"{tool}.py").write_text(FAKE_TOOL)
    listed = LISTED[tool].replace("{0}", str(version[0])).replace("{1}", str(version[1]))
    done = subprocess.run(
        [sys.executable, environment_installer.__file__, tool, sys.executable],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "LISTED": listed},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines()[1:] == [
        f"arguments: {INSTALLED[tool].format(*version)}",
        f"targets: {sys.executable} {sys.executable}",
    ]


# Fails like npm if package.json contains a package that the registry does not have; else notes what it installs. Each
# call adds its options to `calls`.
NPM = """\
#!/bin/sh
echo "$*" >> calls
if grep -q '"unknown"' package.json; then
    echo "npm error 404  'unknown@1' is not in this registry." >&2
    exit 1
elif grep -q '"newer":"1"' package.json; then
    echo "npm error notarget No matching version found for newer@1." >&2
    exit 1
fi
grep -q '"lost' package.json && exit 1
case "$*" in *--no-package-lock*) cp package.json installed.json;; esac
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
@pytest.mark.parametrize(
    ("packages", "installed"), [("a b c", "a b c"), ("a lost b lost2 c", "a b c"), ("lost", "")]
)
def test_npm_installs_what_can_be_had(packages: str, installed: str, tmp_path: Path) -> None:
    text = run_npm_installer(packages, tmp_path)
    found = json.loads((tmp_path / "installed.json").read_text())
    assert (found["dependencies"], list(found["devDependencies"])) == ({"d": "1"}, installed.split())
    assert (tmp_path / "package.json").read_text() == text


def run_npm_installer(packages: str, tmp_path: Path) -> str:
    """Returns the content of package.json before the run."""
    (tmp_path / "npm").write_text(NPM)
    (tmp_path / "npm").chmod(0o755)
    text = json.dumps({"dependencies": {"d": "1"}, "devDependencies": dict.fromkeys(packages.split(), "1")})
    (tmp_path / "package.json").write_text(text)
    installer = Path(environment_installer.__file__).with_name("npm_installer.cjs")
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["node", installer], cwd=tmp_path, env=environment, check=True, timeout=60)
    return text


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
@pytest.mark.parametrize(
    ("package", "installed"), [("unknown", {}), ("newer", {"newer": "*"})], ids=["unknown", "other version"]
)
def test_what_npm_names_is_left_out_or_installed_in_another_version(
    package: str, installed: dict[str, str], tmp_path: Path
) -> None:
    """Three calls: one fails, one finds the packages, and one installs them."""
    run_npm_installer(f"a b {package} c d e", tmp_path)
    found = json.loads((tmp_path / "installed.json").read_text())
    assert found["devDependencies"] == dict.fromkeys("abcde", "1") | installed
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == 3
    assert all("--prefer-offline" in call for call in calls)  # else each call can take a minute
