"""The settings that the API reads from environment variables. They are the same as those of the command line:

- `PATCHWRIGHT_DATA`: the directory for conversations, runs and caches
- `PATCHWRIGHT_CA_BUNDLE` and `PATCHWRIGHT_PACKAGE_INDEX`: the certificates and the package index of a closed network
- `DOCKER_HOST`: the Docker engine
- `PATCHWRIGHT_API_KEY`: the key for a server, which `patchwright mcp` uses
"""

import os
from pathlib import Path


def ca_bundle() -> Path | None:
    """Returns the file with CA certificates of a closed network, if `PATCHWRIGHT_CA_BUNDLE` is set."""
    return Path(value) if (value := os.environ.get("PATCHWRIGHT_CA_BUNDLE")) else None


def package_index() -> str | None:
    """Returns the URL of the package index for sandboxes, if `PATCHWRIGHT_PACKAGE_INDEX` is set."""
    return os.environ.get("PATCHWRIGHT_PACKAGE_INDEX") or None


def api_key() -> str | None:
    """Returns the API key for a server, if `PATCHWRIGHT_API_KEY` is set."""
    return os.environ.get("PATCHWRIGHT_API_KEY") or None


def docker_host() -> str | None:
    """Returns the URL of an engine that is reached over SSH. The Docker client reads other URLs itself."""
    host = os.environ.get("DOCKER_HOST", "")
    return host if host.startswith("ssh://") else None


def host_environment() -> dict[str, str]:
    """Returns all variables. Local sandboxes pass on only those that are known to be harmless."""
    return dict(os.environ)


def data_directory() -> Path:
    """Returns the directory for conversations, runs and caches.

    Source: specifications.freedesktop.org/basedir-spec
    """
    if data := os.environ.get("PATCHWRIGHT_DATA"):
        return Path(data)
    share = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share"
    return Path(share) / "patchwright"
