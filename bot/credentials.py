"""The credentials that settings and environment hold: what must never leave, and the App's key."""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from pydantic import SecretStr

from resolver.errors import SettingsError
from resolver.secrets import Secrets
from resolver.settings.settings import Settings


def own_secrets(settings: Settings) -> list[str]:
    """The credentials that the settings name."""
    fields = (
        settings.proxy,
        settings.model_api_key,
        settings.search_api_key,
        settings.github_token,
        settings.webhook_secret,
        settings.operator_token,
        settings.oauth_client_secret,
        private_key_of(settings),
        SecretStr(urlsplit(settings.archive or "").password or ""),
        *(value for server in settings.mcp_servers.values() for value in server.headers.values()),
    )
    return [field.get_secret_value() for field in fields if field is not None]


def secrets_of(settings: Settings, environ: Mapping[str, str]) -> Secrets:
    """Everything that must never leave this process: our own credentials and the providers' keys."""
    ours = own_secrets(settings)
    secret = re.compile(r"_(API_KEY|TOKEN|SECRET|SECRET_KEY|ACCESS_KEY)$")
    keys = [value for name, value in environ.items() if secret.search(name)]
    told = (environ.get(f"OTEL_EXPORTER_OTLP_{kind}HEADERS", "") for kind in ("", "TRACES_"))
    keys += [pair.partition("=")[2] for headers in told for pair in headers.split(",")]
    return Secrets([*ours, *keys])


def private_key_of(settings: Settings) -> SecretStr | None:
    """The App's, wherever it stands. Raises SettingsError when its file cannot be read."""
    if settings.private_key or settings.private_key_file is None:
        return settings.private_key
    try:
        return SecretStr(settings.private_key_file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as exc:
        raise SettingsError(
            f"PATCHWRIGHT_PRIVATE_KEY_FILE cannot be read: {exc}. It must be a PEM file."
        ) from exc
