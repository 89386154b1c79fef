"""The commands that install a project's dependencies, as its manifests require them."""

import pytest

from patchwright.resolver.git.workspaces import WorkspaceFactory
from patchwright.resolver.preparation.repo_setup import find_setup
from patchwright.resolver.settings.settings import RepoConfig
from tests.resolver.git_repository import Repository
from tests.resolver.preparation.local_setup import INSTALL

pytestmark = pytest.mark.slow

PROJECT = '[project]\nname = "x"\nversion = "1"\n'
JEST = '{"scripts": {"test": "jest"}}'
UV = f"command -v uv >/dev/null || {INSTALL} uv"
ENVIRONMENT = "VIRTUAL_ENV=\"$(python3 -c 'import sys; print(sys.prefix)')\""
INSTALL_SINGLY = 'python3 "$PATCHWRIGHT_REQUIREMENTS_INSTALLER"'
USUAL = "-e '.[test,tests,testing,dev]'"
NPM_INSTALL = "npm install --no-package-lock --no-audit --no-fund"


def run_in(tool: str) -> str:
    installer = '"$PATCHWRIGHT_INSTALLER"'
    return f'uv run --no-project --with {tool} python {installer} {tool} "$(command -v python3)"'


async def commands_for(
    files: dict[str, str | bytes], repository: Repository, workspaces: WorkspaceFactory
) -> list[str]:
    repository.commit(files)
    async with workspaces.local(repository.path) as workspace:
        setup = await find_setup(workspace, RepoConfig())
    return [step.command for step in setup.steps] if setup else []


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
        ({"setup.py": ""}, [f"{INSTALL} {USUAL}"]),
        ({"setup.cfg": "", "pyproject.toml": "[build-system]\n"}, [f"{INSTALL} {USUAL}"]),
        (
            {
                "requirements.txt": "",
                "requirements-dev.txt": "",
                "test-requirements.txt": "",
                "docs/requirements.txt": "",
                "requirements/test.txt": "",
                "requirements/lint.txt": "",
            },
            [
                f"{INSTALL} -r requirements-dev.txt -r requirements.txt -r requirements/test.txt "
                "-r test-requirements.txt"
            ],
        ),
        ({"requirements.txt": "", "go.mod": ""}, [f"{INSTALL} -r requirements.txt", "go mod download"]),
    ],
)
async def test_pip_installs_groups_extras_and_requirements_with_a_developers_name(
    files: dict[str, str | bytes], commands: list[str], repository: Repository, workspaces: WorkspaceFactory
) -> None:
    assert await commands_for(files, repository, workspaces) == commands


@pytest.mark.parametrize(
    ("files", "command"),
    [
        (
            {"uv.lock": "", "pyproject.toml": '[dependency-groups]\ntests = ["a"]\ndocs = ["b"]\n'},
            "uv sync --inexact --all-packages --frozen --all-extras --group tests",
        ),
        (
            {"pyproject.toml": f'{PROJECT}[tool.uv]\ndev-dependencies = ["a"]\n'},
            "uv sync --inexact --all-packages --all-extras",
        ),
        (
            {
                "pyproject.toml": '[tool.poetry.dependencies]\na = "*"\n[tool.poetry.group.test]\noptional = true\n'
                "[tool.poetry.group.docs]\noptional = true\n",
                "tox.ini": "[testenv]\n",
            },
            f'{ENVIRONMENT} POETRY_PYPI_MIRROR_URL="${{PIP_INDEX_URL:-https://pypi.org/simple}}" '
            "uvx --with poetry-plugin-pypi-mirror poetry install --no-interaction --all-extras --with test",
        ),
        (
            {"pyproject.toml": f'{PROJECT}[tool.pdm.dev-dependencies]\ntest = ["a"]\n', "noxfile.py": ""},
            f"{ENVIRONMENT} uvx --from 'pdm[locked]' pdm install --frozen-lockfile -G :all",
        ),
        ({"Pipfile": ""}, f"{ENVIRONMENT} PIPENV_VERBOSITY=-1 uvx pipenv install --dev --skip-lock"),
        (
            {"Pipfile": "", "Pipfile.lock": "", "requirements.txt": ""},
            f"{ENVIRONMENT} PIPENV_VERBOSITY=-1 uvx pipenv sync --dev",
        ),
    ],
    ids=["uv lock", "uv", "poetry", "pdm", "pipenv", "pipenv lock"],
)
async def test_a_package_manager_reads_its_own_files(
    files: dict[str, str | bytes], command: str, repository: Repository, workspaces: WorkspaceFactory
) -> None:
    assert await commands_for(files, repository, workspaces) == [UV, command]


