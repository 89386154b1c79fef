"""Finds the commands that install a project's dependencies. Each command calls the tool that the project's developers
use, which reads its own files.
"""

import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Any

from patchwright.resolver.suites.project_dir import get_table, parse_ini_or_empty
from patchwright.runtime.frozen_model import FrozenModel

# Extras, dependency groups and requirements files with such a name contain what the tests need.
_DEVELOPER = r"(?:tests?|testing|pytest|unittest|dev|devel|develop|development|ci)"
DEVELOPER_NAME = re.compile(_DEVELOPER)
BASE_REQUIREMENTS_FILES = re.compile(r"requirements\.txt|requirements/(?:base|main)\.txt")
REQUIREMENTS_FILES = re.compile(
    rf"{BASE_REQUIREMENTS_FILES.pattern}|requirements/{_DEVELOPER}\.txt|requirements[-_.]{_DEVELOPER}\.txt"
    rf"|{_DEVELOPER}[-_.]requirements\.txt|{_DEVELOPER}/requirements\.txt"
)
# Extras of a project whose metadata only its build tool can read. pip ignores those that do not exist.
USUAL_EXTRAS = ("test", "tests", "testing", "dev")
PACKAGE_MANAGER = re.compile(r"(?P<name>pnpm|yarn|bun|npm)@(?P<version>\d+(?:\.\d+)*[\w.-]*)(?:\+.*)?")
LOCKFILE_VERSION = re.compile(r"^lockfileVersion: '?(\d+)", re.MULTILINE)
PNPM_BY_LOCKFILE = {
    "5": "7",
    "6": "8",
}  # the major version of pnpm that writes this version of pnpm-lock.yaml

INSTALLER_VARIABLE = "PATCHWRIGHT_INSTALLER"
NPM_INSTALLER_VARIABLE = "PATCHWRIGHT_NPM_INSTALLER"
REQUIREMENTS_INSTALLER_VARIABLE = "PATCHWRIGHT_REQUIREMENTS_INSTALLER"
INSTALLERS = {
    INSTALLER_VARIABLE: "environment_installer.py",
    NPM_INSTALLER_VARIABLE: "npm_installer.cjs",
    REQUIREMENTS_INSTALLER_VARIABLE: "requirements_installer.py",
}
"""The programs of this package that steps may start, by the environment variable with their path in the sandbox."""

PIP = "python3 -m pip install --quiet"
_INSTALL_UV = f"command -v uv >/dev/null || {PIP} uv"
_PROJECT_ENVIRONMENT = "VIRTUAL_ENV=\"$(python3 -c 'import sys; print(sys.prefix)')\""
# Poetry reads PyPI's JSON API, which mirrors do not have. With the plugin, it reads the index that pip reads.
_POETRY = (
    f'{_PROJECT_ENVIRONMENT} POETRY_PYPI_MIRROR_URL="${{PIP_INDEX_URL:-https://pypi.org/simple}}" '
    "uvx --with poetry-plugin-pypi-mirror poetry install --no-interaction --all-extras"
)
# The extra `locked` contains the versions of pdm's own dependencies that pdm was released with.
_PDM = f"{_PROJECT_ENVIRONMENT} uvx --from 'pdm[locked]' pdm install --frozen-lockfile -G :all"
_PIPENV = f"{_PROJECT_ENVIRONMENT} PIPENV_VERBOSITY=-1 uvx pipenv"


class InstallStep(FrozenModel):
    """One command of a setup."""

    command: str
    """Shell command. It runs as root in the repository's root directory."""
    program: str | None = None
    """The program that the command needs. If the program is missing, the step is skipped. The value is None
    for a command that a maintainer wrote, because such a command always runs.
    """
    fallbacks: tuple[str, ...] | None = None
    """Shell commands that run if `command` fails, each one even if another one fails. The failure is then only
    reported. If there are none, nothing runs instead. If this is None, or if all of them fail, what the step should
    install is not there.
    """


class Manifests(FrozenModel):
    """The files of a project directory that say how its dependencies are installed."""

    files: frozenset[str]
    """Paths of all files below the directory."""
    pyproject: dict[str, Any]
    package_json: dict[str, Any]
    tox_ini: str = ""
    pnpm_lock: str = ""
    """The beginning of pnpm-lock.yaml."""

    @property
    def has_workspaces(self) -> bool:
        """True if the directory's package manager also installs the JavaScript packages below the directory."""
        return "workspaces" in self.package_json or "pnpm-workspace.yaml" in self.files

    @property
    def has_uv_workspace(self) -> bool:
        """True if uv also installs the Python projects below the directory."""
        return "workspace" in get_table(self.pyproject, "tool", "uv")


def find_steps(manifests: Manifests) -> list[InstallStep]:
    """Returns the steps for one project directory."""
    return [*_python_steps(manifests), *_javascript_steps(manifests), *_other_steps(manifests.files)]


