"""Runs the repository's setup, which installs its dependencies. The result is stored as an image layer, so
that later runs can reuse it.
"""

import hashlib
import logging
import re
import shlex
import time
from collections.abc import Iterator
from typing import Any

from patchwright.resolver import reply_texts
from patchwright.resolver.errors import ResolverError
from patchwright.resolver.preparation.poetry import developer_requirements
from patchwright.resolver.preparation.pytest_plugins import CONFIG_FILES, find_required_plugins
from patchwright.resolver.run_events import EnvironmentPrepared
from patchwright.resolver.settings.settings import RepoConfig
from patchwright.resolver.suites.discovery import find_suites
from patchwright.resolver.suites.project_dir import get_table, parse_toml_or_empty
from patchwright.resolver.workspaces import Workspace
from patchwright.runtime.actions import MAX_TIMEOUT, Execute, WriteBytes
from patchwright.runtime.egress.policy import ConnectionSummary
from patchwright.runtime.errors import SandboxError
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.runtime.observations import ExecuteResult
from patchwright.runtime.sandbox import Sandbox, Sandboxes

logger = logging.getLogger(__name__)

SETUP_SCRIPT = ".github/patchwright/setup.sh"
MAX_OUTPUT_TAIL = 300  # characters of a failed command's output in the bot's comment
MAX_MANIFEST_BYTES = 1 << 20  # bytes of a manifest
MAX_PROJECT_DIRS = 10  # maximum number of directories below the root that are set up

# Files that decide which dependencies are installed. If one of them changes, a new layer is created.
MANIFESTS = re.compile(
    r"(.*/)?(requirements[^/]*\.(txt|in)|[^/]*requirements\.txt|constraints[^/]*\.txt|pyproject\.toml|setup\.py"
    r"|setup\.cfg|uv\.lock|poetry\.lock|Pipfile(\.lock)?|package\.json|package-lock\.json|npm-shrinkwrap\.json"
    r"|pnpm-lock\.yaml|pnpm-workspace\.yaml|yarn\.lock|\.npmrc|\.yarnrc(\.yml)?|go\.(mod|sum|work)|Cargo\.(toml|lock)"
    r"|pom\.xml|[^/]*\.gradle(\.kts)?|gradle\.lockfile|libs\.versions\.toml|gradle-wrapper\.properties"
    r"|Gemfile(\.lock)?|[^/]*\.gemspec)|requirements/[^/]+\.txt|\.github/patchwright(\.toml|/.*)"
)
TEST_GROUPS = ("test", "tests", "testing", "dev")
REQUIREMENTS_FILES = re.compile(
    r"requirements\.txt|requirements/(base|dev|test|tests|testing)\.txt"
    r"|requirements[-_.](dev|test|tests|testing)\.txt|(dev|test|tests)[-_.]requirements\.txt"
)


class InstallStep(FrozenModel):
    """One command of a setup."""

    command: str
    """Shell command. It runs as root in the repository's root directory."""
    program: str | None = None
    """The program that the command needs. If the program is missing, the step is skipped. The value is None
    for a command that a maintainer wrote, because such a command always runs.
    """
    required: bool = True
    """True if the whole setup fails when this step fails. If it is False, the failure is only reported."""


class RepoSetup(FrozenModel):
    """The setup commands of a repository."""

    steps: tuple[InstallStep, ...]
    key: str
    """Digest of the commands and the contents of all manifests."""


class SetupFailed(ResolverError):
    """A required setup command failed, or the sandbox has none of the programs that the commands call. The run
    continues without the setup.
    """


async def find_setup(workspace: Workspace, config: RepoConfig) -> RepoSetup | None:
    """Returns the setup at the base commit, or None if no setup is needed.

    The setup comes from the configuration in `Workspace.config_source`. If the configuration contains no
    setup, it comes from the manifests at the base commit.
    """
    files = await workspace.list_files()
    script = await workspace.config_source.get_entry(SETUP_SCRIPT)
    if config.setup is not None:
        lines = (config.setup,) if isinstance(config.setup, str) else config.setup
        steps = tuple(InstallStep(command=line) for line in lines if line.strip())
    elif script is not None:
        steps = (InstallStep(command=f"bash {SETUP_SCRIPT}"),)
    else:
        steps = tuple(await _steps_from_manifests(workspace, files, config))
    if not steps:
        return None
    manifests = await workspace.get_blob_ids(tuple(path for path in files if MANIFESTS.fullmatch(path)))
    if script is not None:
        manifests[SETUP_SCRIPT] = script.id
    lines = (*(step.command for step in steps), *(f"{path} {id}" for path, id in sorted(manifests.items())))
    return RepoSetup(steps=steps, key=hashlib.sha256("\0".join(lines).encode()).hexdigest())


