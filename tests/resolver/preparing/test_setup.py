"""What a repository's set-up is, and what it leaves for the sandboxes that come after it."""

import os
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from resolver import prose
from resolver.circumstances import Prepared
from resolver.preparing.setup import SCRIPT, TAIL, Setup, find_setup, last_lines, with_dependencies
from resolver.proof.baseline import Bases
from resolver.settings.repository import reading
from resolver.settings.settings import RepoConfig
from resolver.suites.run import run_suite
from resolver.suites.suite import Suites
from resolver.validate import prove
from resolver.workspace import Workspace, Workspaces
from runtime.actions import RunShell
from runtime.docker.docker import DockerSandboxes
from runtime.local import LocalSandboxes
from runtime.sandbox import SandboxSpec
from tests.resolver.preparing.deriving import Deriving
from tests.resolver.proofs import PYTEST
from tests.resolver.repositories import Repository, changed, shell
from tests.runtime.hosts import indexes
from tests.runtime.kept_layers import remove_layers_of

pytestmark = pytest.mark.slow

PROJECT = '[project]\nname = "x"\nversion = "1"\n'
JEST = '{"scripts": {"test": "jest"}}'
YARN = '$(command -v yarn || echo "npx --yes yarn@1") install --frozen-lockfile'
INSTALL = "python3 -m pip install --quiet"


async def found(
    repository: Repository, workspaces: Workspaces, config: RepoConfig | None = None
) -> Setup | None:
    async with workspaces.local(repository.path) as workspace:
        return await find_setup(workspace, config or RepoConfig())


def commands_of(setup: Setup | None) -> list[str]:
    return [step.command for step in setup.steps] if setup else []


# --- finding it -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "commands"),
    [
        ({"calc.py": ""}, []),
        ({"pyproject.toml": PROJECT}, []),
        ({"pyproject.toml": "not = [toml"}, []),
        ({"pyproject.toml": f'{PROJECT}dependencies = ["a"]\n'}, [f"{INSTALL} -e ."]),
        (
            {
                "pyproject.toml": f'{PROJECT}[project.optional-dependencies]\ntest = ["a"]\ndocs = ["b"]\n'
                '[dependency-groups]\ndev = ["c"]\nlint = ["d"]\n'
            },
            [f"{INSTALL} --group dev -e '.[test]'"],
        ),
        ({"setup.py": ""}, [f"{INSTALL} -e '.[test,tests,testing]'"]),
        (
            {"setup.py": "", "pytest.ini": "[pytest]\naddopts = --cov=x -n 2\n"},
            [f"{INSTALL} -e '.[test,tests,testing]' pytest-cov pytest-xdist"],
        ),
        (
            {"pyproject.toml": '[tool.uv]\ndev-dependencies = ["pytest>=8.3", "hypothesis", 1]\n'},
            [f"{INSTALL} 'pytest>=8.3' hypothesis"],
        ),
        (
            {
                "requirements.txt": "",
                "requirements-dev.txt": "",
                "docs/requirements.txt": "",
                "requirements/test.txt": "",
            },
            [f"{INSTALL} -r requirements-dev.txt -r requirements.txt -r requirements/test.txt"],
        ),
        ({"package.json": "{}", "package-lock.json": "{}"}, ["npm ci --no-audit --no-fund"]),
        ({"package.json": "{}"}, ["npm install --no-audit --no-fund --no-package-lock"]),
        ({"go.mod": ""}, ["go mod download"]),
        ({"Cargo.toml": "", "Cargo.lock": ""}, ["cargo fetch --locked"]),
        ({"pom.xml": ""}, ["mvn -B -q dependency:go-offline"]),
        ({"build.gradle": "", "gradlew": ""}, ["sh ./gradlew --no-daemon --quiet testClasses"]),
        ({"Gemfile": ""}, ["bundle install --quiet"]),
        ({"requirements.txt": "", "go.mod": ""}, [f"{INSTALL} -r requirements.txt", "go mod download"]),
        ({"web/package.json": JEST, "web/yarn.lock": ""}, [f"cd web && {YARN}"]),
        (
            {
                "a/pyproject.toml": f'{PROJECT}dependencies = ["a"]\n',
                "a/tox.ini": "[pytest]\naddopts = --cov",
                "a/test_a.py": "",
            },
            [f"cd a && {INSTALL} -e . pytest-cov"],
        ),
        (
            {"go.mod": "", "tools/go.mod": "", "tools/a_test.go": ""},
            ["go mod download", "cd tools && go mod download"],
        ),
        (
            {
                "package.json": '{"workspaces": ["web"]}',
                "web/package.json": JEST,
                "docs/requirements.txt": "",
            },
            ["npm install --no-audit --no-fund --no-package-lock"],
        ),
        ({"requirements.txt": "", ".github/patchwright/setup.sh": ""}, ["bash .github/patchwright/setup.sh"]),
    ],
)
async def test_the_set_up_is_what_the_manifests_say(
    files: dict[str, str | bytes], commands: list[str], repository: Repository, workspaces: Workspaces
) -> None:
    repository.commit(files)
    setup = await found(repository, workspaces)
    assert commands_of(setup) == commands


