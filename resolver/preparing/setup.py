"""The repository's own set-up: what installs its dependencies, found at base, run once, kept as a layer."""

import hashlib
import logging
import re
import shlex
import time
from collections.abc import Iterator
from typing import Any

from resolver import prose
from resolver.circumstances import Prepared
from resolver.errors import ResolverError
from resolver.preparing.poetry import for_developers
from resolver.preparing.pytest_plugins import CONFIGURATIONS, plugins_wanted
from resolver.settings.settings import RepoConfig
from resolver.suites.find import find_suites
from resolver.suites.part import as_toml, table
from resolver.workspace import Workspace
from runtime.actions import MAX_SECONDS, Execute, WriteBytes
from runtime.egress.egress import Visit
from runtime.errors import SandboxError
from runtime.frozen import Frozen
from runtime.observations import Executed
from runtime.sandbox import Sandbox, Sandboxes

logger = logging.getLogger(__name__)

SCRIPT = ".github/patchwright/setup.sh"
TAIL = 300  # characters of a failed command's output; the reply that tells of it takes no more
READ = 1 << 20  # bytes of a manifest
MOST_PARTS = 10  # directories below the root

# What decides which dependencies there are. A change in any of them makes a new layer.
MANIFESTS = re.compile(
    r"(.*/)?(requirements[^/]*\.(txt|in)|[^/]*requirements\.txt|constraints[^/]*\.txt|pyproject\.toml|setup\.py"
    r"|setup\.cfg|uv\.lock|poetry\.lock|Pipfile(\.lock)?|package\.json|package-lock\.json|npm-shrinkwrap\.json"
    r"|pnpm-lock\.yaml|pnpm-workspace\.yaml|yarn\.lock|\.npmrc|\.yarnrc(\.yml)?|go\.(mod|sum|work)|Cargo\.(toml|lock)"
    r"|pom\.xml|[^/]*\.gradle(\.kts)?|gradle\.lockfile|libs\.versions\.toml|gradle-wrapper\.properties"
    r"|Gemfile(\.lock)?|[^/]*\.gemspec)|requirements/[^/]+\.txt|\.github/patchwright(\.toml|/.*)"
)
FOR_TESTS = ("test", "tests", "testing", "dev")
REQUIREMENTS = re.compile(
    r"requirements\.txt|requirements/(base|dev|test|tests|testing)\.txt"
    r"|requirements[-_.](dev|test|tests|testing)\.txt|(dev|test|tests)[-_.]requirements\.txt"
)


class Step(Frozen):
    """One command of a set-up."""

    command: str
    """Shell command, run as root at the repository's root."""
    needs: str | None = None
    """The program without which it is left out; None: a maintainer wrote it, so it is run."""
    needed: bool = True
    """Whether its failure is that of the whole set-up; it is told in any case."""


class Setup(Frozen):
    """How a repository is made ready."""

    steps: tuple[Step, ...]
    key: str
    """Names the commands and the contents of all manifests."""


class SetupFailed(ResolverError):
    """A command of the set-up failed, or there was nothing to run it with; the run goes on without."""


async def find_setup(workspace: Workspace, config: RepoConfig) -> Setup | None:
    """The set-up at base: as its maintainers say, else as its manifests do; None: it needs none.

    What the maintainers say stands where the rules are (`Workspace.rules`); the manifests are those at base.
    """
    files = await workspace.files()
    script = await workspace.rules.at(SCRIPT)
    if config.setup is not None:
        lines = (config.setup,) if isinstance(config.setup, str) else config.setup
        steps = tuple(Step(command=line) for line in lines if line.strip())
    elif script is not None:
        steps = (Step(command=f"bash {SCRIPT}"),)
    else:
        steps = tuple(await _from_manifests(workspace, files, config))
    if not steps:
        return None
    manifests = await workspace.ids(tuple(path for path in files if MANIFESTS.fullmatch(path)))
    if script is not None:
        manifests[SCRIPT] = script.id
    lines = (*(step.command for step in steps), *(f"{path} {id}" for path, id in sorted(manifests.items())))
    return Setup(steps=steps, key=hashlib.sha256("\0".join(lines).encode()).hexdigest())


async def _from_manifests(workspace: Workspace, files: tuple[str, ...], config: RepoConfig) -> list[Step]:
    """For the root, and for each part below it that has tests of its own."""
    steps = await _of_part(workspace, frozenset(files), "")
    suites = await find_suites(workspace, config)
    parts = dict.fromkeys(suite.directory for suite in suites.all if suite.directory)
    one_install = "pnpm-workspace.yaml" in files or '"workspaces"' in (
        await workspace.read("package.json", READ) or ""
    )
    for part in list(parts)[:MOST_PARTS]:
        prefix = f"{part}/"
        below = frozenset(path.removeprefix(prefix) for path in files if path.startswith(prefix))
        for step in await _of_part(workspace, below, prefix):
            if not (one_install and step.needs == "npm"):
                steps.append(step.model_copy(update={"command": f"cd {shlex.quote(part)} && {step.command}"}))
    return steps


