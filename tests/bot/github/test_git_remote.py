"""Clone and push over HTTP against the fake GitHub: access, concurrent pushes, and protection of the token."""

import asyncio
import os
import shutil
import stat
from pathlib import Path

import pytest

from patchwright.demo.github import FakeGitHub, Repository
from patchwright.resolver.domain import Credentials
from patchwright.resolver.errors import (
    Forbidden,
    NotFound,
    RemoteUnavailable,
    ResolverError,
    Unauthorized,
    WorkspaceError,
)
from patchwright.resolver.git.git_process import run_git
from patchwright.resolver.git.workspaces import WorkspaceFactory, push
from patchwright.runtime.execution.local_sandboxes import LocalSandboxes
from tests.resolver.git_repository import fast_host_environment, make_patch

AUTHOR = ("Ada", "ada@example.org")


@pytest.fixture
def workspaces(tmp_path: Path) -> WorkspaceFactory:
    return WorkspaceFactory(tmp_path / "cache")


@pytest.fixture
def sandboxes(tmp_path: Path) -> LocalSandboxes:
    return LocalSandboxes(tmp_path / "sandboxes", fast_host_environment())


@pytest.fixture
def repo(fake_github: FakeGitHub) -> Repository:
    permissions = {"maintainer": "write", "reader": "read"}
    return fake_github.create_repository(
        "acme/sample", {"a.py": "x = 1\n"}, private=True, permissions=permissions
    )


def repository_url(fake_github: FakeGitHub, name: str = "acme/sample") -> str:
    return f"{fake_github.server_url}/{name}.git"


def create_credentials(fake_github: FakeGitHub, login: str = "maintainer") -> Credentials:
    return Credentials(token=fake_github.create_token(login))


async def create_commit(git_dir: Path, base: str, name: str) -> str:
    """Creates a commit with the tree of `base` and its own message."""
    identity = {f"GIT_{role}_{key}": "a@b" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
    commit = await run_git(
        "commit-tree", f"{base}^{{tree}}", "-p", base, "-m", name, git_dir=git_dir, environment=identity
    )
    return commit.decode().strip()


async def test_a_clone_has_the_current_branch(fake_github, repo, workspaces: WorkspaceFactory) -> None:
    for content in ("x = 1\n", "x = 2\n"):  # the second clone uses the existing mirror
        head = repo.commit("main", {"a.py": content})
        async with workspaces.clone(
            repository_url(fake_github), "main", create_credentials(fake_github)
        ) as workspace:
            assert (workspace.base, workspace.base_branch) == (head, "main")
            assert await workspace.read("a.py") == content
    async with workspaces.clone(
        repository_url(fake_github), "HEAD", create_credentials(fake_github)
    ) as workspace:
        assert (workspace.base, workspace.base_branch) == (head, "main")


async def test_a_force_pushed_branch_and_its_lost_commit_can_be_cloned(fake_github, repo, workspaces) -> None:
    old = repo.commit("topic", {"a.py": "old\n"})
    async with workspaces.clone(
        repository_url(fake_github), "topic", create_credentials(fake_github)
    ) as workspace:
        other = await create_commit(workspace.git_dir, f"{old}~1", "other")
        await push(
            workspace.git_dir,
            repository_url(fake_github),
            other,
            "topic",
            create_credentials(fake_github),
            expected=old,
        )
    async with workspaces.clone(
        repository_url(fake_github), "topic", create_credentials(fake_github)
    ) as workspace:
        assert workspace.base == other
    async with workspaces.clone(
        repository_url(fake_github), old, create_credentials(fake_github)
    ) as workspace:
        assert (workspace.base, workspace.base_branch) == (old, None)
        assert await workspace.read("a.py") == "old\n"


async def test_many_runs_can_clone_the_same_repository_at_once(fake_github, repo, tmp_path) -> None:
    async def clone(number: int) -> str | None:
        factory = WorkspaceFactory(tmp_path / "cache")
        async with factory.clone(
            repository_url(fake_github), "main", create_credentials(fake_github)
        ) as workspace:
            return await workspace.read("a.py")

    assert await asyncio.gather(*map(clone, range(6))) == ["x = 1\n"] * 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "ref", "login", "error", "sentence"),
    [
        (
            "acme/none",
            "main",
            "maintainer",
            NotFound,
            "The repository {url} does not exist, or the token has no access to it.",
        ),
        ("acme/sample", "main", "stranger", NotFound, "The repository {url} does not exist, or"),
        ("acme/sample", "main", None, Unauthorized, "{url} requires a token, but no token is set."),
        ("acme/sample", "main", "!", Unauthorized, "{url} rejected the token, which is invalid or expired."),
        (
            "acme/empty",
            "main",
            "maintainer",
            WorkspaceError,
            "{url} is an empty repository: it has no commit yet.",
        ),
        ("acme/sample", "none", "maintainer", WorkspaceError, "{url} has no branch 'none'."),
        ("acme/sample", "e" * 40, "maintainer", WorkspaceError, "{url} has no 'eeee"),
        (
            "acme/sample",
            "refs/pull/99/head",
            "maintainer",
            WorkspaceError,
            "{url} has no 'refs/pull/99/head'",
        ),
        (
            "acme/sample",
            "--upload-pack=x",
            "maintainer",
            WorkspaceError,
            "{url} has no branch '--upload-pack=x'.",
        ),
    ],
)
async def test_a_failed_clone_says_why(
    fake_github, repo, workspaces, name, ref, login, error, sentence
) -> None:
    empty = fake_github.create_repository("acme/empty", {}, permissions={"maintainer": "write"})
    await run_git("update-ref", "-d", "refs/heads/main", git_dir=empty.bare.path)
    known = (
        None
        if login is None
        else Credentials(token="ghp_wrong")
        if login == "!"
        else create_credentials(fake_github, login)
    )
    with pytest.raises(ResolverError) as raised:
        async with workspaces.clone(repository_url(fake_github, name), ref, known):
            pass
    assert (type(raised.value) is error or error is WorkspaceError) and isinstance(raised.value, error), (
        raised.value
    )
    assert str(raised.value).startswith(sentence.format(url=repository_url(fake_github, name)))


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/a/b.git", "http://no-such-host.invalid/a/b.git"])
async def test_an_unreachable_server_is_reported_in_one_sentence(workspaces, url: str) -> None:
    with pytest.raises(RemoteUnavailable) as raised:
        async with workspaces.clone(url, "main", None):
            pass
    assert str(raised.value) == f"{url} cannot be reached. Check the network and the proxy."