async def test_one_package_that_cannot_be_had_does_not_keep_the_others_out(
    repository: Repository, workspaces: WorkspaceFactory
) -> None:
    """Here the group `dev` may name a path that does not exist, and uv installs that group by default."""
    groups = '[dependency-groups]\ntest = ["a"]\ndev = ["b"]\n[tool.uv.sources]\nb = {path = "lost"}\n'
    singly = f"{INSTALL_SINGLY} --group test --group dev"
    repository.commit({"pyproject.toml": f'{PROJECT}dependencies = ["c"]\n{groups}'})
    async with workspaces.local(repository.path) as workspace:
        setup = await find_setup(workspace, RepoConfig())
    assert setup is not None
    assert [step.fallbacks for step in setup.steps] == [None, (singly, f"{INSTALL} -e .")]


@pytest.mark.parametrize(
    ("files", "fallbacks"),
    [
        ({"requirements.txt": ""}, [f"{INSTALL_SINGLY} -r requirements.txt"]),
        ({"setup.py": ""}, [f"{INSTALL} -e ."]),
        (
            {
                "requirements-dev.txt": "",
                "pyproject.toml": f'{PROJECT}[project.optional-dependencies]\ntest = ["a"]\ndocs = ["b"]\n',
            },
            [f"{INSTALL_SINGLY} -r requirements-dev.txt --extra test", f"{INSTALL} -e ."],
        ),
    ],
)
async def test_after_pip_failed_as_a_whole_what_can_be_installed_is_installed(
    files: dict[str, str | bytes], fallbacks: list[str], repository: Repository, workspaces: WorkspaceFactory
) -> None:
    repository.commit(files)
    async with workspaces.local(repository.path) as workspace:
        setup = await find_setup(workspace, RepoConfig())
    assert setup is not None
    assert [step.fallbacks for step in setup.steps] == [tuple(fallbacks)]


@pytest.mark.parametrize(
    ("tool", "files"),
    [
        ("tox", {"tox.ini": "[testenv]\n", "noxfile.py": ""}),
        ("tox", {"pyproject.toml": "[tool.tox.env_run_base]\n"}),
        ("nox", {"noxfile.py": "", "hatch.toml": ""}),
        ("hatch", {"pyproject.toml": "[tool.hatch.envs.default]\n"}),
    ],
)
async def test_the_tool_that_runs_the_tests_installs_its_environment_before_the_project(
    tool: str, files: dict[str, str | bytes], repository: Repository, workspaces: WorkspaceFactory
) -> None:
    commands = await commands_for({"setup.py": "", **files}, repository, workspaces)
    assert commands == [UV, run_in(tool), f"{INSTALL} {USUAL}"]


@pytest.mark.parametrize(
    ("files", "arguments"),
    [
        ({"setup.py": "", "tox.ini": "[flake8]\n"}, USUAL),
        ({"tox.ini": "[testenv]\n", "requirements-test.txt": ""}, "-r requirements-test.txt"),
        ({"noxfile.py": "", "pyproject.toml": '[dependency-groups]\ntest = ["a"]\n'}, "--group test"),
        (
            {
                "noxfile.py": "",
                "pyproject.toml": f'{PROJECT}[project.optional-dependencies]\ntesting = ["a"]\n',
            },
            "-e '.[testing]'",
        ),
    ],
)
async def test_what_the_tests_need_is_installed_once(
    files: dict[str, str | bytes], arguments: str, repository: Repository, workspaces: WorkspaceFactory
) -> None:
    """tox and nox do not install it a second time."""
    assert await commands_for(files, repository, workspaces) == [f"{INSTALL} {arguments}"]


def package(manager: str, **more: str) -> dict[str, str | bytes]:
    return {"package.json": f'{{"packageManager": "{manager}"}}', **more}


