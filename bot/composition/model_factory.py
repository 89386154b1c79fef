"""Builds the models of a run from the settings: one model for each purpose, with retries and fallbacks."""

from collections.abc import Sequence

from patchwright.resolver.llm.checked_model import CheckedModel
from patchwright.resolver.llm.fallback import FallbackModel
from patchwright.resolver.llm.litellm import LitellmModel, start_import
from patchwright.resolver.llm.masking_model import MaskingModel
from patchwright.resolver.llm.model import Model, ProviderConnection
from patchwright.resolver.llm.retry import RetryingModel
from patchwright.resolver.llm.router import ModelPurpose, RunModels, route_by_images
from patchwright.resolver.llm.transcription import LitellmTranscriber
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.settings.settings import Settings


def build_models(
    settings: Settings, model_name: str | None = None, secrets: Secrets | None = None
) -> RunModels:
    """Returns the models of a run. `model_name` replaces `settings.model`, which must be set.

    `secrets` are masked in everything that the models write.
    """
    assert settings.model is not None
    main = model_name or settings.model
    names = dict.fromkeys((main, *settings.model_fallbacks))
    chain = [_build_agent_model(name, settings) for name in names]
    act = _with_fallbacks(chain)
    if settings.multimodal_model and settings.multimodal_model != main:
        act = route_by_images(
            act, _with_fallbacks([_build_agent_model(settings.multimodal_model, settings), *chain])
        )
    named: dict[ModelPurpose, str | None] = {
        "condense": settings.condenser_model,
        "browse": settings.browsing_model,
        "review": settings.review_model,
        "vision": settings.multimodal_model,
    }
    # If the model for a purpose fails, the agent's model and its fallbacks take over.
    others = {
        purpose: _with_fallbacks(
            [
                RetryingModel(
                    _build_litellm_model(name, settings),
                    max_seconds=settings.model_retry_timeout,
                    setting="model_retry_timeout",
                ),
                *chain,
            ]
        )
        for purpose, name in named.items()
        if name and name != main
    }
    models = RunModels.with_default(act, others)
    return models if secrets is None else models.wrap(lambda model: MaskingModel(model, secrets))


def start_model_import(settings: Settings) -> None:
    """Starts to import litellm, unless the first request is sent without it. `settings.model` must be set."""
    assert settings.model is not None
    if not _build_litellm_model(settings.model, settings, effort=settings.reasoning_effort).sends_early:
        start_import()


def build_transcriber(settings: Settings) -> LitellmTranscriber:
    """Returns the model that transcribes recordings. `settings.model` must be set."""
    assert settings.model is not None
    return LitellmTranscriber(
        settings.model,
        ProviderConnection(
            base_url=settings.model_base_url,
            api_key=settings.model_api_key,
            timeout=settings.model_timeout,
            ca_bundle=settings.ca_bundle,
        ),
    )


def build_retrying_model(name: str, settings: Settings, max_retry_seconds: float | None = None) -> Model:
    """Returns a model that uses native tool calls and retries failed requests.

    `max_retry_seconds` replaces the setting `model_retry_timeout`, if this is longer.
    """
    return RetryingModel(
        _build_litellm_model(name, settings, effort=settings.reasoning_effort),
        max_seconds=min(settings.model_retry_timeout, max_retry_seconds or settings.model_retry_timeout),
        setting=None if max_retry_seconds else "model_retry_timeout",
    )


def _with_fallbacks(chain: Sequence[Model]) -> Model:
    return chain[0] if len(chain) == 1 else FallbackModel(chain)


def _build_agent_model(name: str, settings: Settings) -> Model:
    return CheckedModel(
        build_retrying_model(name, settings),
        settings.tool_calling,
        settings.data / "cache" / "models",
        base_url=settings.model_base_url,
        is_small_window_allowed=settings.max_context_tokens is not None,
    )


def _build_litellm_model(name: str, settings: Settings, effort: str | None = None) -> LitellmModel:
    """Returns a model that does not retry failed requests.

    The prefix of a model's name is its provider. The configured base URL and key are only used for models of
    the same provider as `settings.model`.
    """
    ours = settings.model is not None and _provider_name(name) == _provider_name(settings.model)
    return LitellmModel(
        name,
        ProviderConnection(
            base_url=settings.model_base_url if ours else None,
            api_key=settings.model_api_key if ours else None,
            timeout=settings.model_timeout,
            ca_bundle=settings.ca_bundle,
        ),
        supports_vision=True if name == settings.multimodal_model else None,
        effort=effort,
        price=settings.model_prices.get(name),
    )


def _provider_name(name: str) -> str:
    return name.partition("/")[0]
