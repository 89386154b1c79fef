"""Parses the forms of the setup: the model to use, and the App to create."""

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from patchwright.bot.github.auth import GitHubServer
from patchwright.bot.setup.app_api import check_github_reachable, has_organization, send_request
from patchwright.bot.setup.credential_store import ModelConnection
from patchwright.bot.setup.setup_views import SetupProblem, StepFailure
from patchwright.resolver.errors import ForgeError
from patchwright.resolver.settings.server_settings import is_loopback
from patchwright.resolver.settings.settings import Settings
from patchwright.runtime.frozen_model import FrozenModel

URL_PATTERN = re.compile(r"https?://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(:\d{1,5})?(/[A-Za-z0-9._~/-]*)?")
ORGANIZATION_PATTERN = re.compile(r"([A-Za-z0-9](-?[A-Za-z0-9]){0,38})?")


class AppForm(FrozenModel):
    """What a person entered about the App to create."""

    server: GitHubServer
    organization: str
    """The organization that will own the App; "" if the App will belong to the person's own account."""
    public_url: str
    """URL under which people open the server. If the App has a webhook, GitHub must be able to reach this URL.
    Without a webhook, the URL may work only on the server's own machine.
    """
    webhook: bool


def parse_model_form(values: Mapping[str, str]) -> ModelConnection | SetupProblem:
    """Parses the form of the model. Returns the problem if a field is invalid."""
    name, base_url = values.get("model", ""), values.get("base_url", "")
    if not name:
        return "model_name_missing"
    if base_url and not URL_PATTERN.fullmatch(base_url):
        return "invalid_model_address"
    return ModelConnection(
        model=name, model_base_url=base_url or None, model_api_key=values.get("key") or None
    )


def parse_app_form(values: Mapping[str, str], settings: Settings, origin: str) -> AppForm | SetupProblem:
    """Parses a form that was sent from a page at `origin`. Returns the problem if a field is invalid.

    If GitHub could not reach the webhook because its URL is a loopback URL, the person must confirm the URL: the
    field `confirmed_url` must contain the same URL.
    """
    server = (values.get("server_url") or settings.github_server_url).rstrip("/")
    public = (values.get("public_url") or origin).rstrip("/")
    organization, webhook = values.get("organization", ""), values.get("reach") == "webhook"
    if not URL_PATTERN.fullmatch(server):
        return "invalid_github_url"
    if not URL_PATTERN.fullmatch(public):
        return "invalid_public_url"
    if not ORGANIZATION_PATTERN.fullmatch(organization):
        return "invalid_organization"
    # A GitHub server on this machine reaches a loopback URL.
    is_unreachable = webhook and is_loopback(public) and not is_loopback(server)
    if is_unreachable and values.get("confirmed_url", "").rstrip("/") != public:
        return "loopback_webhook"
    return AppForm(
        server=GitHubServer(github_server_url=server),
        organization=organization,
        public_url=public,
        webhook=webhook,
    )


async def check_app_form(
    form: AppForm, values: Mapping[str, str], origin: str, ca_bundle: Path | None
) -> StepFailure | None:
    """Sends requests to the URLs of a form that was sent from a page at `origin`. Returns the first failure.

    The person may confirm an organization or a URL, because a server may hide them from this machine.
    """
    try:
        await check_github_reachable(form.server, ca_bundle)
    except ForgeError as exc:
        return StepFailure("github_unreachable", str(exc))
    is_confirmed = values.get("confirmed_organization", "") == form.organization
    if not is_confirmed and not await has_organization(form.server, form.organization, ca_bundle):
        return StepFailure("unknown_organization")
    is_confirmed = values.get("confirmed_url", "").rstrip("/") == form.public_url
    is_open_in_browser = urlsplit(form.public_url).netloc == urlsplit(origin).netloc
    if is_loopback(form.public_url) and not is_confirmed and not is_open_in_browser:
        try:
            await send_request("GET", f"{form.public_url}/healthz", {}, ca_bundle)
        except ForgeError as exc:
            return StepFailure("unreachable_url", str(exc))
    return None
