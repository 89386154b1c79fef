"""The contract of `Forge.publish`: the verified tree is published once, in the right place, despite any failure."""

from collections.abc import Callable

import pytest
from pydantic import SecretStr

from patchwright.bot.github.auth import AppAuth
from patchwright.bot.github.forge import GitHubForge
from patchwright.bot.github.local_commit import MAX_FILES
from patchwright.demo.github import FakeGitHub, Repository
from patchwright.demo.github.bare_repository import BareRepository
from patchwright.demo.github.state import APP_PERMISSIONS
from patchwright.resolver.errors import BranchMoved, Forbidden, Unauthorized, WorkspaceError
from patchwright.resolver.forge import PublishedCommit
from tests.contracts.forges import BRANCH, FIXED, QUICK, SAMPLE, change, file, published

SIGNED = "GitHub <noreply@github.com>"
LOST = ["lose_next_request", "lose_next_response"]

# With a token the same happens: test_forge.py has it publish too.
pytestmark = pytest.mark.parametrize("another", ["app"], indirect=True)


def plain(clone: BareRepository) -> tuple[str, str]:
    return change(clone, file("calc.py", FIXED.encode()))


def tied(bare: BareRepository, tree: str, *parents: str) -> str:
    """A commit of this tree with these parents (`-p`, id), on no branch."""
    us = ("-c", "user.name=Us", "-c", "user.email=us@forge.invalid")
    return bare.git(*us, "commit-tree", tree, *parents, "-m", "Tied").decode().strip()


async def publish(forge: GitHubForge, clone: BareRepository, commit: str, parent: str) -> PublishedCommit:
    return await forge.push_commit(SAMPLE, clone.path, commit, BRANCH, parent)


def git_show(repo: Repository, form: str, commit: str) -> str:
    return repo.bare.git("show", "-s", f"--format={form}", commit).decode().strip()


def tree(bare: BareRepository, commit: str) -> str:
    return bare.git("rev-parse", f"{commit}^{{tree}}").decode().strip()


def count(repo: Repository) -> int:
    """Commits on BRANCH that main has not."""
    return repo.bare.count_commits("main", BRANCH)


# --- signed by GitHub ---------------------------------------------------------------------------------------


async def test_a_simple_change_is_one_verified_commit_of_the_verified_tree(
    fake_github: FakeGitHub, repo: Repository, forge: GitHubForge, clone: BareRepository
) -> None:
    commit, parent = plain(clone)
    made = await publish(forge, clone, commit, parent)
    assert made == PublishedCommit(sha=repo.bare.branch_sha(BRANCH) or "", is_verified=True, note="")
    assert tree(repo.bare, made.sha) == tree(clone, commit)
    assert git_show(repo, "%P", made.sha) == parent
    assert git_show(repo, "%B", made.sha) == shown_here(clone, commit)
    assert git_show(repo, "%cn <%ce>", made.sha) == SIGNED
    assert git_show(repo, "%an", made.sha) == "patchwright-app[bot]"
    assert git_show(repo, "%(trailers:key=Co-authored-by,valueonly)", made.sha) == "a <1+a@b>"
    assert not [write for write in fake_github.writes if write.path.endswith("git-receive-pack")]


def shown_here(clone: BareRepository, commit: str) -> str:
    return clone.git("show", "-s", "--format=%B", commit).decode().strip()


async def test_bytes_names_and_renames_are_published_unchanged(
    repo: Repository, forge: GitHubForge, clone: BareRepository
) -> None:
    repo.commit("main", {"old/läse mich.txt": "größer\n".encode("latin-1"), "gone.txt": "x\n"})
    clone.git("fetch", "--quiet", "origin", "+refs/heads/main:refs/heads/fix")
    commit, parent = change(
        clone,
        b'R "old/l\\303\\244se mich.txt" "new/l\\303\\244se mich.txt"',
        b"D gone.txt",
        file("logo.bin", bytes(range(256))),
        file("dos.txt", b"a\r\nb\r\n"),
        file("no-end.txt", b"no newline"),
        file("empty.txt", b""),
        file('"with \\"quotes\\" and \\ttab.txt"', b"odd\n"),
    )
    made = await publish(forge, clone, commit, parent)
    assert made.is_verified
    assert tree(repo.bare, made.sha) == tree(clone, commit)


