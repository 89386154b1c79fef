"""The contract of `Forge`: on the fake server, with a token, as an App, and behind `DryRunForge`."""

from collections.abc import Callable

import httpx
import pytest

from patchwright.bot.github.forge import GitHubForge
from patchwright.demo.github import FakeGitHub, GitHubApp, Repository
from patchwright.demo.github.bare_repository import BareRepository
from patchwright.resolver.domain import (
    Comment,
    Credentials,
    Issue,
    Job,
    JobId,
    PullRequest,
    Repo,
    User,
)
from patchwright.resolver.errors import Forbidden, ForgeError, NotFound
from patchwright.resolver.forge import MAX_BODY, DryRunForge, Forge, RepoFacts
from patchwright.resolver.forge_writes import PullRequestSpec
from tests.contracts.forges import FIXED, SAMPLE, published

TAG = "label:1-->2"
"""With what would end an HTML comment."""


def us(forge: Forge) -> str:
    """Under which login this forge's writes are seen."""
    assert isinstance(forge, GitHubForge)
    return "patchwright-app[bot]" if forge.is_app else "patchwright"


def user(fake_github: FakeGitHub, login: str) -> User:
    return User(id=fake_github.user(login).id, login=login)


def job(number: int) -> Job:
    return Job(id=JobId("job"), repo=SAMPLE, number=number, requester=None)


def proposal(
    commit: str, *, title: str = "Add instead of subtract", draft: bool = False, body: str = "Why."
) -> PullRequestSpec:
    return PullRequestSpec(
        repo=SAMPLE, number=1, base_branch="main", branch="patchwright/issue-1", head_sha=commit,
        title=title, body=body, draft=draft,
    )  # fmt: skip


# --- reading ------------------------------------------------------------------------------------------------


async def test_repository_facts_are_read(fake_github: FakeGitHub, forge: Forge) -> None:
    assert await forge.get_repo_facts(SAMPLE) == RepoFacts(
        default_branch="main",
        clone_url=f"{fake_github.server_url}/acme/sample.git",
        private=False,
        empty=False,
    )


async def test_an_empty_repository_is_detected(fake_github: FakeGitHub, forge: Forge, app: GitHubApp) -> None:
    fake_github.install_app(app, fake_github.create_repository("acme/empty"))
    assert (await forge.get_repo_facts(Repo(owner="acme", name="empty"))).empty


async def test_a_missing_repository_is_not_found(forge: Forge) -> None:
    with pytest.raises((NotFound, Forbidden)):
        await forge.get_repo_facts(Repo(owner="acme", name="nonsense"))


async def test_a_thread_is_the_issue_with_comments_and_trusted_authors(
    fake_github: FakeGitHub, repo: Repository, forge: Forge
) -> None:
    issue = fake_github.create_issue(repo, title="Sum is wrong", body=None, by="stranger")
    for number in range(101):
        fake_github.add_comment_silently(issue, f"me too, {number}", by="triager")
    fake_github.add_comment_silently(issue, "Please fix it.", by="maintainer")
    await forge.upsert_comment(SAMPLE, issue.number, TAG, "I am working on this.")

    stranger, triager, maintainer = (
        user(fake_github, login) for login in ("stranger", "triager", "maintainer")
    )
    assert await forge.get_thread(job(issue.number)) == Issue(
        number=issue.number,
        title="Sum is wrong",
        body="",
        author=stranger,
        trusted=False,
        open=True,
        url=f"{fake_github.server_url}/acme/sample/issues/{issue.number}",
        comments=(
            *(Comment(author=triager, body=f"me too, {number}", trusted=False) for number in range(101)),
            Comment(author=maintainer, body="Please fix it.", trusted=True),
        ),
        labels=(),
        reported_runs=(TAG,),
    )


async def test_a_pull_request_is_a_thread_too(
    fake_github: FakeGitHub, repo: Repository, forge: Forge, clone: BareRepository
) -> None:
    commit = await published(forge, clone, {"calc.py": FIXED})
    made = await forge.open_pull_request(proposal(commit, draft=True))
    fake_github.add_comment_silently(repo.pulls[0], "Looks good.", by="boss")
    thread = await forge.get_thread(job(made.number))
    assert isinstance(thread, PullRequest)
    assert (
        thread.head_branch,
        thread.head_sha,
        thread.base_branch,
        thread.draft,
        thread.is_same_repository,
    ) == (
        "patchwright/issue-1",
        commit,
        "main",
        True,
        True,
    )
    assert thread.comments == (Comment(author=user(fake_github, "boss"), body="Looks good.", trusted=True),)


