"""Reviews of a pull request in the stand-in: their threads, their shapes, and what REST says about them."""

import re
from collections.abc import Iterator
from typing import Any

from demo.world.access import Refusal, visible
from demo.world.call import Answer, Call, News, found, invalid
from demo.world.graphql import Arguments, Failure, allowed, field
from demo.world.operations import PROPOSE, PUSH, R, operation, react_to
from demo.world.shapes import Json, Shapes, node_id
from demo.world.state import Inline, Pull, Review, ReviewThread, State, Token, User

_HUNK = re.compile(r"^@@ -\d+(?:,\d+)? \+(\d+)(?:,\d+)? @@", re.MULTILINE)


def begin(state: State, pull: Pull, review: Review, path: str, line: int, body: str) -> Inline:
    """A new thread about a line of the pull request. Raises LookupError where its diff does not show the line."""
    thread = ReviewThread(id=state.next_id(), pull=pull, path=path, line=line, hunk=hunk(pull, path, line))
    pull.review_threads.append(thread)
    return state.inline(thread, review, body)


def hunk(pull: Pull, path: str, line: int) -> str:
    """The diff's hunk up to this line of the new file, as a forge shows it above a comment."""
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


def news(shapes: Shapes, pull: Pull, review: Review) -> Iterator[News]:
    """What webhooks tell of a review: itself, and each of its inline comments."""
    said = review_shape(shapes, pull, review)
    yield News("pull_request_review", "submitted", pull, review.author, {"review": said})
    for thread in pull.review_threads:
        for comment in thread.comments:
            if comment.review is review:
                details: Json = {"comment": inline_shape(shapes, thread, comment)}
                yield News("pull_request_review_comment", "created", pull, review.author, details)


# --- shapes -------------------------------------------------------------------------------------------------


def review_shape(shapes: Shapes, pull: Pull, review: Review, state: str | None = None) -> Json:
    page = f"{shapes.thread_page(pull)}#pullrequestreview-{review.id}"
    url = f"{shapes.place(pull.repo)}/pulls/{pull.number}"
    return {
        "id": review.id, "node_id": node_id("PullRequestReview", review.id),
        "user": shapes.author(review.author), "body": review.body, "state": state or review.state,
        "html_url": page, "pull_request_url": url, "commit_id": review.sha, "submitted_at": review.submitted,
        "author_association": shapes.association(pull.repo, review.author),
        "_links": {"html": {"href": page}, "pull_request": {"href": url}},
    }  # fmt: skip


def inline_shape(shapes: Shapes, thread: ReviewThread, comment: Inline) -> Json:
    pull = thread.pull
    page = f"{shapes.thread_page(pull)}#discussion_r{comment.id}"
    place = f"{shapes.place(pull.repo)}/pulls"
    url, parent = f"{place}/comments/{comment.id}", f"{place}/{pull.number}"
    position = thread.hunk.count("\n")
    shape: Json = {
        "id": comment.id, "node_id": node_id("PullRequestReviewComment", comment.id), "url": url,
        "html_url": page, "pull_request_url": parent, "pull_request_review_id": comment.review.id,
        "diff_hunk": thread.hunk, "path": thread.path, "position": position, "original_position": position,
        "commit_id": comment.review.sha, "original_commit_id": comment.review.sha,
        "user": shapes.author(comment.author), "body": comment.body,
        "created_at": comment.created, "updated_at": comment.updated,
        "author_association": shapes.association(pull.repo, comment.author),
        "_links": {"self": {"href": url}, "html": {"href": page}, "pull_request": {"href": parent}},
        "reactions": shapes.reactions(url, comment.reactions), "subject_type": "line", "side": "RIGHT",
        "start_side": None, "start_line": None, "original_start_line": None,
        "line": thread.line, "original_line": thread.line,
    }  # fmt: skip
    if comment is not thread.comments[0]:
        shape["in_reply_to_id"] = thread.comments[0].id
    return shape


# --- REST ---------------------------------------------------------------------------------------------------


@operation("GET", f"{R}/pulls/{{pull_number}}/reviews")
def reviews(call: Call) -> Answer:
    pull = call.pull()
    shapes = [review_shape(call.shapes, pull, review, review.state.upper()) for review in pull.reviews]
    return call.page(shapes)


@operation("GET", f"{R}/pulls/{{pull_number}}/comments")
def inline_comments(call: Call) -> Answer:
    pull = call.pull()
    said = [(thread, comment) for thread in pull.review_threads for comment in thread.comments]
    in_order = sorted(said, key=lambda pair: pair[1].id)
    return call.page([inline_shape(call.shapes, thread, comment) for thread, comment in in_order])


@operation("POST", f"{R}/pulls/comments/{{comment_id}}/reactions")
def react_to_inline_comment(call: Call) -> Answer:
    said = (one for pull in call.repo.pulls for thread in pull.review_threads for one in thread.comments)
    return react_to(call, found(next((one for one in said if str(one.id) == call.path["comment_id"]), None)))


