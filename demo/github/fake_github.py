"""The fake GitHub of the tests and the demo: users, repositories, threads, webhooks, and faults on request."""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from patchwright.bot.github.auth import GitHubServer
from patchwright.demo.github.app_models import GitHubApp, OAuthClient
from patchwright.demo.github.app_registration import AppRegistration, create_app
from patchwright.demo.github.bare_repository import BareRepository
from patchwright.demo.github.ci import FakeCI
from patchwright.demo.github.git_server import GitServer
from patchwright.demo.github.oauth import OAuth
from patchwright.demo.github.openapi_checker import OpenApiChecker, SpecViolation
from patchwright.demo.github.request_context import WebhookEvent
from patchwright.demo.github.rest_api import ApiRequest, RestApi, WriteRequest
from patchwright.demo.github.reviews import add_reply, review_events, start_thread
from patchwright.demo.github.serializers import Serializer
from patchwright.demo.github.server import (
    FakeGitHubServer,
    RequestFault,
    WriteObserver,
)
from patchwright.demo.github.state import (
    APP_PERMISSIONS,
    BranchTip,
    Comment,
    FakePullRequest,
    GitHubState,
    Installation,
    Issue,
    Repository,
    Review,
    ReviewState,
    ReviewThread,
    Role,
    User,
)
from patchwright.demo.github.webhook_models import Delivery, RegisteredWebhook
from patchwright.demo.github.webhooks import WebhookSender


