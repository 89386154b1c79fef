"""Collects the secrets from the settings and the environment, and reads the App's private key."""

import re
from collections.abc import Mapping
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
    """Returns the App's private key from the setting, or from the configured file.

    Returns None if no key is configured. Raises SettingsError if the file is unreadable.
    """
    if settings.private_key or settings.private_key_file is None:
        return settings.private_key
    try:
        return SecretStr(settings.private_key_file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as exc:
        raise SettingsError(
            f"PATCHWRIGHT_PRIVATE_KEY_FILE: {settings.private_key_file} cannot be read: {describe_read_error(exc)}. "
            "It must be a PEM file."
        ) from exc
