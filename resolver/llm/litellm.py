"""Calls the models of any provider through litellm. No other module imports litellm directly. The import
takes 2.4 s, so it is delayed until litellm is needed.
"""

import asyncio
import contextlib
import gc
import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NoReturn

import httpx

from patchwright.resolver.errors import ContentFiltered, ModelError
from patchwright.resolver.events import ReplyUsage
from patchwright.resolver.llm import chat_completions, responses_api
from patchwright.resolver.llm.early_request import EarlyRequest, PredictedRequest, predict_request
from patchwright.resolver.llm.http_capture import ResponseCapture, capture_response, request_uncompressed
from patchwright.resolver.llm.model import (
    ChatMessage,
    ProviderConnection,
    RawToolCall,
    Reply,
    SystemMessage,
    ToolSpec,
)
from patchwright.resolver.llm.model_table import get_model_info, needs_cache_breakpoints
from patchwright.resolver.llm.pricing import estimate_usage, parse_usage
from patchwright.resolver.llm.provider_errors import (
    build_model_error,
    drop_unencodable,
    replace_surrogates,
    to_one_line,
)
from patchwright.resolver.settings.model_settings import Price
from patchwright.resolver.settings.settings import environment_variable

logger = logging.getLogger(__name__)

_ENVIRONMENT = {
    # By default, the import downloads a price table. Without internet access, it hangs.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    # By default, litellm loads a `.env` file into the environment of this process.
    "LITELLM_MODE": "PRODUCTION",
    # By default, the `openai` package processes all earlier messages again in each call. After 300 steps,
    # this takes 80 ms per step; with this variable, it takes 4 ms.
    "EXPERIMENTAL_OPENAI_BASE_LLM_HTTP_HANDLER": "true",
    # By default, litellm searches all earlier messages for images to log. After 300 steps, this takes 3 ms
    # per step.
    "MAX_BASE64_LENGTH_FOR_LOGGING": "0",
}

_CUSTOM_CLIENT_PROVIDERS = frozenset(
    (
        "anthropic azure_ai cerebras dashscope databricks deepseek fireworks_ai gemini github groq hosted_vllm "
        "huggingface litellm_proxy mistral moonshot nvidia_nim openai openrouter perplexity sambanova "
        "together_ai xai zai"
    ).split()
)
"""Providers for which litellm uses our HTTP client. Responses of other providers have no size limit."""

_CACHE_CONTROL_PROVIDERS = frozenset("anthropic bedrock databricks openrouter vertex_ai".split())
"""Providers that accept cache breakpoints. Other providers cache prompts without breakpoints."""


@cache
def _import_litellm() -> Any:
    """Imports and configures litellm once. The return type is Any, because mypy would need minutes to check
    litellm's types.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)  # litellm reads these variables only at import
    import litellm

    litellm.suppress_debug_info = True
    # litellm also logs the errors that it raises, with tracebacks. `reply` raises them as one sentence.
    logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)
    litellm.telemetry = False
    litellm.drop_params = True  # reasoning models reject `temperature`
    litellm.num_retries = 0  # RetryingModel retries within its time limit
    # The import creates half a million permanent objects. Without `gc.freeze`, the garbage collector would
    # scan them every few steps, which takes 200 ms each time.
    gc.freeze()
    return litellm


def _disable_call_logging() -> None:
    """Turns off litellm's call logging for the current task. Nobody reads these logs, and logging takes a
    third of the time of each call.
    """
    # Other litellm versions may lack this module; their calls are only slower.
    with contextlib.suppress(ImportError):
        from litellm._internal_context import is_internal_call

        is_internal_call.set(True)


async def preload_litellm() -> Any:
    """Imports litellm in a thread, so that other work continues meanwhile. Returns the module."""
    return await asyncio.to_thread(_import_litellm)


def start_import() -> None:
    """Starts to import litellm in a thread. The program can end before the import does."""
    threading.Thread(target=_import_litellm, name="litellm import", daemon=True).start()


def _is_imported() -> bool:
    return _import_litellm.cache_info().currsize > 0


def get_provider(name: str) -> str:
    """Returns litellm's name for the provider of a model, or an empty string if it is unknown."""
    litellm = _import_litellm()
    try:
        return str(litellm.get_llm_provider(name)[1])
    except litellm.exceptions.BadRequestError:
        return ""


