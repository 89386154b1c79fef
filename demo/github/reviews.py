"""Reviews of pull requests in the fake server: their threads, their JSON, and their REST operations."""

import re
from collections.abc import Iterator
from typing import Any

from patchwright.demo.github.auth import ApiError, require_visible
from patchwright.demo.github.graphql_api import (
    Arguments,
    GraphQLFailure,
    register_field,
    require_visible_access,
)
from patchwright.demo.github.operations import PULL_ACCESS, PUSH_ACCESS, REPO_PATH, operation, react_to
from patchwright.demo.github.request_context import (
    RequestContext,
    RestResponse,
    WebhookEvent,
    require_found,
    validation_error,
)
from patchwright.demo.github.serializers import Json, Serializer, node_id
from patchwright.demo.github.state import (
    FakePullRequest,
    GitHubState,
    Review,
    ReviewComment,
    ReviewThread,
    Token,
    User,
)

_HUNK = re.compile(r"^@@ -\d+(?:,\d+)? \+(\d+)(?:,\d+)? @@", re.MULTILINE)


def start_thread(
    state: GitHubState, pull: FakePullRequest, review: Review, path: str, line: int, body: str
) -> ReviewComment:
    """Starts a thread on a line of the pull request. Raises LookupError if the diff does not contain the
    line.
    """
    thread = ReviewThread(
        id=state.next_id(), pull=pull, path=path, line=line, hunk=find_hunk(pull, path, line)
    )
    pull.review_threads.append(thread)
    return state.add_review_comment(thread, review, body)


def find_hunk(pull: FakePullRequest, path: str, line: int) -> str:
    """Returns the diff's hunk up to this line of the new file, as GitHub shows it above a comment."""
    shown = pull.repo.bare.git("diff", f"{pull.base.sha}...{pull.head.sha}", "--", path).decode()
    heads = list(_HUNK.finditer(shown))
    for head, after in zip(heads, [*heads[1:], None], strict=True):
        at, lines = int(head[1]) - 1, list[str]()
        for text in shown[head.start() : after.start() if after else None].splitlines():
            at += bool(lines) and not text.startswith("-")
            lines.append(text)
            if lines[1:] and at == line and not text.startswith("-"):
                return "\n".join(lines)
    raise LookupError(f"the diff of #{pull.number} does not show line {line} of {path}")


def review_events(serializer: Serializer, pull: FakePullRequest, review: Review) -> Iterator[WebhookEvent]:
    """Yields the webhook events of a review: one for the review, and one for each of its inline comments."""
    said = review_json(serializer, pull, review)
    yield WebhookEvent("pull_request_review", "submitted", pull, review.author, {"review": said})
    for thread in pull.review_threads:
        for comment in thread.comments:
            if comment.review is review:
                details: Json = {"comment": review_comment_json(serializer, thread, comment)}
                yield WebhookEvent("pull_request_review_comment", "created", pull, review.author, details)


# --- JSON ---------------------------------------------------------------------------------------------------


def review_json(
    serializer: Serializer, pull: FakePullRequest, review: Review, state: str | None = None
) -> Json:
    page = f"{serializer.thread_url(pull)}#pullrequestreview-{review.id}"
    url = f"{serializer.repository_url(pull.repo)}/pulls/{pull.number}"
    return {
        "id": review.id, "node_id": node_id("PullRequestReview", review.id),
        "user": serializer.author(review.author), "body": review.body, "state": state or review.state,
        "html_url": page, "pull_request_url": url, "commit_id": review.sha, "submitted_at": review.submitted,
        "author_association": serializer.association(pull.repo, review.author),
        "_links": {"html": {"href": page}, "pull_request": {"href": url}},
    }  # fmt: skip