class FakeGitHub:
    """A fake GitHub server. On exit, it raises SpecViolation if GitHub's API description was violated."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(
            prefix="patchwright-github-", ignore_cleanup_errors=True
        )
        self._server = FakeGitHubServer()
        self._checker = OpenApiChecker()
        self._writes: list[WriteRequest] = []
        self.server_url = self._server.url
        """URL for git and browsers."""
        self.urls = GitHubServer(github_server_url=self.server_url)
        self.api_url, self.graphql_url = self.urls.github_api_url, self.urls.graphql_url
        self._state = GitHubState(Path(self._directory.name))
        self._serializer = Serializer(self.api_url, self.server_url)
        self._webhooks = WebhookSender(self._state, self._serializer, self._checker)
        self.ci = FakeCI(self._state, self._serializer, self._webhooks, self._server.attachments)
        self._server.api = RestApi(
            self._state, self._serializer, self._checker, self._writes, self._webhooks.schedule
        )
        self._server.git = GitServer(self._state, self._writes)
        self._server.oauth = oauth = OAuth(self._state)
        self._server.apps = AppRegistration(self._state, oauth, self._webhooks.add, self._webhooks.ping)

    async def __aenter__(self) -> Self:
        await self._server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._webhooks.close()
        await self._server.stop()
        self._directory.cleanup()
        if error is None and self.violations:
            raise SpecViolation("\n".join(self.violations))

    # --- state ----------------------------------------------------------------------------------------------

    def user(self, login: str) -> User:
        """Returns the user with this login; creates it if necessary."""
        return self._state.find_or_create_user(login)

    def rename_user(self, login: str, new: str) -> None:
        """Changes a user's login. The id stays the same, and the old login becomes available."""
        self.user(login).login = new

    def delete_user(self, login: str) -> None:
        """Deletes a user's account. The issues and comments of the user stay, without an author."""
        self._state.delete_user(self.user(login))

    def create_repository(
        self,
        full_name: str,
        files: Mapping[str, str | bytes] | Path | None = None,
        *,
        permissions: Mapping[str, Role] | None = None,
        private: bool = False,
    ) -> Repository:
        """Creates a repository. Its files are one commit on `main`. An owner in `permissions` is a person."""
        (account, name), roles = full_name.split("/"), permissions or {}
        owner = self._state.find_or_create_user(account, "User" if account in roles else "Organization")
        made = Repository(
            id=self._state.next_id(), owner=owner, name=name, private=private,
            bare=BareRepository.create(self._state.root / f"{full_name}.git", "main"),
            created=self._state.next_timestamp(),
        )  # fmt: skip
        for login, role in roles.items():
            self.set_role(made, login, role)
        if files is not None:
            made.bare.commit("main", files, "Begin")
        self._state.repositories.append(made)
        return made

    def create_fork(self, repo: Repository, owner: str) -> Repository:
        """Creates a user's fork of a repository, to which the user may push."""
        made = self.create_repository(f"{owner}/{repo.name}", permissions={owner: "admin"})
        made.parent = repo
        made.bare.git("fetch", "--quiet", str(repo.bare.path), "+refs/heads/*:refs/heads/*")
        return made

    def set_role(self, repo: Repository, login: str, role: Role) -> None:
        """Sets a user's role in a repository. With "none", the user has the same access as the public."""
        repo.roles.pop(self.user(login).id, None)
        if role != "none":
            repo.roles[self.user(login).id] = role

    def create_token(self, login: str) -> str:
        """Creates a personal access token with all permissions of its user."""
        return self._state.create_personal_token(self.user(login)).value

    def create_app(
        self, slug: str = "patchwright", permissions: Mapping[str, str] = APP_PERMISSIONS
    ) -> GitHubApp:
        """Creates a GitHub App with a new key. The App acts as `SLUG[bot]` in its repositories."""
        return create_app(self._state, slug, permissions)

    def install_app(self, app: GitHubApp, *repositories: Repository) -> Installation:
        """Installs the App on these repositories, which must belong to one owner."""
        made = Installation(
            self._state.next_id(),
            app,
            repositories[0].owner,
            list(repositories),
            self._state.next_timestamp(),
        )
        self._state.installations.append(made)
        return made

    def create_oauth_client(self, app: GitHubApp, callback: str) -> OAuthClient:
        """Creates an OAuth client for sign-in. After sign-in, the browser returns to a URL below `callback`."""
        return self._server.oauth.create_client(app, callback)

    def sign_in(self, login: str) -> None:
        """Signs in as this user in every browser."""
        self._server.oauth.signed_in_user = self.user(login)

    def create_installation_token(self, installation: Installation) -> str:
        """Creates a token for the installation's repositories. It expires after 3600 s, as in an Actions run."""
        ids = frozenset(repo.id for repo in installation.repositories)
        return self._state.create_installation_token(installation, ids, installation.app.permissions).value

    @property
    def apps(self) -> tuple[GitHubApp, ...]:
        return tuple(self._state.apps)

    @property
    def tokens(self) -> tuple[str, ...]:
        """Returns all tokens that were ever created, both personal and installation tokens."""
        return tuple(self._state.tokens)

    def token_permissions(self, token: str) -> dict[str, str]:
        """Returns the permissions of an installation token."""
        return dict(self._state.tokens[token].permissions or {})

    def expire_tokens(self) -> None:
        """Makes all existing installation tokens expire."""
        for token in self._state.tokens.values():
            if token.expires is not None:
                token.expires = datetime.now(UTC)

    def add_webhook(self, url: str, secret: str, repo: Repository | None = None) -> RegisteredWebhook:
        """Registers a webhook for the events of `repo`. If `repo` is None, the webhook receives the events of
        all repositories, like an App's webhook.
        """
        return self._webhooks.add(url, secret, repo)

    def advance_time(self, **units: float) -> None:
        """Moves the server's clock forward by this number of `days`, `hours` or `seconds`."""
        self._state.time_offset += timedelta(**units)

    def now(self) -> datetime:
        return self._state.now()

    def add_attachment(
        self, name: str, body: bytes = b"", *, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> str:
        """Adds a file as if a user had dragged it into an issue's editor, and returns its URL. A name with a leading
        slash is the whole path.
        """
        path = name if name.startswith("/") else f"/user-attachments/{name}"
        self._server.attachments[path] = (status, dict(headers or {}), body)
        return self.server_url + path

    @property
    def attachment_requests(self) -> list[tuple[str, str | None]]:
        """Returns the path and the Authorization header of each request for an attachment."""
        return self._server.attachment_requests

    # --- events ---------------------------------------------------------------------------------------------

    def create_issue(self, repo: Repository, *, title: str, body: str | None, by: str) -> Issue:
        """Creates an issue. No webhook is delivered, because Patchwright does not listen for that event."""
        return self._state.create_issue(repo, title, body, self.user(by))

    async def open_issue(self, repo: Repository, *, title: str, body: str, by: str) -> Delivery:
        """Opens an issue as a user would in the browser, and returns the delivery of the event."""
        made = self.create_issue(repo, title=title, body=body, by=by)
        return await self._webhooks.deliver(WebhookEvent("issues", "opened", made, self.user(by), {}))

    async def add_label(self, thread: Issue, name: str, *, by: str) -> Delivery:
        """Adds a label as a user would in the browser, and returns the delivery of the event."""
        shape = self._serializer.label(thread.repo, self._state.add_label(thread, name, self.user(by)))
        return await self._webhooks.deliver(
            WebhookEvent(_thread_event(thread), "labeled", thread, self.user(by), {"label": shape})
        )

    async def remove_label(self, thread: Issue, name: str, *, by: str) -> Delivery:
        label = thread.repo.labels[name.lower()]
        self._state.remove_label(thread, label, self.user(by))
        shape = self._serializer.label(thread.repo, label)
        return await self._webhooks.deliver(
            WebhookEvent(_thread_event(thread), "unlabeled", thread, self.user(by), {"label": shape})
        )

    async def close_thread(self, thread: Issue, *, by: str, merged: bool = False) -> Delivery:
        """Closes or merges a thread as a user would in the browser, and returns the delivery of the event."""
        self.close_silently(thread)
        if isinstance(thread, FakePullRequest) and merged:
            thread.merged = thread.closed
        return await self._webhooks.deliver(
            WebhookEvent(_thread_event(thread), "closed", thread, self.user(by), {})
        )

    def add_label_silently(self, thread: Issue, name: str, *, by: str) -> None:
        """Adds a label without delivering a webhook."""
        self._state.add_label(thread, name, self.user(by))

    async def add_comment(self, thread: Issue, body: str, *, by: str) -> Delivery:
        """Adds a comment as a user would in the browser, and returns the delivery of the event."""
        made = self._state.add_comment(thread, body, self.user(by))
        shape = self._serializer.comment(thread, made)
        return await self._webhooks.deliver(
            WebhookEvent("issue_comment", "created", thread, self.user(by), {"comment": shape})
        )

    def add_comment_silently(self, thread: Issue, body: str, *, by: str) -> Comment:
        """Adds a comment without delivering a webhook, for example as an older comment."""
        return self._state.add_comment(thread, body, self.user(by))

    def edit_comment(self, thread: Issue, comment: Comment | Review, body: str) -> None:
        """Replaces the text of a comment, as its author would. No webhook is delivered."""
        self._state.edit_comment(thread, comment, body)

    def create_pull(
        self,
        repo: Repository,
        head: str,
        *,
        by: str,
        title: str = "Add something",
        body: str | None = None,
        fork: Repository | None = None,
        maintainer_can_modify: bool = False,
    ) -> FakePullRequest:
        """Opens a pull request from an existing branch. No webhook is delivered."""
        sha = (fork or repo).bare.branch_sha(head)
        assert sha is not None, f"there is no branch {head}"
        made = self._state.create_pull(
            repo, title, body, self.user(by), BranchTip(head, sha), repo.default_branch, False, fork
        )
        made.maintainer_can_modify = maintainer_can_modify
        return made

    def add_review(
        self,
        pull: FakePullRequest,
        *comments: tuple[str, int, str],
        by: str,
        body: str = "",
        verdict: ReviewState = "commented",
    ) -> Review:
        """Adds a review; each inline comment (path, line, text) starts a thread. Delivers no webhook."""
        made = self._state.create_review(pull, body, self.user(by), verdict)
        for path, line, text in comments:
            start_thread(self._state, pull, made, path, line, text)
        return made

    async def deliver_review(self, pull: FakePullRequest, review: Review) -> list[Delivery]:
        """Delivers the webhooks of a review: one for the review, and one for each inline comment."""
        return [await self._webhooks.deliver(item) for item in review_events(self._serializer, pull, review)]

    def add_reply(self, thread: ReviewThread, body: str, *, by: str) -> Review:
        """Adds a reply to a thread. Like GitHub, it creates a review for the reply. No webhook is delivered."""
        return add_reply(self._state, thread, body, self.user(by)).review

    def resolve_thread(self, thread: ReviewThread, *, by: str) -> None:
        thread.resolved_by = self.user(by)

    async def send_delivery(
        self, hook: RegisteredWebhook, event: str, action: str, body: bytes, *, guid: str
    ) -> Delivery:
        """Delivers exactly these bytes as an event, without a change in the server's state."""
        return await self._webhooks.post(hook, guid, event, action, body)

    async def redeliver(self, delivery: Delivery) -> Delivery:
        """Sends a delivery again, with the same GUID and the same bytes."""
        return await self._webhooks.redeliver(delivery)

    async def wait_for_deliveries(self) -> None:
        """Waits until every current delivery has succeeded or failed."""
        await self._webhooks.wait_until_sent()

    def lock_thread(self, thread: Issue) -> None:
        """Locks a thread, so that only collaborators can comment. The App is not a collaborator."""
        thread.locked = True

    def close_silently(self, thread: Issue) -> None:
        thread.closed = thread.updated = self._state.next_timestamp()

    # --- faults ---------------------------------------------------------------------------------------------

    def lose_next_request(self, method: str, path_end: str) -> None:
        """Drops the connection of the next matching request before the request has any effect."""
        self._server.faults.append(RequestFault(method, path_end, "lost request"))

    def lose_next_response(self, method: str, path_end: str) -> None:
        """Handles the next matching request, and then drops the connection before the response is sent."""
        self._server.faults.append(RequestFault(method, path_end, "lost response"))

    def fail_next_request(
        self,
        method: str,
        path_end: str,
        *,
        status: int,
        headers: Mapping[str, str] | None = None,
        body: Mapping[str, object] | None = None,
        times: int = 1,
    ) -> None:
        """Answers the next matching requests with this error. The requests have no effect."""
        fault = RequestFault(method, path_end, "refused", status, dict(headers or {}))
        self._server.faults += [replace(fault, body=body) if body else fault] * times

    def before_next_request(self, method: str, path_end: str, action: Callable[[], object]) -> None:
        """Runs `action` just before the next matching request is handled, to simulate a race."""
        self._server.faults.append(RequestFault(method, path_end, "preceded", action=action))

    def observe_writes(self, observer: WriteObserver) -> None:
        """Calls the observer for each request that changes something. The observer may cut off the request."""
        self._server.write_observer = observer

    # --- records --------------------------------------------------------------------------------------------

    @property
    def writes(self) -> tuple[WriteRequest, ...]:
        """Returns all write requests in order. This includes pushes, but not requests for tokens."""
        return tuple(self._writes)

    @property
    def api_requests(self) -> tuple[ApiRequest, ...]:
        """Returns every REST and GraphQL request, in order. Git requests are not included."""
        return tuple(self._server.api.requests)

    @property
    def connection_count(self) -> int:
        """Returns the number of connections that were opened to the server."""
        return len(self._server.clients)

    @property
    def deliveries(self) -> tuple[Delivery, ...]:
        """Returns every attempt to deliver a webhook, in order."""
        return tuple(self._state.deliveries)

    @property
    def violations(self) -> tuple[str, ...]:
        """Returns every violation of GitHub's API description."""
        return tuple(self._checker.violations)


def _thread_event(thread: Issue) -> str:
    """Returns the webhook event for a change to a thread. Issues and pull requests have different events."""
    return "pull_request" if isinstance(thread, FakePullRequest) else "issues"
