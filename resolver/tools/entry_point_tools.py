"""Tools from other packages: typed functions, which the settings choose by the names of their entry points.

The model sees a function's name, docstring and annotated arguments. The function runs in this process on the
host with the operator's rights, so installing such a package means trusting it. The first argument of the
function may be the run's sandbox.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError, create_model

from patchwright.resolver.actions import ExternalToolResult
from patchwright.resolver.errors import SettingsError
from patchwright.resolver.llm.model import ToolSpec
from patchwright.resolver.security.risk_plugins import TOOL_GROUP, find_entry_point
from patchwright.resolver.tool_actions.unchecked_actions import CallTool
from patchwright.resolver.tools.tool import Tool, build_parameters_schema
from patchwright.runtime.errors import SandboxError
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.runtime.observations import ActionFailure
from patchwright.runtime.output_text import clip
from patchwright.runtime.sandbox import Sandbox

logger = logging.getLogger(__name__)

MAX_RESULT_LENGTH = 30_000  # characters

ToolFunction = Callable[..., str | Awaitable[str]]


class ToolFailed(Exception):
    """Raised by a tool's function to tell the model what went wrong and what to do instead."""


class FunctionTool:
    """A typed function as a tool. Raises SettingsError if the function lacks a docstring or annotations."""

    def __init__(self, function: ToolFunction, sandbox: Sandbox) -> None:
        self.kind = "call_tool"
        self._function = function
        self._sandbox = sandbox
        name = getattr(function, "__name__", "")
        if not (description := inspect.getdoc(function)):
            raise SettingsError(f"the tool {name} has no docstring, which models need as its description")
        try:
            hints = get_type_hints(function, include_extras=True)
            parameters = list(inspect.signature(function).parameters.values())
            self._takes_sandbox = bool(parameters) and hints.get(parameters[0].name) is Sandbox
            fields = {
                parameter.name: _build_field(parameter, hints)
                for parameter in parameters[self._takes_sandbox :]
            }
            self._arguments = create_model(name, __base__=FrozenModel, **fields)  # type: ignore[call-overload]
        except (NameError, TypeError) as exc:
            raise SettingsError(f"the tool {name} cannot be described: {exc}") from exc
        self.spec = ToolSpec(
            name=name, description=description, parameters=build_parameters_schema(self._arguments)
        )

    def parse(self, arguments: dict[str, Any]) -> CallTool:
        self._arguments.model_validate(arguments)
        return CallTool(name=self.spec.name, arguments=arguments)

    async def execute(self, action: CallTool) -> ExternalToolResult | ActionFailure:
        try:
            values = dict(self._arguments.model_validate(action.arguments))
        except ValidationError as exc:
            return ActionFailure(reason="malformed", message=str(exc)[:500])
        try:
            result = self._function(*([self._sandbox] if self._takes_sandbox else []), **values)
            text = _TEXT_ADAPTER.validate_python(await result if inspect.isawaitable(result) else result)
        except SandboxError:
            raise  # the sandbox failed, not the tool; the run continues in another sandbox
        except ToolFailed as exc:
            return ActionFailure(reason="io", message=str(exc)[:2000])
        except Exception as exc:  # a bug in third-party code must not end the run
            logger.warning("tool failed", extra={"tool": self.spec.name}, exc_info=exc)
            error = f"{type(exc).__name__}: {exc}"[:500]
            return ActionFailure(
                reason="io", message=f"{self.spec.name} failed ({error}). Continue without this tool."
            )
        return ExternalToolResult(text=clip(text, MAX_RESULT_LENGTH))


_TEXT_ADAPTER: TypeAdapter[str] = TypeAdapter(str)


def _build_field(parameter: inspect.Parameter, hints: dict[str, Any]) -> tuple[Any, Any]:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or parameter.name not in hints:
        raise TypeError(f"the argument {parameter.name} has no type annotation")
    return hints[parameter.name], ... if parameter.default is parameter.empty else parameter.default


def load_entry_point_tools(names: Sequence[str], sandbox: Sandbox) -> Sequence[Tool]:
    """Returns the tools of installed packages with these names. If a tool is unknown or cannot be loaded, raises
    SettingsError with the known names, or with the name of its package.
    """
    tools: list[Tool] = []
    for name in names:
        entry = find_entry_point(TOOL_GROUP, name)
        try:
            function = entry.load()
        except (ImportError, AttributeError) as exc:
            raise SettingsError(f"the tool {entry.name} of {entry.value} cannot be loaded: {exc}") from exc
        tools.append(FunctionTool(function, sandbox))
    return tools
