"""What somebody has typed in of the App that they want: checked, and completed with what they left out."""

import re
from collections.abc import Mapping

from bot.setup.kept import Place, place_of
from resolver.settings.settings import Settings
from runtime.frozen import Frozen

ADDRESS = re.compile(r"https?://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(:\d{1,5})?(/[A-Za-z0-9._~/-]*)?")
ORGANIZATION = re.compile(r"([A-Za-z0-9](-?[A-Za-z0-9]){0,38})?")


class Wish(Frozen):
    """An App that is to be made."""

    place: Place
    organization: str
    """"": it is the person's own."""
    public_url: str
    """Where people reach us, if only from this machine, and GitHub with a webhook."""
    webhook: bool


def wish(said: Mapping[str, str], settings: Settings, origin: str) -> Wish | None:
    """The App of a form, sent from a page at `origin`; None: something in it makes no sense."""
    server = (said.get("server_url") or settings.github_server_url).rstrip("/")
    public = (said.get("public_url") or origin).rstrip("/")
    organization, webhook = said.get("organization", ""), said.get("reach") == "webhook"
    if not (ADDRESS.fullmatch(server) and ADDRESS.fullmatch(public) and ORGANIZATION.fullmatch(organization)):
        return None
    return Wish(
        place=_known(settings) if server == settings.github_server_url.rstrip("/") else place_of(server),
        organization=organization,
        public_url=public,
        webhook=webhook,
    )


def _known(settings: Settings) -> Place:
    return Place(
        github_server_url=settings.github_server_url.rstrip("/"),
        github_api_url=settings.github_api_url.rstrip("/"),
        github_graphql_url=settings.github_graphql_url.rstrip("/"),
    )