@pytest.mark.parametrize(
    ("lock", "program"),
    [
        ("uv.lock", "uv sync"),
        ("poetry.lock", "poetry install"),
        ("pnpm-lock.yaml", "pnpm"),
        ("yarn.lock", "yarn"),
    ],
)
async def test_a_lock_file_decides_for_its_own_tool(
    lock: str, program: str, repository: Repository, workspaces: Workspaces
) -> None:
    repository.commit({lock: "", "pyproject.toml": PROJECT, "package.json": "{}"})
    setup = await found(repository, workspaces)
    assert setup and any(program in step.command for step in setup.steps)


async def test_the_maintainers_words_come_first_and_may_be_that_there_is_none(
    repository: Repository, workspaces: Workspaces
) -> None:
    repository.commit({"requirements.txt": "", ".github/patchwright/setup.sh": ""})
    for said, commands in (
        ('setup = "make"', ["make"]),
        ('setup = ["a", "b"]', ["a", "b"]),
        ('setup = ""', []),
    ):
        setup = await found(repository, workspaces, reading(said).config)
        assert commands_of(setup) == commands


async def test_the_key_changes_with_commands_and_manifests_and_with_nothing_else(
    repository: Repository, workspaces: Workspaces
) -> None:
    def key(setup: Setup | None) -> str:
        assert setup is not None
        return setup.key

    repository.commit({"requirements.txt": "a", "calc.py": "1"})
    first = key(await found(repository, workspaces))
    repository.commit({"calc.py": "2", "README.md": "x"})
    assert key(await found(repository, workspaces)) == first
    assert key(await found(repository, workspaces, RepoConfig(setup="true"))) != first
    repository.commit({"requirements.txt": "b"})
    assert key(await found(repository, workspaces)) != first


# --- running it -------------------------------------------------------------------------------------------------


async def test_somebodys_proposal_brings_its_manifests_but_no_word_on_how_they_are_set_up(
    workspaces: Workspaces, repository: Repository, tmp_path: Path
) -> None:
    """The script is the base branch's, whatever the head under review made of it."""
    said = tmp_path / "said"
    begun = repository.commit({"calc.py": ""})
    base = repository.commit({SCRIPT: f"echo base >>{said}\n"})
    head = repository.commit({SCRIPT: f"echo head >>{said}\n", "requirements.txt": "wcwidth\n"})
    other = repository.commit({SCRIPT: f"echo head again >>{said}\n"})

    async with workspaces.local(repository.path) as workspace:
        rules = workspace.at_commit(base)
        proposed = Workspace(workspace.git_dir, head, None, rules=rules)
        again = Workspace(workspace.git_dir, other, None, rules=rules)
        one, two = await find_setup(proposed, RepoConfig()), await find_setup(again, RepoConfig())
        assert commands_of(one) == [f"bash {SCRIPT}"]
        assert one == two
        none = Workspace(workspace.git_dir, head, None, rules=workspace.at_commit(begun))
        assert commands_of(await find_setup(none, RepoConfig())) == [f"{INSTALL} -r requirements.txt"]
        sandboxes = Deriving(tmp_path / "boxes", dict(os.environ))
        made = await with_dependencies(
            proposed, RepoConfig(), sandboxes, name="set-up", source="here", seconds=60
        )
    assert made[1] is not None and made[1].problem is None
    assert said.read_text() == "base\n"


