"""An entry that cannot be parsed does not hide the other entries of its list."""

from patchwright.bot.github.forge import GitHubForge
from patchwright.bot.github.schemas import IssueResponse
from patchwright.bot.reconcile.missed_events import ThreadResponse
from patchwright.demo.github import FakeGitHub, Repository
from patchwright.resolver.domain import Job, JobId, PullRequest
from tests.bot.github.test_forge import SAMPLE
from tests.bot.github.test_forge import forge as forge  # the fixture
from tests.bot.github.test_forge import repo as repo  # the fixture


async def test_an_unreadable_review_comment_does_not_hide_the_others(
    fake_github: FakeGitHub, repo: Repository, forge: GitHubForge
) -> None:
    repo.commit("topic", {"a.txt": "b\n"})
    pull = fake_github.create_pull(repo, "topic", by="patchwright")
    fake_github.add_review(pull, ("a.txt", 1, "Why?"), ("a.txt", 1, "Typo."), by="patchwright", body="Hm.")
    odd, _ = pull.review_threads
    fake_github.add_reply(odd, "Because.", by="patchwright")
    odd.comments[0].created = "yesterday"
    thread = await forge.get_thread(Job(id=JobId("1"), repo=SAMPLE, number=pull.number, requester=None))
    assert isinstance(thread, PullRequest)
    assert [[one.body for one in each.comments] for each in thread.threads] == [["Because."], ["Typo."]]


def test_an_unreadable_label_does_not_hide_the_issue() -> None:
    times = {"created_at": "2026-11-20T09:00:00Z", "updated_at": "2026-11-20T09:00:00Z"}
    texts = {"title": "T", "user": None, "state": "open", "html_url": "https://forge.test/7"}
    response = {"number": 7, **texts, **times, "labels": [{"name": None}, "old", {"name": "fix-me"}]}
    assert IssueResponse.model_validate(response).label_names == ("fix-me",)
    assert [one.name for one in ThreadResponse.model_validate(response).labels] == ["fix-me"]
