"""Runs the repository's setup, which installs its dependencies. The result is stored as an image layer, so
that later runs can reuse it.
"""

import asyncio
import hashlib
import logging
import re
import shlex
import time
from collections.abc import Mapping
from pathlib import Path

from patchwright.resolver.errors import ResolverError
from patchwright.resolver.git.workspaces import Workspace
from patchwright.resolver.preparation.install_steps import INSTALLERS, PIP, InstallStep, Manifests, find_steps
from patchwright.resolver.preparation.missing_packages import (
    CHECK_OPTIONS,
    TestCheck,
    find_check,
    find_missing_packages,
)
from patchwright.resolver.preparation.setup_output import find_needed_python, tail_lines
from patchwright.resolver.rendering.template_renderer import render_reply
from patchwright.resolver.run_events import EnvironmentPrepared
from patchwright.resolver.settings.settings import RepoConfig
from patchwright.resolver.suites.discovery import find_suites
from patchwright.resolver.suites.project_dir import parse_json_or_empty, parse_toml_or_empty
from patchwright.resolver.suites.suite import Suites
from patchwright.runtime.actions import MAX_TIMEOUT, Execute, WriteBytes
from patchwright.runtime.egress_policy import ConnectionSummary
from patchwright.runtime.errors import SandboxError
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.runtime.observations import ExecuteResult, Observation
from patchwright.runtime.sandbox import LayerNote, Sandbox, Sandboxes

logger = logging.getLogger(__name__)

SETUP_SCRIPT = ".github/patchwright/setup.sh"
MAX_MANIFEST_BYTES = 1 << 20  # bytes of a manifest
MAX_PROJECT_DIRS = 10  # maximum number of directories below the root that are set up
MAX_STORED = 20  # failures, or added commands, that are stored with a layer
MAX_CHECK_ROUNDS = 4  # a package that was missing can hide that another one is missing
CHECK_TIMEOUT = 120  # seconds

# Files that decide which dependencies are installed. If one of them changes, a new layer is created.
MANIFESTS = re.compile(
    r"(.*/)?(requirements[^/]*\.(txt|in)|[^/]*requirements\.txt|constraints[^/]*\.txt|pyproject\.toml|setup\.py"
    r"|setup\.cfg|tox\.(ini|toml)|noxfile\.py|hatch\.toml|pytest\.ini|(uv|poetry|pdm)\.lock|Pipfile(\.lock)?|package\.json|package-lock\.json|npm-shrinkwrap\.json"
    r"|pnpm-lock\.yaml|pnpm-workspace\.yaml|yarn\.lock|bun\.lockb?|\.npmrc|\.yarnrc(\.yml)?|go\.(mod|sum|work)|Cargo\.(toml|lock)"
    r"|pom\.xml|[^/]*\.gradle(\.kts)?|gradle\.lockfile|libs\.versions\.toml|gradle-wrapper\.properties"
    r"|Gemfile(\.lock)?|[^/]*\.gemspec)|requirements/[^/]+\.txt|\.github/patchwright(\.toml|/.*)"
)
# Files in which a repository names the Python packages that its developers install.
DEPENDENCY_FILES = re.compile(
    r"(.*/)?([^/]*requirements[^/]*\.(txt|in)|pyproject\.toml|setup\.(py|cfg)|tox\.(ini|toml)|noxfile\.py|hatch\.toml"
    r"|Pipfile|environment[^/]*\.ya?ml|pytest\.ini|conda/[^/]+\.ya?ml)|requirements/.*\.(txt|in)"
    r"|\.github/workflows/[^/]+\.ya?ml"
)
MAX_DEPENDENCY_FILES = 100


class RepoSetup(FrozenModel):
    """The setup commands of a repository."""

    steps: tuple[InstallStep, ...]
    key: str
    """Digest of the commands and the contents of all manifests."""
    check: TestCheck = TestCheck()
    """The check for missing packages; without commands if maintainers wrote the setup."""


