"""What setting up has made, kept below the data directory for this account alone."""

import contextlib
import os
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from resolver.errors import SettingsError
from runtime.frozen import Frozen

IDENTITY = ("app_id", "private_key", "private_key_file", "github_token")
"""Settings by any of which an operator has said who we are: then nothing is taken of an App that is kept."""
FORGE = ("github_api_url", "github_graphql_url", "github_server_url")
PRIVATE_DIRECTORY = 0o700
MOST_BYTES = 100_000


class Place(Frozen):
    """A GitHub."""

    github_server_url: str
    github_api_url: str
    github_graphql_url: str


class OwnApp(Frozen):
    """Our App, as GitHub has told of it once."""

    id: int
    slug: str
    html_url: str
    """Its page, for people."""
    client_id: str
    client_secret: str = Field(repr=False)
    private_key: str = Field(repr=False)
    webhook_secret: str | None = Field(repr=False)
    """None: it has no webhook, and we look at GitHub again and again."""
    place: Place
    public_url: str | None
    """Where people reach the server, if only from its own machine, and GitHub with a webhook. None: not known."""

    @property
    def installing(self) -> str:
        """Where somebody installs it."""
        return f"{self.html_url}/installations/new"


class ChosenModel(Frozen):
    """The model that works."""

    model: str = Field(min_length=1)
    model_base_url: str | None = None
    model_api_key: str | None = Field(default=None, repr=False)


class Kept(Frozen):
    """All of it."""

    model: ChosenModel | None = None
    app: OwnApp | None = None


def path_in(data: Path) -> Path:
    """Where it is kept."""
    return data / "setup" / "kept.json"


def read(data: Path) -> Kept:
    """What is kept there; nothing, where nothing is. Raises SettingsError when it cannot be read."""
    path = path_in(data)
    try:
        with path.open("rb") as file:
            return Kept.model_validate_json(file.read(MOST_BYTES))
    except FileNotFoundError:
        return Kept()
    except NotADirectoryError:
        return Kept()  # nor can there be anything: who wants to keep something will hear of it
    except OSError as exc:
        raise SettingsError(f"{path} cannot be read: {exc}. Start it as the user who set it up.") from exc
    except ValidationError:  # without its cause, which may quote the key
        raise SettingsError(
            f"{path} is not what setting up has kept there: put it back from a backup, or remove it and set up anew."
        ) from None


def keep(data: Path, kept: Kept) -> None:
    """Keep it, whole or not at all. Raises OSError when that cannot be done."""
    path = path_in(data)
    path.parent.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    path.parent.chmod(PRIVATE_DIRECTORY)
    # Its mode is 0600 from the beginning.
    number, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(kept.model_dump_json(indent=1))
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def check_room(data: Path) -> None:
    """Raises OSError when nothing could be kept there; leaves nothing behind."""
    directory = path_in(data).parent
    directory.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=directory, prefix=".new-") as file:
        file.write(b" " * MOST_BYTES)
        file.flush()
        os.fsync(file.fileno())


def settings_from(kept: Kept, named: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that it stands for, where an operator has `named` no other. Raises SettingsError.

    It is taken by parts: who we are (the App with its key, and its GitHub), the model with its key, the log-in.
    """
    found: dict[str, Any] = {}
    if kept.model is not None and "model" not in named:
        found |= kept.model.model_dump(exclude_none=True)
    app = kept.app
    if app is None or _named(IDENTITY, named):
        return found
    place = app.place.model_dump()
    if others := [key for key in FORGE if key in named and str(named[key]).rstrip("/") != place[key]]:
        raise SettingsError(
            f"{others[0].upper()} names another GitHub than {app.place.github_server_url}, where the App that is set "
            "up here was made: remove that setting, or give PATCHWRIGHT_APP_ID and its private key as well."
        )
    found |= place | {"app_id": str(app.id), "private_key": app.private_key}
    found |= {"webhook_secret": app.webhook_secret} if app.webhook_secret else {"poll": True}
    if app.public_url is not None:
        found["public_url"] = app.public_url
    has_address = "public_url" in {**found, **named}
    if has_address and not _named(("oauth_client_id", "oauth_client_secret"), named):
        found |= {"oauth_client_id": app.client_id, "oauth_client_secret": app.client_secret}
    return {key: value for key, value in found.items() if key not in named}


def _named(keys: Collection[str], named: Mapping[str, Any]) -> bool:
    return any(key in named for key in keys)


def place_of(server_url: str) -> Place:
    """The GitHub that people reach at this address, by GitHub's own rules.

    Source: docs.github.com/enterprise-server/rest/overview/resources-in-the-rest-api (`/api/v3`, `/api/graphql`),
    docs.github.com/enterprise-cloud@latest/admin/data-residency (`api.NAME.ghe.com`)
    """
    url = server_url.rstrip("/")
    scheme, _, host = url.partition("://")
    if host == "github.com" or host.endswith(".ghe.com"):
        return Place(
            github_server_url=url,
            github_api_url=f"{scheme}://api.{host}",
            github_graphql_url=f"{scheme}://api.{host}/graphql",
        )
    return Place(
        github_server_url=url, github_api_url=f"{url}/api/v3", github_graphql_url=f"{url}/api/graphql"
    )


def loose(data: Path) -> list[str]:
    """What of it others on this machine may read, each with its mode."""
    path = path_in(data)
    return [
        f"{each} has mode {mode & 0o777:04o}"
        for each in (path.parent, path)
        if each.exists() and (mode := each.stat().st_mode) & 0o077
    ]
