"""Checks the configured models before a run starts: their names, their API keys, and whether the endpoint
answers.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from patchwright.resolver.errors import EndpointDown, SettingsError
from patchwright.resolver.settings.connection_check import find_connection_problem, is_key_rejected, needs_v1
from patchwright.resolver.settings.settings import Settings, environment_variable

KEY_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "groq": ("GROQ_API_KEY",),
    "mistral": ("MISTRAL_API_KEY",),
    "openai": ("OPENAI_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY", "OR_API_KEY"),
    "xai": ("XAI_API_KEY",),
}
"""Maps each common provider to the environment variables from which litellm reads its API key. If a model of
the provider is configured, one of these variables must be set.

Other providers are not checked, because some need no key and some accept other credentials.
"""

PROVIDER_URLS = {"anthropic": "https://api.anthropic.com/v1", "openai": "https://api.openai.com/v1"}
"""APIs where a request for the list of models shows whether the provider accepts the key."""

MODEL_SETTINGS = (
    "model",
    "multimodal_model",
    "condenser_model",
    "browsing_model",
    "review_model",
)
ENV_FILE = Path("patchwright.env")
ENV_FILE_HINT = (
    f"Only Compose and systemd read {ENV_FILE}: to use it in a shell, run `set -a; . ./{ENV_FILE}; set +a`."
)


def check_models(settings: Settings, environ: Mapping[str, str]) -> None:
    """Raises SettingsError if no model is set, if a model has no known provider, or if the API key of its provider
    is not set.
    """
    if settings.model is None:
        raise SettingsError(
            "PATCHWRIGHT_MODEL is not set. Set it or pass --model, for example anthropic/claude-sonnet-5."
            + (f" {ENV_FILE_HINT}" if ENV_FILE.is_file() else "")
        )
    for setting, name in _configured_models(settings):
        _check_key(name, _find_provider(setting, name), settings, environ)


async def check_endpoint(settings: Settings) -> None:
    """Raises EndpointDown if nothing listens at `model_base_url`, or if the host of this URL is unknown. Raises
    SettingsError if this URL lacks `/v1`, and ModelAccessDenied if the provider rejects `model_api_key`.

    Does nothing if `model_fallbacks` names other models.
    """
    if settings.model_fallbacks:
        return
    if settings.model_base_url is not None:
        await _check_base_url(settings.model_base_url, settings)
    provider = (settings.model or "").partition("/")[0]
    url = settings.model_base_url if provider == "openai" else None
    url = url or (PROVIDER_URLS.get(provider) if settings.model_base_url is None else None)
    if not url or settings.model_api_key is None or settings.model is None:
        return
    key, name = settings.model_api_key.get_secret_value(), settings.model
    if await is_key_rejected(url, key, name.partition("/")[2], settings.ca_bundle):
        from patchwright.resolver.llm.provider_errors import rejected_key

        raise rejected_key(name, 401)


async def _check_base_url(base_url: str, settings: Settings) -> None:
    if problem := await find_connection_problem(base_url):
        raise EndpointDown(
            f"The model's endpoint {problem}. "
            f"Check {environment_variable('model_base_url')}, and check that the endpoint is running."
        )
    is_openai = (settings.model or "").startswith("openai/")
    if is_openai and await needs_v1(base_url, settings.ca_bundle):
        raise SettingsError(
            "The model's endpoint has its API below /v1: "
            f"add /v1 to the end of {environment_variable('model_base_url')}."
        )


def _configured_models(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yields the setting and the name of each configured model."""
    for setting in MODEL_SETTINGS:
        if name := getattr(settings, setting):
            yield setting, name
    for name in settings.model_fallbacks:
        yield "model_fallbacks", name


def _find_provider(setting: str, name: str) -> str:
    prefix, slash, _ = name.partition("/")
    if slash and prefix in KEY_VARIABLES:
        return prefix  # avoids the import of litellm, which takes seconds
    from patchwright.resolver.llm.litellm import get_provider
    from patchwright.resolver.llm.model_table import find_similar_models
    from patchwright.resolver.llm.provider_errors import unknown_provider_message

    if provider := get_provider(name):
        return provider
    raise SettingsError(unknown_provider_message(name, find_similar_models(name), setting))


def _check_key(name: str, provider: str, settings: Settings, environ: Mapping[str, str]) -> None:
    variables = KEY_VARIABLES.get(provider, ())
    is_main_provider = name.partition("/")[0] == (settings.model or "").partition("/")[0]
    has_own_key = is_main_provider and bool(settings.model_api_key)
    if not variables or has_own_key or any(environ.get(variable) for variable in variables):
        return
    fix = f"Set it to your API key for {name}"
    if is_main_provider:
        fix += f", or set {environment_variable('model_api_key')}"
        if settings.model_base_url:
            fix += " (any text, if the endpoint needs no key)"
    from patchwright.resolver.llm.provider_errors import prefix_hint

    raise SettingsError(f"{variables[0]} is not set. {fix}.{prefix_hint(name, settings.model_base_url)}")
