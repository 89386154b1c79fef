"""The model: asked for one tiny tool call, and each of its fallbacks too."""

from collections.abc import Callable, Coroutine
from decimal import Decimal
from typing import Any

from bot.doctor.examine import Check, Finding, failed, ok, warning
from bot.terminal.probing import line
from resolver.settings.settings import Settings

NAME = "model"


def checks(settings: Settings) -> list[Check]:
    if settings.model is None:
        return [Check(NAME, _unnamed, "")]
    mend = "Check that the provider can be reached from here (PATCHWRIGHT_MODEL_BASE_URL, HTTPS_PROXY)."
    names = (settings.model, *settings.model_fallbacks)
    return [Check(NAME, _trying(name, settings), mend, seconds=90) for name in names]


async def _unnamed() -> list[Finding]:
    return [failed(NAME, "none is named", "Set PATCHWRIGHT_MODEL, such as anthropic/claude-sonnet-4-5.")]


def _trying(name: str, settings: Settings) -> Callable[[], Coroutine[Any, Any, list[Finding]]]:
    async def tried() -> list[Finding]:
        from bot.models import plain
        from resolver.llm.litellm import warm
        from resolver.llm.probe import probe

        await warm()  # seconds, in a thread: the other checks have a time of their own
        fitness = await probe(plain(name, settings))
        seen = line(fitness).rstrip(".")
        if fitness.tools == "none":
            return [failed(NAME, seen, "Check the model's name and its key, or choose another model.")]
        if fitness.tools != settings.model_tools and fitness.tools == "text":
            return [failed(NAME, seen, "Set PATCHWRIGHT_MODEL_TOOLS=text.")]
        if fitness.usage is not None and not isinstance(fitness.usage.usd, Decimal):
            return [
                warning(NAME, seen, "Limits in dollars do not hold for it; limits of steps and tokens do.")
            ]
        return [ok(NAME, seen)]

    return tried
