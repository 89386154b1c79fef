"""Translates litellm's exceptions into model errors."""

import contextlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
from pydantic import SecretStr

from patchwright.resolver.errors import (
    ContentFiltered,
    ContextOverflow,
    ModelAccessDenied,
    ModelBusy,
    ModelConnectionFailed,
    ModelError,
    NotAModel,
    QuotaExceeded,
    ToolsUnsupported,
)
from patchwright.resolver.events import ReplyUsage
from patchwright.resolver.llm.http_capture import ResponseCapture
from patchwright.resolver.llm.model import ProviderConnection
from patchwright.resolver.llm.pricing import parse_retry_after
from patchwright.resolver.settings.server_settings import REJECTED_KEY_ADVICE
from patchwright.resolver.settings.settings import environment_variable

MAX_ERROR_LENGTH = 300  # characters of a provider's error message
_OBJECT_REPR = re.compile(r"( ssl:)?<[\w.]+ object at 0x[0-9a-f]+>")  # in aiohttp's error messages

RETRYABLE_STATUSES = frozenset({408, 409, 425, 429})  # and all statuses from 500
"""HTTP status codes after which the same request may succeed later. Source: RFC 9110, RFC 6585, RFC 8470."""

BUSY_STATUSES = frozenset({429, 503, 529})
"""HTTP status codes for too many requests or overload. Source: RFC 9110; docs.anthropic.com/en/api/errors for
529.
"""

OUT_OF_CREDIT_CODE = "insufficient_quota"
"""The error code of OpenAI and compatible providers for an account without credit."""


TOOL_REJECTIONS = (
    "does not support tools",  # Ollama
    "--enable-auto-tool-choice",  # vLLM
    "tools param requires --jinja",  # llama.cpp
    "unsupported param: tools",  # older versions of llama.cpp
    "no endpoints found that support tool use",  # OpenRouter
)
"""Lowercase parts of the error messages of servers that cannot call tools with the requested model. Sources:
github.com/ollama/ollama/issues/14795, github.com/vllm-project/vllm/issues/9986,
github.com/containers/ramalama/issues/988, github.com/ggml-org/llama.cpp/issues/10920.
"""


@dataclass(frozen=True)
class _FailedRequest:
    """What is known about a failed request to a model."""

    litellm_errors: Any
    """The module `litellm.exceptions`."""
    exc: Exception
    capture: ResponseCapture
    model_name: str
    base_url: str | None
    status: int
    """HTTP status code, as the provider sent it or as litellm reports it; 0 if it is unknown."""
    message: str
    """The provider's error message."""


def build_model_error(
    litellm: Any,
    exc: Exception,
    capture: ResponseCapture,
    usage: ReplyUsage | None,
    *,
    model_name: str,
    connection: ProviderConnection,
) -> ModelError:
    """Returns the ModelError that corresponds to an exception of litellm.

    `usage` is the usage that the provider bills for the failed request, or None if it is unknown.
    """
    status = capture.status or int(getattr(exc, "status_code", None) or 0)
    message = _extract_error_message(exc, connection.api_key)
    request = _FailedRequest(
        litellm.exceptions, exc, capture, model_name, connection.base_url, status, message
    )
    if error := _find_conversation_error(request) or _find_setup_error(request):
        return error
    retry_after = parse_retry_after(capture.headers or _get_response_headers(exc))
    if status in BUSY_STATUSES:
        return ModelBusy(f"The model {model_name} is busy ({status}): {message}", retry_after=retry_after)
    is_timeout = isinstance(exc, litellm.exceptions.Timeout)
    return ModelError(
        # litellm reports status 500 if no server answered.
        f"The model {model_name} failed ({capture.status or 'no answer'}): {capture.problem or message}",
        retryable=status in RETRYABLE_STATUSES or status >= 500 or status in (0, 200) or is_timeout,
        retry_after=retry_after,
        usage=usage,
    )


def _find_conversation_error(request: _FailedRequest) -> ModelError | None:
    """Returns the error if the provider rejects the conversation itself."""
    name = request.model_name
    if isinstance(request.exc, request.litellm_errors.ContextWindowExceededError):
        return ContextOverflow(f"The conversation exceeds the context window of {name}.")
    if isinstance(request.exc, request.litellm_errors.ContentPolicyViolationError):
        return ContentFiltered(
            f"The provider's content filter rejected the request to {name}: {request.message}"
        )
    return None


def _find_setup_error(request: _FailedRequest) -> ModelError | None:
    """Returns the error if the operator has to change a setting, the network or the account."""
    name, status, capture, exc = request.model_name, request.status, request.capture, request.exc
    if "LLM Provider NOT provided" in str(exc):
        return ModelAccessDenied(unknown_provider_message(name))
    if not capture.status and (reason := _find_connection_problem(exc)):
        return ModelConnectionFailed(_connection_failed_message(name, request.base_url, reason))
    if status in (401, 403) or isinstance(exc, request.litellm_errors.AuthenticationError):
        # The provider's message is omitted, because some messages repeat part of the key.
        return rejected_key(name, status)
    if capture.is_html or _is_other_json(exc):
        content = "a web page instead of JSON" if capture.is_html else "JSON that is not a model's reply"
        return NotAModel(
            f"The endpoint of {name} answers with {content}: "
            f"check {environment_variable('model_base_url')} (the URL usually ends in /v1)."
            f"{prefix_hint(name, request.base_url)}"
        )
    if any(text in request.message.lower() for text in TOOL_REJECTIONS):
        return ToolsUnsupported(
            f"The server of {name} cannot call tools with this model ({status}): set "
            f'{environment_variable("tool_calling")}=text (`tool_calling = "text"` in patchwright.toml), and '
            f"run `patchwright probe`. The server says: {request.message}"
        )
    if status == 404:
        return ModelAccessDenied(_unknown_model_message(name, request.base_url, request.message))
    if status == 402 or (status == 429 and _is_out_of_credit(exc, request.message)):
        return QuotaExceeded(
            f"The account behind {environment_variable('model_api_key')} has no credit: {request.message}"
        )
    return None


