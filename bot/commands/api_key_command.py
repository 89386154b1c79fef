"""`patchwright api-key`: creates, lists and revokes the keys of the server's HTTP API."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import cast

from patchwright.bot.redis.api_keys import API_SCOPES, ApiKeys, ApiScope
from patchwright.bot.redis.embedded_redis import run_embedded_redis, running_redis_url
from patchwright.bot.terminal.output import print_json
from patchwright.resolver.errors import UsageError
from patchwright.resolver.settings.settings import Settings


async def run_api_key_command(
    settings: Settings, action: str, name: str | None, scopes: Sequence[str], *, as_json: bool
) -> None:
    """Performs the action and prints its result. Raises UsageError, SettingsError or QueueDown."""
    if (name is None) != (action == "list"):
        raise UsageError("list takes no NAME." if action == "list" else f"NAME is missing: {action} NAME.")
    if scopes and action != "create":
        raise UsageError("Only create takes --scope.")
    if unknown := [scope for scope in scopes if scope not in API_SCOPES]:
        raise UsageError(f"There is no scope {unknown[0]}. There are: {', '.join(API_SCOPES)}.")
    async with _open_keys(settings) as keys:
        if name is None:
            await _print_keys(keys, as_json=as_json)
        elif action == "create":
            granted = cast("tuple[ApiScope, ...]", tuple(dict.fromkeys(scopes)) or API_SCOPES)
            text = await keys.create(name, granted)
            if as_json:
                print_json({"name": name, "scopes": list(granted), "key": text})
            else:
                print(text)
        else:
            if not await keys.revoke(name):
                raise UsageError(f"There is no API key {name}. List the keys: patchwright api-key list.")
            if as_json:
                print_json({"name": name, "revoked": True})
            else:
                print(f"{name} no longer works.")


async def _print_keys(keys: ApiKeys, *, as_json: bool) -> None:
    listed = await keys.list_keys()
    if as_json:
        print_json({"keys": [key.model_dump(mode="json") for key in listed]})
    elif not listed:
        print("There are no API keys. Create one: patchwright api-key create NAME")
    for key in () if as_json else listed:
        print(f"{key.name:<40}  {key.created_at:%Y-%m-%d}  {', '.join(key.scopes)}")


@contextlib.asynccontextmanager
async def _open_keys(settings: Settings) -> AsyncIterator[ApiKeys]:
    """Opens the keys in the configured Redis, or in the embedded one, even if no server runs now."""
    async with contextlib.AsyncExitStack() as stack:
        url = settings.redis_url or running_redis_url(settings.data)
        if url is None:
            url = await stack.enter_async_context(run_embedded_redis(settings.data))
        keys = ApiKeys(url)
        stack.push_async_callback(keys.close)
        yield keys
