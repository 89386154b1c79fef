"""Collects the secrets from the settings and the environment, and reads the App's private key."""

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr

from patchwright.resolver.errors import SettingsError, describe_read_error
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.settings.settings import Settings


def settings_secrets(settings: Settings) -> list[str]:
    """Returns the secrets in the settings."""
    fields = (
        settings.proxy,
        settings.model_api_key,
        settings.search_api_key,
        settings.github_token,
        settings.webhook_secret,
        settings.credentials_key,
        settings.operator_token,
        settings.oauth_client_secret,
        read_private_key(settings),
        SecretStr(urlsplit(settings.archive or "").password or ""),
        *(value for server in settings.mcp_servers.values() for value in server.headers.values()),
    )
    return [field.get_secret_value() for field in fields if field is not None]


def collect_secrets(settings: Settings, environ: Mapping[str, str]) -> Secrets:
    """Returns all secrets that must be masked in output, such as our credentials and the keys of model
    providers.
    """
    own_secrets = settings_secrets(settings)
    secret = re.compile(r"_(API_KEY|TOKEN|SECRET|SECRET_KEY|ACCESS_KEY)$")
    keys = [value for name, value in environ.items() if secret.search(name)]
    otlp_headers = (environ.get(f"OTEL_EXPORTER_OTLP_{kind}HEADERS", "") for kind in ("", "TRACES_"))
    keys += [pair.partition("=")[2] for headers in otlp_headers for pair in headers.split(",")]
    return Secrets([*own_secrets, *keys])


def read_private_key(settings: Settings) -> SecretStr | None:
    """Returns the App's private key from the setting, or from the file that it names.

    Returns None if no key is configured. Raises SettingsError if the file is unreadable.
    """
    if settings.private_key is None or "-----BEGIN" in settings.private_key.get_secret_value():
        return settings.private_key
    try:
        return SecretStr(Path(settings.private_key.get_secret_value()).read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        # The message does not repeat the value, because it may be a key without its first line.
        raise SettingsError(
            "PATCHWRIGHT_PRIVATE_KEY is neither a private key (PEM) nor the path of a file that can be read: "
            f"{describe_read_error(exc)}. Correct it."
        ) from exc