async def test_a_second_commit_is_a_child_of_the_first(
    repo: Repository, forge: GitHubForge, clone: BareRepository
) -> None:
    first = await published(forge, clone, {"calc.py": FIXED})
    second = await published(forge, clone, {"more.py": "1\n"})
    assert git_show(repo, "%P", second) == first
    assert count(repo) == 2


# --- once ---------------------------------------------------------------------------------------------------


async def test_publishing_again_changes_nothing(
    fake_github: FakeGitHub,
    repo: Repository,
    forge: GitHubForge,
    clone: BareRepository,
    another: Callable[[], GitHubForge],
) -> None:
    commit, parent = plain(clone)
    made = await publish(forge, clone, commit, parent)
    writes = fake_github.writes
    async with another() as other:
        assert await publish(other, clone, commit, parent) == made
    assert fake_github.writes == writes


@pytest.mark.parametrize("lose", LOST)
@pytest.mark.parametrize("path", ["/git/refs", "/graphql"])
async def test_a_lost_response_makes_no_second_commit(
    fake_github: FakeGitHub, repo: Repository, forge: GitHubForge, clone: BareRepository, lose: str, path: str
) -> None:
    commit, parent = plain(clone)
    getattr(fake_github, lose)("POST", path)
    made = await publish(forge, clone, commit, parent)
    assert (made.sha, made.is_verified, count(repo)) == (repo.bare.branch_sha(BRANCH), True, 1)


@pytest.mark.parametrize("lose", LOST)
async def test_a_push_with_a_lost_response_happens_once(
    fake_github: FakeGitHub, repo: Repository, forge: GitHubForge, clone: BareRepository, lose: str
) -> None:
    commit, parent = change(clone, file("run.sh", b"#!/bin/sh\n", mode="100755"))
    getattr(fake_github, lose)("POST", "/git-receive-pack")
    try:
        made = await publish(forge, clone, commit, parent)
    except WorkspaceError:  # the queue tries again
        made = await publish(forge, clone, commit, parent)
    assert (made.sha, count(repo)) == (commit, 1)


@pytest.mark.parametrize("path", ["/git/refs", "/graphql"])
async def test_a_process_killed_between_two_writes_is_continued_by_the_next(
    fake_github: FakeGitHub,
    repo: Repository,
    clone: BareRepository,
    another: Callable[[], GitHubForge],
    path: str,
) -> None:
    commit, parent = plain(clone)
    async with another() as dying:
        # As good as a kill: nothing is tried after it.
        fake_github.fail_next_request("POST", path, status=401, times=2)
        with pytest.raises(Unauthorized):
            await publish(dying, clone, commit, parent)
    async with another() as following:
        made = await publish(following, clone, commit, parent)
    assert (made.is_verified, count(repo), repo.branches) == (True, 1, ("main", BRANCH))


async def test_publishing_waits_for_githubs_delayed_reads(
    fake_github: FakeGitHub, repo: Repository, forge: GitHubForge, clone: BareRepository
) -> None:
    commit, parent = plain(clone)
    unseen = {"type": "STALE_DATA", "message": f'Expected branch to point to "{parent}" but it did not.'}
    fake_github.fail_next_request(
        "POST", "/graphql", status=200, body={"data": None, "errors": [unseen]}, times=2
    )
    tips: list[str] = []

    def rewind() -> None:
        tips.append(repo.bare.branch_sha(BRANCH) or "")
        repo.bare.git("update-ref", f"refs/heads/{BRANCH}", parent)

    def forward() -> None:
        repo.bare.git("update-ref", f"refs/heads/{BRANCH}", *tips)

    # Three looks before the commit is made; the fourth shows the branch as it was.
    for act in (lambda: None, lambda: None, lambda: None, rewind, forward):
        fake_github.before_next_request("GET", f"/git/ref/heads/{BRANCH}", act)
    made = await publish(forge, clone, commit, parent)
    assert (made.sha, made.is_verified, count(repo)) == (tips[0], True, 1)


# --- foreign branches ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["100644", "100755"])
async def test_a_branch_that_someone_else_moved_is_not_changed(
    fake_github: FakeGitHub, repo: Repository, forge: GitHubForge, clone: BareRepository, mode: str
) -> None:
    theirs = repo.commit(BRANCH, {"theirs.py": "1\n"})
    commit, parent = change(clone, file("run.sh", b"#!/bin/sh\n", mode))
    with pytest.raises(BranchMoved, match=BRANCH):
        await publish(forge, clone, commit, parent)
    assert (repo.bare.branch_sha(BRANCH), fake_github.writes) == (theirs, ())


