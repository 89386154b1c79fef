"""Simulates the pages on which people create and install GitHub Apps: GitHub's manifest flow, with its errors.

Source: docs.github.com, "Registering a GitHub App from a manifest"
"""

import html
import json
import secrets
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from patchwright.demo.github.app_models import AppConversion, GitHubApp
from patchwright.demo.github.oauth import HttpReply, OAuth
from patchwright.demo.github.operations import operation
from patchwright.demo.github.request_context import RequestContext, RestResponse, require_found
from patchwright.demo.github.serializers import Json
from patchwright.demo.github.state import APP_PERMISSIONS, GitHubState, Installation, User
from patchwright.demo.github.webhook_models import RegisteredWebhook

CODE_LIFETIME = timedelta(hours=1)
MAX_NAME = 34  # characters of an App's name
MANIFEST_FIELDS = set(
    "name url hook_attributes redirect_url callback_urls setup_url description public default_events "
    "default_permissions request_oauth_on_install setup_on_update".split()
)

PAGE_HTML = """<!doctype html><html lang="en"><title>{title}</title><main><h1>{title}</h1>{said}
<form method="post" action="{action}">{fields}<button>{button}</button></form></main></html>"""


def create_app(state: GitHubState, slug: str, permissions: Mapping[str, str] = APP_PERMISSIONS) -> GitHubApp:
    """Creates a GitHub App with its own key. The App acts as `SLUG[bot]` in its repositories."""
    key = _generate_key(len(state.apps))
    pem, public = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    made = GitHubApp(
        id=state.next_id(), slug=slug, bot=state.find_or_create_user(f"{slug}[bot]", "Bot"),
        private_key_pem=key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode(),
        public_key_pem=key.public_key().public_bytes(pem, public).decode(),
        created=state.next_timestamp(), permissions=dict(permissions),
    )  # fmt: skip
    state.apps.append(made)
    return made


