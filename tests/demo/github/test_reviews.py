"""Reviews on the fake server: comments, deliveries, and the push permission of forks."""

import asyncio
import json
from collections.abc import Callable
from subprocess import CalledProcessError

import httpx
import pytest

from patchwright.demo.github import FakeGitHub, FakePullRequest, Repository
from patchwright.demo.github.bare_repository import BareRepository

Client = Callable[..., httpx.AsyncClient]

CODE = "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return a * 2\n"
NOWHERE = "http://127.0.0.1:9/webhook"
THREADS = """query($owner: String!, $name: String!) { repository(owner: $owner, name: $name) {
  pullRequest(number: 1) { reviewThreads(first: 1) { pageInfo { hasNextPage endCursor } nodes { id isResolved path line
    comments(first: 10) { nodes { fullDatabaseId body diffHunk author { __typename login ... on User { databaseId } }
      pullRequestReview { fullDatabaseId } } } } } } } }"""
RESOLVE = "mutation($input: ResolveReviewThreadInput!) { resolveReviewThread(input: $input) { thread { isResolved } } }"


@pytest.fixture
def pull(fake_github: FakeGitHub, repo: Repository) -> FakePullRequest:
    repo.commit("topic", {"calc.py": CODE})
    return fake_github.create_pull(repo, "topic", by="author", title="Calculate")


async def test_a_review_sends_one_delivery_and_one_more_per_comment(
    fake_github: FakeGitHub, pull: FakePullRequest
) -> None:
    fake_github.add_webhook(NOWHERE, "s3cret")
    review = fake_github.add_review(
        pull,
        ("calc.py", 6, "Why times two?"),
        ("calc.py", 5, "Name it."),
        by="maintainer",
        body="Two things.",
    )
    delivery = await fake_github.deliver_review(pull, review)
    assert [one.event for one in delivery] == ["pull_request_review", *["pull_request_review_comment"] * 2]
    bodies = [json.loads(one.body) for one in delivery]
    assert (bodies[0]["review"]["id"], bodies[0]["review"]["body"]) == (review.id, "Two things.")
    assert {body["comment"]["pull_request_review_id"] for body in bodies[1:]} == {review.id}
    assert bodies[1]["comment"]["diff_hunk"].endswith("+    return a * 2")
    assert bodies[1]["pull_request"]["head"]["sha"] == pull.head.sha
    assert fake_github.violations == ()


async def test_a_review_thread_is_read_answered_and_resolved(
    fake_github: FakeGitHub, pull: FakePullRequest, client: Client
) -> None:
    fake_github.add_review(pull, ("calc.py", 6, "Why?"), ("calc.py", 5, "Name it."), by="maintainer")
    first, second = pull.review_threads
    async with client(fake_github, fake_github.create_token("maintainer")) as api:

        async def ask(query: str, **variables: object) -> dict[str, object]:
            answer = await api.post(fake_github.graphql_url, json={"query": query, "variables": variables})
            data: dict[str, object] = answer.json()["data"]
            return data

        text = json.dumps(await ask(THREADS, owner="acme", name="sample"))
        assert '"hasNextPage": true' in text and '"line": 6' in text and '"isResolved": false' in text
        assert f'"fullDatabaseId": "{first.comments[0].id}"' in text
        place = f"repos/acme/sample/pulls/1/comments/{second.comments[0].id}/replies"
        reply = await api.post(place, json={"body": "Done."})
        assert (reply.status_code, reply.json()["in_reply_to_id"]) == (201, second.comments[0].id)
        listed = (await api.get("repos/acme/sample/pulls/1/comments")).json()
        assert [one["body"] for one in listed] == ["Why?", "Name it.", "Done."]
        reviews = (await api.get("repos/acme/sample/pulls/1/reviews")).json()
        assert [one["state"] for one in reviews] == ["COMMENTED", "COMMENTED"]
        thread_id = json.loads(text)["repository"]["pullRequest"]["reviewThreads"]["nodes"][0]["id"]
        await ask(RESOLVE, input={"threadId": thread_id})
    assert (first.resolved_by, second.resolved_by) == (fake_github.user("maintainer"), None)
    assert fake_github.violations == ()


async def test_a_user_without_write_access_cannot_resolve_threads(
    fake_github: FakeGitHub, pull: FakePullRequest, client: Client
) -> None:
    fake_github.add_review(pull, ("calc.py", 6, "Why?"), by="maintainer")
    async with client(fake_github, fake_github.create_token("reader")) as api:
        variables = {"owner": "acme", "name": "sample"}
        data = (
            await api.post(fake_github.graphql_url, json={"query": THREADS, "variables": variables})
        ).json()
        (node,) = data["data"]["repository"]["pullRequest"]["reviewThreads"]["nodes"]
        wanted = {"query": RESOLVE, "variables": {"input": {"threadId": node["id"]}}}
        answer = (await api.post(fake_github.graphql_url, json=wanted)).json()
    assert answer["errors"][0]["type"] == "FORBIDDEN"
    assert pull.review_threads[0].resolved_by is None


def test_a_line_outside_the_diff_accepts_no_comment(fake_github: FakeGitHub, pull: FakePullRequest) -> None:
    with pytest.raises(LookupError, match=r"line 60 of calc\.py"):
        fake_github.add_review(pull, ("calc.py", 60, "Why?"), by="maintainer")


@pytest.mark.parametrize("allowed", [True, False])
async def test_the_owner_of_a_fork_decides_whether_maintainers_may_push(
    fake_github: FakeGitHub, repo: Repository, tmp_path_factory: pytest.TempPathFactory, *, allowed: bool
) -> None:
    fork = fake_github.create_fork(repo, "stranger")
    fork.commit("topic", {"calc.py": CODE})
    pull = fake_github.create_pull(repo, "topic", by="stranger", fork=fork, maintainer_can_modify=allowed)
    assert repo.bare.resolve("refs/pull/1/head") == pull.head.sha
    ours = BareRepository.create(tmp_path_factory.mktemp("ours") / "x.git", "topic")
    ours.git("fetch", "--quiet", str(fork.bare.path), "+refs/heads/*:refs/heads/*")
    mine = ours.commit("topic", {"more.txt": "x\n"}, "More")
    token = fake_github.create_token("maintainer")
    host = fake_github.server_url.replace("http://", f"http://x-access-token:{token}@")
    push = ("push", "--quiet", f"{host}/stranger/sample.git", "topic")
    if allowed:
        await asyncio.to_thread(ours.git, *push)
        assert pull.head.sha == mine
    else:
        with pytest.raises(CalledProcessError):
            await asyncio.to_thread(ours.git, *push)
        assert pull.head.sha != mine
