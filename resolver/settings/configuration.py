"""What a run's log says of the settings under which it goes on: those that shape it, and nothing that is secret."""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pydantic import JsonValue, TypeAdapter

from resolver.circumstances import Configured
from resolver.condenser import room_in
from resolver.kit import Kit
from resolver.log import Log
from resolver.settings.settings import RepoConfig, Settings
from runtime.egress.egress import Origin

LEFT_OUT = frozenset(
    {
        # credentials, and where they are
        *("github_token", "app_id", "private_key", "private_key_file", "webhook_secret", "secrets_file"),
        *("model_api_key", "search_api_key", "proxy", "redis_url", "operator_token"),
        *("oauth_client_id", "oauth_client_secret"),
        # where things are: what the forge is, `Started` says
        *("github_api_url", "github_graphql_url", "github_server_url", "data", "ca_bundle"),
        # what begins a run, and what is said apart
        *("label", "warm_pool", "transport", "model", "max_steps", "timeout", "max_usd"),
        *("webhook_url", "poll", "repositories", "log_format", "log_level", "archive"),
    }
)
"""Settings that are not recorded."""

_JSON: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])


async def record(log: Log, kit: Kit, repository: RepoConfig) -> None:
    """Write the settings down, where they are not those that the log had last."""
    now = configured(kit, repository)
    if now != log.trajectory.configured:
        await log.append(now)


def configured(kit: Kit, repository: RepoConfig) -> Configured:
    """The settings of a run as they hold, with what was found out in place of what was left open."""
    return Configured(
        version=own_version(),
        models={purpose: model.name for purpose, model in vars(kit.models).items()},
        steps=kit.settings.max_steps,
        seconds=kit.settings.timeout,
        usd=kit.settings.max_usd,
        settings=_JSON.validate_python(
            {
                **recorded(kit.settings),
                "sandbox": kit.sandboxes.kind,
                "network": kit.sandboxes.network,
                "plugins": list(kit.sandboxes.plugins),
                "context_tokens": kit.settings.context_tokens or room_in(kit.model),
            }
        ),
        repository=_JSON.validate_python(repository.model_dump(mode="json")),
    )


def recorded(settings: Settings) -> dict[str, Any]:
    """The operator's settings, as JSON."""
    values = settings.model_dump(mode="json", exclude=set(LEFT_OUT))
    for name in ("model_base_url", "search_base_url", "package_index"):
        values[name] = _place(values[name])
    for name, server in settings.mcp_servers.items():  # its arguments, variables and headers may be secret
        values["mcp_servers"][name] = {
            "at": _place(server.url) if server.url else server.command[0],
            "tools": list(server.tools) if server.tools is not None else None,
        }
    return values


def _place(url: str | None) -> str | None:
    """Host and port: what else stands in a URL may be a key."""
    if url is None:
        return None
    try:
        origin = Origin.of(url)
    except ValueError:
        return "(not a plain URL)"
    return f"{origin.host}:{origin.port}"


def own_version() -> str:
    """Of Patchwright."""
    try:
        return version("patchwright")
    except PackageNotFoundError:  # a checkout that nobody installed
        return "unknown"
