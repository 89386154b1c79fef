"""New files in a work tree that are no part of a patch."""

from patchwright.resolver.git.workspaces import WorkspaceFactory
from patchwright.runtime.sandbox import Sandboxes
from tests.resolver.git_repository import Repository, make_patch, shell


async def test_tool_leftovers_and_nested_repositories_are_not_in_the_patch(
    workspaces: WorkspaceFactory, sandboxes: Sandboxes, repository: Repository
) -> None:
    repository.commit({"a.py": "x = 1\n", ".gitignore": "*.log\n"})
    command = """
        mkdir -p pkg/__pycache__ .pytest_cache '[odd] dir' && touch pkg/__pycache__/a.pyc .pytest_cache/x b.log kept
        git init -q empty; git init -q '[odd] dir/full'; cd '[odd] dir/full'; touch inner; git add inner
        git -c user.name=a -c user.email=b commit -qm inner
    """
    async with workspaces.local(repository.path) as workspace:
        patch = await make_patch(workspace, sandboxes, {}, command)
        assert [change.path for change in await workspace.list_changes(patch)] == ["kept"]


async def test_files_that_test_runs_leave_behind_are_not_in_the_patch(
    workspaces: WorkspaceFactory, sandboxes: Sandboxes, repository: Repository
) -> None:
    """Product code in a directory of the same name is in the patch."""
    repository.commit({"a.py": "x = 1\n", "web/coverage/tracked.js": "1\n"})
    leftovers = (
        ".coverage.host.1 htmlcov/index.html .nyc_output/1.json web/.nyc_output/2.json coverage/lcov.info "
        "web/coverage/lcov-report/a.html web/coverage/coverage-final.json build/lib/a.py target/debug/a "
        "target/surefire-reports/a.xml .pnp.cjs .yarn/unplugged/a/package.json .eslintcache "
        "fast.cpython-311-x86_64-linux-gnu.so coverage/index.js.html web/coverage/prettify.js"
    )
    product = "coverage/report.js web/coverage/new.js build/rules.py target/main.py .coveragerc"
    command = f"""
        for f in {leftovers} {product}; do mkdir -p $(dirname $f); echo x >$f; done; echo 2 >web/coverage/tracked.js
    """
    async with workspaces.local(repository.path) as workspace:
        patch = await make_patch(workspace, sandboxes, {}, command)
        changed = [change.path for change in await workspace.list_changes(patch)]
    assert changed == sorted([*product.split(), "web/coverage/tracked.js"])


async def test_files_that_the_owner_of_a_local_repository_excludes_are_not_in_the_patch(
    workspaces: WorkspaceFactory, sandboxes: Sandboxes, repository: Repository
) -> None:
    repository.commit({"a.py": "x = 1\n"})
    command = "mkdir notes; touch notes/mine b.keep; git status --short"
    async with workspaces.local(repository.path) as workspace, sandboxes.open("control") as sandbox:
        await workspace.send_to(sandbox)
        assert await shell(sandbox, command) == "?? b.keep\n?? notes/\n"
    (repository.path / ".git/info").mkdir(exist_ok=True)
    (repository.path / ".git/info/exclude").write_text("notes/\n*.keep\n!b.keep\n")
    async with workspaces.local(repository.path) as workspace, sandboxes.open("x") as sandbox:
        await workspace.send_to(sandbox)
        assert await shell(sandbox, command) == "?? b.keep\n"
        patch = await workspace.take_patch(sandbox)
        assert [change.path for change in await workspace.list_changes(patch)] == ["b.keep"]


async def test_excluded_files_are_not_in_git_status_either(
    workspaces: WorkspaceFactory, sandboxes: Sandboxes, repository: Repository
) -> None:
    repository.commit({"a.py": "x = 1\n"})
    async with workspaces.local(repository.path) as workspace, sandboxes.open("x") as sandbox:
        await workspace.send_to(sandbox)
        status = "mkdir __pycache__ new; touch __pycache__/a.pyc .coverage new/b.py; git status --short"
        assert await shell(sandbox, status) == "?? new/\n"