@pytest.mark.parametrize(
    ("files", "commands"),
    [
        ({"package.json": "{}", "package-lock.json": "{}"}, ["npm ci --no-audit --no-fund"]),
        ({"package.json": "{}"}, [NPM_INSTALL]),
        (
            package("pnpm@9.1.0+sha256.abc"),
            [
                'test "$(pnpm --version 2>/dev/null)" = 9.1.0 || npm install --global --no-fund pnpm@9.1.0',
                "pnpm install --no-frozen-lockfile",
            ],
        ),
        (
            package("yarn@4.5.0", **{"yarn.lock": ""}),
            [
                'test "$(yarn --version 2>/dev/null)" = 4.5.0 || '
                "npm install --global --no-fund @yarnpkg/cli-dist@4.5.0",
                "yarn install --immutable",
            ],
        ),
        (
            package("pnpm@1; reboot", **{"pnpm-lock.yaml": "lockfileVersion: '6.0'\n"}),
            [
                "command -v pnpm >/dev/null || npm install --global --no-fund pnpm@8",
                "pnpm install --frozen-lockfile",
            ],
        ),
        (
            {"web/package.json": JEST, "web/yarn.lock": ""},
            [
                "cd web && { command -v yarn >/dev/null || npm install --global --no-fund yarn@1; }",
                "cd web && yarn install --frozen-lockfile",
            ],
        ),
        (
            {"package.json": '{"workspaces": ["web"]}', "web/package.json": JEST},
            [NPM_INSTALL],
        ),
    ],
)
async def test_the_package_manager_that_package_json_names_installs(
    files: dict[str, str | bytes], commands: list[str], repository: Repository, workspaces: WorkspaceFactory
) -> None:
    assert await commands_for(files, repository, workspaces) == commands


@pytest.mark.parametrize(
    ("manager", "fallback"),
    [
        ("yarn@1.22.0", "yarn install --ignore-scripts"),
        ("yarn@4.5.0", "YARN_ENABLE_SCRIPTS=0 yarn install --no-immutable"),
        ("pnpm@9.1.0", "pnpm install --no-frozen-lockfile --ignore-scripts"),
    ],
)
async def test_without_a_compiler_packages_are_installed_without_their_scripts(
    manager: str, fallback: str, repository: Repository, workspaces: WorkspaceFactory
) -> None:
    repository.commit(package(manager))
    async with workspaces.local(repository.path) as workspace:
        setup = await find_setup(workspace, RepoConfig())
    assert setup is not None
    assert setup.steps[-1].fallbacks == (fallback,)


@pytest.mark.parametrize(
    ("files", "commands"),
    [
        ({"go.mod": ""}, ["go mod download"]),
        ({"Cargo.toml": "", "Cargo.lock": ""}, ["cargo fetch --locked"]),
        ({"pom.xml": ""}, ["mvn -B -q dependency:go-offline"]),
        ({"build.gradle": "", "gradlew": ""}, ["sh ./gradlew --no-daemon --quiet testClasses"]),
        ({"Gemfile": ""}, ["bundle install --quiet"]),
        (
            {
                "a/pyproject.toml": f'{PROJECT}dependencies = ["a"]\n',
                "a/tox.ini": "[pytest]\naddopts = --cov",
                "a/test_a.py": "",
            },
            [f"cd a && {INSTALL} -e ."],
        ),
        (
            {
                "pyproject.toml": '[tool.uv.workspace]\nmembers = ["a"]\n',
                "a/pyproject.toml": f'{PROJECT}dependencies = ["a"]\n',
                "a/test_a.py": "",
            },
            [UV, "uv sync --inexact --all-packages --all-extras"],
        ),
        (
            {"go.mod": "", "tools/go.mod": "", "tools/a_test.go": ""},
            ["go mod download", "cd tools && go mod download"],
        ),
        ({"requirements.txt": "", ".github/patchwright/setup.sh": ""}, ["bash .github/patchwright/setup.sh"]),
    ],
)
async def test_other_languages_and_nested_projects_are_installed_once(
    files: dict[str, str | bytes], commands: list[str], repository: Repository, workspaces: WorkspaceFactory
) -> None:
    assert await commands_for(files, repository, workspaces) == commands
