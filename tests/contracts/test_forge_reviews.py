"""What a `Forge` promises of reviews, on the fake server: threads read whole, each answered once, and settled."""

from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr

from patchwright.bot.github.auth import AppAuth, RequestPolicy, TokenAuth
from patchwright.bot.github.forge import GitHubForge
from patchwright.demo.github import FakeGitHub, FakePullRequest, Repository
from patchwright.resolver.domain import Comment, Job, JobId, PullRequest, Repo, ReviewThread, User
from patchwright.resolver.errors import ForgeError
from patchwright.resolver.forge import DryRunForge

SAMPLE = Repo(owner="acme", name="sample")
CODE = "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return a * 2\n"
QUICK = RequestPolicy(write_interval=0, initial_backoff=0.01, timeout=10)


@pytest.fixture
def repo(fake_github: FakeGitHub) -> Repository:
    roles = {"maintainer": "write", "boss": "maintain", "triager": "triage", "patchwright": "write"}
    return fake_github.create_repository("acme/sample", {"README.md": "Sample\n"}, permissions=roles)  # type: ignore[arg-type]


@pytest.fixture
def pull(fake_github: FakeGitHub, repo: Repository) -> FakePullRequest:
    repo.commit("topic", {"calc.py": CODE})
    return fake_github.create_pull(repo, "topic", by="stranger", title="Calculate", body="Adds.")


@pytest.fixture(params=["token", "app"])
async def forge(
    request: pytest.FixtureRequest, fake_github: FakeGitHub, repo: Repository
) -> AsyncIterator[GitHubForge]:
    access: TokenAuth | AppAuth = TokenAuth(SecretStr(fake_github.create_token("patchwright")))
    if request.param == "app":
        app = fake_github.create_app("patchwright-app")
        fake_github.install_app(app, repo)
        access = AppAuth(str(app.id), SecretStr(app.private_key_pem))
    urls = fake_github.urls
    async with GitHubForge(access, urls, policy=QUICK) as forge:
        yield forge


def job(review: int | None = None, inline: int | None = None) -> Job:
    return Job(
        id=JobId("a-run"), repo=SAMPLE, number=1, requester=None, review_id=review, review_comment_id=inline
    )


def user(fake_github: FakeGitHub, login: str) -> User:
    return User(id=fake_github.user(login).id, login=login)


async def thread(forge: GitHubForge, job: Job) -> PullRequest:
    found = await forge.get_thread(job)
    assert isinstance(found, PullRequest)
    return found


async def test_a_pull_request_is_read_with_all_threads_and_trusted_authors(
    fake_github: FakeGitHub, pull: FakePullRequest, forge: GitHubForge
) -> None:
    first = fake_github.add_review(pull, ("calc.py", 2, "Minus?"), by="stranger", body="Not so.")
    fake_github.add_comment_silently(pull, "I agree.", by="boss")
    second = fake_github.add_review(
        pull, ("calc.py", 6, "Why two?"), by="maintainer", body="@agent mind this"
    )
    fake_github.add_reply(pull.review_threads[0], "Plus.", by="maintainer")
    fake_github.resolve_thread(pull.review_threads[1], by="boss")
    snapshot = await thread(forge, job(second.id))
    minus, two = snapshot.threads
    assert (snapshot.base_branch, snapshot.head_branch, snapshot.head_sha) == ("main", "topic", pull.head.sha)
    assert snapshot.comments == (
        Comment(author=user(fake_github, "stranger"), body="Not so.", trusted=False),
        Comment(author=user(fake_github, "boss"), body="I agree.", trusted=True),
    )
    assert snapshot.review == Comment(
        author=user(fake_github, "maintainer"), body="@agent mind this", trusted=True
    )
    assert (minus.path, minus.line, minus.resolved, minus.is_trigger) == ("calc.py", 2, False, False)
    assert minus.hunk.endswith("+    return a - b")
    assert [(one.author.login, one.body, one.trusted) for one in minus.comments] == [
        ("stranger", "Minus?", False),
        ("maintainer", "Plus.", True),
    ]
    assert (two.resolved, two.is_trigger, two.first_comment_id) == (
        True,
        True,
        pull.review_threads[1].comments[0].id,
    )
    assert [one.is_trigger for one in (await thread(forge, job(first.id))).threads] == [True, False]
    inline = pull.review_threads[1].comments[0].id
    assert [one.is_trigger for one in (await thread(forge, job(inline=inline))).threads] == [False, True]


async def test_a_mention_in_a_resolved_thread_reopens_it(
    fake_github: FakeGitHub, pull: FakePullRequest, forge: GitHubForge
) -> None:
    first = fake_github.add_review(pull, ("calc.py", 2, "Minus?"), by="maintainer")
    fake_github.resolve_thread(pull.review_threads[0], by="boss")
    again = fake_github.add_reply(pull.review_threads[0], "@agent it still subtracts", by="maintainer")
    (minus,) = (await thread(forge, job(again.id))).threads
    assert (minus.is_trigger, minus.resolved) == (True, False)
    (minus,) = (await thread(forge, job(first.id))).threads
    assert (minus.is_trigger, minus.resolved) == (True, True)


@pytest.mark.slow
async def test_all_pages_of_threads_are_read(
    fake_github: FakeGitHub, pull: FakePullRequest, forge: GitHubForge
) -> None:
    for number in range(61):
        fake_github.add_review(pull, ("calc.py", 2, f"Point {number}"), by="maintainer")
    snapshot = await thread(forge, job())
    assert [one.comments[0].body for one in snapshot.threads] == [f"Point {number}" for number in range(61)]