class SetupFailed(ResolverError):
    """A command that maintainers wrote failed, or no command of the setup could be done. The run continues without the
    setup.
    """


async def find_setup(workspace: Workspace, config: RepoConfig) -> RepoSetup | None:
    """Returns the setup at the base commit, or None if no setup is needed.

    The setup comes from the configuration in `Workspace.config_source`. If the configuration contains no
    setup, it comes from the manifests at the base commit.
    """
    files = await workspace.list_files()
    check = TestCheck()
    script = await workspace.config_source.get_entry(SETUP_SCRIPT)
    if config.setup is not None:
        lines = (config.setup,) if isinstance(config.setup, str) else config.setup
        steps = tuple(InstallStep(command=line) for line in lines if line.strip())
    elif script is not None:
        steps = (InstallStep(command=f"bash {SETUP_SCRIPT}"),)
    else:
        suites = await find_suites(workspace, config)
        steps = tuple(await _steps_from_manifests(workspace, files, suites))
        check = await _find_check(workspace, files, suites)
    if not steps:
        return None
    manifests = await workspace.get_blob_ids(tuple(path for path in files if MANIFESTS.fullmatch(path)))
    if script is not None:
        manifests[SETUP_SCRIPT] = script.id
    lines = (
        *(step.command for step in steps),
        *check.commands,
        *map(_read_installer, INSTALLERS.values()),
        *(f"{path} {id}" for path, id in sorted(manifests.items())),
    )
    return RepoSetup(steps=steps, key=hashlib.sha256("\0".join(lines).encode()).hexdigest(), check=check)


async def _find_check(workspace: Workspace, files: tuple[str, ...], suites: Suites) -> TestCheck:
    paths = tuple(path for path in files if DEPENDENCY_FILES.fullmatch(path))[:MAX_DEPENDENCY_FILES]
    ids = await workspace.get_blob_ids(paths)
    contents = (await workspace.read_blobs(tuple(ids.values()), MAX_MANIFEST_BYTES)).values()
    texts = tuple(content.decode(errors="replace") for content in contents if isinstance(content, bytes))
    return await asyncio.to_thread(find_check, suites, files, texts)


async def _steps_from_manifests(
    workspace: Workspace, files: tuple[str, ...], suites: Suites
) -> list[InstallStep]:
    """Returns the steps for the root and for each directory below it that has its own tests."""
    root = await _read_manifests(workspace, frozenset(files), "")
    steps = find_steps(root)
    directories = dict.fromkeys(suite.directory for suite in suites.all if suite.directory)
    for directory in list(directories)[:MAX_PROJECT_DIRS]:
        prefix = f"{directory}/"
        nested_files = frozenset(path.removeprefix(prefix) for path in files if path.startswith(prefix))
        for step in find_steps(await _read_manifests(workspace, nested_files, prefix)):
            if (root.has_workspaces and step.program == "npm") or (
                root.has_uv_workspace and step.program == "python3"
            ):
                continue
            enter = f"cd {shlex.quote(directory)} && "
            command = f"{enter}{{ {step.command}; }}" if "||" in step.command else enter + step.command
            fallbacks = step.fallbacks and tuple(enter + fallback for fallback in step.fallbacks)
            steps.append(InstallStep(command=command, program=step.program, fallbacks=fallbacks))
    return list({step.command: step for step in steps}.values())


async def _read_manifests(workspace: Workspace, files: frozenset[str], prefix: str) -> Manifests:
    async def read(name: str, limit: int = MAX_MANIFEST_BYTES) -> str:
        return (await workspace.read(prefix + name, limit) or "") if name in files else ""

    return Manifests(
        files=files,
        pyproject=parse_toml_or_empty(await read("pyproject.toml")),
        package_json=parse_json_or_empty(await read("package.json")),
        tox_ini=await read("tox.ini"),
        pnpm_lock=await read("pnpm-lock.yaml", 200),
    )


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
    return await run_setup(workspace, setup, sandboxes, name=name, source=source, timeout=timeout)


