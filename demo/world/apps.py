"""Apps that are made and installed in the browser at the stand-in: the manifest flow of GitHub, with its refusals.

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

from demo.world.call import Answer, Call, found
from demo.world.oauth import OAuth, Reply
from demo.world.operations import operation
from demo.world.registered import Made
from demo.world.shapes import Json
from demo.world.state import APP_PERMISSIONS, App, Installation, State, User
from demo.world.told import Hook

CODE_LIVES = timedelta(hours=1)
MOST_NAME = 34  # characters of an App's
ASKED = {"name", "url", "hook_attributes", "redirect_url", "callback_urls", "setup_url", "description", "public",
         "default_events", "default_permissions", "request_oauth_on_install", "setup_on_update"}  # fmt: skip

PAGE = """<!doctype html><html lang="en"><title>{title}</title><main><h1>{title}</h1>{said}
<form method="post" action="{action}">{fields}<button>{button}</button></form></main></html>"""


def new_app(state: State, slug: str, permissions: Mapping[str, str] = APP_PERMISSIONS) -> App:
    """A GitHub App with a key of its own; it acts as `SLUG[bot]` where it is installed."""
    key = _key(len(state.apps))
    pem, public = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    made = App(
        id=state.next_id(), slug=slug, bot=state.user(f"{slug}[bot]", "Bot"),
        private_key_pem=key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode(),
        public_key_pem=key.public_key().public_bytes(pem, public).decode(),
        created=state.stamp(), permissions=dict(permissions),
    )  # fmt: skip
    state.apps.append(made)
    return made


@lru_cache
def _key(number: int) -> rsa.RSAPrivateKey:
    """That of a world's first app, its second one and so on: to make one takes 50 ms."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class AppPages:
    """Answers what a browser asks to make an App and to install it."""

    def __init__(
        self, state: State, oauth: OAuth, hook: Callable[[str, str], Hook], ping: Callable[[Hook], None]
    ) -> None:
        """`hook`: has a URL told what happens; `ping`: tells it that it will be."""
        self._state = state
        self._oauth = oauth
        self._hook = hook
        self._ping = ping

    @staticmethod
    def has(path: str) -> bool:
        parts = path.strip("/").split("/")
        return path.startswith(("/settings/apps/", "/organizations/", "/apps/")) and len(parts) >= 3

    def respond(self, method: str, path: str, query: Mapping[str, str], body: bytes) -> Reply:
        """Status, headers and body."""
        given = dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True))
        person = self._oauth.sits_here
        match path.strip("/").split("/"):
            case ["settings", "apps", "new"] if method == "POST" and person is not None:
                return self._asked(path, person, query, given)
            case ["organizations", name, "settings", "apps", "new"] if method == "POST":
                owner = self._state.find_user(name)
                if owner is None or owner.kind != "Organization" or person is None:
                    return _plain(404, "Not Found")
                return self._asked(path, owner, query, given)
            case ["apps", slug, "installations", "new"] if person is not None:
                app = next((app for app in self._state.apps if app.slug == slug), None)
                return _plain(404, "Not Found") if app is None else self._installed(app, method, path, given)
            case _:
                return _plain(404, "Not Found")

    def _asked(self, path: str, owner: User, query: Mapping[str, str], given: Mapping[str, str]) -> Reply:
        """Show what is wanted, and make it when somebody has pressed the button."""
        manifest = json.loads(given.get("manifest", "{}"))
        name = str(manifest.get("name", ""))
        if wrong := self._wrong(manifest, name):
            return _plain(422, f"Invalid GitHub App configuration: {wrong}")
        if given.get("agreed") != "yes":
            fields = {"manifest": given["manifest"], "agreed": "yes"}
            granted = manifest.get("default_permissions", {})
            said = ", ".join(f"{one}: {level}" for one, level in granted.items())
            action = f"{path}?{urlencode(query)}" if query else path
            return _page("Create GitHub App", said, action, f"Create GitHub App for {owner.login}", fields)
        code = self._made(manifest, name)
        with_state = {"code": code} | ({"state": query["state"]} if "state" in query else {})
        return 302, {"location": f"{manifest['redirect_url']}?{urlencode(with_state)}"}, b""

    def _wrong(self, manifest: Mapping[str, object], name: str) -> str:
        if unknown := manifest.keys() - ASKED:
            return f"unknown {sorted(unknown)[0]}"
        if not name or len(name) > MOST_NAME:
            return "Name is too long (maximum is 34 characters)" if name else "Name can't be blank"
        if any(app.slug == _slug(name) for app in self._state.apps):
            return "Name is already taken"
        if not manifest.get("url") or not manifest.get("redirect_url"):
            return "url wasn't supplied"
        hook = manifest.get("hook_attributes")
        if isinstance(hook, dict) and hook.get("active", True) and not urlsplit(str(hook.get("url"))).netloc:
            return "Hook url is not a URL"
        return ""

    def _made(self, manifest: Mapping[str, object], name: str) -> str:
        wanted = manifest.get("default_permissions")
        granted = {"metadata": "read", **(wanted if isinstance(wanted, dict) else {})}
        app = new_app(self._state, _slug(name), granted)
        events = manifest.get("default_events")
        app.events = [str(one) for one in events] if isinstance(events, list) else []
        app.setup_url = str(manifest.get("setup_url") or "")
        urls = manifest.get("callback_urls")
        client = self._oauth.client(app, str(urls[0]) if isinstance(urls, list) and urls else "")
        attributes, secret = manifest.get("hook_attributes"), None
        if isinstance(attributes, dict) and attributes.get("active", True):
            secret = secrets.token_hex(20)
            self._ping(self._hook(str(attributes["url"]), secret))
        code = secrets.token_hex(20)
        self._state.conversions[code] = Made(
            app, client.id, client.secret, secret, datetime.now(UTC) + CODE_LIVES
        )
        return code

    def _installed(self, app: App, method: str, path: str, given: Mapping[str, str]) -> Reply:
        """Everywhere where the first repository's owner has some."""
        if method != "POST":
            names = ", ".join(repo.full_name for repo in self._state.repositories)
            return _page(f"Install {app.slug}", names, path, "Install", {})
        first = self._state.repositories[0].owner
        mine = [repo for repo in self._state.repositories if repo.owner is first]
        place = Installation(self._state.next_id(), app, first, mine, self._state.stamp())
        self._state.installations.append(place)
        if not app.setup_url:
            return _plain(200, "Installed")
        told = urlencode({"installation_id": place.id, "setup_action": "install"})
        return 302, {"location": f"{app.setup_url}?{told}"}, b""