async def test_the_local_sandbox_has_none_and_says_so(
    repository: Repository, workspaces: Workspaces, sandboxes: LocalSandboxes
) -> None:
    repository.commit({"requirements.txt": ""})
    async with workspaces.local(repository.path) as workspace:
        same, prepared, _ = await with_dependencies(
            workspace, RepoConfig(), sandboxes, name="s", source="s", seconds=60
        )
    assert same is sandboxes
    assert prepared and prepared.problem and "the local sandbox keeps nothing" in prepared.problem


@pytest.fixture
async def online() -> AsyncIterator[DockerSandboxes]:
    """Docker sandboxes that reach the default hosts."""
    bundle = Path(os.environ.get("PATCHWRIGHT_CA_BUNDLE", "/etc/ssl/certs/ca-certificates.crt"))
    made = DockerSandboxes(
        SandboxSpec(memory_mb=1024),
        ca_bundle=bundle if bundle.exists() else None,
        package_index=os.environ.get("PATCHWRIGHT_PACKAGE_INDEX"),
        egress=indexes(),
    )
    yield made
    await made.close()


class Here:
    """A repository on this disk, and its set-up in Docker."""

    def __init__(self, repository: Repository, workspaces: Workspaces, sandboxes: DockerSandboxes) -> None:
        self.repository = repository
        self.workspaces = workspaces
        self.sandboxes = sandboxes
        self.source = str(repository.path)

    async def set_up(self, setup: str | None = None, seconds: int = 120) -> tuple[DockerSandboxes, Prepared]:
        async with self.workspaces.local(self.repository.path) as workspace:
            made, prepared, _ = await with_dependencies(
                workspace,
                RepoConfig(setup=setup),
                self.sandboxes,
                name=f"setup-{os.getpid()}",
                source=self.source,
                seconds=seconds,
            )
        assert isinstance(made, DockerSandboxes) and prepared is not None
        return made, prepared

    async def says(self, sandboxes: DockerSandboxes, command: str, sent: bool = False) -> str:
        async with sandboxes.open(f"look-{os.getpid()}") as sandbox:
            if sent:
                async with self.workspaces.local(self.repository.path) as workspace:
                    await workspace.send(sandbox)
            return await shell(sandbox, command)


@pytest.fixture
async def here(
    repository: Repository, workspaces: Workspaces, online: DockerSandboxes
) -> AsyncIterator[Here]:
    made = Here(repository, workspaces, online)
    yield made
    await remove_layers_of(made.source)


@pytest.mark.docker
async def test_tests_that_need_a_package_run_and_the_second_issue_starts_warm(here: Here) -> None:
    """The package comes from the index, through the egress proxy; the proof's sandboxes have no network at all."""
    repository = here.repository
    mended = "from wcwidth import wcswidth\n\n\ndef pad(text, to):\n    return text + ' ' * (to - wcswidth(text))\n"
    repository.commit(
        {
            "requirements.txt": "wcwidth==0.2.13\n",
            "pad.py": mended.replace("wcswidth(text))", "len(text))"),
            "test_pad.py": "from pad import pad\n\n\ndef test_ascii():\n    assert pad('a', 3) == 'a  '\n\n\n"
            "def test_wide():\n    assert pad('\\u5b57', 3) == '\\u5b57 '\n",
        }
    )
    async with here.workspaces.local(repository.path) as workspace:
        bare = await run_suite(workspace, None, PYTEST, here.sandboxes, "bare", 60)
        assert bare.results.get("test_pad.py::test_ascii") != "passed"  # without it, there is no test run

        made, prepared = await here.set_up()
        assert (prepared.problem, prepared.warm) == (None, False)
        before = await run_suite(workspace, None, PYTEST, made, "base", 60)
        assert (before.passed, before.failed) == (1, 1)
        patch = await changed(workspace, made, {"pad.py": mended})
        async with Bases(workspace, made, "proof", 60) as bases:
            suites = Suites(all=(PYTEST,), likely=PYTEST)
            verdict = await prove(workspace, patch, suites, made, "proof", 60, bases)
        assert (verdict.kind, verdict.newly_passing) == ("fixed", ("test_pad.py::test_wide",))

    repository.commit({"README.md": "another issue\n"})
    begun = time.monotonic()
    again, second = await here.set_up()
    async with again.open(f"second-{os.getpid()}") as sandbox:
        await sandbox.act(RunShell(command="python3 -c 'import wcwidth'"))
    assert (second.problem, second.warm) == (None, True)
    assert time.monotonic() - begun < 5  # seconds; benchmarks/images.py holds it to less