async def run_setup(
    workspace: Workspace, setup: RepoSetup, sandboxes: Sandboxes, *, name: str, source: str, timeout: int
) -> tuple[Sandboxes, EnvironmentPrepared, tuple[ConnectionSummary, ...]]:
    """Runs the commands of a setup once. Returns the same values as `install_dependencies`."""
    started_at = time.monotonic()
    setup_run = _SetupRun(workspace, setup, sandboxes, name, started_at + timeout)
    problem: str | None = None
    result = SetupResult()
    repository = hashlib.sha256(source.encode()).hexdigest()[:32]
    try:
        sandboxes, note = await sandboxes.with_layer(
            name, repository, f"{repository} {setup.key}", setup_run.execute
        )
        result = SetupResult.model_validate_json(note.text)
    except (SetupFailed, SandboxError) as exc:
        problem = str(exc)
        logger.info("setup failed", extra={"sandbox": name, "error": problem[:500]})
    prepared = EnvironmentPrepared(
        commands=(*(step.command for step in setup.steps), *result.added_commands),
        was_cached=problem is None and not setup_run.is_started,
        seconds=round(time.monotonic() - started_at, 3),
        missing_programs=result.missing_programs,
        warnings=result.failures,
        problem=problem,
    )
    return sandboxes, prepared, setup_run.visits