async def test_a_server_error_is_an_outage(fake_github, repo, workspaces) -> None:
    fake_github.fail_next_request("GET", "/info/refs", status=503, times=4)
    with pytest.raises(RemoteUnavailable, match="503"):
        async with workspaces.clone(repository_url(fake_github), "main", create_credentials(fake_github)):
            pass


@pytest.mark.parametrize("url", ["ext::sh -c touch% /tmp/pw-ext", "file:///etc", "/etc", "ssh://x/y"])
async def test_only_http_is_used_for_a_forge(workspaces, url: str) -> None:
    with pytest.raises(WorkspaceError):
        async with workspaces.clone(url, "main", None):
            pass
    assert not Path("/tmp/pw-ext").exists()


# --- push ---------------------------------------------------------------------------------------------------


async def test_a_push_creates_a_branch_and_is_idempotent(fake_github, repo, workspaces, sandboxes) -> None:
    async with workspaces.clone(
        repository_url(fake_github), "main", create_credentials(fake_github)
    ) as workspace:
        patch = await make_patch(workspace, sandboxes, {"a.py": "x = 2\n"})
        commit = await workspace.commit(patch, "Fix", author=AUTHOR)
        for _ in range(2):  # as after a lost response
            await push(
                workspace.git_dir,
                repository_url(fake_github),
                commit,
                "fix",
                create_credentials(fake_github),
                expected=None,
            )
    assert repo.read("fix", "a.py") == "x = 2\n"
    assert repo.read("main", "a.py") == "x = 1\n"


async def test_a_branch_that_someone_else_moved_is_not_changed(fake_github, repo, workspaces) -> None:
    async with workspaces.clone(
        repository_url(fake_github), "main", create_credentials(fake_github)
    ) as workspace:
        commit = await create_commit(workspace.git_dir, workspace.base, "ours")
        repo.commit("fix", {"a.py": "theirs\n"})
        for expected in (None, workspace.base):
            with pytest.raises(
                Forbidden, match=r"Someone else moved the branch fix of http.*, so it was not changed\."
            ):
                await push(
                    workspace.git_dir,
                    repository_url(fake_github),
                    commit,
                    "fix",
                    create_credentials(fake_github),
                    expected,
                )
        assert repo.read("fix", "a.py") == "theirs\n"


