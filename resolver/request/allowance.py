"""What a person's options come to under the operator's settings: which model, and how many dollars."""

from dataclasses import replace

from resolver.kit import Kit
from resolver.request import planning_prose
from resolver.request.request import Options
from resolver.settings.models import ModelSettings


def models_to_choose(settings: ModelSettings) -> tuple[str, ...]:
    """Names of the models that people may ask for: those that the settings name for the agent, and `model_choices`."""
    named = (
        *(settings.model, *settings.model_fallbacks, settings.model_pictures, settings.model_condense),
        *(settings.model_browse, settings.model_judge, settings.model_senses, *settings.model_choices),
    )
    return tuple(dict.fromkeys(name for name in named if name))


def chosen_model(name: str, settings: ModelSettings) -> str | None:
    """The full name of the model that is meant: its own, or its end behind a `/` where only one ends so; None: none."""
    known = models_to_choose(settings)
    ending = [one for one in known if one.lower().endswith(f"/{name.lower()}")]
    same = next((one for one in known if one.lower() == name.lower()), None)
    return same or (ending[0] if len(ending) == 1 else None)


def refused_options(options: Options, settings: ModelSettings) -> str | None:
    """Why nothing is begun with these options; None: they may be."""
    if options.model is None or chosen_model(options.model, settings):
        return None
    return planning_prose.no_such_model(options.model, models_to_choose(settings))


def under(kit: Kit, options: Options) -> Kit:
    """The kit with what the options choose; more dollars than the operator allows are not to be had.

    A model that the operator has taken away meanwhile is the usual one.
    """
    settings = kit.settings
    if options.usd is not None and options.usd < settings.max_usd:
        kit = replace(kit, settings=settings.model_copy(update={"max_usd": options.usd}))
    name = chosen_model(options.model, settings) if options.model else None
    if name is None or kit.choose is None:
        return kit
    models = kit.choose(name)
    return replace(kit, model=models.act, purposes=models)