@pytest.mark.docker
async def test_what_a_set_up_leaves_belongs_to_the_agent_and_is_no_part_of_its_patch(here: Here) -> None:
    here.repository.commit({".gitignore": "ignored/\n", "a.txt": "old\n", "sub/b.txt": "b\n"})
    made, prepared = await here.set_up(
        "id -u; mkdir ignored node_modules; touch ignored/x node_modules/y stray ~/kept; echo changed > a.txt"
    )
    assert prepared.problem is None
    seen = await here.says(
        made, "ls -A; stat -c %U . ignored ignored/x node_modules/y ~/kept; env | grep -i proxy; id -u"
    )
    assert seen.split() == ["ignored", "node_modules", *["agent"] * 5, "10001"]
    assert await here.says(made, "cat a.txt sub/b.txt; git status --short --ignored", sent=True) == (
        "old\nb\n!! ignored/\n!! node_modules/\n"
    )
    async with here.workspaces.local(here.repository.path) as workspace:
        assert (await changed(workspace, made, {})).empty


@pytest.mark.docker
async def test_a_set_up_is_root_with_five_capabilities_and_no_more(here: Here) -> None:
    here.repository.commit({"a": ""})
    made, prepared = await here.set_up(
        "grep -E '^(Uid|Cap...|NoNewPrivs|Seccomp):' /proc/self/status > ~/status; touch /etc/as-root; "
        "! mount -t tmpfs x /mnt && ! mknod /dev/x b 8 0 && ! unshare -m true && ! chroot / true"
    )
    assert prepared.problem is None
    status = dict(
        line.split(":\t")
        for line in (await here.says(made, "cat ~/status; ls /etc/as-root >/dev/null")).splitlines()
    )
    assert status["Uid"].split() == ["0"] * 4
    assert {int(status[name], 16) for name in ("CapPrm", "CapEff", "CapBnd")} == {0b11001011}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


@pytest.mark.docker
async def test_a_refused_host_is_named_with_the_setting_that_would_allow_it(here: Here) -> None:
    here.repository.commit({"a": ""})
    fetch = "import urllib.request as r; r.urlopen('https://example.org/x', timeout=9)"
    same, prepared = await here.set_up(f'python3 -c "{fetch}"')
    assert same is here.sandboxes
    assert prepared.problem is not None
    assert re.fullmatch(
        r"`python3 .*` ended with exit code 1 \(.*\)\. The sandbox refused a connection to example\.org: "
        r"it is not on the allow-list \(setting `allow_hosts`\)\.",
        prepared.problem,
    )


@pytest.mark.docker
async def test_a_set_up_that_changes_our_own_part_is_not_kept(here: Here) -> None:
    here.repository.commit({"a": ""})
    same, prepared = await here.set_up("echo 'import os' >> /opt/patchwright/app/runtime/server.py")
    assert same is here.sandboxes
    assert prepared.problem == (
        "the set-up changed /opt/patchwright/app/runtime/server.py, which is not the repository's"
    )
    _, harmless = await here.set_up("touch /opt/elsewhere")  # the control
    assert harmless.problem is None


@pytest.mark.docker
async def test_a_set_up_that_hangs_is_stopped(here: Here) -> None:
    here.repository.commit({"a": ""})
    same, prepared = await here.set_up("sleep 60", seconds=2)
    assert (same is here.sandboxes, prepared.problem) == (True, "`sleep 60` did not end in time.")


@pytest.mark.docker
async def test_what_the_image_lacks_is_left_out_and_said(here: Here) -> None:
    here.repository.commit({"go.mod": "module x\n"})
    same, prepared = await here.set_up()
    assert same is here.sandboxes
    assert prepared.problem == "The image has no go: the setting `image` names one that has it."


def test_the_failure_is_told_in_one_sentence() -> None:
    assert prose.setup_failed("make", 2, "a\nb", {}) == "`make` ended with exit code 2 (a b)."


def test_of_a_long_output_the_last_whole_lines_are_told() -> None:
    error = "ERROR: No matching distribution found for nothing"
    assert last_lines(f"Looking in links: {'x' * 400}\n{error}") == error
    assert last_lines(f"{'word ' * 200}{error}").startswith("word word")
    assert last_lines("x" * 400) == "x" * TAIL
    assert last_lines(error) == error
