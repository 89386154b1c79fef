"""`patchwright probe`: tests whether each configured model can drive the agent, with one small call."""

from collections.abc import Mapping

from patchwright.bot.composition.model_factory import build_retrying_model
from patchwright.bot.terminal.output import print_json, print_stderr
from patchwright.resolver.cost import format_usd
from patchwright.resolver.llm.model_check import check_endpoint, check_models
from patchwright.resolver.llm.probe import ProbeResult, probe_model
from patchwright.resolver.settings.settings import Settings, environment_variable

MAX_RETRY_SECONDS = 5.0  # A person waits for the result, and most failures of a first request do not heal.
FITNESS_TEXTS = {
    "native": "works",
    "text": "works with PATCHWRIGHT_TOOL_CALLING=text",
    "none": "DOES NOT WORK",
}


async def run_probe(settings: Settings, environ: Mapping[str, str], *, as_json: bool) -> bool:
    """Tests the model and its fallbacks and prints the results.

    Returns True if all models can drive the agent as configured. Raises SettingsError if a model or its API key
    is not set, or if nothing listens at the configured URL.
    """
    check_models(settings, environ)
    assert settings.model is not None, "check_models() raises if no model is set"
    await check_endpoint(settings)
    results = []
    for name in (settings.model, *settings.model_fallbacks):
        if not as_json:
            print_stderr(f"Asking {name} for a tool call ...")
        results.append(await probe_model(build_retrying_model(name, settings, MAX_RETRY_SECONDS)))
    if as_json:
        print_json({"models": [fitness.model_dump(mode="json") for fitness in results]})
    else:
        for fitness in results:
            print(fitness_line(fitness, settings))
    return all(
        fitness.tool_calling == "native" or fitness.tool_calling == settings.tool_calling
        for fitness in results
    )


def fitness_line(fitness: ProbeResult, settings: Settings) -> str:
    """Returns the result of one probe as a sentence."""
    from patchwright.resolver.llm.model_table import get_model_info

    vision = "the model supports images" if fitness.supports_vision else "the model does not support images"
    if fitness.model != settings.multimodal_model and not get_model_info(fitness.model):
        variable = f"{environment_variable('multimodal_model')}={fitness.model}"
        vision = f"image support is unknown, so it gets no images (if it supports them, set {variable})"
    usage = fitness.usage
    usd = usage.usd if usage else None
    facts = [
        FITNESS_TEXTS[fitness.tool_calling],
        fitness.reason,
        vision,
        "its price is unknown" if usd is None else f"this test cost {format_usd(usd)}",
    ]
    sentence = "; ".join(fact.rstrip(".") for fact in (facts if usage else facts[:2]))
    return f"{fitness.model}: {sentence}."
