"""Sample pull requests with reviews."""

from typing import Any

from patchwright.resolver.domain import Comment, Job, JobId, PullRequest, Repo, ReviewThread, User

AUTHOR = User(id=7, login="contributor")
REVIEWER = User(id=5, login="maintainer")
REPO = Repo(owner="acme", name="calc")


def comment(body: str, *, author: User = REVIEWER, trusted: bool = True) -> Comment:
    return Comment(author=author, body=body, trusted=trusted)


def thread(body: str, **but: Any) -> ReviewThread:
    data = {
        "id": f"T_{body}",
        "first_comment_id": 501,
        "path": "calc.py",
        "line": 2,
        "hunk": "@@ -1,2 +1,2 @@\n def add(a, b):\n+    return a - b",
        "resolved": False,
        "comments": (comment(body),),
    }
    return ReviewThread(**data | but)


def pull(*threads: ReviewThread, **but: Any) -> PullRequest:
    data = {
        "number": 8,
        "title": "Calculate",
        "body": "Adds.",
        "author": AUTHOR,
        "trusted": False,
        "open": True,
        "url": "https://forge.test/acme/calc/pull/8",
        "head_branch": "topic",
        "head_sha": "a" * 40,
        "base_branch": "main",
        "base_sha": "b" * 40,
        "draft": False,
        "is_same_repository": True,
        "threads": threads,
    }
    return PullRequest(**data | but)


def job(command: str = "", **but: Any) -> Job:
    return Job(id=JobId("acme-calc-8-x"), repo=REPO, number=8, requester=REVIEWER, command=command, **but)
