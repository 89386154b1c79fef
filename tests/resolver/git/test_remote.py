"""Clone and push over HTTP, against the stand-in: who is let in, what is overwritten, and where the token is."""

import asyncio
import os
import shutil
import stat
from pathlib import Path

import pytest

from demo.world import Repository, World
from resolver.domain import Credentials
from resolver.errors import Forbidden, NotFound, ResolverError, Unauthorized, WorkspaceError
from resolver.git.plumbing import run_git
from resolver.workspace import Workspaces, push
from tests.resolver.repositories import changed

AUTHOR = ("Ada", "ada@example.org")


@pytest.fixture
def repo(world: World) -> Repository:
    permissions = {"maintainer": "write", "reader": "read"}
    return world.repository("acme/sample", {"a.py": "x = 1\n"}, private=True, permissions=permissions)


def url_of(world: World, name: str = "acme/sample") -> str:
    return f"{world.server_url}/{name}.git"


def token_of(world: World, login: str = "maintainer") -> Credentials:
    return Credentials(token=world.token(login))


async def commit_on(git_dir: Path, base: str, name: str) -> str:
    """A commit with the tree of `base`, told apart by its message."""
    who = {f"GIT_{role}_{key}": "a@b" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
    made = await run_git(
        "commit-tree", f"{base}^{{tree}}", "-p", base, "-m", name, git_dir=git_dir, environment=who
    )
    return made.decode().strip()


async def test_a_clone_is_the_branch_as_it_is_now(world, repo, workspaces: Workspaces) -> None:
    for content in ("x = 1\n", "x = 2\n"):  # the second time through the mirror that is there
        head = repo.commit("main", {"a.py": content})
        async with workspaces.clone(url_of(world), "main", token_of(world)) as workspace:
            assert (workspace.base, workspace.base_branch) == (head, "main")
            assert await workspace.read("a.py") == content
    async with workspaces.clone(url_of(world), "HEAD", token_of(world)) as workspace:
        assert (workspace.base, workspace.base_branch) == (head, "main")


async def test_a_branch_that_was_force_pushed_and_the_commit_that_it_lost(world, repo, workspaces) -> None:
    old = repo.commit("topic", {"a.py": "old\n"})
    async with workspaces.clone(url_of(world), "topic", token_of(world)) as workspace:
        other = await commit_on(workspace.git_dir, f"{old}~1", "other")
        await push(workspace.git_dir, url_of(world), other, "topic", token_of(world), expected=old)
    async with workspaces.clone(url_of(world), "topic", token_of(world)) as workspace:
        assert workspace.base == other
    async with workspaces.clone(url_of(world), old, token_of(world)) as workspace:
        assert (workspace.base, workspace.base_branch) == (old, None)
        assert await workspace.read("a.py") == "old\n"


async def test_many_runs_clone_the_same_repository_at_once(world, repo, tmp_path) -> None:
    async def clone(number: int) -> str | None:
        own = Workspaces(tmp_path / "cache")
        async with own.clone(url_of(world), "main", token_of(world)) as workspace:
            return await workspace.read("a.py")

    assert await asyncio.gather(*map(clone, range(6))) == ["x = 1\n"] * 6


@pytest.mark.parametrize(
    ("name", "ref", "login", "error", "sentence"),
    [
        (
            "acme/none",
            "main",
            "maintainer",
            NotFound,
            "There is no repository {url}, or none that our token may see.",
        ),
        ("acme/sample", "main", "stranger", NotFound, "There is no repository {url}, or none"),
        ("acme/sample", "main", None, Unauthorized, "{url} asks for a token: none is set."),
        ("acme/sample", "main", "!", Unauthorized, "{url} does not know our token, or it has expired."),
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
async def test_what_cannot_be_cloned_says_why(
    world, repo, workspaces, name, ref, login, error, sentence
) -> None:
    empty = world.repository("acme/empty", {}, permissions={"maintainer": "write"})
    await run_git("update-ref", "-d", "refs/heads/main", git_dir=empty.bare.path)
    known = (
        None if login is None else Credentials(token="ghp_wrong") if login == "!" else token_of(world, login)
    )
    with pytest.raises(ResolverError) as caught:
        async with workspaces.clone(url_of(world, name), ref, known):
            pass
    assert (type(caught.value) is error or error is WorkspaceError) and isinstance(caught.value, error), (
        caught.value
    )
    assert str(caught.value).startswith(sentence.format(url=url_of(world, name)))


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/a/b.git", "http://no-such-host.invalid/a/b.git"])
async def test_a_server_that_cannot_be_reached_is_one_sentence(workspaces, url: str) -> None:
    with pytest.raises(WorkspaceError) as caught:
        async with workspaces.clone(url, "main", None):
            pass
    assert str(caught.value) == f"{url} cannot be reached from here: check the network and its proxy."


@pytest.mark.parametrize("url", ["ext::sh -c touch% /tmp/pw-ext", "file:///etc", "/etc", "ssh://x/y"])
async def test_only_http_is_spoken_to_a_forge(workspaces, url: str) -> None:
    with pytest.raises(WorkspaceError):
        async with workspaces.clone(url, "main", None):
            pass
    assert not Path("/tmp/pw-ext").exists()


# --- push ---------------------------------------------------------------------------------------------------


async def test_a_push_makes_a_branch_and_is_nothing_the_second_time(
    world, repo, workspaces, sandboxes
) -> None:
    async with workspaces.clone(url_of(world), "main", token_of(world)) as workspace:
        patch = await changed(workspace, sandboxes, {"a.py": "x = 2\n"})
        commit = await workspace.commit(patch, "Fix", author=AUTHOR)
        for _ in range(2):  # as after an answer that was lost
            await push(workspace.git_dir, url_of(world), commit, "fix", token_of(world), expected=None)
    assert repo.read("fix", "a.py") == "x = 2\n"
    assert repo.read("main", "a.py") == "x = 1\n"


async def test_a_branch_that_somebody_else_moved_is_left_alone(world, repo, workspaces) -> None:
    async with workspaces.clone(url_of(world), "main", token_of(world)) as workspace:
        ours = await commit_on(workspace.git_dir, workspace.base, "ours")
        repo.commit("fix", {"a.py": "theirs\n"})
        for expected in (None, workspace.base):
            with pytest.raises(
                Forbidden, match=r"fix of http.* was moved by somebody else; it is left alone\."
            ):
                await push(workspace.git_dir, url_of(world), ours, "fix", token_of(world), expected)
        assert repo.read("fix", "a.py") == "theirs\n"


async def test_a_branch_that_is_where_we_left_it_goes_on(world, repo, workspaces) -> None:
    async with workspaces.clone(url_of(world), "main", token_of(world)) as workspace:
        first = await commit_on(workspace.git_dir, workspace.base, "first")
        second = await commit_on(workspace.git_dir, workspace.base, "second")
        await push(workspace.git_dir, url_of(world), first, "fix", token_of(world), expected=None)
        await push(workspace.git_dir, url_of(world), second, "fix", token_of(world), expected=first)
        async with workspaces.clone(url_of(world), "fix", token_of(world)) as seen:
            assert seen.base == second


async def test_who_may_only_read_does_not_push(world, repo, workspaces) -> None:
    async with workspaces.clone(url_of(world), "main", token_of(world, "reader")) as workspace:
        commit = await commit_on(workspace.git_dir, workspace.base, "ours")
        with pytest.raises((Forbidden, NotFound, Unauthorized)):
            await push(
                workspace.git_dir, url_of(world), commit, "fix", token_of(world, "reader"), expected=None
            )
    assert repo.branches == ("main",)


# --- the token ----------------------------------------------------------------------------------------------


def hunt(token: str, *places: Path) -> list[str]:
    """Files below the places that hold the token, raw or as git sends it."""
    import base64

    forms = [token.encode(), base64.b64encode(f"x-access-token:{token}".encode())]
    files = (file for place in places for file in place.rglob("*") if file.is_file())
    return [str(file) for file in files if any(form in file.read_bytes() for form in forms)]


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that gets the arguments of every git that starts from now on."""
    log = tmp_path / "arguments/log"
    wrapper = log.parent / "bin/git"
    wrapper.parent.mkdir(parents=True)
    wrapper.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >>{log}\nexec {shutil.which("git")} "$@"\n')
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    return log


async def test_the_token_is_in_no_argument_and_in_no_file(
    world, repo, workspaces, sandboxes, tmp_path, arguments, caplog
) -> None:
    token = world.token("maintainer")
    async with workspaces.clone(url_of(world), "main", Credentials(token=token)) as workspace:
        patch = await changed(
            workspace, sandboxes, {"a.py": "x = 2\n"}, "env >e; cp -r .git g 2>/dev/null; true"
        )
        commit = await workspace.commit(patch, "Fix", author=AUTHOR)
        await push(workspace.git_dir, url_of(world), commit, "fix", Credentials(token=token), expected=None)
        assert "ls-remote" in arguments.read_text() and "push" in arguments.read_text()
        assert token not in patch.diff.decode()
        assert hunt(token, tmp_path) == []
    assert hunt(token, tmp_path) == []
    assert token not in caplog.text and token not in repr(Credentials(token=token))


async def test_a_token_in_a_url_would_be_found_by_that_hunt(world, repo, tmp_path, arguments) -> None:
    token = world.token("maintainer")
    url = url_of(world).replace("http://", f"http://x-access-token:{token}@")
    await run_git("clone", "--quiet", "--bare", url, str(tmp_path / "careless"), protocols="http")
    assert hunt(token, tmp_path) == [str(tmp_path / "arguments/log"), str(tmp_path / "careless/config")]


async def test_the_token_is_in_no_error(world, repo, workspaces) -> None:
    with pytest.raises(ResolverError) as caught:
        async with workspaces.clone(url_of(world), "main", Credentials(token="ghp_wrong_canary")):
            pass
    chain: BaseException | None = caught.value
    while chain is not None:
        assert "canary" not in f"{chain!r} {vars(chain)}"
        chain = chain.__cause__ or chain.__context__
