"""Applies the options that a person sets for a run, such as the model and the budget, within the operator's
limits.
"""

from dataclasses import replace

from patchwright.resolver.command_parser import RunOptions
from patchwright.resolver.rendering.template_renderer import render_reply
from patchwright.resolver.run.dependencies import RunDependencies
from patchwright.resolver.settings.model_settings import ModelSettings


def list_allowed_models(settings: ModelSettings) -> tuple[str, ...]:
    """Returns the models that people may request. These are the models that the settings name for the agent,
    and the models in `allowed_models`.
    """
    named = (
        *(settings.model, *settings.model_fallbacks, settings.multimodal_model, settings.condenser_model),
        *(settings.browsing_model, settings.review_model, *settings.allowed_models),
    )
    return tuple(dict.fromkeys(name for name in named if name))


def find_allowed_model(name: str, settings: ModelSettings) -> str | None:
    """Returns the model's full name, or None if the model is not allowed.

    `name` may be the full name, such as `openai/gpt-5`, or only the part after a `/`. Returns None if this part
    matches several allowed models.
    """
    known = list_allowed_models(settings)
    ending = [one for one in known if one.lower().endswith(f"/{name.lower()}")]
    same = next((one for one in known if one.lower() == name.lower()), None)
    return same or (ending[0] if len(ending) == 1 else None)


def check_options(options: RunOptions, settings: ModelSettings) -> str | None:
    """Returns why the options are not allowed. Returns None if all options are allowed."""
    if options.model is None or find_allowed_model(options.model, settings):
        return None
    return render_reply(
        "unknown_model.md.j2", name=options.model, known=list_allowed_models(settings)
    ).strip()


def apply_options(deps: RunDependencies, options: RunOptions) -> RunDependencies:
    """Returns the dependencies with the options applied. The budget never exceeds the operator's limit.

    If the requested model is no longer allowed, the default model is used.
    """
    settings = deps.settings
    if options.usd is not None and options.usd < settings.max_usd:
        deps = replace(deps, settings=settings.model_copy(update={"max_usd": options.usd}))
    name = find_allowed_model(options.model, settings) if options.model else None
    if name is None or deps.choose_models is None:
        return deps
    models = deps.choose_models(name)
    return replace(deps, model=models.act, purpose_models=models)