async def _of_part(workspace: Workspace, files: frozenset[str], prefix: str) -> list[Step]:
    return [*await _python(workspace, files, prefix), *_others(files)]


async def _python(workspace: Workspace, files: frozenset[str], prefix: str) -> list[Step]:
    install = "python3 -m pip install --quiet"
    if "uv.lock" in files:
        get = f"command -v uv >/dev/null || {install} uv"
        return [Step(command=f"{get}; uv sync --frozen --inexact --all-extras", needs="python3")]
    if "poetry.lock" in files:
        # In an environment of its own: what poetry needs is not what the project needs.
        get = (
            "command -v poetry >/dev/null || { python3 -m venv --without-pip /opt/poetry && "
            f"{install.replace('pip install', 'pip --python /opt/poetry/bin/python install')} poetry && "
            "PATH=$PATH:/opt/poetry/bin; }"
        )
        sync = "VIRTUAL_ENV=/opt/project poetry install --no-interaction --all-extras"
        return [Step(command=f"{get}; {sync}", needs="python3")]
    wanted = [f"-r {path}" for path in sorted(files) if REQUIREMENTS.fullmatch(path)]
    project = (
        as_toml(await workspace.read(f"{prefix}pyproject.toml", READ)) if "pyproject.toml" in files else {}
    )
    if names := [name for name in FOR_TESTS if name in table(project, "dependency-groups")]:
        wanted += [f"--group {name}" for name in names]
    wanted += _before_groups(project)
    if "setup.py" in files or _needs_installing(project):
        extras = [name for name in FOR_TESTS if name in table(project, "project", "optional-dependencies")]
        if "project" not in project:
            extras = list(FOR_TESTS[:3])  # in setup.py or setup.cfg; pip only warns of one that is not there
        wanted.append(f"-e '.[{','.join(extras)}]'" if extras else "-e .")
    wanted += await _plugins(workspace, files, prefix)
    steps = [Step(command=f"{install} {' '.join(wanted)}", needs="python3")] if wanted else []
    if extra := " ".join(for_developers(project)):
        # What developers use beyond the tests may not be had: no reason to go without the project, or the rest.
        singly = f'for each in {extra}; do {install} "$each" || missed="$missed $each,"; done'
        command = f'{install} {extra} || {singly}; test -z "$missed" || ! echo "Not to be had:${{missed%,}}"'
        steps.insert(0, Step(command=command, needs="python3", needed=False))
    return steps


async def _plugins(workspace: Workspace, files: frozenset[str], prefix: str) -> list[str]:
    """What pytest is configured to need and no manifest may name: developers have it from a tox.ini or by hand."""
    found = set[str]()
    for path in CONFIGURATIONS:
        if path in files:
            found |= plugins_wanted(await workspace.read(f"{prefix}{path}", READ) or "")
    return sorted(found)


def _before_groups(pyproject: dict[str, Any]) -> list[str]:
    """What uv had for developers before there were dependency groups; pip does not read it.

    Source: docs.astral.sh/uv/concepts/projects/dependencies, "Legacy dev-dependencies".
    """
    listed = table(pyproject, "tool", "uv").get("dev-dependencies")
    return [shlex.quote(each) for each in listed if isinstance(each, str)] if isinstance(listed, list) else []


def _needs_installing(pyproject: dict[str, Any]) -> bool:
    """Whether the project depends on anything, or makes something when it is installed."""
    project = table(pyproject, "project")
    telling = ("dependencies", "optional-dependencies", "dynamic", "scripts", "entry-points")
    return any(project.get(key) for key in telling) or "poetry" in table(pyproject, "tool")


def _others(files: frozenset[str]) -> Iterator[Step]:
    if "pnpm-lock.yaml" in files:
        yield Step(
            command='$(command -v pnpm || echo "npx --yes pnpm@9") install --frozen-lockfile', needs="npm"
        )
    elif "yarn.lock" in files:
        yield Step(
            command='$(command -v yarn || echo "npx --yes yarn@1") install --frozen-lockfile', needs="npm"
        )
    elif files & {"package-lock.json", "npm-shrinkwrap.json"}:
        yield Step(command="npm ci --no-audit --no-fund", needs="npm")
    elif "package.json" in files:
        yield Step(command="npm install --no-audit --no-fund --no-package-lock", needs="npm")
    if "go.mod" in files:
        yield Step(command="go mod download", needs="go")
    if "Cargo.toml" in files:
        yield Step(command="cargo fetch --locked" if "Cargo.lock" in files else "cargo fetch", needs="cargo")
    if "pom.xml" in files:
        maven = "sh ./mvnw" if "mvnw" in files else "mvn"
        yield Step(command=f"{maven} -B -q dependency:go-offline", needs="java" if "mvnw" in files else "mvn")
    elif files & {"build.gradle", "build.gradle.kts"}:
        gradle = "sh ./gradlew" if "gradlew" in files else "gradle"
        command = f"{gradle} --no-daemon --quiet testClasses"
        yield Step(command=command, needs="java" if "gradlew" in files else "gradle")
    if "Gemfile" in files:
        yield Step(command="bundle install --quiet", needs="bundle")


# --- running it -------------------------------------------------------------------------------------------------

