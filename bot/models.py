"""Settings to models: each purpose its own, with patience, fallbacks and pictures as the operator wants them."""

from collections.abc import Sequence

from resolver.llm.fallback import Fallback
from resolver.llm.hearing import LitellmHearing
from resolver.llm.litellm import LitellmModel
from resolver.llm.model import Model
from resolver.llm.patient import Patient
from resolver.llm.router import Models, Purpose, by_pictures
from resolver.llm.textual import Textual
from resolver.settings.settings import Settings


def models(settings: Settings, chosen: str | None = None) -> Models:
    """The models of a run; `settings.model` is set. `chosen`: works in its place."""
    assert settings.model is not None
    names = dict.fromkeys((chosen or settings.model, *settings.model_fallbacks))
    chain = [_acting(name, settings) for name in names]
    act = _first_that_answers(chain)
    if settings.model_pictures:
        act = by_pictures(act, _first_that_answers([_acting(settings.model_pictures, settings), *chain]))
    named: dict[Purpose, str | None] = {
        "condense": settings.model_condense,
        "browse": settings.model_browse,
        "judge": settings.model_judge,
        "senses": settings.model_senses or settings.model_pictures,
    }
    # Where a purpose's own model fails, those that act can do it too.
    others = {
        purpose: _first_that_answers(
            [Patient(_model(name, settings), budget=settings.model_patience), *chain]
        )
        for purpose, name in named.items()
        if name
    }
    return Models.of(act, others)


def hearing(settings: Settings) -> LitellmHearing:
    """Who writes recordings down; `settings.model` is set."""
    assert settings.model is not None
    return LitellmHearing(
        settings.model,
        base_url=settings.model_base_url,
        api_key=settings.model_api_key,
        timeout=settings.model_timeout,
        ca_bundle=settings.ca_bundle,
    )


def plain(name: str, settings: Settings) -> Model:
    """A model that acts, asked for calls as such."""
    return Patient(_model(name, settings, effort=settings.model_effort), budget=settings.model_patience)


def _first_that_answers(chain: Sequence[Model]) -> Model:
    return chain[0] if len(chain) == 1 else Fallback(chain)


def _acting(name: str, settings: Settings) -> Model:
    model = plain(name, settings)
    return Textual(model) if settings.model_tools == "text" else model


def _model(name: str, settings: Settings, effort: str | None = None) -> LitellmModel:
    """The model itself. Where the key goes is decided by the provider that stands in front of the name."""
    ours = settings.model is not None and _provider(name) == _provider(settings.model)
    return LitellmModel(
        name,
        base_url=settings.model_base_url if ours else None,
        api_key=settings.model_api_key if ours else None,
        timeout=settings.model_timeout,
        ca_bundle=settings.ca_bundle,
        sees=settings.model_sees if name == settings.model else None,
        api=settings.model_api if ours else "auto",
        effort=effort,
        price=settings.model_prices.get(name),
    )


def _provider(name: str) -> str:
    return name.partition("/")[0]
