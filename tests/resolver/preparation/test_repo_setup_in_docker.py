"""The repository's setup in Docker, with packages from the real index, and what it leaves for later sandboxes."""

import os
import re
from collections.abc import AsyncIterator

import pytest

from patchwright.resolver.git.workspaces import WorkspaceFactory
from patchwright.resolver.preparation.repo_setup import install_dependencies
from patchwright.resolver.proof.baseline import BaselineRuns
from patchwright.resolver.proof.verification import verify_patch
from patchwright.resolver.run_events import EnvironmentPrepared
from patchwright.resolver.run_results import TestRun
from patchwright.resolver.settings.settings import RepoConfig
from patchwright.resolver.suites.execution import TestSetup, run_tests
from patchwright.resolver.suites.suite import Suites
from patchwright.runtime.actions import RunShell
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes
from tests.resolver.conftest import build_docker_sandboxes
from tests.resolver.git_repository import Repository, make_patch, shell
from tests.resolver.patch_verifier import PYTEST
from tests.resolver.preparation.local_setup import INSTALL
from tests.runtime.fake_internet import package_index_egress
from tests.runtime.repository_layers import remove_layers_of

pytestmark = [pytest.mark.slow, pytest.mark.docker]


@pytest.fixture
async def online() -> AsyncIterator[DockerSandboxes]:
    """Docker sandboxes that can reach the default hosts."""
    made = build_docker_sandboxes(package_index_egress())
    yield made
    await made.close()


class DockerSetup:
    """A local repository and its setup in Docker."""

    def __init__(
        self, repository: Repository, workspaces: WorkspaceFactory, sandboxes: DockerSandboxes
    ) -> None:
        self.repository = repository
        self.workspaces = workspaces
        self.sandboxes = sandboxes
        self.source = str(repository.path)

    async def set_up(
        self, setup: str | None = None, seconds: int = 120
    ) -> tuple[DockerSandboxes, EnvironmentPrepared]:
        async with self.workspaces.local(self.repository.path) as workspace:
            made, prepared, _ = await install_dependencies(
                workspace,
                RepoConfig(setup=setup),
                self.sandboxes,
                name=f"setup-{os.getpid()}",
                source=self.source,
                timeout=seconds,
            )
        assert isinstance(made, DockerSandboxes) and prepared is not None
        return made, prepared

    async def fail_to_set_up(self, setup: str | None = None, seconds: int = 120) -> str:
        """Runs a setup that fails, so that the sandboxes stay the same. Returns the reason."""
        made, prepared = await self.set_up(setup, seconds)
        assert made is self.sandboxes and prepared.problem is not None
        return prepared.problem

    async def run_tests(self, sandboxes: DockerSandboxes) -> TestRun:
        async with self.workspaces.local(self.repository.path) as workspace:
            return await run_tests(workspace, None, PYTEST, sandboxes, "base", 60)

    async def says(self, sandboxes: DockerSandboxes, command: str, sent: bool = False) -> str:
        async with sandboxes.open(f"look-{os.getpid()}") as sandbox:
            if sent:
                async with self.workspaces.local(self.repository.path) as workspace:
                    await workspace.send_to(sandbox)
            return await shell(sandbox, command)


@pytest.fixture
async def docker_setup(
    repository: Repository, workspaces: WorkspaceFactory, online: DockerSandboxes
) -> AsyncIterator[DockerSetup]:
    made = DockerSetup(repository, workspaces, online)
    yield made
    await remove_layers_of(made.source)


async def test_tests_with_dependencies_run_and_the_layer_is_reused(docker_setup: DockerSetup) -> None:
    """The package comes from the index through the egress proxy; verification sandboxes have no network."""
    repository = docker_setup.repository
    fixed = "from wcwidth import wcswidth\n\n\ndef pad(text, to):\n    return text + ' ' * (to - wcswidth(text))\n"
    repository.commit(
        {
            "requirements.txt": "wcwidth==0.2.13\n",
            "pad.py": fixed.replace("wcswidth(text))", "len(text))"),
            "test_pad.py": "from pad import pad\n\n\ndef test_ascii():\n    assert pad('a', 3) == 'a  '\n\n\n"
            "def test_wide():\n    assert pad('\\u5b57', 3) == '\\u5b57 '\n",
        }
    )
    async with docker_setup.workspaces.local(repository.path) as workspace:
        bare = await docker_setup.run_tests(docker_setup.sandboxes)
        assert (
            bare.results.get("test_pad.py::test_ascii") != "passed"
        )  # without the package the tests cannot run

        made, prepared = await docker_setup.set_up()
        assert (prepared.problem, prepared.was_cached) == (None, False)
        before = await docker_setup.run_tests(made)
        assert (before.passed_count, before.failed_count) == (1, 1)
        patch = await make_patch(workspace, made, {"pad.py": fixed})
        async with BaselineRuns(workspace, made, "proof", 60) as bases:
            suites = Suites(all=(PYTEST,), primary=PYTEST)
            verdict = await verify_patch(workspace, patch, TestSetup(suites, made, "proof", 60), bases)
        assert (verdict.kind, verdict.fail_to_pass) == ("fixed", ("test_pad.py::test_wide",))

    repository.commit({"README.md": "another issue\n"})
    again, second = await docker_setup.set_up()
    async with again.open(f"second-{os.getpid()}") as sandbox:
        await sandbox.act(RunShell(command="python3 -c 'import wcwidth'"))
    assert (second.problem, second.was_cached) == (None, True)


