"""A stateful stand-in for GitHub over real HTTP on loopback: for the demo and for the tests."""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from demo.world.api import Api, Write
from demo.world.apps import AppPages, new_app
from demo.world.bare import Bare
from demo.world.call import News
from demo.world.ci import CI
from demo.world.contract import Contract
from demo.world.git import GitServer
from demo.world.hooks import Hooks
from demo.world.oauth import Client, OAuth
from demo.world.reviews import answer, begin, news
from demo.world.server import API, GRAPHQL, Fault, Server, Witness
from demo.world.shapes import Shapes
from demo.world.state import (
    APP_PERMISSIONS,
    App,
    Comment,
    Installation,
    Issue,
    Pull,
    Repository,
    Review,
    ReviewState,
    ReviewThread,
    Role,
    State,
    Tip,
    User,
)  # fmt: skip
from demo.world.told import Delivery, Hook

__all__ = [
    "App",
    "Comment",
    "Delivery",
    "Installation",
    "Issue",
    "OffTheDescription",
    "Pull",
    "Repository",
    "Review",
    "ReviewThread",
    "User",
    "World",
    "Write",
]


class OffTheDescription(AssertionError):
    """A request or an answer was not as GitHub describes its API."""


class World:
    """GitHub in a box. Leaving it raises OffTheDescription if anything was off GitHub's own description."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="patchwright-world-", ignore_cleanup_errors=True)
        self._server = Server()
        self._contract = Contract()
        self._writes: list[Write] = []
        self.server_url = self._server.url
        """Where git and people go."""
        self.api_url = self.server_url + API
        self.graphql_url = self.server_url + GRAPHQL
        self._state = State(Path(self._directory.name))
        self._shapes = Shapes(self.api_url, self.server_url)
        self._hooks = Hooks(self._state, self._shapes, self._contract)
        self.ci = CI(self._state, self._shapes, self._hooks, self._server.attached)
        self._server.api = Api(self._state, self._shapes, self._contract, self._writes, self._hooks.soon)
        self._server.git = GitServer(self._state, self._writes)
        self._server.oauth = oauth = OAuth(self._state)
        self._server.apps = AppPages(self._state, oauth, self._hooks.add, self._hooks.ping)

    async def __aenter__(self) -> Self:
        await self._server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._hooks.close()
        await self._server.stop()
        self._directory.cleanup()
        if error is None and self.violations:
            raise OffTheDescription("\n".join(self.violations))

    # --- what there is --------------------------------------------------------------------------------------

    def user(self, login: str) -> User:
        """The person of this name, made if new."""
        return self._state.user(login)

    def rename(self, login: str, new: str) -> None:
        """The same person under another name: the id stays, the old name is free."""
        self.user(login).login = new

    def leave(self, login: str) -> None:
        """This person deletes their account; what they wrote stays, by nobody."""
        self._state.leave(self.user(login))

    def repository(
        self,
        full_name: str,
        files: Mapping[str, str | bytes] | Path | None = None,
        *,
        permissions: Mapping[str, Role] | None = None,
        private: bool = False,
    ) -> Repository:
        """A repository with one commit on `main`; without files none. `permissions`: login to role."""
        owner, name = full_name.split("/")
        made = Repository(
            id=self._state.next_id(), owner=self._state.user(owner, "Organization"), name=name,
            private=private,
            bare=Bare.create(self._state.root / f"{full_name}.git", "main"), created=self._state.stamp(),
        )  # fmt: skip
        for login, role in (permissions or {}).items():
            self.permit(made, login, role)
        if files is not None:
            made.bare.commit("main", files, "Begin")
        self._state.repositories.append(made)
        return made

    def fork(self, repo: Repository, owner: str) -> Repository:
        """A person's own copy of a repository, which they may push to."""
        made = self.repository(f"{owner}/{repo.name}", permissions={owner: "admin"})
        made.owner.kind = "User"
        made.parent = repo
        made.bare.git("fetch", "--quiet", str(repo.bare.path), "+refs/heads/*:refs/heads/*")
        return made

    def permit(self, repo: Repository, login: str, role: Role) -> None:
        """From now on this user has this role there; "none" leaves them what everybody may."""
        repo.roles.pop(self.user(login).id, None)
        if role != "none":
            repo.roles[self.user(login).id] = role

    def token(self, login: str) -> str:
        """A personal access token: may do what its user may."""
        return self._state.personal_token(self.user(login)).value

    def app(self, slug: str = "patchwright", permissions: Mapping[str, str] = APP_PERMISSIONS) -> App:
        """A GitHub App with a fresh key; it acts as `SLUG[bot]` where it is installed."""
        return new_app(self._state, slug, permissions)

    def install(self, app: App, *repositories: Repository) -> Installation:
        """The app installed on these repositories of one owner."""
        made = Installation(
            self._state.next_id(), app, repositories[0].owner, list(repositories), self._state.stamp()
        )
        self._state.installations.append(made)
        return made

    def client(self, app: App, callback: str) -> Client:
        """What the app shows when people log in through it; they are sent back below `callback`."""
        return self._server.oauth.client(app, callback)

    def sit_down(self, login: str) -> None:
        """Every browser is this person's, logged in to the stand-in, from now on."""
        self._server.oauth.sits_here = self.user(login)

    def installation_token(self, installation: Installation) -> str:
        """What an Actions run or an operator would hold: good for the installation's repositories, 3600 s."""
        ids = frozenset(repo.id for repo in installation.repositories)
        return self._state.installation_token(installation, ids, installation.app.permissions).value

    @property
    def apps(self) -> tuple[App, ...]:
        return tuple(self._state.apps)

    @property
    def tokens(self) -> tuple[str, ...]:
        """Every token that was ever given, personal ones and those of installations."""
        return tuple(self._state.tokens)

    def permissions_of(self, token: str) -> dict[str, str]:
        """What a token of an installation may."""
        return dict(self._state.tokens[token].permissions or {})

    def expire_tokens(self) -> None:
        """Every installation token given so far is too old from now on."""
        for token in self._state.tokens.values():
            if token.expires is not None:
                token.expires = datetime.now(UTC)

    def hook(self, url: str, secret: str, repo: Repository | None = None) -> Hook:
        """From now on this URL is told what happens: everywhere, as an App's is, or in this repository."""
        return self._hooks.add(url, secret, repo)

    def pass_time(self, **units: float) -> None:
        """From now on it is later there, by so many `days`, `hours` or `seconds`."""
        self._state.passed += timedelta(**units)

    def now(self) -> datetime:
        return self._state.now()

    def attachment(
        self, name: str, body: bytes = b"", *, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> str:
        """The address of a file that somebody drags into the editor of an issue."""
        path = f"/user-attachments/{name}"
        self._server.attached[path] = (status, dict(headers or {}), body)
        return self.server_url + path

    @property
    def asked_for(self) -> list[tuple[str, str | None]]:
        """Paths of attachments that were asked for, each with the authorization that came along."""
        return self._server.asked_for

    # --- what happens ---------------------------------------------------------------------------------------

    def issue(self, repo: Repository, *, title: str, body: str | None, by: str) -> Issue:
        """A new issue. No hook is told: nothing of ours listens for that."""
        return self._state.issue(repo, title, body, self.user(by))

    async def label(self, thread: Issue, name: str, *, by: str) -> Delivery:
        """Somebody puts a label on it in the browser; the delivery that tells so."""
        shape = self._shapes.label(thread.repo, self._state.label(thread, name, self.user(by)))
        return await self._hooks.tell(
            News(_about(thread), "labeled", thread, self.user(by), {"label": shape})
        )

    async def unlabel(self, thread: Issue, name: str, *, by: str) -> Delivery:
        label = thread.repo.labels[name.lower()]
        self._state.unlabel(thread, label, self.user(by))
        shape = self._shapes.label(thread.repo, label)
        return await self._hooks.tell(
            News(_about(thread), "unlabeled", thread, self.user(by), {"label": shape})
        )

    async def end(self, thread: Issue, *, by: str, merged: bool = False) -> Delivery:
        """Somebody closes it in the browser, or merges it; the delivery that tells so."""
        self.close(thread)
        if isinstance(thread, Pull) and merged:
            thread.merged = thread.closed
        return await self._hooks.tell(News(_about(thread), "closed", thread, self.user(by), {}))

    def labelled(self, thread: Issue, name: str, *, by: str) -> None:
        """A label that no hook is told of."""
        self._state.label(thread, name, self.user(by))

    async def comment(self, thread: Issue, body: str, *, by: str) -> Delivery:
        """Somebody comments in the browser; the delivery that tells so."""
        made = self._state.comment(thread, body, self.user(by))
        shape = self._shapes.comment(thread, made)
        return await self._hooks.tell(
            News("issue_comment", "created", thread, self.user(by), {"comment": shape})
        )

    def said(self, thread: Issue, body: str, *, by: str) -> Comment:
        """A comment that no hook is told of: one from before."""
        return self._state.comment(thread, body, self.user(by))

    def edit(self, thread: Issue, comment: Comment | Review, body: str) -> None:
        """Its author writes something else in its place. No hook is told."""
        self._state.edit(thread, comment, body)

    def pull(
        self,
        repo: Repository,
        head: str,
        *,
        by: str,
        title: str = "Add something",
        body: str | None = None,
        fork: Repository | None = None,
        maintainer_can_modify: bool = False,
    ) -> Pull:
        """Somebody opens a pull request from a branch that is there. No hook is told."""
        sha = (fork or repo).bare.sha(head)
        assert sha is not None, f"there is no branch {head}"
        made = self._state.pull(
            repo, title, body, self.user(by), Tip(head, sha), repo.default_branch, False, fork
        )
        made.maintainer_can_modify = maintainer_can_modify
        assert made.head.sha == sha
        return made

    def reviewed(
        self,
        pull: Pull,
        *comments: tuple[str, int, str],
        by: str,
        body: str = "",
        verdict: ReviewState = "commented",
    ) -> Review:
        """A review with inline comments (path, line, text), each of which begins a thread. No hook is told."""
        made = self._state.review(pull, body, self.user(by), verdict)
        for path, line, text in comments:
            begin(self._state, pull, made, path, line, text)
        return made

    async def tell_review(self, pull: Pull, review: Review) -> list[Delivery]:
        """Webhooks tell of a review: one delivery for it, and one for each inline comment."""
        return [await self._hooks.tell(item) for item in news(self._shapes, pull, review)]

    def answered(self, thread: ReviewThread, body: str, *, by: str) -> Review:
        """Somebody answers in a thread: a review of its own, as GitHub has it. No hook is told."""
        return answer(self._state, thread, body, self.user(by)).review

    def resolve_thread(self, thread: ReviewThread, *, by: str) -> None:
        thread.resolved_by = self.user(by)

    async def send(self, hook: Hook, event: str, action: str, body: bytes, *, guid: str) -> Delivery:
        """A delivery of these very bytes, of something that the world does not know."""
        return await self._hooks.post(hook, guid, event, action, body)

    async def redeliver(self, delivery: Delivery) -> Delivery:
        """The same delivery once more: same GUID, same bytes."""
        return await self._hooks.again(delivery)

    async def all_sent(self) -> None:
        """Waits for what is being delivered, until that is known to have arrived or not."""
        await self._hooks.sent()

    def lock(self, thread: Issue) -> None:
        """Nobody who is not a member may comment any more; the app counts as none."""
        thread.locked = True

    def close(self, thread: Issue) -> None:
        thread.closed = thread.updated = self._state.stamp()

    # --- what goes wrong ------------------------------------------------------------------------------------

    def lose_next_request(self, method: str, path_end: str) -> None:
        """The next such request does nothing, and the connection drops."""
        self._server.faults.append(Fault(method, path_end, "lost request"))

    def lose_next_response(self, method: str, path_end: str) -> None:
        """The next such request does its work, and the connection drops before the answer."""
        self._server.faults.append(Fault(method, path_end, "lost response"))

    def refuse_next(
        self,
        method: str,
        path_end: str,
        *,
        status: int,
        headers: Mapping[str, str] | None = None,
        body: Mapping[str, object] | None = None,
        times: int = 1,
    ) -> None:
        """The next such requests do nothing and are answered so."""
        fault = Fault(method, path_end, "refused", status, dict(headers or {}))
        self._server.faults += [replace(fault, body=body) if body else fault] * times

    def before_next(self, method: str, path_end: str, act: Callable[[], object]) -> None:
        """Just before the next such request is answered, this is done: somebody was faster."""
        self._server.faults.append(Fault(method, path_end, "preceded", act=act))

    def witness(self, witness: Witness) -> None:
        """From now on it hears of each request that changes something, and may cut it off."""
        self._server.witness = witness

    # --- what was seen --------------------------------------------------------------------------------------

    @property
    def writes(self) -> tuple[Write, ...]:
        """Every request that was made to change something, pushes too, in order; minting a token is none."""
        return tuple(self._writes)

    @property
    def connections(self) -> int:
        """How many connections were opened to it so far."""
        return len(self._server.clients)

    @property
    def deliveries(self) -> tuple[Delivery, ...]:
        """Every attempt at every hook, in order."""
        return tuple(self._state.deliveries)

    @property
    def violations(self) -> tuple[str, ...]:
        """Everything that was off GitHub's description."""
        return tuple(self._contract.violations)


def _about(thread: Issue) -> str:
    """The event that tells of a thread: GitHub has one for issues and one for pull requests."""
    return "pull_request" if isinstance(thread, Pull) else "issues"