def _python_steps(manifests: Manifests) -> list[InstallStep]:
    files, tools = manifests.files, get_table(manifests.pyproject, "tool")
    editable = _editable_argument(manifests)
    editable_only = (f"{PIP} -e .",) if editable else ()
    requirements = sorted(path for path in files if REQUIREMENTS_FILES.fullmatch(path))
    groups = _developer_names(manifests.pyproject, "dependency-groups")
    arguments = [
        *(f"-r {shlex.quote(path)}" for path in requirements),
        *(f"--group {name}" for name in groups),
    ]
    extras = _developer_names(get_table(manifests.pyproject, "project"), "optional-dependencies")
    # What can be installed is installed: tests may run although the project itself cannot be installed.
    named = " ".join(arguments) + _options("--extra", extras)
    singly = (f'python3 "${REQUIREMENTS_INSTALLER_VARIABLE}" {named.strip()}',) if named else ()
    fallbacks = (*singly, *editable_only)
    arguments += [editable] if editable else []
    if "uv.lock" in files or get_table(tools, "uv").keys() & {"dev-dependencies", "sources", "workspace"}:
        sync = f"uv sync --inexact --all-packages{' --frozen' if 'uv.lock' in files else ''}"
        return _with_uv(
            f"{sync} --all-extras{_options('--group', groups)}",
            fallbacks=(f"{sync} --no-default-groups",) if manifests.has_uv_workspace else fallbacks,
        )
    poetry = get_table(tools, "poetry")
    if "poetry.lock" in files or poetry.keys() & {"dependencies", "dev-dependencies", "group"}:
        options = _options("--with", _developer_names(poetry, "group"))
        return _with_uv(f"{_POETRY}{options}", fallbacks=editable_only)
    if "pdm.lock" in files or "dev-dependencies" in get_table(tools, "pdm"):
        return _with_uv(_PDM, fallbacks=editable_only)
    if "Pipfile" in files:
        install = "sync --dev" if "Pipfile.lock" in files else "install --dev --skip-lock"
        steps = _with_uv(f"{_PIPENV} {install}", fallbacks=())
        return [*steps, *_pip_steps([editable] if editable else [], editable_only)]
    has_developer_files = any(not BASE_REQUIREMENTS_FILES.fullmatch(path) for path in requirements)
    # The tool comes before the project, because it may install a copy of the project that is not editable.
    steps = [] if groups or extras or has_developer_files else _test_environment_steps(manifests)
    return [*steps, *_pip_steps(arguments, fallbacks)]


def _pip_steps(arguments: list[str], fallbacks: tuple[str, ...]) -> list[InstallStep]:
    """Returns the step that installs everything at once, or no step if there is nothing to install."""
    if not arguments:
        return []
    has_alternative = arguments != ["-e ."]
    command = f"{PIP} {' '.join(arguments)}"
    return [InstallStep(command=command, program="python3", fallbacks=fallbacks if has_alternative else None)]


def _with_uv(command: str, fallbacks: tuple[str, ...]) -> list[InstallStep]:
    """Returns steps that install uv, which starts other tools without installing them, and then run the command."""
    return [
        InstallStep(command=_INSTALL_UV, program="python3"),
        InstallStep(command=command, program="python3", fallbacks=fallbacks),
    ]


def _test_environment_steps(manifests: Manifests) -> list[InstallStep]:
    """Returns steps that install the test environment of tox, nox or hatch. They take about a minute, so they only run
    if the project names what the tests need nowhere else.
    """
    files, tools = manifests.files, get_table(manifests.pyproject, "tool")
    has_tox = parse_ini_or_empty(manifests.tox_ini).has_section("testenv") or "tox.toml" in files
    if has_tox or "tox" in tools:
        tool = "tox"
    elif "noxfile.py" in files:
        tool = "nox"
    elif get_table(tools, "hatch", "envs") or "hatch.toml" in files:
        tool = "hatch"
    else:
        return []
    run = f'uv run --no-project --with {tool} python "${INSTALLER_VARIABLE}" {tool} "$(command -v python3)"'
    return _with_uv(run, fallbacks=())


def _editable_argument(manifests: Manifests) -> str | None:
    """Returns pip's argument for the project itself, or None if installing the project has no effect."""
    project = get_table(manifests.pyproject, "project")
    is_dynamic = "optional-dependencies" in (project.get("dynamic") or ())
    if "setup.py" not in manifests.files and not _is_installable(manifests):
        return None
    extras: Iterable[str] = _developer_names(project, "optional-dependencies")
    if not project or is_dynamic:
        extras = USUAL_EXTRAS
    return f"-e '.[{','.join(extras)}]'" if extras else "-e ."