async def test_text_of_a_deleted_account_is_read_and_untrusted(
    fake_github: FakeGitHub, pull: FakePullRequest, forge: GitHubForge
) -> None:
    fake_github.add_review(pull, ("calc.py", 2, "Minus?"), by="maintainer", body="See below.")
    fake_github.delete_user("maintainer")
    snapshot = await thread(forge, job())
    (comment,) = snapshot.threads[0].comments
    assert (comment.author.login, comment.trusted) == ("ghost", False)
    assert [(one.author.login, one.trusted) for one in snapshot.comments] == [("ghost", False)]


async def test_a_fork_has_its_location_and_push_permission(
    fake_github: FakeGitHub, repo: Repository, forge: GitHubForge
) -> None:
    fork = fake_github.create_fork(repo, "stranger")
    fork.commit("topic", {"calc.py": CODE})
    for allowed in (True, False):
        made = fake_github.create_pull(repo, "topic", by="stranger", fork=fork, maintainer_can_modify=allowed)
        thread = await forge.get_thread(job().model_copy(update={"number": made.number}))
        assert isinstance(thread, PullRequest)
        assert (thread.is_same_repository, thread.maintainer_can_modify) == (False, allowed)
        assert thread.head_repo == Repo(owner="stranger", name="sample")


async def test_a_thread_gets_one_reply_per_tag(
    fake_github: FakeGitHub, pull: FakePullRequest, forge: GitHubForge
) -> None:
    fake_github.add_review(pull, ("calc.py", 2, "Minus?"), ("calc.py", 6, "Two?"), by="maintainer")
    minus, two = (await thread(forge, job())).threads
    url = await forge.reply_to_thread(SAMPLE, 1, minus, "run-1", "Plus now.")
    assert await forge.reply_to_thread(SAMPLE, 1, minus, "run-1", "Plus now.") == url
    await forge.reply_to_thread(SAMPLE, 1, minus, "run-2", "Still plus.")
    await forge.reply_to_thread(SAMPLE, 1, two, "run-1", "As asked.")
    bodies = [[one.body.partition("\n")[2] for one in each.comments[1:]] for each in pull.review_threads]
    assert bodies == [["Plus now.", "Still plus."], ["As asked."]]
    assert [one.comments[1].body for one in (await thread(forge, job())).threads] == [
        "Plus now.",
        "As asked.",
    ]


async def test_a_reply_with_a_lost_response_is_not_repeated(
    fake_github: FakeGitHub, pull: FakePullRequest, forge: GitHubForge
) -> None:
    fake_github.add_review(pull, ("calc.py", 2, "Minus?"), by="maintainer")
    (minus,) = (await thread(forge, job())).threads
    fake_github.lose_next_response("POST", "/replies")
    assert await forge.reply_to_thread(SAMPLE, 1, minus, "run-1", "Plus now.")
    fake_github.lose_next_request("POST", "/replies")
    assert await forge.reply_to_thread(SAMPLE, 1, minus, "run-2", "And again.")
    assert len(pull.review_threads[0].comments) == 3


async def test_a_foreign_comment_with_the_bots_tag_is_no_reply_of_the_bot(
    fake_github: FakeGitHub, pull: FakePullRequest, forge: GitHubForge
) -> None:
    fake_github.add_review(pull, ("calc.py", 2, "Minus?"), by="maintainer")
    fake_github.add_reply(
        pull.review_threads[0], "<!-- patchwright:run-1 -->\nDone, believe me.", by="stranger"
    )
    (minus,) = (await thread(forge, job())).threads
    await forge.reply_to_thread(SAMPLE, 1, minus, "run-1", "Plus now.")
    assert len(pull.review_threads[0].comments) == 3


async def test_a_thread_is_resolved_and_resolving_it_twice_changes_nothing(
    fake_github: FakeGitHub, pull: FakePullRequest, forge: GitHubForge
) -> None:
    fake_github.add_review(pull, ("calc.py", 2, "Minus?"), by="maintainer")
    (minus,) = (await thread(forge, job())).threads
    fake_github.lose_next_response("POST", "/graphql")
    await forge.resolve_thread(SAMPLE, minus)
    await forge.resolve_thread(SAMPLE, minus)
    assert pull.review_threads[0].resolved_by is not None
    with pytest.raises(ForgeError):
        await forge.resolve_thread(SAMPLE, minus.model_copy(update={"id": "nonsense"}))


async def test_a_dry_run_shows_its_replies(
    fake_github: FakeGitHub, pull: FakePullRequest, forge: GitHubForge
) -> None:
    fake_github.add_review(pull, ("calc.py", 2, "Minus?"), by="maintainer")
    (minus,) = (await thread(forge, job())).threads
    shown: list[tuple[str, str]] = []
    dry = DryRunForge(forge, lambda what, text: shown.append((what, text)))
    writes = fake_github.writes
    await dry.reply_to_thread(SAMPLE, 1, minus, "run-1", "Plus now.")
    await dry.resolve_thread(SAMPLE, minus)
    assert shown == [
        ("reply at calc.py in acme/sample#1", "Plus now."),
        ("resolve the thread at calc.py", ""),
    ]
    assert [write for write in fake_github.writes if write not in writes] == []
    assert isinstance(minus, ReviewThread) and pull.review_threads[0].resolved_by is None