async def _steps_from_manifests(
    workspace: Workspace, files: tuple[str, ...], config: RepoConfig
) -> list[InstallStep]:
    """Returns the steps for the root and for each directory below it that has its own tests."""
    steps = await _steps_for_directory(workspace, frozenset(files), "")
    suites = await find_suites(workspace, config)
    directories = dict.fromkeys(suite.directory for suite in suites.all if suite.directory)
    has_workspaces = "pnpm-workspace.yaml" in files or '"workspaces"' in (
        await workspace.read("package.json", MAX_MANIFEST_BYTES) or ""
    )
    for directory in list(directories)[:MAX_PROJECT_DIRS]:
        prefix = f"{directory}/"
        nested_files = frozenset(path.removeprefix(prefix) for path in files if path.startswith(prefix))
        for step in await _steps_for_directory(workspace, nested_files, prefix):
            if not (has_workspaces and step.program == "npm"):
                steps.append(
                    step.model_copy(update={"command": f"cd {shlex.quote(directory)} && {step.command}"})
                )
    return steps


async def _steps_for_directory(workspace: Workspace, files: frozenset[str], prefix: str) -> list[InstallStep]:
    return [*await _python_steps(workspace, files, prefix), *_other_steps(files)]


async def _python_steps(workspace: Workspace, files: frozenset[str], prefix: str) -> list[InstallStep]:
    install = "python3 -m pip install --quiet"
    if "uv.lock" in files:
        install_tool = f"command -v uv >/dev/null || {install} uv"
        return [
            InstallStep(command=f"{install_tool}; uv sync --frozen --inexact --all-extras", program="python3")
        ]
    if "poetry.lock" in files:
        # Poetry gets its own environment, because its dependencies can conflict with the project's.
        install_tool = (
            "command -v poetry >/dev/null || { python3 -m venv --without-pip /opt/poetry && "
            f"{install.replace('pip install', 'pip --python /opt/poetry/bin/python install')} poetry && "
            "PATH=$PATH:/opt/poetry/bin; }"
        )
        sync = "VIRTUAL_ENV=/opt/project poetry install --no-interaction --all-extras"
        return [InstallStep(command=f"{install_tool}; {sync}", program="python3")]
    arguments = [f"-r {path}" for path in sorted(files) if REQUIREMENTS_FILES.fullmatch(path)]
    project = (
        parse_toml_or_empty(await workspace.read(f"{prefix}pyproject.toml", MAX_MANIFEST_BYTES))
        if "pyproject.toml" in files
        else {}
    )
    if names := [name for name in TEST_GROUPS if name in get_table(project, "dependency-groups")]:
        arguments += [f"--group {name}" for name in names]
    arguments += _uv_dev_dependencies(project)
    if "setup.py" in files or _is_installable(project):
        extras = [
            name for name in TEST_GROUPS if name in get_table(project, "project", "optional-dependencies")
        ]
        if "project" not in project:
            # the extras may be in setup.py or setup.cfg; pip only warns if an extra is missing
            extras = list(TEST_GROUPS[:3])
        arguments.append(f"-e '.[{','.join(extras)}]'" if extras else "-e .")
    arguments += await _required_pytest_plugins(workspace, files, prefix)
    steps = [InstallStep(command=f"{install} {' '.join(arguments)}", program="python3")] if arguments else []
    if developer_packages := " ".join(developer_requirements(project)):
        # Some development dependencies may be unavailable. In that case, install the project and each
        # dependency separately.
        install_singly = (
            f'for each in {developer_packages}; do {install} "$each" || missed="$missed $each,"; done'
        )
        report_missed = 'test -z "$missed" || ! echo "Not available:${missed%,}"'
        command = f"{install} {developer_packages} || {install_singly}; {report_missed}"
        steps.insert(0, InstallStep(command=command, program="python3", required=False))
    return steps


