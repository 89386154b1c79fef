"""Records a run's effective settings in the run's log. Secrets and settings that do not affect the run are
left out.
"""

from typing import Any

from pydantic import JsonValue, TypeAdapter

from patchwright.resolver.llm.token_estimate import max_context_tokens
from patchwright.resolver.run.dependencies import RunDependencies
from patchwright.resolver.run_events import RunConfigured
from patchwright.resolver.run_log import RunLog
from patchwright.resolver.settings.settings import RepoConfig, Settings
from patchwright.runtime import VERSION
from patchwright.runtime.egress_policy import Origin

UNRECORDED_SETTINGS = frozenset(
    {
        # Credentials, and files and URLs that contain credentials.
        *("github_token", "app_id", "private_key", "webhook_secret", "secrets_file"),
        *("model_api_key", "search_api_key", "proxy", "redis_url", "operator_token"),
        *("oauth_client_id", "oauth_client_secret", "credentials_key"),
        # Locations. The `RunStarted` event already names the GitHub server.
        *("github_server_url", "data", "ca_bundle"),
        # Triggers, and settings that other events or fields already record.
        *("label", "sandbox_transport", "model", "max_steps", "timeout", "max_usd"),
        *("log_level", "archive"),
    }
)
"""Names of the settings that are not recorded."""

_JSON_OBJECT: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])


async def record_settings(log: RunLog, deps: RunDependencies, repository: RepoConfig) -> None:
    """Logs the effective settings. Each process calls this when it starts or continues a run.

    The log entry also shows when the process began. The time without a process is not counted as working time.
    """
    await log.append(build_run_configured(deps, repository))


def build_run_configured(deps: RunDependencies, repository: RepoConfig) -> RunConfigured:
    """Builds the event with a run's effective settings. Values such as `auto` are replaced with the detected
    values.
    """
    return RunConfigured(
        version=VERSION,
        models={purpose: model.name for purpose, model in vars(deps.models).items()},
        steps=deps.settings.max_steps,
        seconds=deps.settings.timeout,
        usd=deps.settings.max_usd,
        settings=_JSON_OBJECT.validate_python(
            {
                **dump_recorded_settings(deps.settings),
                "sandbox": deps.sandboxes.kind,
                "network": deps.sandboxes.network,
                "sandbox_features": list(deps.sandboxes.features),
                "max_context_tokens": deps.settings.max_context_tokens or max_context_tokens(deps.model),
            }
        ),
        repository=_JSON_OBJECT.validate_python(repository.model_dump(mode="json")),
    )


def dump_recorded_settings(settings: Settings) -> dict[str, Any]:
    """Returns the operator's settings as JSON, except those that must not be recorded."""
    values = settings.model_dump(mode="json", exclude=set(UNRECORDED_SETTINGS))
    for name in ("model_base_url", "package_index"):
        values[name] = _host_and_port(values[name])
    values["search_provider"] = settings.search_provider.partition("=")[0]
    for name, server in settings.mcp_servers.items():  # arguments, variables and headers may contain secrets
        values["mcp_servers"][name] = {
            "at": _host_and_port(server.url) if server.url else server.command[0],
            "tools": list(server.tools) if server.tools is not None else None,
        }
    return values


def _host_and_port(url: str | None) -> str | None:
    """Returns only the host and port of a URL, because the rest of the URL may contain a key."""
    if url is None:
        return None
    try:
        origin = Origin.from_url(url)
    except ValueError:
        return "(not a plain URL)"
    return f"{origin.host}:{origin.port}"