async def test_an_unmoved_branch_is_updated(fake_github, repo, workspaces) -> None:
    async with workspaces.clone(
        repository_url(fake_github), "main", create_credentials(fake_github)
    ) as workspace:
        first = await create_commit(workspace.git_dir, workspace.base, "first")
        second = await create_commit(workspace.git_dir, workspace.base, "second")
        await push(
            workspace.git_dir,
            repository_url(fake_github),
            first,
            "fix",
            create_credentials(fake_github),
            expected=None,
        )
        await push(
            workspace.git_dir,
            repository_url(fake_github),
            second,
            "fix",
            create_credentials(fake_github),
            expected=first,
        )
        async with workspaces.clone(
            repository_url(fake_github), "fix", create_credentials(fake_github)
        ) as clone:
            assert clone.base == second


async def test_read_access_is_not_enough_to_push(fake_github, repo, workspaces) -> None:
    async with workspaces.clone(
        repository_url(fake_github), "main", create_credentials(fake_github, "reader")
    ) as workspace:
        commit = await create_commit(workspace.git_dir, workspace.base, "ours")
        with pytest.raises((Forbidden, NotFound, Unauthorized)):
            await push(
                workspace.git_dir,
                repository_url(fake_github),
                commit,
                "fix",
                create_credentials(fake_github, "reader"),
                expected=None,
            )
    assert repo.branches == ("main",)


# --- the token ----------------------------------------------------------------------------------------------


def find_token(token: str, *directories: Path) -> list[str]:
    """Returns the files in the directories that contain the token, raw or as git sends it."""
    import base64

    forms = [token.encode(), base64.b64encode(f"x-access-token:{token}".encode())]
    files = (file for directory in directories for file in directory.rglob("*") if file.is_file())
    return [str(file) for file in files if any(form in file.read_bytes() for form in forms)]


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that records the arguments of every git process."""
    log = tmp_path / "arguments/log"
    wrapper = log.parent / "bin/git"
    wrapper.parent.mkdir(parents=True)
    wrapper.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >>{log}\nexec {shutil.which("git")} "$@"\n')
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    return log


async def test_the_token_is_in_no_argument_and_in_no_file(
    fake_github, repo, workspaces, sandboxes, tmp_path, arguments, caplog
) -> None:
    token = fake_github.create_token("maintainer")
    async with workspaces.clone(repository_url(fake_github), "main", Credentials(token=token)) as workspace:
        patch = await make_patch(
            workspace, sandboxes, {"a.py": "x = 2\n"}, "env >e; cp -r .git g 2>/dev/null; true"
        )
        commit = await workspace.commit(patch, "Fix", author=AUTHOR)
        await push(
            workspace.git_dir,
            repository_url(fake_github),
            commit,
            "fix",
            Credentials(token=token),
            expected=None,
        )
        assert "ls-remote" in arguments.read_text() and "push" in arguments.read_text()
        assert token not in patch.diff.decode()
        assert find_token(token, tmp_path) == []
    assert find_token(token, tmp_path) == []
    assert token not in caplog.text and token not in repr(Credentials(token=token))


async def test_the_search_finds_a_token_in_a_url(fake_github, repo, tmp_path, arguments) -> None:
    token = fake_github.create_token("maintainer")
    url = repository_url(fake_github).replace("http://", f"http://x-access-token:{token}@")
    await run_git("clone", "--quiet", "--bare", url, str(tmp_path / "careless"), protocols="http")
    assert find_token(token, tmp_path) == [str(tmp_path / "arguments/log"), str(tmp_path / "careless/config")]


async def test_the_token_is_in_no_error(fake_github, repo, workspaces) -> None:
    with pytest.raises(ResolverError) as raised:
        async with workspaces.clone(
            repository_url(fake_github), "main", Credentials(token="ghp_wrong_canary")
        ):
            pass
    chain: BaseException | None = raised.value
    while chain is not None:
        assert "canary" not in f"{chain!r} {vars(chain)}"
        chain = chain.__cause__ or chain.__context__