def review_comment_json(serializer: Serializer, thread: ReviewThread, comment: ReviewComment) -> Json:
    pull = thread.pull
    page = f"{serializer.thread_url(pull)}#discussion_r{comment.id}"
    place = f"{serializer.repository_url(pull.repo)}/pulls"
    url, parent = f"{place}/comments/{comment.id}", f"{place}/{pull.number}"
    position = thread.hunk.count("\n")
    shape: Json = {
        "id": comment.id, "node_id": node_id("PullRequestReviewComment", comment.id), "url": url,
        "html_url": page, "pull_request_url": parent, "pull_request_review_id": comment.review.id,
        "diff_hunk": thread.hunk, "path": thread.path, "position": position, "original_position": position,
        "commit_id": comment.review.sha, "original_commit_id": comment.review.sha,
        "user": serializer.author(comment.author), "body": comment.body,
        "created_at": comment.created, "updated_at": comment.updated,
        "author_association": serializer.association(pull.repo, comment.author),
        "_links": {"self": {"href": url}, "html": {"href": page}, "pull_request": {"href": parent}},
        "reactions": serializer.reactions(url, comment.reactions), "subject_type": "line", "side": "RIGHT",
        "start_side": None, "start_line": None, "original_start_line": None,
        "line": thread.line, "original_line": thread.line,
    }  # fmt: skip
    if comment is not thread.comments[0]:
        shape["in_reply_to_id"] = thread.comments[0].id
    return shape


# --- REST ---------------------------------------------------------------------------------------------------


@operation("GET", f"{REPO_PATH}/pulls/{{pull_number}}/reviews")
def list_reviews(call: RequestContext) -> RestResponse:
    pull = call.find_pull()
    shapes = [review_json(call.serializer, pull, review, review.state.upper()) for review in pull.reviews]
    return call.paginate(shapes)


@operation("POST", f"{REPO_PATH}/pulls/{{pull_number}}/requested_reviewers")
def request_reviewers(call: RequestContext) -> RestResponse:
    call.require_access(PULL_ACCESS)
    pull = call.find_pull()
    logins = call.body.get("reviewers")
    for login in logins if isinstance(logins, list) else []:
        user = call.state.find_user(str(login))
        if user is None or user.id not in pull.repo.roles:
            raise ApiError(
                422, "Reviews may only be requested from collaborators. One or more of the users is not one."
            )
        if user is pull.author:
            raise ApiError(422, "Review cannot be requested from pull request author.")
        if user not in pull.requested_reviewers:
            pull.requested_reviewers.append(user)
    return RestResponse(call.serializer.pull_summary(pull), 201)


@operation("GET", f"{REPO_PATH}/pulls/{{pull_number}}/comments")
def list_pull_review_comments(call: RequestContext) -> RestResponse:
    pull = call.find_pull()
    said = [(thread, comment) for thread in pull.review_threads for comment in thread.comments]
    in_order = sorted(said, key=lambda pair: pair[1].id)
    return call.paginate(
        [review_comment_json(call.serializer, thread, comment) for thread, comment in in_order]
    )


@operation("POST", f"{REPO_PATH}/pulls/comments/{{comment_id}}/reactions")
def react_to_review_comment(call: RequestContext) -> RestResponse:
    said = (one for pull in call.repo.pulls for thread in pull.review_threads for one in thread.comments)
    return react_to(
        call, require_found(next((one for one in said if str(one.id) == call.path["comment_id"]), None))
    )


@operation("POST", f"{REPO_PATH}/pulls/{{pull_number}}/comments/{{comment_id}}/replies")
def create_reply(call: RequestContext) -> RestResponse:
    author, pull = call.require_access(PULL_ACCESS), call.find_pull()
    wanted = call.path["comment_id"]
    thread = require_found(
        next((one for one in pull.review_threads if any(str(c.id) == wanted for c in one.comments)), None)
    )
    if str(thread.comments[0].id) != wanted:
        raise ApiError(422, "Validation Failed")  # GitHub does not support replies to replies
    if not (body := call.read_text("body")).strip():
        raise validation_error("PullRequestReviewComment", "body", "body cannot be blank")
    comment = add_reply(call.state, thread, body, author)
    call.events.extend(review_events(call.serializer, pull, comment.review))
    return RestResponse(review_comment_json(call.serializer, thread, comment), 201)


def add_reply(state: GitHubState, thread: ReviewThread, body: str, author: User) -> ReviewComment:
    """Adds a reply to a thread. As on GitHub, each reply gets a review of its own, which has no text."""
    return state.add_review_comment(thread, state.create_review(thread.pull, "", author), body)


# --- GraphQL: fields of threads that REST lacks
# ---------------------------------------------------------------