async def test_tests_run_with_what_tox_and_pytest_say_they_need(docker_setup: DockerSetup) -> None:
    """tox installs one package, and pytest's own errors name the other two. The tests run without network."""
    docker_setup.repository.commit(
        {
            "tox.ini": "[tox]\nenv_list = lint, py{39,311,313}-tests\n"
            "[testenv:lint]\ndeps = six==1.16.0\n[testenv]\ndeps =\n  tests: wcwidth==0.2.13\n",
            "setup.cfg": "[options.extras_require]\nother = toolz\n",
            "test_pad.py": "import toolz\nfrom importlib.metadata import version\n\n\ndef test_versions(mocker):\n"
            "    assert version('wcwidth') == '0.2.13'\n    assert mocker.Mock()\n",
        }
    )
    made, prepared = await docker_setup.set_up(seconds=400)
    assert (prepared.problem, prepared.warnings) == (None, ())
    assert prepared.commands[2:] == (f"{INSTALL} toolz", f"{INSTALL} pytest-mock")
    run = await docker_setup.run_tests(made)
    assert run.results == {"test_pad.py::test_versions": "passed"}


async def test_tests_run_although_their_project_cannot_be_installed(docker_setup: DockerSetup) -> None:
    docker_setup.repository.commit(
        {
            "setup.py": "raise SystemExit('not with this Python')\n",
            "setup.cfg": "[options]\ninstall_requires = toolz\n",
            "test_a.py": "import toolz\n\n\ndef test_a():\n    assert toolz.first('a') == 'a'\n",
        }
    )
    made, prepared = await docker_setup.set_up(seconds=400)
    assert prepared.problem is None
    assert "not with this Python" in prepared.warnings[0]
    run = await docker_setup.run_tests(made)
    assert run.results == {"test_a.py::test_a": "passed"}


async def test_an_unsuitable_python_is_named_with_what_an_operator_can_do(docker_setup: DockerSetup) -> None:
    docker_setup.repository.commit(
        {
            "pyproject.toml": '[project]\nname = "x"\nversion = "1"\nrequires-python = ">=3.99"\nscripts.x = "x:x"\n'
        }
    )
    problem = await docker_setup.fail_to_set_up()
    assert re.fullmatch(
        r"The project needs Python >=3\.99, but the image has Python 3\.[\d.]+\. "
        r"Set `image` or `language_images\.python` to an image with a matching version\.",
        problem,
    )


async def test_setup_files_belong_to_the_agent_and_are_not_in_the_patch(docker_setup: DockerSetup) -> None:
    docker_setup.repository.commit({".gitignore": "ignored/\n", "a.txt": "old\n", "sub/b.txt": "b\n"})
    made, prepared = await docker_setup.set_up(
        "id -u; mkdir ignored node_modules; touch ignored/x node_modules/y stray ~/kept; echo changed > a.txt"
    )
    assert prepared.problem is None
    result = await docker_setup.says(
        made, "ls -A; stat -c %U . ignored ignored/x node_modules/y ~/kept; env | grep -i proxy; id -u"
    )
    assert result.split() == ["ignored", "node_modules", *["agent"] * 5, "10001"]
    assert await docker_setup.says(made, "cat a.txt sub/b.txt; git status --short --ignored", sent=True) == (
        "old\nb\n!! ignored/\n!! node_modules/\n"
    )
    async with docker_setup.workspaces.local(docker_setup.repository.path) as workspace:
        assert (await make_patch(workspace, made, {})).is_empty


async def test_a_setup_runs_as_root_with_five_capabilities(docker_setup: DockerSetup) -> None:
    docker_setup.repository.commit({"a": ""})
    made, prepared = await docker_setup.set_up(
        "grep -E '^(Uid|Cap...|NoNewPrivs|Seccomp):' /proc/self/status > ~/status; touch /etc/as-root; "
        "! mount -t tmpfs x /mnt && ! mknod /dev/x b 8 0 && ! unshare -m true && ! chroot / true"
    )
    assert prepared.problem is None
    status = dict(
        line.split(":\t")
        for line in (await docker_setup.says(made, "cat ~/status; ls /etc/as-root >/dev/null")).splitlines()
    )
    assert status["Uid"].split() == ["0"] * 4
    assert {int(status[name], 16) for name in ("CapPrm", "CapEff", "CapBnd")} == {0b11001011}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


async def test_a_denied_host_is_named_with_the_setting_to_allow_it(docker_setup: DockerSetup) -> None:
    docker_setup.repository.commit({"a": ""})
    fetch = "import urllib.request as r; r.urlopen('https://example.org/x', timeout=9)"
    problem = await docker_setup.fail_to_set_up(f'python3 -c "{fetch}"')
    assert re.fullmatch(
        r"`python3 .*` failed with exit code 1 \(.*\)\. The sandbox refused a connection to example\.org: "
        r"it is not on the allowlist \(setting `allowed_hosts`\)\.",
        problem,
    )


async def test_a_setup_that_changes_our_runtime_is_rejected(docker_setup: DockerSetup) -> None:
    docker_setup.repository.commit({"a": ""})
    problem = await docker_setup.fail_to_set_up(
        "echo 'import os' >> /opt/patchwright/app/patchwright/runtime/action_server.py"
    )
    assert problem == (
        "the setup changed /opt/patchwright/app/patchwright/runtime/action_server.py, which belongs to Patchwright"
    )
    _, harmless = await docker_setup.set_up("touch /opt/elsewhere")  # the control
    assert harmless.problem is None


async def test_a_hanging_setup_is_stopped(docker_setup: DockerSetup) -> None:
    docker_setup.repository.commit({"a": ""})
    assert await docker_setup.fail_to_set_up("sleep 60", seconds=2) == "`sleep 60` timed out."


async def test_steps_with_missing_programs_are_skipped_and_reported(docker_setup: DockerSetup) -> None:
    docker_setup.repository.commit({"go.mod": "module x\n"})
    problem = await docker_setup.fail_to_set_up()
    assert problem == "The image lacks go. Set `image` to one that includes it."