@pytest.mark.parametrize(
    ("login", "role"),
    [("boss", "maintain"), ("maintainer", "write"), ("triager", "triage"), ("stranger", "read")],
)
async def test_a_permission_is_the_role(fake_github: FakeGitHub, forge: Forge, login: str, role: str) -> None:
    assert await forge.get_permission(SAMPLE, user(fake_github, login)) == role


async def test_a_permission_belongs_to_the_id_and_not_to_the_login(
    fake_github: FakeGitHub, forge: Forge
) -> None:
    maintainer = user(fake_github, "maintainer")
    fake_github.rename_user("maintainer", "renamed")
    imposter = user(fake_github, "maintainer")  # takes the free name
    assert await forge.get_permission(SAMPLE, maintainer) == "write"
    assert await forge.get_permission(SAMPLE, imposter) == "read"
    assert await forge.get_permission(SAMPLE, User(id=999_999, login="renamed")) == "none"


async def test_one_404_is_no_missing_permission(fake_github: FakeGitHub, forge: Forge) -> None:
    maintainer = user(fake_github, "maintainer")
    fake_github.fail_next_request("GET", "/collaborators/maintainer/permission", status=404)
    assert await forge.get_permission(SAMPLE, maintainer) == "write"
    fake_github.fail_next_request("GET", "/collaborators/maintainer/permission", status=404, times=2)
    fake_github.fail_next_request("GET", "/repos/acme/sample", status=404)
    with pytest.raises(ForgeError, match="GitHub does not show acme/sample at the moment") as failure:
        await forge.get_permission(SAMPLE, maintainer)
    assert failure.value.retryable


# --- saying -------------------------------------------------------------------------------------------------


async def test_posting_twice_with_one_tag_leaves_one_comment(
    fake_github: FakeGitHub, repo: Repository, forge: Forge
) -> None:
    issue = fake_github.create_issue(repo, title="T", body="B", by="stranger")
    first = await forge.upsert_comment(SAMPLE, issue.number, TAG, "Working.")
    second = await forge.upsert_comment(SAMPLE, issue.number, TAG, "Done.")
    assert first == second
    [comment] = repo.comments(issue.number)
    assert comment.author.login == us(forge)
    assert comment.body.endswith("\nDone.")
    assert first.endswith(f"#issuecomment-{comment.id}")


async def test_another_process_finds_the_existing_comment(
    fake_github: FakeGitHub, repo: Repository, forge: GitHubForge, another: Callable[[], GitHubForge]
) -> None:
    issue = fake_github.create_issue(repo, title="T", body="B", by="stranger")
    await forge.upsert_comment(SAMPLE, issue.number, TAG, "Working.")
    for number in range(120):
        fake_github.add_comment_silently(issue, f"chatter {number}", by="stranger")
    async with another() as other:
        await other.upsert_comment(SAMPLE, issue.number, TAG, "Done.")
        await other.upsert_comment(SAMPLE, issue.number, "another tag", "Something else.")
    ours = [comment.body for comment in repo.comments(issue.number) if comment.author.login == us(forge)]
    assert [body.splitlines()[-1] for body in ours] == ["Done.", "Something else."]


async def test_posting_the_same_text_again_writes_nothing(
    fake_github: FakeGitHub, repo: Repository, forge: Forge
) -> None:
    issue = fake_github.create_issue(repo, title="T", body="B", by="stranger")
    await forge.upsert_comment(SAMPLE, issue.number, TAG, "Done.")
    before = fake_github.writes
    await forge.upsert_comment(SAMPLE, issue.number, TAG, "Done.")
    assert fake_github.writes == before


async def test_a_foreign_comment_with_the_bots_tag_is_not_edited(
    fake_github: FakeGitHub, repo: Repository, forge: GitHubForge, another: Callable[[], GitHubForge]
) -> None:
    issue = fake_github.create_issue(repo, title="T", body="B", by="stranger")
    await forge.upsert_comment(SAMPLE, issue.number, TAG, "Working.")
    marked = repo.comments(issue.number)[0].body
    forged = fake_github.add_comment_silently(
        fake_github.create_issue(repo, title="U", body="B", by="stranger"), marked, by="stranger"
    )
    async with another() as other:
        await other.upsert_comment(SAMPLE, forged.number, TAG, "Done.")
    theirs, ours = repo.comments(forged.number)
    assert (theirs.body, theirs.author.login) == (marked, "stranger")
    assert ours.author.login == us(forge)