class LitellmModel:
    """A model that is called through litellm. Its name is litellm's name, such as
    `anthropic/claude-sonnet-5`.

    - `supports_vision` says whether the model accepts images. If it is None, litellm's model table decides;
      models that are not in the table count as text-only.
    - `effort` is the reasoning effort. If it is None, the provider's default is used.
    - `price` is the price that the operator configured. If it is None, the cost comes from the provider or
      from litellm's price table.
    """

    def __init__(
        self,
        name: str,
        connection: ProviderConnection,
        *,
        supports_vision: bool | None = None,
        effort: str | None = None,
        price: Price | None = None,
    ) -> None:
        self.name = name
        self._connection = connection
        self._supports_vision = supports_vision
        self._effort = effort
        self._price = price
        # a reasoning effort cannot be combined with a temperature
        self._temperature: float | None = 0 if effort is None else None

    @property
    def supports_vision(self) -> bool:
        if self._supports_vision is None:
            self._supports_vision = bool(get_model_info(self.name).get("supports_vision"))
        return self._supports_vision

    @property
    def context_window(self) -> int | None:
        max_tokens = get_model_info(self.name).get("max_input_tokens")
        return max_tokens if isinstance(max_tokens, int) and max_tokens > 0 else None

    @property
    def sends_early(self) -> bool:
        """True if the first request of a process is sent before litellm is imported."""
        return self._predict_request([SystemMessage(text="")], ()) is not None

    async def reply(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> Reply:
        if _is_imported():
            return await self._reply(_import_litellm(), messages, tools)
        if (predicted := self._predict_request(messages, tools)) is None:
            return await self._reply(await preload_litellm(), messages, tools)
        async with EarlyRequest(predicted, self._connection) as early:
            await early.wait_until_sent()  # The import takes most of this process's time.
            return await self._reply(await preload_litellm(), messages, tools, early)

    def _predict_request(
        self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]
    ) -> PredictedRequest | None:
        if self._effort:
            return None
        return predict_request(self.name, self._connection, messages, tools, os.environ)

    async def _reply(
        self,
        litellm: Any,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolSpec],
        early: EarlyRequest | None = None,
    ) -> Reply:
        _disable_call_logging()
        if self._connection.ca_bundle is not None:
            litellm.ssl_verify = str(self._connection.ca_bundle)
        started_at = time.monotonic()
        with ResponseCapture() as capture:
            try:
                # litellm's own timeout restarts with every byte.
                async with asyncio.timeout(self._connection.timeout):
                    response = await self._send_request(litellm, messages, tools, capture, early)
            except TimeoutError as exc:
                raise ModelError(
                    f"The model {self.name} did not reply within {self._connection.timeout:g} s "
                    f"({environment_variable('model_timeout')}).",
                    usage=self._estimate_failed_usage(messages, capture, started_at)
                    if capture.is_interrupted
                    else None,
                ) from exc
            except tuple(litellm.exceptions.LITELLM_EXCEPTION_TYPES) as exc:
                logger.debug("model request failed", extra={"model": self.name}, exc_info=exc)
                if capture.status == 200 and capture.is_too_large:
                    # Treat an oversized reply as if it had reached the model's output limit: the agent
                    # reports this limit to the model and does not retry.
                    return Reply(
                        text="",
                        tool_calls=(),
                        usage=self._estimate_failed_usage(messages, capture, started_at),
                        truncated=True,
                    )
                if capture.status in (0, 200) and (raw_usage := capture.extract_usage()) is not None:
                    # The reply is unusable but was billed: return an empty reply with its cost.
                    return Reply(text="", tool_calls=(), usage=self._parse_usage(raw_usage, None, started_at))
                if self._temperature is not None and "temperature" in str(exc) and capture.status == 400:
                    self._temperature = None  # some models accept only their default temperature
                    return await self.reply(messages, tools)
                failed_usage = (
                    self._estimate_failed_usage(messages, capture, started_at)
                    if capture.is_interrupted
                    else None
                )
                raise build_model_error(
                    litellm,
                    exc,
                    capture,
                    failed_usage,
                    model_name=self.name,
                    connection=self._connection,
                ) from exc
        return self._parse_reply(response, started_at)

    async def _send_request(
        self,
        litellm: Any,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolSpec],
        capture: ResponseCapture,
        early: EarlyRequest | None,
    ) -> Any:
        provider, connection = get_provider(self.name), self._connection
        request: dict[str, Any] = {
            "model": self.name,
            "api_base": connection.base_url,
            "api_key": connection.api_key.get_secret_value() if connection.api_key else None,
            "timeout": connection.timeout,
            "max_retries": 0,
            "logger_fn": capture.handle_litellm_log,
        }
        if self._temperature is not None:
            request["temperature"] = self._temperature
        if provider in _CUSTOM_CLIENT_PROVIDERS:
            request["client"] = self._get_http_client(litellm, provider, early)
        if self._uses_responses_api(provider):
            if self._effort:
                request["reasoning"] = {"effort": self._effort}
            return await litellm.aresponses(
                input=responses_api.to_input_items(
                    messages, model_name=self.name, supports_vision=self.supports_vision
                ),
                tools=[tool.to_responses_tool() for tool in tools] or None,
                **responses_api.REQUEST_OPTIONS,
                **request,
            )
        if self._effort:
            request["reasoning_effort"] = self._effort
        cache_control = needs_cache_breakpoints(self.name) and provider in _CACHE_CONTROL_PROVIDERS
        return await litellm.acompletion(
            messages=chat_completions.to_chat_messages(
                messages,
                model_name=self.name,
                supports_vision=self.supports_vision,
                cache_control=cache_control,
            ),
            tools=[tool.to_openai_tool() for tool in tools] or None,
            **request,
        )

    def _get_http_client(self, litellm: Any, provider: str, early: EarlyRequest | None) -> Any:
        """Returns litellm's HTTP client for the provider. Our hooks in the client capture each response. The client
        sends its requests through `early`, if this is given.

        litellm keeps the client in a cache, and closes the client itself.
        """
        from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler, get_async_httpx_client

        ca_bundle = self._connection.ca_bundle
        hooks: dict[str, list[Any]] = {"request": [request_uncompressed], "response": [capture_response]}
        params = {"ssl_verify": str(ca_bundle) if ca_bundle else None, "event_hooks": hooks}
        if early is None:
            return get_async_httpx_client(llm_provider=litellm.LlmProviders(provider), params=params)
        handler = AsyncHTTPHandler(**params)
        handler.client = httpx.AsyncClient(
            transport=early, event_hooks=hooks, timeout=self._connection.timeout
        )
        return handler

    def _uses_responses_api(self, provider: str) -> bool:
        """Returns True for models that are available only in OpenAI's Responses API, and for OpenAI's own reasoning
        models. All other models are called through chat completions.
        """
        if "/responses/" in self.name or get_model_info(self.name).get("mode") == "responses":
            return True
        base_url = (
            self._connection.base_url
            or os.environ.get("OPENAI_BASE_URL")
            or os.environ.get("OPENAI_API_BASE")
        )
        return provider == "openai" and not base_url and bool(_import_litellm().supports_reasoning(self.name))

    # --- parsing --------------------------------------------------------------------------------------------

    def _parse_reply(self, response: Any, started_at: float) -> Reply:
        hidden_params = getattr(response, "_hidden_params", None) or {}
        usage = self._parse_usage(
            _usage_to_dict(getattr(response, "usage", None)), hidden_params.get("response_cost"), started_at
        )
        if hasattr(response, "output"):
            return self._build_reply(responses_api.ParsedResponse(response), usage)
        choice = response.choices[0] if response.choices else None
        message = choice.message if choice else None
        finish_reason = choice.finish_reason if choice else None
        calls = tuple(
            RawToolCall(
                id=replace_surrogates(call.id),
                name=replace_surrogates(call.function.name),
                arguments=replace_surrogates(call.function.arguments),
            )
            for call in getattr(message, "tool_calls", None) or ()
        )
        text = replace_surrogates(getattr(message, "content", None))
        if finish_reason == "content_filter" and not calls:
            self._raise_content_filtered(text, usage)
        return Reply(
            text=text,
            tool_calls=calls,
            usage=usage,
            reasoning=drop_unencodable(chat_completions.extract_reasoning(message)),
            truncated=finish_reason == "length",
        )

    def _build_reply(self, response: responses_api.ParsedResponse, usage: ReplyUsage) -> Reply:
        if (response.incomplete_reason == "content_filter" or response.refusal) and not response.tool_calls:
            self._raise_content_filtered(replace_surrogates(response.refusal), usage)
        return Reply(
            text=replace_surrogates(response.text),
            tool_calls=tuple(
                RawToolCall(
                    id=replace_surrogates(call.id),
                    name=replace_surrogates(call.name),
                    arguments=replace_surrogates(call.arguments),
                )
                for call in response.tool_calls
            ),
            usage=usage,
            reasoning=drop_unencodable(tuple(response.reasoning)),
            truncated=response.incomplete_reason == "max_output_tokens",
        )

    def _raise_content_filtered(self, explanation: str, usage: ReplyUsage) -> NoReturn:
        details = f" The provider says: {to_one_line(explanation)}" if explanation else ""
        raise ContentFiltered(
            f"The provider's content filter blocked the reply of {self.name}.{details}", usage=usage
        )

    # --- cost -----------------------------------------------------------------------------------------------

    def _parse_usage(self, raw_usage: Mapping[str, Any], usd: object, started_at: float) -> ReplyUsage:
        seconds = time.monotonic() - started_at
        return parse_usage(
            self.name,
            raw_usage,
            usd=usd,
            configured_price=self._price,
            model_info=get_model_info(self.name),
            seconds=seconds,
        )

    def _estimate_failed_usage(
        self, messages: Sequence[ChatMessage], capture: ResponseCapture, started_at: float
    ) -> ReplyUsage:
        """Returns the reported or estimated usage of a reply that was cut off."""
        max_output_tokens = get_model_info(self.name).get("max_output_tokens")
        raw_usage = capture.extract_usage() or estimate_usage(messages, len(capture.body), max_output_tokens)
        return self._parse_usage(raw_usage, None, started_at)


def _usage_to_dict(usage: Any) -> dict[str, Any]:
    return {} if usage is None else usage if isinstance(usage, dict) else usage.model_dump()
