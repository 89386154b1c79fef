"""Stores the API keys of a server. Redis contains only a digest of each key.

A key contains 32 random bytes. Therefore a plain SHA-256 digest is enough: nobody can guess such a key, so a slow hash
would protect nothing.
"""

import hashlib
import hmac
import re
import secrets
from datetime import UTC, datetime
from typing import Any, Literal, cast, get_args

from patchwright.bot.redis.connection import RedisStore, parse_stored
from patchwright.resolver.errors import UsageError
from patchwright.runtime.frozen_model import FrozenModel

KEYS_KEY = "patchwright:api_keys"  # hash: name of the key -> StoredApiKey
KEY_PREFIX = "pw"
MAX_KEYS = 100
NAME_PATTERN = re.compile("[a-z0-9][a-z0-9-]{0,39}")

ApiScope = Literal["jobs:read", "jobs:write", "conversations:read", "conversations:write"]
"""What a key permits: to read jobs, to create and stop them, and the same for conversations and workspaces."""
API_SCOPES: tuple[ApiScope, ...] = get_args(ApiScope)


class ApiKey(FrozenModel):
    """An API key without its secret part."""

    name: str
    scopes: tuple[str, ...]
    """Strings, so that a server can read the keys of a newer version, which has more scopes."""
    created_at: datetime
    """Time in UTC."""


class StoredApiKey(ApiKey):
    """An API key as Redis stores it."""

    digest: str
    """The SHA-256 digest of the complete key, in hexadecimal."""


class ApiKeys(RedisStore):
    """The API keys of all servers that use the same Redis. Every method may raise QueueDown."""

    async def create(self, name: str, scopes: tuple[ApiScope, ...]) -> str:
        """Creates a key and returns its text, which cannot be read again.

        Raises UsageError if the name is invalid or taken, or if there are already MAX_KEYS keys.
        """
        if not NAME_PATTERN.fullmatch(name):
            raise UsageError("The name of a key has 1 to 40 lowercase letters, digits and hyphens.")
        text = f"{KEY_PREFIX}_{name}_{secrets.token_hex(32)}"
        stored = StoredApiKey(name=name, scopes=scopes, created_at=datetime.now(UTC), digest=_digest(text))
        if await cast("Any", self._redis.hlen(KEYS_KEY)) >= MAX_KEYS:
            raise UsageError(f"There are {MAX_KEYS} API keys. Revoke one that is no longer needed.")
        is_new = await cast("Any", self._redis.hsetnx(KEYS_KEY, name, stored.model_dump_json()))
        if not is_new:
            raise UsageError(f"There is already an API key {name}. Revoke it first, or choose another name.")
        return text

    async def list_keys(self) -> tuple[ApiKey, ...]:
        """Returns all keys, in the order of their names."""
        entries = await cast("Any", self._redis.hgetall(KEYS_KEY))
        keys = [key for entry in entries.values() if (key := parse_stored(StoredApiKey, entry)) is not None]
        return tuple(
            ApiKey(name=key.name, scopes=key.scopes, created_at=key.created_at)
            for key in sorted(keys, key=lambda key: key.name)
        )

    async def revoke(self, name: str) -> bool:
        """Deletes a key. Requests with this key fail from now on. Returns False if there is no such key."""
        return bool(await cast("Any", self._redis.hdel(KEYS_KEY, name)))

    async def find(self, text: str) -> ApiKey | None:
        """Returns the key with this text, or None if there is no such key."""
        prefix, _, rest = text.partition("_")
        name = rest.partition("_")[0]
        if prefix != KEY_PREFIX or not NAME_PATTERN.fullmatch(name):
            return None
        stored = parse_stored(StoredApiKey, await cast("Any", self._redis.hget(KEYS_KEY, name)))
        if stored is None or not hmac.compare_digest(stored.digest, _digest(text)):
            return None
        return stored


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