def rejected_key(model_name: str, status: int) -> ModelAccessDenied:
    """Returns the error for a key that the provider of the model rejects with this HTTP status code."""
    return ModelAccessDenied(
        f"The provider of {model_name} rejects the API key ({status}): {REJECTED_KEY_ADVICE}"
    )


def unknown_provider_message(
    model_name: str, similar_names: Sequence[str] = (), setting: str = "model"
) -> str:
    """Returns the error message for a model whose provider is unknown. `similar_names` are suggested."""
    suggestion = f" Did you mean {' or '.join(similar_names)}?" if similar_names else ""
    return (
        f"`{model_name}` names no provider: write {environment_variable(setting)} as provider/model, such as "
        f"openai/gpt-5, or openai/NAME for any OpenAI-compatible endpoint.{suggestion}"
    )


def prefix_hint(model_name: str, base_url: str | None) -> str:
    """Returns a sentence for a model such as `claude-sonnet-5` at an own endpoint: without a prefix, the endpoint is
    called with the API of the model's maker.
    """
    if base_url is None or "/" in model_name:
        return ""
    return f" If the endpoint is OpenAI-compatible, write the model as openai/{model_name}."


def _unknown_model_message(model_name: str, base_url: str | None, message: str) -> str:
    path = urlsplit(base_url or "").path.rstrip("/")
    is_custom = base_url is not None and model_name.startswith("openai/")
    hint = " (the URL usually ends in /v1)" if is_custom and not path.endswith("/v1") else ""
    return (
        f"The provider has no model {model_name} (404): "
        f"check {environment_variable('model')} and {environment_variable('model_base_url')}{hint}."
        f"{prefix_hint(model_name, base_url)} "
        f"The provider says: {message}"
    )


def _connection_failed_message(model_name: str, base_url: str | None, reason: str) -> str:
    variable = environment_variable("model_base_url")
    if base_url is None:
        return f"Cannot connect to the provider of {model_name} ({reason}): check the network and {variable}."
    # The rest of the URL is omitted, because it may contain a password.
    address = urlsplit(base_url).netloc.rpartition("@")[2]
    return f"Cannot connect to {address} for {model_name} ({reason}): check {variable}."


def _find_connection_problem(exc: BaseException | None) -> str | None:
    """Returns the reason if the exception was caused by a connection that could not be opened."""
    is_connect_error, reason = False, ""
    while exc is not None:
        # Behind a proxy, litellm's HTTP client raises only a text.
        is_refused = isinstance(exc, httpx.ConnectError) or "Cannot connect to host " in str(exc)
        is_connect_error = is_connect_error or is_refused
        if is_connect_error and isinstance(exc, OSError):
            reason = exc.strerror or str(exc)
        exc = exc.__cause__ or exc.__context__
    if not is_connect_error:
        return None
    if reason.startswith("Connect call failed"):
        return "connection refused"
    return replace_surrogates(reason) or "no connection"


def _is_other_json(exc: Exception) -> bool:
    """Returns True if a successful response has neither `choices` nor `error`, as from another service."""
    return "no 'choices'" in str(exc) and "'error'" not in str(exc)


def _extract_error_message(exc: Exception, api_key: SecretStr | None) -> str:
    """Returns the provider's error message on one line, with the API key masked."""
    text = str(exc).rpartition("Exception - ")[2]
    # Not every provider sends JSON.
    with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):
        text = json.loads(text)["error"]["message"]
    line = replace_surrogates(text)
    if api_key is not None:
        line = line.replace(api_key.get_secret_value(), "<secret-hidden>")
    return to_one_line(line)


def _is_out_of_credit(exc: Exception, message: str) -> bool:
    """Returns True if a response with status 429 means that the account has no credit. Returns False if it
    means a rate limit.

    Source: platform.openai.com/docs/guides/error-codes
    """
    if OUT_OF_CREDIT_CODE in str(exc):
        return True
    return "quota" in message.lower() and "billing" in message.lower()


def _get_response_headers(exc: Exception) -> dict[str, str]:
    """Returns the response headers that litellm attached to its exception, with names in lowercase."""
    headers = getattr(exc, "litellm_response_headers", None) or {}
    return {str(name).lower(): str(value) for name, value in dict(headers).items()}


def to_one_line(text: str) -> str:
    """Returns the text on one line, cut to MAX_ERROR_LENGTH characters and without object addresses."""
    line = " ".join(_OBJECT_REPR.sub("", text).split())
    return line if len(line) <= MAX_ERROR_LENGTH else line[:MAX_ERROR_LENGTH] + " ..."


def replace_surrogates(text: object) -> str:
    """Replaces unpaired surrogates, which JSON allows, so that the text can be encoded as UTF-8."""
    return text.encode("utf-8", "replace").decode() if isinstance(text, str) else ""


def drop_unencodable(blocks: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    """Returns the blocks unchanged, or no blocks if one of them cannot be encoded as UTF-8. Blocks are not
    repaired, because providers reject altered reasoning.
    """
    try:
        json.dumps(blocks, ensure_ascii=False).encode()
    except (UnicodeEncodeError, TypeError, ValueError):
        return ()
    return blocks