async def test_a_branch_that_moves_just_before_the_commit_is_not_changed(
    fake_github: FakeGitHub, repo: Repository, forge: GitHubForge, clone: BareRepository
) -> None:
    commit, parent = plain(clone)
    fake_github.before_next_request("POST", "/graphql", lambda: repo.commit(BRANCH, {"theirs.py": "1\n"}))
    with pytest.raises(BranchMoved):
        await publish(forge, clone, commit, parent)
    assert repo.read(BRANCH, "theirs.py") == "1\n"
    assert count(repo) == 1


# --- pushed with git ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stream", "why"),
    [
        ([file("run.sh", b"#!/bin/sh\n", "100755")], "writes regular files only (`run.sh`"),
        ([file("link", b"calc.py", "120000")], "writes regular files only (`link`"),
        ([b"M 160000 " + b"1" * 40 + b" sub"], "writes regular files only (`sub`"),
        ([file('"gr\\366\\337e.txt"', b"x\n")], r"accepts only file names in UTF-8 (`gr\xf6\xdfe.txt`)"),
        ([file(f"f{n}.txt", b"x\n") for n in range(MAX_FILES + 1)], "fails on this many files (101)"),
        ([file("big.bin", bytes(21_000_000))], "does not accept 21 MB"),
    ],
    ids=["executable", "symlink", "submodule", "name", "files", "size"],
)
async def test_a_change_that_the_api_cannot_commit_is_pushed_and_reported(
    repo: Repository, forge: GitHubForge, clone: BareRepository, stream: list[bytes], why: str
) -> None:
    commit, parent = change(clone, *stream)
    made = await publish(forge, clone, commit, parent)
    assert (made.sha, made.is_verified, repo.bare.branch_sha(BRANCH)) == (commit, False, commit)
    assert made.note.startswith("This commit was pushed with git and is not signed by GitHub")
    assert why in made.note.replace("\u200b", "")


async def test_a_script_that_exists_keeps_its_mode(
    repo: Repository, forge: GitHubForge, clone: BareRepository
) -> None:
    clone.git("update-ref", "refs/heads/main", change(clone, file("run.sh", b"a\n", "100755"))[0])
    clone.git("push", "--quiet", "origin", "main:main")
    commit, parent = change(clone, file("run.sh", b"b\n", "100755"))
    made = await publish(forge, clone, commit, parent)
    assert repo.bare.git("ls-tree", made.sha, "run.sh").startswith(b"100755")
    assert not made.is_verified


async def test_a_merge_is_pushed_with_both_parents(
    repo: Repository, forge: GitHubForge, clone: BareRepository
) -> None:
    other = clone.commit("other", {"other.py": "1\n"}, "Other")
    commit, parent = plain(clone)
    merge = tied(clone, f"{commit}^{{tree}}", "-p", parent, "-p", other)
    made = await publish(forge, clone, merge, parent)
    assert git_show(repo, "%P", made.sha) == f"{parent} {other}"
    assert "does not create merge commits" in made.note


async def test_if_the_api_keeps_failing_the_commit_is_pushed(
    fake_github: FakeGitHub, repo: Repository, forge: GitHubForge, clone: BareRepository
) -> None:
    commit, parent = plain(clone)
    fake_github.fail_next_request("POST", "/graphql", status=502, times=4)
    made = await publish(forge, clone, commit, parent)
    assert (made.sha, made.is_verified, repo.bare.branch_sha(BRANCH)) == (commit, False, commit)
    assert "rejected the commit: `POST" in made.note.replace("\u200b", "")


async def test_a_parent_missing_on_github_is_pushed_too(
    repo: Repository, forge: GitHubForge, clone: BareRepository
) -> None:
    clone.commit("fix", {"local.py": "1\n"}, "Only here")
    commit, parent = plain(clone)
    made = await publish(forge, clone, commit, parent)
    assert (made.sha, git_show(repo, "%P", made.sha)) == (commit, parent)


# --- read back ----------------------------------------------------------------------------------------------


async def test_the_published_tree_is_compared_with_the_verified_one(
    repo: Repository, forge: GitHubForge, clone: BareRepository
) -> None:
    repo.injected_path = "planted.txt"
    commit, parent = plain(clone)
    made = await publish(forge, clone, commit, parent)
    assert (made.sha, repo.bare.branch_sha(BRANCH), count(repo)) == (commit, commit, 1)
    assert repo.bare.read(BRANCH, "planted.txt") is None
    assert "created a commit that differs from the tested change" in made.note