async def test_the_fake_server_allows_edits_of_foreign_comments(
    fake_github: FakeGitHub, repo: Repository
) -> None:
    """Positive control of the test above: only the client's own check protects the comment."""
    comment = fake_github.add_comment_silently(
        fake_github.create_issue(repo, title="T", body="B", by="stranger"), "theirs", by="stranger"
    )
    headers = {"Authorization": f"Bearer {fake_github.create_token('patchwright')}"}
    async with httpx.AsyncClient(base_url=fake_github.api_url, headers=headers) as client:
        done = await client.patch(f"/repos/acme/sample/issues/comments/{comment.id}", json={"body": "ours"})
    assert (done.status_code, comment.body) == (200, "ours")


async def test_a_long_body_is_clipped_with_a_note(
    fake_github: FakeGitHub, repo: Repository, forge: Forge
) -> None:
    issue = fake_github.create_issue(repo, title="T", body="B", by="stranger")
    long = "<details>\n\n```text\n" + "größe 🦉 " * 20_000 + "\n```\n</details>"
    await forge.upsert_comment(SAMPLE, issue.number, TAG, long)
    [comment] = repo.comments(issue.number)
    assert 60_000 < len(comment.body) <= MAX_BODY
    assert "\n```\n</details>\n\n*Truncated: " in comment.body  # open blocks are closed
    await forge.upsert_comment(SAMPLE, issue.number, TAG, "x" * MAX_BODY)
    assert len(repo.comments(issue.number)[0].body) <= MAX_BODY


# --- lost on the way ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("lose", ["lose_next_request", "lose_next_response"])
async def test_a_comment_with_a_lost_response_exists_once(
    fake_github: FakeGitHub, repo: Repository, forge: Forge, lose: str
) -> None:
    issue = fake_github.create_issue(repo, title="T", body="B", by="stranger")
    getattr(fake_github, lose)("POST", "/comments")
    url = await forge.upsert_comment(SAMPLE, issue.number, TAG, "Working.")
    [comment] = repo.comments(issue.number)
    assert url.endswith(f"#issuecomment-{comment.id}")
    getattr(fake_github, lose)("PATCH", f"/comments/{comment.id}")
    await forge.upsert_comment(SAMPLE, issue.number, TAG, "Done.")
    assert [comment.body.splitlines()[-1] for comment in repo.comments(issue.number)] == ["Done."]


@pytest.mark.parametrize("lose", ["lose_next_request", "lose_next_response"])
async def test_a_pull_request_with_a_lost_response_exists_once(
    fake_github: FakeGitHub, repo: Repository, forge: Forge, clone: BareRepository, lose: str
) -> None:
    commit = await published(forge, clone, {"calc.py": FIXED})
    getattr(fake_github, lose)("POST", "/pulls")
    made = await forge.open_pull_request(proposal(commit))
    assert [pull.number for pull in repo.pulls] == [made.number]


# --- proposing ----------------------------------------------------------------------------------------------


async def test_a_pull_request_is_opened_once_and_read_back(
    fake_github: FakeGitHub, repo: Repository, forge: Forge, clone: BareRepository
) -> None:
    assert await forge.find_pull_request(SAMPLE, "patchwright/issue-1") is None
    commit = await published(forge, clone, {"calc.py": FIXED})
    made = await forge.open_pull_request(proposal(commit))
    assert made == PullRequest(
        number=1,
        title="Add instead of subtract",
        body="Why.",
        author=user(fake_github, us(forge)),
        trusted=True,
        open=True,
        url=f"{fake_github.server_url}/acme/sample/pull/1",
        head_branch="patchwright/issue-1",
        head_sha=commit,
        base_branch="main",
        draft=False,
        is_same_repository=True,
        head_repo=SAMPLE,
    )
    assert await forge.find_pull_request(SAMPLE, "patchwright/issue-1") == made
    assert await forge.find_pull_request(SAMPLE, "patchwright/issue-2") is None
    assert repo.diff(repo.pulls[0]).endswith("-    return a - b\n+    return a + b\n")


