"""Reads litellm's table of models: their prices, limits and abilities. Does not import litellm, which takes seconds.

What the table does not tell about a model is stated here, as patterns for names. No other file makes a decision by
the name of a model.
"""

import difflib
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic_core import from_json

TABLE_FILE = "model_prices_and_context_window_backup.json"

_WITH_CACHE_BREAKPOINTS = re.compile(r"claude", re.IGNORECASE)
"""The table says which models cache prompts, but not which of them need breakpoints for it.

Source: platform.claude.com/docs/en/build-with-claude/prompt-caching
"""

_WITH_ADAPTED_REQUESTS = re.compile(r"(?:.*/)?(?:gpt|o\d|chatgpt|codex|computer-use)")
"""Models of OpenAI. litellm changes some parameters of the request for them, also at other endpoints."""


@lru_cache(maxsize=32)
def get_model_info(name: str) -> Mapping[str, Any]:
    """Returns the entry of a model (prices, limits, mode), or an empty mapping if it is unknown."""
    table = _read_table()  # The table is not kept, because it takes 20 MB.
    base_name = name.replace("responses/", "")
    info = table.get(base_name) or table.get(base_name.partition("/")[2]) or {}
    return info if isinstance(info, Mapping) else {}


def needs_cache_breakpoints(name: str) -> bool:
    """Returns True if the prompts of this model are cached only up to marked messages."""
    return _WITH_CACHE_BREAKPOINTS.search(name) is not None


def has_adapted_requests(name: str) -> bool:
    """Returns True if litellm changes parameters of the requests for this model. `name` excludes the provider."""
    return _WITH_ADAPTED_REQUESTS.match(name) is not None


def find_similar_models(name: str, limit: int = 2) -> tuple[str, ...]:
    """Returns the full names of known chat models that are most similar to a misspelled name. If no model is
    similar, returns the same model of a provider with a similar name.
    """
    full_names: dict[str, str] = {}
    providers: set[str] = set()
    for key, info in _read_table().items():
        provider = info.get("litellm_provider", "")
        if info.get("mode") in ("chat", "responses") and provider:
            full_name = key if key.startswith(f"{provider}/") else f"{provider}/{key}"
            full_names |= {full_name: full_name, key: full_name}
            providers.add(provider)
    matches = difflib.get_close_matches(name, list(full_names), n=2 * limit, cutoff=0.75)
    if matches:
        return tuple(dict.fromkeys(full_names[match] for match in matches))[:limit]
    provider, _, model = name.partition("/")
    similar = difflib.get_close_matches(provider, sorted(providers), cutoff=0.75)
    return tuple(f"{each}/{model}" for each in similar[:1] if model)


def _read_table() -> Mapping[str, Mapping[str, Any]]:
    package = find_spec("litellm")
    assert package is not None and package.submodule_search_locations
    table: Mapping[str, Mapping[str, Any]] = from_json(
        Path(package.submodule_search_locations[0], TABLE_FILE).read_bytes()
    )
    return table