async def _required_pytest_plugins(workspace: Workspace, files: frozenset[str], prefix: str) -> list[str]:
    """Returns the plugins that the pytest configuration requires. They are needed even if no manifest
    mentions them.
    """
    plugins = set[str]()
    for path in CONFIG_FILES:
        if path in files:
            plugins |= find_required_plugins(
                await workspace.read(f"{prefix}{path}", MAX_MANIFEST_BYTES) or ""
            )
    return sorted(plugins)


def _uv_dev_dependencies(pyproject: dict[str, Any]) -> list[str]:
    """Returns uv's legacy development dependencies, which pip does not read.

    Source: docs.astral.sh/uv/concepts/projects/dependencies, "Legacy dev-dependencies".
    """
    dependencies = get_table(pyproject, "tool", "uv").get("dev-dependencies")
    return (
        [shlex.quote(dependency) for dependency in dependencies if isinstance(dependency, str)]
        if isinstance(dependencies, list)
        else []
    )


def _is_installable(pyproject: dict[str, Any]) -> bool:
    """Returns True if installing the project has an effect. This is the case if the project declares
    dependencies, scripts or entry points, or uses Poetry.
    """
    project = get_table(pyproject, "project")
    keys = ("dependencies", "optional-dependencies", "dynamic", "scripts", "entry-points")
    return any(project.get(key) for key in keys) or "poetry" in get_table(pyproject, "tool")


def _other_steps(files: frozenset[str]) -> Iterator[InstallStep]:
    if "pnpm-lock.yaml" in files:
        yield InstallStep(
            command='$(command -v pnpm || echo "npx --yes pnpm@9") install --frozen-lockfile', program="npm"
        )
    elif "yarn.lock" in files:
        yield InstallStep(
            command='$(command -v yarn || echo "npx --yes yarn@1") install --frozen-lockfile', program="npm"
        )
    elif files & {"package-lock.json", "npm-shrinkwrap.json"}:
        yield InstallStep(command="npm ci --no-audit --no-fund", program="npm")
    elif "package.json" in files:
        yield InstallStep(command="npm install --no-audit --no-fund --no-package-lock", program="npm")
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


# --- execution
# --------------------------------------------------------------------------------------------------

# The script keeps only files that git ignores, because other new files would look like the agent's work.
_CLEAN_SCRIPT = r"""
cd "$1" && git clean -ffdq &&
git ls-files -z | xargs -0 rm -f -- &&
{ git ls-tree -r -d -z --name-only HEAD | sort -rz | xargs -0 rmdir 2>/dev/null || true; } && rm -rf .git
"""


async def install_dependencies(
    workspace: Workspace,
    config: RepoConfig,
    sandboxes: Sandboxes,
    *,
    name: str,
    source: str,
    timeout: int,
) -> tuple[Sandboxes, EnvironmentPrepared | None, tuple[ConnectionSummary, ...]]:
    """Returns three values: sandboxes with the repository's dependencies, the event to log, and the network
    connections of the setup.

    If there is no setup or if it fails, the sandboxes are returned unchanged. `source` identifies the
    repository. `timeout` is the total time limit for all commands, in seconds.
    """
    setup = await find_setup(workspace, config)
    if setup is None:
        return sandboxes, None, ()
    started_at = time.monotonic()
    setup_run = _SetupRun(workspace, setup, sandboxes, name, started_at + timeout)
    problem: str | None = None
    repository = hashlib.sha256(source.encode()).hexdigest()[:32]
    try:
        sandboxes = await sandboxes.with_layer(
            name, repository, f"{repository} {setup.key}", setup_run.execute
        )
    except (SetupFailed, SandboxError) as exc:
        problem = str(exc)
        logger.info("setup failed", extra={"sandbox": name, "error": problem[:500]})
    prepared = EnvironmentPrepared(
        commands=tuple(step.command for step in setup.steps),
        was_cached=problem is None and not setup_run.is_started,
        seconds=round(time.monotonic() - started_at, 3),
        missing_programs=tuple(setup_run.missing_programs),
        warnings=tuple(setup_run.failures),
        problem=problem,
    )
    return sandboxes, prepared, setup_run.visits