@operation("POST", "/app-manifests/{code}/conversions")
def convert(call: Call) -> Answer:
    """What the App is and its secrets, once."""
    made = found(call.state.conversions.pop(call.path["code"], None))
    if made.expires <= datetime.now(UTC):
        found(None)
    told = {
        "client_id": made.client_id, "client_secret": made.client_secret, "pem": made.app.private_key_pem,
        "webhook_secret": made.webhook_secret,
    }  # fmt: skip
    return Answer({**call.shapes.app(made.app), **told}, 201)


@operation("GET", "/app/hook/config")
def hook_config(call: Call) -> Answer:
    call.app  # noqa: B018 - it refuses
    hook = next((one for one in reversed(call.state.hooks) if one.repo is None), None)
    config: Json = {"content_type": "json", "insecure_ssl": "0"}
    return Answer(config | ({"url": hook.url, "secret": "********"} if hook else {}))


def _slug(name: str) -> str:
    return quote(name.lower().replace(" ", "-"), safe="")


def _plain(status: int, said: str) -> Reply:
    return status, {"content-type": "text/plain; charset=utf-8"}, said.encode()


def _page(title: str, said: str, action: str, button: str, fields: Mapping[str, str]) -> Reply:
    hidden = "".join(
        f'<input type="hidden" name="{name}" value="{html.escape(value)}">' for name, value in fields.items()
    )
    words = {"title": title, "said": said, "action": action, "button": button}
    made = PAGE.format(fields=hidden, **{name: html.escape(word) for name, word in words.items()})
    return 200, {"content-type": "text/html; charset=utf-8"}, made.encode()