# Only what git ignores is kept: anything else would be taken for the agent's work.
_LEAVE = r"""
cd "$1" && git clean -ffdq &&
git ls-files -z | xargs -0 rm -f -- &&
{ git ls-tree -r -d -z --name-only HEAD | sort -rz | xargs -0 rmdir 2>/dev/null || true; } && rm -rf .git
"""


async def with_dependencies(
    workspace: Workspace,
    config: RepoConfig,
    sandboxes: Sandboxes,
    *,
    name: str,
    source: str,
    seconds: int,
) -> tuple[Sandboxes, Prepared | None, tuple[Visit, ...]]:
    """Sandboxes with the repository's dependencies, what is to be said of that, and where it went by the network.

    Without a set-up, or when it fails, they are the same as before. `source` names the repository, `seconds` is
    the limit of all commands together.
    """
    setup = await find_setup(workspace, config)
    if setup is None:
        return sandboxes, None, ()
    begun = time.monotonic()
    ran = _Run(workspace, setup, sandboxes, name, begun + seconds)
    problem: str | None = None
    repository = hashlib.sha256(source.encode()).hexdigest()[:32]
    try:
        sandboxes = await sandboxes.derived(name, repository, f"{repository} {setup.key}", ran.fill)
    except (SetupFailed, SandboxError) as exc:
        problem = str(exc)
        logger.info("set-up failed", extra={"sandbox": name, "error": problem[:500]})
    prepared = Prepared(
        commands=tuple(step.command for step in setup.steps),
        warm=problem is None and not ran.begun,
        seconds=round(time.monotonic() - begun, 3),
        skipped=tuple(ran.skipped),
        missed=tuple(ran.missed),
        problem=problem,
    )
    return sandboxes, prepared, ran.visits


class _Run:
    """One run of a set-up, in the sandbox that becomes the layer."""

    def __init__(
        self, workspace: Workspace, setup: Setup, sandboxes: Sandboxes, name: str, deadline: float
    ) -> None:
        self._workspace = workspace
        self._setup = setup
        self._sandboxes = sandboxes
        self._name = name
        self._deadline = deadline
        self.begun = False
        self.skipped: list[str] = []
        """Programs that the image lacks."""
        self.missed: list[str] = []
        """How steps failed that are not needed."""
        self.visits: tuple[Visit, ...] = ()

    async def fill(self, sandbox: Sandbox) -> None:
        """Send the tree, run the commands, take the tree away. Raises SetupFailed."""
        self.begun = True
        try:
            await self._workspace.send(sandbox)
            await self._send_script(sandbox)
            for step in self._setup.steps:
                await self._step(sandbox, step)
            if len(self.skipped) == len(self._setup.steps):
                raise SetupFailed(prose.setup_lacks(self.skipped))
            left = await sandbox.act(Execute(argv=("sh", "-c", _LEAVE, "sh", sandbox.root), timeout=300))
            if not isinstance(left, Executed) or left.exit_code != 0:
                raise SetupFailed(f"what the set-up left in the work tree could not be sorted ({left})")
        finally:
            self.visits += self._sandboxes.visits(self._name)

    async def _send_script(self, sandbox: Sandbox) -> None:
        """The maintainers' script in place of the one that somebody proposes."""
        rules = self._workspace.rules
        if rules is self._workspace or (script := await rules.at(SCRIPT)) is None:
            return
        content = (await rules.contents((script.id,), READ))[script.id]
        if isinstance(content, int):
            raise SetupFailed(f"{SCRIPT} has {content} bytes; {READ} are the limit")
        await sandbox.act(WriteBytes(path=f"{sandbox.root}/{SCRIPT}", content=content))

    async def _step(self, sandbox: Sandbox, step: Step) -> None:
        if step.needs is not None:
            found = await sandbox.act(Execute(argv=("sh", "-c", f"command -v {step.needs}"), timeout=20))
            if not isinstance(found, Executed) or found.exit_code != 0:
                self.skipped.append(step.needs)
                return
        left = int(self._deadline - time.monotonic())
        if left < 1:
            raise SetupFailed(prose.setup_failed(step.command, None, "", {}))
        argv = ("bash", "-c", f"exec 2>&1; {step.command}")
        seen = await sandbox.act(Execute(argv=argv, env={"CI": "true"}, timeout=min(left, MAX_SECONDS)))
        if not isinstance(seen, Executed) or seen.exit_code != 0:
            code = seen.exit_code if isinstance(seen, Executed) else None
            said = seen.stdout.decode(errors="replace") if isinstance(seen, Executed) else str(seen)
            self.visits += self._sandboxes.visits(self._name)
            refused = {visit.host: visit.refused for visit in self.visits if visit.refused}
            problem = prose.setup_failed(step.command, code, last_lines(said.strip()), refused)
            if step.needed:
                raise SetupFailed(problem)
            self.missed.append(problem)


def last_lines(said: str) -> str:
    """At most TAIL characters from the end of what a command said, from the start of a line, or else of a word."""
    if len(said) <= TAIL:
        return said
    end = said[-TAIL:]
    return end.partition("\n")[2] or end.partition(" ")[2] or end