async def test_a_pull_request_is_declined_if_it_was_closed_without_merging(
    fake_github: FakeGitHub, repo: Repository, forge: Forge, clone: BareRepository
) -> None:
    commit = await published(forge, clone, {"calc.py": FIXED})
    fake_github.close_silently(
        fake_github.create_pull(repo, "patchwright/issue-1", by="stranger", title="Not ours")
    )
    assert await forge.find_declined_pull_request(SAMPLE, "patchwright/issue-1") is None
    made = await forge.open_pull_request(proposal(commit))
    assert await forge.find_declined_pull_request(SAMPLE, "patchwright/issue-1") is None
    pull = repo.pulls[-1]
    fake_github.close_silently(pull)
    declined = await forge.find_declined_pull_request(SAMPLE, "patchwright/issue-1")
    assert declined == made.model_copy(update={"open": False})
    assert await forge.find_declined_pull_request(SAMPLE, "patchwright/issue-2") is None
    pull.merged = pull.closed
    assert await forge.find_declined_pull_request(SAMPLE, "patchwright/issue-1") is None
    earlier_app = fake_github.create_pull(repo, "patchwright/issue-1", by="earlier-app[bot]", title="Ours")
    fake_github.close_silently(earlier_app)
    declined = await forge.find_declined_pull_request(SAMPLE, "patchwright/issue-1")
    assert declined is not None and declined.number == earlier_app.number


async def test_publishing_again_updates_the_open_pull_request(
    fake_github: FakeGitHub, repo: Repository, forge: Forge, clone: BareRepository
) -> None:
    first = await published(forge, clone, {"calc.py": FIXED})
    await forge.open_pull_request(proposal(first, draft=True))
    second = await published(forge, clone, {"test_calc.py": "1\n"})
    result = await forge.open_pull_request(proposal(second, title="Add, with a test", body="y" * 70_000))
    [pull] = repo.pulls
    assert (result.number, result.head_sha, result.draft) == (pull.number, second, False)
    assert (pull.title, pull.draft) == ("Add, with a test", False)
    assert len(result.body) <= MAX_BODY and "Truncated:" in result.body
    assert (await forge.open_pull_request(proposal(second, draft=True))).draft
    before = fake_github.writes
    await forge.open_pull_request(proposal(second, draft=True))
    assert fake_github.writes == before  # nothing to change, nothing written


# --- credentials and dry runs -------------------------------------------------------------------------------


async def test_credentials_give_access_to_the_repository(
    fake_github: FakeGitHub, forge: Forge, clone: BareRepository
) -> None:
    given = await forge.get_credentials(SAMPLE)
    assert isinstance(given, Credentials)
    assert given.token not in repr(given)


async def test_an_expired_app_token_is_renewed_and_a_personal_one_is_not(
    fake_github: FakeGitHub, repo: Repository, forge: GitHubForge
) -> None:
    await forge.get_repo_facts(SAMPLE)
    before = await forge.get_credentials(SAMPLE)
    fake_github.expire_tokens()
    assert (await forge.get_repo_facts(SAMPLE)).default_branch == "main"
    after = await forge.get_credentials(SAMPLE)
    assert (after != before) == forge.is_app


async def test_a_dry_run_shows_its_writes_and_writes_nothing(
    fake_github: FakeGitHub, repo: Repository, forge: Forge, clone: BareRepository
) -> None:
    issue = fake_github.create_issue(repo, title="T", body="B", by="maintainer")
    shown: list[tuple[str, str]] = []
    dry = DryRunForge(forge, lambda title, body: shown.append((title, body)))
    parent = clone.branch_sha("fix")
    assert parent is not None
    commit = clone.commit("fix", {"calc.py": FIXED}, "Add")
    thread = await dry.get_thread(job(issue.number))
    await dry.upsert_comment(SAMPLE, issue.number, TAG, "Working.")
    await dry.push_commit(SAMPLE, clone.path, commit, "patchwright/issue-1", parent)
    made = await dry.open_pull_request(proposal(commit, draft=True))
    assert (thread.trusted, made.draft, made.head_sha) == (True, True, commit)
    assert fake_github.writes == ()
    assert (repo.branches, repo.pulls, repo.comments(issue.number)) == (("main",), (), ())
    assert [title for title, _ in shown] == [
        f"comment on acme/sample#{issue.number}",
        f"commit {commit[:12]} to patchwright/issue-1",
        "pull request: Add instead of subtract",
    ]
    await forge.upsert_comment(SAMPLE, issue.number, TAG, "Working.")
    assert fake_github.writes != ()  # positive control: the forge behind it does write
