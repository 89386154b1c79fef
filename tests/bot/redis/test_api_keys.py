"""API keys in Redis: created, listed, found, and revoked."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from patchwright.bot.redis import api_keys
from patchwright.bot.redis.api_keys import API_SCOPES, KEYS_KEY, ApiKeys
from patchwright.bot.redis.connection import redis_client
from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.resolver.errors import UsageError

pytestmark = pytest.mark.redis


@pytest.fixture
async def redis_url(short_tmp: Path) -> AsyncIterator[str]:
    async with run_embedded_redis(short_tmp) as url:
        yield url


@pytest.fixture
async def keys(redis_url: str) -> AsyncIterator[ApiKeys]:
    keys = ApiKeys(redis_url)
    yield keys
    await keys.close()


async def test_a_key_is_found_by_its_text_until_it_is_revoked(keys: ApiKeys) -> None:
    text, other = await keys.create("nightly", ("jobs:read",)), await keys.create("ci-2", API_SCOPES)
    found = await keys.find(text)
    assert found is not None
    assert (found.name, found.scopes) == ("nightly", ("jobs:read",))
    assert timedelta(0) <= datetime.now(UTC) - found.created_at < timedelta(minutes=1)
    assert [(key.name, key.scopes) for key in await keys.list_keys()] == [
        ("ci-2", API_SCOPES),
        ("nightly", ("jobs:read",)),
    ]
    assert [await keys.revoke("nightly") for _ in range(2)] == [True, False]
    assert await keys.find(text) is None
    assert await keys.find(other) is not None


async def test_a_wrong_text_is_no_key(keys: ApiKeys) -> None:
    text = await keys.create("nightly", API_SCOPES)
    secret = text.rpartition("_")[2]
    for wrong in (
        "",
        "pw",
        secret,
        text[:-1],
        f"{text}0",
        text.upper(),
        f"pw_other_{secret}",
        "pw_nightly_é",
    ):
        assert await keys.find(wrong) is None, wrong


async def test_redis_does_not_contain_the_text_of_a_key(keys: ApiKeys, redis_url: str) -> None:
    text = await keys.create("nightly", API_SCOPES)
    redis = redis_client(redis_url)
    stored = await redis.hgetall(KEYS_KEY)  # type: ignore[misc]
    await redis.aclose(close_connection_pool=True)
    assert list(stored) == [b"nightly"]
    assert text.rpartition("_")[2].encode() not in stored[b"nightly"]
    assert all("digest" not in key.model_dump() for key in await keys.list_keys())


async def test_a_name_is_used_once_and_is_plain(keys: ApiKeys) -> None:
    first = await keys.create("nightly", ("jobs:read",))
    with pytest.raises(UsageError, match="There is already an API key nightly"):
        await keys.create("nightly", API_SCOPES)
    found = await keys.find(first)
    assert found is not None and found.scopes == ("jobs:read",)
    for name in ("", "Nightly", "a_b", "-a", "a" * 41, "a b"):
        with pytest.raises(UsageError, match="1 to 40 lowercase letters"):
            await keys.create(name, API_SCOPES)


async def test_the_number_of_keys_is_limited(keys: ApiKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_keys, "MAX_KEYS", 1)
    await keys.create("one", API_SCOPES)
    with pytest.raises(UsageError, match="Revoke one that is no longer needed"):
        await keys.create("two", API_SCOPES)


async def test_a_key_that_another_version_stored_is_no_key(keys: ApiKeys, redis_url: str) -> None:
    text = await keys.create("nightly", API_SCOPES)
    redis = redis_client(redis_url)
    await redis.hset(KEYS_KEY, "nightly", '{"name": "nightly"}')  # type: ignore[misc]
    await redis.aclose(close_connection_pool=True)
    assert (await keys.find(text), await keys.list_keys()) == (None, ())
    assert await keys.revoke("nightly")