async def test_a_token_revoked_during_publishing_is_renewed_once(
    fake_github: FakeGitHub, repo: Repository, forge: GitHubForge, clone: BareRepository
) -> None:
    await forge.get_credentials(SAMPLE)
    fake_github.expire_tokens()
    assert (await publish(forge, clone, *plain(clone))).is_verified
    clone.git("fetch", "--quiet", "origin", f"+refs/heads/{BRANCH}:refs/heads/fix")
    fake_github.before_next_request("GET", "/info/refs", fake_github.expire_tokens)
    commit, parent = change(clone, file("run.sh", b"#!/bin/sh\n", "100755"))
    made = await publish(forge, clone, commit, parent)
    assert (made.sha, repo.bare.branch_sha(BRANCH)) == (commit, commit)


# --- refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["100644", "100755"])
async def test_a_protected_branch_rejects_the_commit_and_nothing_is_left(
    repo: Repository, forge: GitHubForge, clone: BareRepository, mode: str
) -> None:
    repo.protect("patchwright/*", "Only people push here.")
    commit, parent = change(clone, file("run.sh", b"#!/bin/sh\n", mode))
    with pytest.raises(Forbidden, match="rejected the push"):
        await publish(forge, clone, commit, parent)
    assert repo.branches == ("main",)


async def test_without_the_permission_no_workflow_changes_and_no_branch_remains(
    repo: Repository, forge: GitHubForge, clone: BareRepository
) -> None:
    commit, parent = change(clone, file(".github/workflows/ci.yml", b"on: push\n"))
    with pytest.raises(Forbidden, match="workflow"):
        await publish(forge, clone, commit, parent)
    assert repo.branches == ("main",)


@pytest.mark.usefixtures("another")
async def test_with_permission_and_setting_a_workflow_is_changed(
    fake_github: FakeGitHub, repo: Repository, clone: BareRepository
) -> None:
    app = fake_github.create_app("with-workflows", {**APP_PERMISSIONS, "workflows": "write"})
    fake_github.install_app(app, repo)
    commit, parent = change(clone, file(".github/workflows/ci.yml", b"on: push\n"))
    urls = fake_github.urls
    for workflows in (False, True):
        access = AppAuth(str(app.id), SecretStr(app.private_key_pem), workflows)
        async with GitHubForge(access, urls, policy=QUICK) as forge:
            if workflows:
                assert (await publish(forge, clone, commit, parent)).is_verified
                continue
            with pytest.raises(Forbidden, match="workflow"):
                await publish(forge, clone, commit, parent)


# --- changes during a run --------------------------------------------------------------------------------------


async def test_a_rewritten_base_is_detected_and_new_commits_are_accepted(
    fake_github: FakeGitHub, repo: Repository, forge: GitHubForge
) -> None:
    issue = fake_github.create_issue(repo, title="T", body="B", by="stranger")
    base = repo.bare.branch_sha("main")
    assert base is not None

    async def has_base(branch: str = "main") -> bool:
        return (await forge.get_thread_state(SAMPLE, issue.number, branch, base)).has_base

    assert await has_base()
    repo.commit("main", {"more.py": "1\n"})
    assert await has_base()
    assert not await has_base("gone/branch")
    repo.bare.git("update-ref", "refs/heads/main", tied(repo.bare, "main^{tree}"))
    assert not await has_base()


async def test_a_closed_thread_is_detected(
    fake_github: FakeGitHub, repo: Repository, forge: GitHubForge
) -> None:
    issue = fake_github.create_issue(repo, title="T", body="B", by="stranger")
    base = repo.bare.branch_sha("main") or ""
    assert (await forge.get_thread_state(SAMPLE, issue.number, "main", base)).is_open
    fake_github.close_silently(issue)
    assert not (await forge.get_thread_state(SAMPLE, issue.number, "main", base)).is_open


async def test_the_author_is_the_account_that_writes(
    fake_github: FakeGitHub, repo: Repository, forge: GitHubForge
) -> None:
    us = await forge.get_bot_user(SAMPLE)
    bot = fake_github.user("patchwright-app[bot]")
    assert us is not None and (us.id, us.login) == (bot.id, bot.login)