class SetupResult(FrozenModel):
    """What a setup that succeeded, at least in part, did and could not do. Stored with its layer."""

    missing_programs: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    """One reason for each step that failed."""
    added_commands: tuple[str, ...] = ()
    """Commands that installed missing packages."""


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
        """One reason for each step that failed."""
        self.failed_steps: list[str] = []
        """The reasons of those steps that did not install what they should, with or without a fallback."""
        self.has_added_packages = False
        self.added_commands: list[str] = []
        """Commands that installed missing packages."""
        self.visits: tuple[ConnectionSummary, ...] = ()

    async def execute(self, sandbox: Sandbox) -> LayerNote:
        """Sends the work tree, runs the commands, and removes the work tree. Returns a SetupResult as JSON. Raises
        SetupFailed.
        """
        self.is_started = True
        try:
            await self._workspace.send_to(sandbox)
            await self._send_script(sandbox)
            for file in INSTALLERS.values():
                content = (await asyncio.to_thread(_read_installer, file)).encode()
                await sandbox.act(WriteBytes(path=f"{sandbox.scratch}/{file}", content=content))
            for step in self._setup.steps:
                await self._run_step(sandbox, step)
            if len(self.missing_programs) == len(self._setup.steps):
                text = render_reply("setup_missing_programs.md.j2", programs=self.missing_programs)
                raise SetupFailed(text.strip())
            await self._install_missing_packages(sandbox)
            # The tests of a project that cannot be installed may need only other packages.
            undone = len(self.missing_programs) + len(self.failed_steps)
            if undone == len(self._setup.steps) and not self.has_added_packages:
                raise SetupFailed(self.failed_steps[0])
            cleanup = await sandbox.act(
                Execute(argv=("sh", "-c", _CLEAN_SCRIPT, "sh", sandbox.root), timeout=300)
            )
            if not isinstance(cleanup, ExecuteResult) or cleanup.exit_code != 0:
                raise SetupFailed(f"the setup's files in the work tree could not be cleaned up ({cleanup})")
            result = SetupResult(
                missing_programs=tuple(self.missing_programs),
                failures=tuple(self.failures[:MAX_STORED]),
                added_commands=tuple(self.added_commands[:MAX_STORED]),
            )
            return LayerNote(text=result.model_dump_json(), is_incomplete=bool(self.failures))
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
        if (problem := await self._run_command(sandbox, step.command)) is None:
            return
        if step.program is None:
            raise SetupFailed(problem)
        results = [await self._run_command(sandbox, fallback) for fallback in step.fallbacks or ()]
        problems = [each for each in results if each] or [problem]
        if step.fallbacks is None or (step.fallbacks and all(results)):
            self.failed_steps.append(problems[-1])
        self.failures += problems

    async def _run_command(self, sandbox: Sandbox, command: str) -> str | None:
        """Returns why the command failed, or None if it succeeded. Raises SetupFailed if no time is left."""
        if self._remaining_seconds < 1:
            text = render_reply("setup_failed.md.j2", command=command, code=None, output="", refused_hosts={})
            raise SetupFailed(text.strip())
        result = await self._execute(sandbox, command, self._remaining_seconds)
        if isinstance(result, ExecuteResult) and result.exit_code == 0:
            return None
        code = result.exit_code if isinstance(result, ExecuteResult) else None
        output = result.stdout.decode(errors="replace") if isinstance(result, ExecuteResult) else str(result)
        if needed := find_needed_python(output):
            shown = await self._execute(sandbox, "python3 --version", timeout=20)
            present = (
                shown.stdout.decode(errors="replace").split() if isinstance(shown, ExecuteResult) else []
            )
            version = present[-1] if present else "another version"
            return render_reply("setup_python_mismatch.md.j2", needed=needed, present=version).strip()
        self.visits += self._sandboxes.take_connections(self._name)
        denied_hosts = {visit.host: visit.denied for visit in self.visits if visit.denied}
        return render_reply(
            "setup_failed.md.j2",
            command=command,
            code=code,
            output=tail_lines(output.strip()),
            refused_hosts=denied_hosts,
        ).strip()

    async def _install_missing_packages(self, sandbox: Sandbox) -> None:
        """Starts pytest without running a test, and installs what it misses. Does nothing if there is no time left."""
        environment = {"PYTEST_ADDOPTS": CHECK_OPTIONS, "PYTHONDONTWRITEBYTECODE": "1"}
        tried = set[str]()
        for check_command in self._setup.check.commands:
            for _ in range(MAX_CHECK_ROUNDS):
                if self._remaining_seconds < 1:
                    return
                timeout = min(self._remaining_seconds, CHECK_TIMEOUT)
                result = await self._execute(sandbox, check_command, timeout, environment)
                output = result.stdout.decode(errors="replace") if isinstance(result, ExecuteResult) else ""
                found = find_missing_packages(output, self._setup.check)
                packages = [package for package in found if package not in tried]
                if not packages:
                    break
                tried.update(packages)
                problem = await self._install_packages(sandbox, packages)
                if problem and len(packages) > 1:  # Install those that exist.
                    problems = [await self._install_packages(sandbox, [package]) for package in packages]
                    self.failures += [each for each in problems if each]
                elif problem:
                    self.failures.append(problem)

    async def _install_packages(self, sandbox: Sandbox, packages: list[str]) -> str | None:
        """Returns why the packages could not be installed, or None if they are installed."""
        self.added_commands.append(f"{PIP} {shlex.join(packages)}")
        problem = await self._run_command(sandbox, self.added_commands[-1])
        self.has_added_packages |= problem is None
        return problem

    @property
    def _remaining_seconds(self) -> int:
        return int(self._deadline - time.monotonic())

    async def _execute(
        self, sandbox: Sandbox, command: str, timeout: int, environment: Mapping[str, str] | None = None
    ) -> Observation:
        installers = {variable: f"{sandbox.scratch}/{file}" for variable, file in INSTALLERS.items()}
        return await sandbox.act(
            Execute(
                argv=("bash", "-c", f"exec 2>&1; {command}"),
                env={"CI": "true", **installers, **(environment or {})},
                timeout=min(timeout, MAX_TIMEOUT),
            )
        )


def _read_installer(file: str) -> str:
    return Path(__file__).with_name(file).read_text()