def _is_installable(manifests: Manifests) -> bool:
    """Returns True if the project declares dependencies, scripts or entry points, or declares them in setup.cfg."""
    pyproject = manifests.pyproject
    if "setup.cfg" in manifests.files and "build-system" in pyproject:
        return True
    project = get_table(pyproject, "project")
    keys = ("dependencies", "optional-dependencies", "dynamic", "scripts", "entry-points")
    return any(project.get(key) for key in keys) or bool(get_table(pyproject, "tool", "flit"))


def _developer_names(tables: dict[str, Any], key: str) -> list[str]:
    """Returns the names in the table that a developer's installation contains."""
    return [name for name in get_table(tables, key) if DEVELOPER_NAME.fullmatch(name.lower())]


def _options(option: str, names: Iterable[str]) -> str:
    return "".join(f" {option} {name}" for name in names)


def _javascript_steps(manifests: Manifests) -> Iterator[InstallStep]:
    files = manifests.files
    if "package.json" not in files:
        return
    declared = _match_declared_manager(manifests)
    name, version = find_package_manager(manifests)
    if name == "npm":
        has_lock = bool(files & {"package-lock.json", "npm-shrinkwrap.json"})
        install = "npm ci" if has_lock else "npm install --no-package-lock"
        options = "--no-audit --no-fund"
        # Without a lock file, packages that cannot be had are left out, too.
        fallback = (
            f"{install} {options} --ignore-scripts" if has_lock else f'node "${NPM_INSTALLER_VARIABLE}"'
        )
        yield InstallStep(command=f"{install} {options}", program="npm", fallbacks=(fallback,))
        return
    # Yarn's package on npm ends with version 1; later versions are in another package.
    is_berry = name == "yarn" and not version.startswith(("1", "0"))
    package = "@yarnpkg/cli-dist" if is_berry else name
    # The program stays installed, because the test command may call it, and then there is no network.
    wanted = f'"$({name} --version 2>/dev/null)" = {version}' if declared else f"command -v {name} >/dev/null"
    install_manager = (
        f"{'test ' if declared else ''}{wanted} || npm install --global --no-fund {package}@{version}"
    )
    lock = {"pnpm": {"pnpm-lock.yaml"}, "yarn": {"yarn.lock"}, "bun": {"bun.lock", "bun.lockb"}}[name]
    frozen = "--immutable" if is_berry else "--frozen-lockfile"
    unfrozen = "--no-frozen-lockfile" if name == "pnpm" else "--no-immutable" if is_berry else ""
    install = f"{name} install {frozen if files & lock else unfrozen}".strip()
    # Without scripts, everything is installed except what a native module has to compile.
    fallback = f"YARN_ENABLE_SCRIPTS=0 {install}" if is_berry else f"{install} --ignore-scripts"
    yield InstallStep(command=install_manager, program="npm")
    yield InstallStep(command=install, program="npm", fallbacks=(fallback,))


def _match_declared_manager(manifests: Manifests) -> re.Match[str] | None:
    return PACKAGE_MANAGER.fullmatch(str(manifests.package_json.get("packageManager", "")))


def find_package_manager(manifests: Manifests) -> tuple[str, str]:
    """Returns the package manager that package.json names or that the lock file belongs to, with its version."""
    if declared := _match_declared_manager(manifests):
        return declared["name"], declared["version"]
    if "pnpm-lock.yaml" in manifests.files or "pnpm-workspace.yaml" in manifests.files:
        found = LOCKFILE_VERSION.search(manifests.pnpm_lock)
        return "pnpm", PNPM_BY_LOCKFILE.get(found[1], "9") if found else "9"
    if "yarn.lock" in manifests.files:
        return "yarn", "1"  # starts the later version in `.yarn/releases` if `.yarnrc.yml` names one
    return ("bun", "1") if manifests.files & {"bun.lock", "bun.lockb"} else ("npm", "")


def _other_steps(files: frozenset[str]) -> Iterator[InstallStep]:
    if "go.mod" in files:
        yield InstallStep(command="go mod download", program="go")
    if "Cargo.toml" in files:
        yield InstallStep(
            command="cargo fetch --locked" if "Cargo.lock" in files else "cargo fetch", program="cargo"
        )
    if "pom.xml" in files:
        maven = "sh ./mvnw" if "mvnw" in files else "mvn"
        yield InstallStep(
            command=f"{maven} -B -q dependency:go-offline", program="java" if "mvnw" in files else "mvn"
        )
    elif files & {"build.gradle", "build.gradle.kts"}:
        gradle = "sh ./gradlew" if "gradlew" in files else "gradle"
        command = f"{gradle} --no-daemon --quiet testClasses"
        yield InstallStep(command=command, program="java" if "gradlew" in files else "gradle")
    if "Gemfile" in files:
        yield InstallStep(command="bundle install --quiet", program="bundle")