@operation("POST", f"{R}/pulls/{{pull_number}}/comments/{{comment_id}}/replies")
def reply(call: Call) -> Answer:
    author, pull = call.allow(PROPOSE), call.pull()
    wanted = call.path["comment_id"]
    thread = found(
        next((one for one in pull.review_threads if any(str(c.id) == wanted for c in one.comments)), None)
    )
    if str(thread.comments[0].id) != wanted:
        raise Refusal(422, "Validation Failed")  # replies to replies are not supported
    if not (body := call.text("body")).strip():
        raise invalid("PullRequestReviewComment", "body", "body cannot be blank")
    comment = answer(call.state, thread, body, author)
    call.news.extend(news(call.shapes, pull, comment.review))
    return Answer(inline_shape(call.shapes, thread, comment), 201)


def answer(state: State, thread: ReviewThread, body: str, author: User) -> Inline:
    """A reply in a thread; GitHub wraps each into a review of its own, which has no text."""
    return state.inline(thread, state.review(thread.pull, "", author), body)


# --- GraphQL: what REST does not know of a thread ------------------------------------------------------------


@field("repository")
def repository(call: Call, arguments: Arguments) -> Json:
    repo = visible(call.actor, call.state.find_repository(arguments["owner"], arguments["name"]))

    def pull_request(_: object, number: int) -> Json | None:
        pull = repo.threads.get(number)
        return _pull(call, pull) if isinstance(pull, Pull) else None

    return {
        "id": node_id("Repository", repo.id),
        "nameWithOwner": repo.full_name,
        "pullRequest": pull_request,
    }


def _pull(call: Call, pull: Pull) -> Json:
    def threads(_: object, **window: Any) -> Json:
        return _page([_thread(call, thread) for thread in pull.review_threads], **window)

    def reviews(_: object, **window: Any) -> Json:
        return _page([_review(review) for review in pull.reviews], **window)

    return {
        "id": node_id("PullRequest", pull.id),
        "isDraft": pull.draft,
        "number": pull.number,
        "reviewThreads": threads,
        "reviews": reviews,
    }


def _review(review: Review) -> Json:
    return {
        "id": node_id("PullRequestReview", review.id),
        "databaseId": review.id,
        "fullDatabaseId": str(review.id),
        "body": review.body,
        "author": None if review.author.gone else _actor(review.author),
        "createdAt": review.submitted,
        "submittedAt": review.submitted,
        "lastEditedAt": review.updated if review.updated != review.submitted else None,
    }


def _thread(call: Call, thread: ReviewThread) -> Json:
    def comments(_: object, **window: Any) -> Json:
        return _page([_comment(call, thread, comment) for comment in thread.comments], **window)

    return {
        "id": node_id("PullRequestReviewThread", thread.id),
        "isResolved": thread.resolved_by is not None,
        "isOutdated": False,
        "path": thread.path,
        "line": thread.line,
        "originalLine": thread.line,
        "comments": comments,
    }


def _comment(call: Call, thread: ReviewThread, comment: Inline) -> Json:
    author, asks = comment.author, call.actor
    assert isinstance(asks, Token)
    return {
        "id": node_id("PullRequestReviewComment", comment.id),
        "databaseId": comment.id,
        "fullDatabaseId": str(comment.id),
        "body": comment.body,
        "diffHunk": thread.hunk,
        "author": None if author.gone else _actor(author),
        "viewerDidAuthor": author is asks.user,
        "createdAt": comment.created,
        "publishedAt": comment.created,
        "lastEditedAt": comment.updated if comment.updated != comment.created else None,
        "pullRequestReview": _review(comment.review),
        "url": inline_shape(call.shapes, thread, comment)["html_url"],
    }


def _actor(user: User) -> Json:
    """GraphQL names a bot without the `[bot]` of its login."""
    login = user.login.removesuffix("[bot]")
    return {"__typename": user.kind, "id": node_id("User", user.id), "login": login, "databaseId": user.id}


def _page(items: list[Json], first: int = 100, after: str | None = None, **_: object) -> Json:
    if not 1 <= first <= 100:
        raise Failure("EXCESSIVE_PAGINATION", f"Requesting {first} records exceeds the `first` limit of 100.")
    start = int(after) if after else 0
    end = start + first
    return {
        "nodes": items[start:end],
        "totalCount": len(items),
        "pageInfo": {"hasNextPage": end < len(items), "endCursor": str(min(end, len(items)))},
    }


@field("resolveReviewThread")
def resolve_thread(call: Call, arguments: Arguments) -> Json:
    wanted = arguments["input"]["threadId"]
    threads = (
        thread for repo in call.state.repositories for pull in repo.pulls for thread in pull.review_threads
    )
    thread = next((one for one in threads if node_id("PullRequestReviewThread", one.id) == wanted), None)
    if thread is None:
        raise Failure("NOT_FOUND", f"Could not resolve to a node with the global id of '{wanted}'")
    thread.resolved_by = allowed(call, thread.pull.repo, PUSH).user
    return {"thread": _thread(call, thread)}
