"""Checks the model and its fallbacks. Each model gets one small request that needs a tool call."""

from collections.abc import Callable, Coroutine
from decimal import Decimal
from typing import Any

from patchwright.bot.commands.probe_command import fitness_line
from patchwright.bot.doctor.runner import CheckResult, DoctorCheck, failed, ok, warning
from patchwright.resolver.settings.settings import Settings

NAME = "model"


def build_checks(settings: Settings) -> list[DoctorCheck]:
    if settings.model is None:
        return [DoctorCheck(NAME, _report_no_model, "")]
    fix = "Check that this machine can reach the provider (PATCHWRIGHT_MODEL_BASE_URL, HTTPS_PROXY)."
    names = (settings.model, *settings.model_fallbacks)
    return [DoctorCheck(NAME, _probe_check(name, settings), fix, timeout_seconds=90) for name in names]


async def _report_no_model() -> list[CheckResult]:
    return [
        failed(
            NAME,
            "no model is configured",
            "For a server, start patchwright serve and choose the model in the browser. "
            "For the command line, set PATCHWRIGHT_MODEL, for example to anthropic/claude-sonnet-5.",
        )
    ]


def _probe_check(name: str, settings: Settings) -> Callable[[], Coroutine[Any, Any, list[CheckResult]]]:
    async def run_probe() -> list[CheckResult]:
        from patchwright.bot.composition.model_factory import build_retrying_model
        from patchwright.resolver.llm.litellm import preload_litellm
        from patchwright.resolver.llm.probe import probe_model

        # The import takes seconds. It runs in a thread, so that the other checks do not time out because of
        # it.
        await preload_litellm()
        fitness = await probe_model(build_retrying_model(name, settings))
        detail = fitness_line(fitness, settings).rstrip(".")
        if fitness.tool_calling == "none":
            return [failed(NAME, detail, "Check the model name and the API key, or choose another model.")]
        if fitness.tool_calling != settings.tool_calling and fitness.tool_calling == "text":
            return [failed(NAME, detail, "Set PATCHWRIGHT_TOOL_CALLING=text.")]
        if fitness.usage is not None and not isinstance(fitness.usage.usd, Decimal):
            return [
                warning(
                    NAME,
                    detail,
                    "Dollar limits do not apply to this model. Limits on steps and time apply.",
                )
            ]
        return [ok(NAME, detail)]

    return run_probe