@lru_cache
def _generate_key(number: int) -> rsa.RSAPrivateKey:
    """Returns a private key for the n-th App of a fake server.

    All fake servers use the same keys, because creating one takes 50 ms.
    """
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class AppRegistration:
    """Handles the browser's requests to create and install an App."""

    def __init__(
        self,
        state: GitHubState,
        oauth: OAuth,
        add_webhook: Callable[[str, str], RegisteredWebhook],
        ping: Callable[[RegisteredWebhook], None],
    ) -> None:
        """`add_webhook` registers a URL as a webhook, and `ping` sends that webhook its first event."""
        self._state = state
        self._oauth = oauth
        self._add_webhook = add_webhook
        self._ping = ping

    @staticmethod
    def is_app_path(path: str) -> bool:
        parts = path.strip("/").split("/")
        return path.startswith(("/settings/apps/", "/organizations/", "/apps/")) and len(parts) >= 3

    def respond(self, method: str, path: str, query: Mapping[str, str], body: bytes) -> HttpReply:
        """Handles a request. Returns the status, headers and body of the response."""
        given = dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True))
        person = self._oauth.signed_in_user
        match path.strip("/").split("/"):
            case ["settings", "apps", "new"] if method == "POST" and person is not None:
                return self._handle_manifest(path, person, query, given)
            case ["organizations", name, "settings", "apps", "new"] if method == "POST":
                owner = self._state.find_user(name)
                if owner is None or owner.kind != "Organization" or person is None:
                    return _text_reply(404, "Not Found")
                return self._handle_manifest(path, owner, query, given)
            case ["apps", slug, "installations", "new"] if person is not None:
                app = next((app for app in self._state.apps if app.slug == slug), None)
                return (
                    _text_reply(404, "Not Found") if app is None else self._install(app, method, path, given)
                )
            case _:
                return _text_reply(404, "Not Found")

    def _handle_manifest(
        self, path: str, owner: User, query: Mapping[str, str], form: Mapping[str, str]
    ) -> HttpReply:
        """Shows the App that the manifest describes. Creates the App when the user presses the button."""
        manifest = json.loads(form.get("manifest", "{}"))
        name = str(manifest.get("name", ""))
        if wrong := self._validate_manifest(manifest, name):
            return _text_reply(422, f"Invalid GitHub App configuration: {wrong}")
        if form.get("agreed") != "yes":
            fields = {"manifest": form["manifest"], "agreed": "yes"}
            granted = manifest.get("default_permissions", {})
            said = ", ".join(f"{one}: {level}" for one, level in granted.items())
            action = f"{path}?{urlencode(query)}" if query else path
            return _html_reply(
                "Create GitHub App", said, action, f"Create GitHub App for {owner.login}", fields
            )
        code = self._create_from_manifest(manifest, name)
        with_state = {"code": code} | ({"state": query["state"]} if "state" in query else {})
        return 302, {"location": f"{manifest['redirect_url']}?{urlencode(with_state)}"}, b""

    def _validate_manifest(self, manifest: Mapping[str, object], name: str) -> str:
        if unknown := manifest.keys() - MANIFEST_FIELDS:
            return f"unknown {sorted(unknown)[0]}"
        if not name or len(name) > MAX_NAME:
            return "Name is too long (maximum is 34 characters)" if name else "Name can't be blank"
        if any(app.slug == _slug(name) for app in self._state.apps):
            return "Name is already taken"
        if not manifest.get("url") or not manifest.get("redirect_url"):
            return "url wasn't supplied"
        hook = manifest.get("hook_attributes")
        if isinstance(hook, dict) and hook.get("active", True) and not urlsplit(str(hook.get("url"))).netloc:
            return "Hook url is not a URL"
        return ""

    def _create_from_manifest(self, manifest: Mapping[str, object], name: str) -> str:
        wanted = manifest.get("default_permissions")
        granted = {"metadata": "read", **(wanted if isinstance(wanted, dict) else {})}
        app = create_app(self._state, _slug(name), granted)
        events = manifest.get("default_events")
        app.events = [str(one) for one in events] if isinstance(events, list) else []
        app.setup_url = str(manifest.get("setup_url") or "")
        urls = manifest.get("callback_urls")
        client = self._oauth.create_client(app, str(urls[0]) if isinstance(urls, list) and urls else "")
        attributes, secret = manifest.get("hook_attributes"), None
        if isinstance(attributes, dict) and attributes.get("active", True):
            secret = secrets.token_hex(20)
            self._ping(self._add_webhook(str(attributes["url"]), secret))
        code = secrets.token_hex(20)
        self._state.conversions[code] = AppConversion(
            app, client.id, client.secret, secret, datetime.now(UTC) + CODE_LIFETIME
        )
        return code

    def _install(self, app: GitHubApp, method: str, path: str, form: Mapping[str, str]) -> HttpReply:
        """Shows the page for installing the App, or installs it if the method is POST.

        The App is installed on all repositories of one account: the owner of the server's first repository.
        """
        if method != "POST":
            names = ", ".join(repo.full_name for repo in self._state.repositories)
            return _html_reply(f"Install {app.slug}", names, path, "Install", {})
        first = self._state.repositories[0].owner
        mine = [repo for repo in self._state.repositories if repo.owner is first]
        place = Installation(self._state.next_id(), app, first, mine, self._state.next_timestamp())
        self._state.installations.append(place)
        if not app.setup_url:
            return _text_reply(200, "Installed")
        query = urlencode({"installation_id": place.id, "setup_action": "install"})
        return 302, {"location": f"{app.setup_url}?{query}"}, b""


@operation("POST", "/app-manifests/{code}/conversions")
def convert_manifest(call: RequestContext) -> RestResponse:
    """Returns the App and its secrets. As on GitHub, this works only once per code."""
    made = require_found(call.state.conversions.pop(call.path["code"], None))
    if made.expires <= datetime.now(UTC):
        require_found(None)
    credentials = {
        "client_id": made.client_id, "client_secret": made.client_secret, "pem": made.app.private_key_pem,
        "webhook_secret": made.webhook_secret,
    }  # fmt: skip
    return RestResponse({**call.serializer.app(made.app), **credentials}, 201)


@operation("GET", "/app/hook/config")
def get_webhook_config(call: RequestContext) -> RestResponse:
    call.app  # noqa: B018 - it refuses
    hook = next((one for one in reversed(call.state.hooks) if one.repo is None), None)
    config: Json = {"content_type": "json", "insecure_ssl": "0"}
    return RestResponse(config | ({"url": hook.url, "secret": "********"} if hook else {}))


def _slug(name: str) -> str:
    return quote(name.lower().replace(" ", "-"), safe="")


def _text_reply(status: int, text: str) -> HttpReply:
    return status, {"content-type": "text/plain; charset=utf-8"}, text.encode()


def _html_reply(title: str, text: str, action: str, button: str, fields: Mapping[str, str]) -> HttpReply:
    hidden = "".join(
        f'<input type="hidden" name="{name}" value="{html.escape(value)}">' for name, value in fields.items()
    )
    words = {"title": title, "said": text, "action": action, "button": button}
    made = PAGE_HTML.format(fields=hidden, **{name: html.escape(word) for name, word in words.items()})
    return 200, {"content-type": "text/html; charset=utf-8"}, made.encode()