class _SetupRun:
    """One run of a repository's setup, in the sandbox whose content becomes the image layer."""

    def __init__(
        self, workspace: Workspace, setup: RepoSetup, sandboxes: Sandboxes, name: str, deadline: float
    ) -> None:
        self._workspace = workspace
        self._setup = setup
        self._sandboxes = sandboxes
        self._name = name
        self._deadline = deadline
        self.is_started = False
        self.missing_programs: list[str] = []
        """Programs that are missing in the image."""
        self.failures: list[str] = []
        """One reason for each failed step that is not required."""
        self.visits: tuple[ConnectionSummary, ...] = ()

    async def execute(self, sandbox: Sandbox) -> None:
        """Sends the work tree, runs the commands, and removes the work tree. Raises SetupFailed."""
        self.is_started = True
        try:
            await self._workspace.send_to(sandbox)
            await self._send_script(sandbox)
            for step in self._setup.steps:
                await self._run_step(sandbox, step)
            if len(self.missing_programs) == len(self._setup.steps):
                raise SetupFailed(reply_texts.render_setup_missing_programs(self.missing_programs))
            cleanup = await sandbox.act(
                Execute(argv=("sh", "-c", _CLEAN_SCRIPT, "sh", sandbox.root), timeout=300)
            )
            if not isinstance(cleanup, ExecuteResult) or cleanup.exit_code != 0:
                raise SetupFailed(f"the setup's files in the work tree could not be cleaned up ({cleanup})")
        finally:
            self.visits += self._sandboxes.take_connections(self._name)

    async def _send_script(self, sandbox: Sandbox) -> None:
        """Replaces the setup script in the work tree with the maintainers' version. Does nothing if the
        configuration comes from the work tree's own commit.
        """
        rules = self._workspace.config_source
        if rules is self._workspace or (script := await rules.get_entry(SETUP_SCRIPT)) is None:
            return
        content = (await rules.read_blobs((script.id,), MAX_MANIFEST_BYTES))[script.id]
        if isinstance(content, int):
            raise SetupFailed(f"{SETUP_SCRIPT} has {content} bytes; the limit is {MAX_MANIFEST_BYTES}")
        await sandbox.act(WriteBytes(path=f"{sandbox.root}/{SETUP_SCRIPT}", content=content))

    async def _run_step(self, sandbox: Sandbox, step: InstallStep) -> None:
        if step.program is not None:
            check = await sandbox.act(Execute(argv=("sh", "-c", f"command -v {step.program}"), timeout=20))
            if not isinstance(check, ExecuteResult) or check.exit_code != 0:
                self.missing_programs.append(step.program)
                return
        remaining = int(self._deadline - time.monotonic())
        if remaining < 1:
            raise SetupFailed(reply_texts.render_setup_failed(step.command, None, "", {}))
        argv = ("bash", "-c", f"exec 2>&1; {step.command}")
        result = await sandbox.act(
            Execute(argv=argv, env={"CI": "true"}, timeout=min(remaining, MAX_TIMEOUT))
        )
        if not isinstance(result, ExecuteResult) or result.exit_code != 0:
            code = result.exit_code if isinstance(result, ExecuteResult) else None
            output = (
                result.stdout.decode(errors="replace") if isinstance(result, ExecuteResult) else str(result)
            )
            self.visits += self._sandboxes.take_connections(self._name)
            denied_hosts = {visit.host: visit.denied for visit in self.visits if visit.denied}
            problem = reply_texts.render_setup_failed(
                step.command, code, tail_lines(output.strip()), denied_hosts
            )
            if step.required:
                raise SetupFailed(problem)
            self.failures.append(problem)


def tail_lines(output: str) -> str:
    """Returns the end of a command's output, at most MAX_OUTPUT_TAIL characters. A line or word that would be
    incomplete at the start is left out.
    """
    if len(output) <= MAX_OUTPUT_TAIL:
        return output
    end = output[-MAX_OUTPUT_TAIL:]
    return end.partition("\n")[2] or end.partition(" ")[2] or end
