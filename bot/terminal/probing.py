"""`patchwright probe`: which of the configured models can drive the agent, found out by one tiny call each."""

from bot.models import plain
from bot.terminal.lines import print_json
from resolver.errors import SettingsError
from resolver.llm.probe import Fitness, probe
from resolver.settings.settings import Settings
from resolver.words.wording import dollars

HOW = {
    "native": "fit",
    "text": "fit with PATCHWRIGHT_MODEL_TOOLS=text",
    "none": "NOT FIT",
}


async def probed(settings: Settings, *, as_json: bool) -> bool:
    """Try the model and its fallbacks, and print what was found; whether all are fit as they are configured."""
    if settings.model is None:
        raise SettingsError("PATCHWRIGHT_MODEL is not set: name the model to try (or --model).")
    found = [await probe(plain(name, settings)) for name in (settings.model, *settings.model_fallbacks)]
    if as_json:
        print_json({"models": [fitness.model_dump(mode="json") for fitness in found]})
    else:
        for fitness in found:
            print(line(fitness))
    return all(fitness.tools == "native" or fitness.tools == settings.model_tools for fitness in found)


def line(fitness: Fitness) -> str:
    """What was found, for a person."""
    usage = fitness.usage
    usd = usage.usd if usage else None
    facts = [
        HOW[fitness.tools],
        fitness.why,
        "it sees pictures" if fitness.sees else "it does not see pictures",
        "its price is unknown" if usd is None else f"this cost {dollars(usd)}",
    ]
    said = "; ".join(fact.rstrip(".") for fact in (facts if usage else facts[:2]))
    return f"{fitness.model}: {said}."