@register_field("repository")
def resolve_repository(call: RequestContext, arguments: Arguments) -> Json:
    repo = require_visible(call.actor, call.state.find_repository(arguments["owner"], arguments["name"]))

    def pull_request(_: object, number: int) -> Json | None:
        pull = repo.threads.get(number)
        return _pull_json(call, pull) if isinstance(pull, FakePullRequest) else None

    return {
        "id": node_id("Repository", repo.id),
        "nameWithOwner": repo.full_name,
        "pullRequest": pull_request,
    }


def _pull_json(call: RequestContext, pull: FakePullRequest) -> Json:
    def threads(_: object, **window: Any) -> Json:
        return _connection_json([_thread_json(call, thread) for thread in pull.review_threads], **window)

    def reviews(_: object, **window: Any) -> Json:
        return _connection_json([_review_json(review) for review in pull.reviews], **window)

    return {
        "id": node_id("PullRequest", pull.id),
        "isDraft": pull.draft,
        "number": pull.number,
        "reviewThreads": threads,
        "reviews": reviews,
    }


def _review_json(review: Review) -> Json:
    return {
        "id": node_id("PullRequestReview", review.id),
        "databaseId": review.id,
        "fullDatabaseId": str(review.id),
        "body": review.body,
        "author": None if review.author.is_deleted else _actor_json(review.author),
        "createdAt": review.submitted,
        "submittedAt": review.submitted,
        "lastEditedAt": review.updated if review.updated != review.submitted else None,
    }


def _thread_json(call: RequestContext, thread: ReviewThread) -> Json:
    def comments(_: object, **window: Any) -> Json:
        return _connection_json(
            [_comment_json(call, thread, comment) for comment in thread.comments], **window
        )

    return {
        "id": node_id("PullRequestReviewThread", thread.id),
        "isResolved": thread.resolved_by is not None,
        "isOutdated": False,
        "path": thread.path,
        "line": thread.line,
        "originalLine": thread.line,
        "comments": comments,
    }


def _comment_json(call: RequestContext, thread: ReviewThread, comment: ReviewComment) -> Json:
    author, asks = comment.author, call.actor
    assert isinstance(asks, Token)
    return {
        "id": node_id("PullRequestReviewComment", comment.id),
        "databaseId": comment.id,
        "fullDatabaseId": str(comment.id),
        "body": comment.body,
        "diffHunk": thread.hunk,
        "author": None if author.is_deleted else _actor_json(author),
        "viewerDidAuthor": author is asks.user,
        "createdAt": comment.created,
        "publishedAt": comment.created,
        "lastEditedAt": comment.updated if comment.updated != comment.created else None,
        "pullRequestReview": _review_json(comment.review),
        "url": review_comment_json(call.serializer, thread, comment)["html_url"],
    }


def _actor_json(user: User) -> Json:
    """Returns an actor as in GraphQL, where the login of a bot has no suffix `[bot]`."""
    login = user.login.removesuffix("[bot]")
    return {"__typename": user.kind, "id": node_id("User", user.id), "login": login, "databaseId": user.id}


def _connection_json(items: list[Json], first: int = 100, after: str | None = None, **_: object) -> Json:
    if not 1 <= first <= 100:
        raise GraphQLFailure(
            "EXCESSIVE_PAGINATION", f"Requesting {first} records exceeds the `first` limit of 100."
        )
    start = int(after) if after else 0
    end = start + first
    return {
        "nodes": items[start:end],
        "totalCount": len(items),
        "pageInfo": {"hasNextPage": end < len(items), "endCursor": str(min(end, len(items)))},
    }


@register_field("resolveReviewThread")
def resolve_thread(call: RequestContext, arguments: Arguments) -> Json:
    wanted = arguments["input"]["threadId"]
    threads = (
        thread for repo in call.state.repositories for pull in repo.pulls for thread in pull.review_threads
    )
    thread = next((one for one in threads if node_id("PullRequestReviewThread", one.id) == wanted), None)
    if thread is None:
        raise GraphQLFailure("NOT_FOUND", f"Could not resolve to a node with the global id of '{wanted}'")
    thread.resolved_by = require_visible_access(call, thread.pull.repo, PUSH_ACCESS).user
    return {"thread": _thread_json(call, thread)}
