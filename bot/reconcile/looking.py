"""What GitHub itself knows of labels, comments and reviews, told as the deliveries that should have told of it."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple, TypeAlias

from bot.github.answers import GHOST, Account, Answer
from bot.github.rest import PER_PAGE, Rest
from bot.github.tags import MARK, parted
from bot.reconcile.apart import Apart
from bot.reconcile.places import LONGEST, Place, Places
from bot.webhooks.delivery import Closed, CommentMade, Labelled, ReviewSaid, Sender, Unlabelled, Written
from bot.webhooks.payloads import ThroughApp
from bot.webhooks.triggers import is_label
from resolver.domain import Job, Repo, User
from resolver.errors import NotFound, Unauthorized

EVER = datetime.min.replace(tzinfo=UTC)
MOMENT = timedelta(
    seconds=5
)  # an inline comment is dated when it is drafted, and changed when it is published

Told: TypeAlias = Labelled | CommentMade | ReviewSaid
Us: TypeAlias = Callable[[Repo], Awaitable[Account | User | None]]
"""Says who we are; None while nobody could tell."""


class Happened(NamedTuple):
    """Something that a delivery should have told."""

    told: Told
    at: datetime


@dataclass
class Seen:
    """What one look at a repository has shown."""

    until: datetime
    """When the last thread changed that it has shown."""
    etag: str
    happened: list[Happened] = field(default_factory=list)
    ours: dict[str, str] = field(default_factory=dict)
    """The text of each of our own comments, by its tag."""
    again: bool = False
    """Whether a thread was left out that may soon be shown."""


class ThreadAnswer(Answer):
    number: int
    title: str
    body: str | None = None
    updated_at: datetime
    closed_at: datetime | None = None
    labels: tuple["LabelAnswer", ...] = ()
    pull_request: dict[str, object] | None = None

    def written(self) -> Written:
        """Later than it was when somebody asked for something, but not later than now."""
        return Written(title=self.title, body=self.body or "")


class LabelAnswer(Answer):
    name: str


class EventAnswer(Answer):
    event: str
    created_at: str
    actor: Account | None = None
    label: LabelAnswer | None = None


class SaidAnswer(Answer):
    id: int
    body: str | None = None
    user: Account | None = None
    created_at: datetime
    updated_at: datetime
    issue_url: str
    performed_via_github_app: ThroughApp | None = None


class InlineAnswer(Answer):
    id: int
    body: str | None = None
    user: Account | None = None
    created_at: datetime
    updated_at: datetime
    pull_request_url: str
    pull_request_review_id: int | None = None


class ReviewAnswer(Answer):
    id: int
    body: str | None = None
    user: Account | None = None
    submitted_at: datetime | None = None
    """None: it is a draft that only its author sees."""


class Looking:
    """Looks with the rights of the App, or with a token at the repositories that an operator names."""

    def __init__(
        self, rest: Rest, us: Us, repositories: Sequence[Repo] = (), good_for: timedelta = LONGEST
    ) -> None:
        """`us`: the account that our comments are by; the others: see Places."""
        self._rest = rest
        self._us = us
        self.places = Places(rest, repositories, good_for)

    async def look(self, place: Place, since: datetime, etag: str, label: str) -> Seen | None:
        """What has happened since; None: nothing at all since the answer with this `etag`.

        In a thread that is closed: what was asked for after that, which is to be answered. A thread that fails is left
        out. Raises ForgeError.
        """
        try:
            return await self._look(place, since, etag, label)
        except Unauthorized:
            self.places.forget()  # revoked before its time: another is minted
            raise

    async def _look(self, place: Place, since: datetime, etag: str, label: str) -> Seen | None:
        query = {"state": "all", "sort": "updated", "direction": "desc", "per_page": str(PER_PAGE)}
        query["since"] = _stamp(since)
        page = await self._rest.page(
            list[ThreadAnswer], place.token, *place.path, "issues", etag=etag, **query
        )
        if page is None:
            return None
        threads = page.found
        if page.following:
            rest = self._rest.pages(list[ThreadAnswer], place.token, *place.path, "issues", **page.following)
            threads += [thread async for found in rest for thread in found]
        seen = Seen(max([since, *(thread.updated_at for thread in threads)]), page.etag)
        threads = [one for one in threads if one.closed_at is None or one.updated_at > one.closed_at]
        apart = Apart(Unauthorized)
        for thread in threads:
            if any(is_label(one.name, label) for one in thread.labels):
                async with apart.each_asked(f"{place.repo}#{thread.number}", self._rest):
                    seen.happened += await self._labelled(place, thread, label)
        if threads:
            await self._said(place, since, {thread.number: thread for thread in threads}, seen)
        if pulls := {thread.number: thread for thread in threads if thread.pull_request is not None}:
            await self._reviewed(place, since, pulls, seen, apart)
        seen.again = apart.again
        closed = {thread.number: thread.closed_at for thread in threads if thread.closed_at is not None}
        seen.happened = [
            one for one in seen.happened if one.at >= since and one.at > closed.get(one.told.number, EVER)
        ]
        return seen

    async def ended(self, place: Place, jobs: Sequence[Job]) -> list[Closed | Unlabelled]:
        """What has ended of that for which these jobs wait or run there; a thread that fails is left out.

        Raises ForgeError.
        """
        labels = {job.number: job.label for job in sorted(jobs, key=lambda job: job.label or "")}
        apart, gone = Apart(Unauthorized), list[Closed | Unlabelled]()
        for number, label in labels.items():
            async with apart.each_asked(f"{place.repo}#{number}", self._rest):
                if (told := await self._ended(place, number, label)) is not None:
                    gone.append(told)
        return gone

    async def _ended(self, place: Place, number: int, label: str | None) -> Closed | Unlabelled | None:
        try:
            thread = await self._rest.page(ThreadAnswer, place.token, *place.path, "issues", str(number))
            assert thread is not None, "it was asked for without an etag"
            found = thread.found
        except NotFound:
            found = None
        if found is None or found.number != number:  # GitHub leads on to where it was moved
            how: Literal["deleted", "transferred"] = "deleted" if found is None else "transferred"
            now = datetime.now(UTC).isoformat()
            return Closed(repo=place.repo, number=number, how=how, at=now, branch=None)
        if found.closed_at is not None:
            at = found.closed_at.isoformat()
            return Closed(repo=place.repo, number=number, how="closed", at=at, branch=None)
        if label is None or any(is_label(one.name, label) for one in found.labels):
            return None
        events = await self._rest.get_all(
            EventAnswer, place.token, *place.path, "issues", str(number), "events"
        )
        away = [
            one
            for one in events
            if one.event == "unlabeled" and one.label and is_label(one.label.name, label)
        ]
        if not away:
            return None
        last = away[-1]
        by = _sender(last.actor)
        return Unlabelled(repo=place.repo, number=number, label=label, at=last.created_at, sender=by)

    async def _labelled(self, place: Place, thread: ThreadAnswer, label: str) -> list[Happened]:
        """The last time that somebody put the label there."""
        events = await self._rest.get_all(
            EventAnswer, place.token, *place.path, "issues", str(thread.number), "events"
        )
        put = [
            one for one in events if one.event == "labeled" and one.label and is_label(one.label.name, label)
        ]
        return [
            Happened(
                Labelled(
                    repo=place.repo,
                    repo_id=place.id,
                    number=thread.number,
                    label=label,
                    at=event.created_at,
                    sender=_sender(event.actor),
                    installation=place.installation,
                    pinned=thread.written(),
                ),
                datetime.fromisoformat(event.created_at),
            )
            for event in put[-1:]
        ]

    async def _said(
        self, place: Place, since: datetime, threads: dict[int, ThreadAnswer], seen: Seen
    ) -> None:
        us = await self._us(place.repo)
        query = {"since": _stamp(since), "sort": "updated", "direction": "asc"}
        for said in await self._rest.get_all(
            SaidAnswer, place.token, *place.path, "issues", "comments", **query
        ):
            body, number = said.body or "", _number(said.issue_url)
            if us and said.user and said.user.id == us.id and body.startswith(MARK):
                tag, text = parted(body)
                seen.ours[tag] = text.strip()
            if number not in threads or said.updated_at != said.created_at:
                continue  # what is written into an old comment is said to nobody
            app = said.performed_via_github_app
            told = CommentMade(
                repo=place.repo,
                repo_id=place.id,
                number=number,
                comment_id=said.id,
                body=body,
                sender=_sender(said.user),
                through_app=app.names() if app else frozenset(),
                installation=place.installation,
                at=said.created_at.isoformat(),
                pinned=threads[number].written(),
            )
            seen.happened.append(Happened(told, said.created_at))

    async def _reviewed(
        self, place: Place, since: datetime, pulls: dict[int, ThreadAnswer], seen: Seen, apart: Apart
    ) -> None:
        published: dict[int, datetime] = {}
        for number in sorted(pulls):
            reviews = list[ReviewAnswer]()
            async with apart.each_asked(f"{place.repo}#{number}", self._rest):
                path = *place.path, "pulls", str(number), "reviews"
                reviews = await self._rest.get_all(ReviewAnswer, place.token, *path)
            for review in reviews:
                if review.submitted_at is not None:
                    published[review.id] = review.submitted_at
                    told = _review(
                        place, pulls[number], review.id, None, review.body, review.user, review.submitted_at
                    )
                    seen.happened.append(Happened(told, review.submitted_at))
        query = {"since": _stamp(since), "sort": "updated", "direction": "asc"}
        for said in await self._rest.get_all(
            InlineAnswer, place.token, *place.path, "pulls", "comments", **query
        ):
            number, review_id = _number(said.pull_request_url), said.pull_request_review_id
            at = said.created_at if review_id is None else published.get(review_id)
            if number in pulls and at is not None and said.updated_at <= at + MOMENT:
                told = _review(place, pulls[number], review_id, said.id, said.body, said.user, at)
                seen.happened.append(Happened(told, at))


def _review(
    place: Place,
    pull: ThreadAnswer,
    review: int | None,
    inline: int | None,
    body: str | None,
    by: Account | None,
    at: datetime,
) -> ReviewSaid:
    return ReviewSaid(
        repo=place.repo,
        repo_id=place.id,
        number=pull.number,
        review=review,
        inline=inline,
        body=body or "",
        sender=_sender(by),
        installation=place.installation,
        at=at.isoformat(),
        pinned=pull.written(),
    )


def _sender(account: Account | None) -> Sender:
    known = account or GHOST
    return Sender(id=known.id, login=known.login, bot=known.type == "Bot")


def _number(url: str) -> int:
    return int(url.rpartition("/")[2])


def _stamp(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
