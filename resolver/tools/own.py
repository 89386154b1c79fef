"""Tools that other packages bring: typed functions, found by the entry point group `patchwright.tools`.

A function's name, docstring and annotated arguments are what the model reads. It runs in this process, on the host,
with the operator's rights: installing such a package is trusting it. Its first argument may be the run's sandbox.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import entry_points
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError, create_model

from resolver.actions import Called, CallTool
from resolver.errors import SettingsError
from resolver.llm.model import ToolSpec
from resolver.tools.tool import Tool, parameters
from runtime.errors import SandboxError
from runtime.frozen import Frozen
from runtime.observations import Failed
from runtime.sandbox import Sandbox
from runtime.text import clip

logger = logging.getLogger(__name__)

GROUP = "patchwright.tools"
MOST = 30_000  # characters of an answer

Function = Callable[..., str | Awaitable[str]]


class ToolFailed(Exception):
    """What a tool's function raises to tell the model what went wrong and what to do instead."""


class FunctionTool:
    """A typed function as a tool. Raises SettingsError for one that cannot be described to a model."""

    def __init__(self, function: Function, sandbox: Sandbox) -> None:
        self.kind = "call_tool"
        self._function = function
        self._sandbox = sandbox
        name = getattr(function, "__name__", "")
        if not (described := inspect.getdoc(function)):
            raise SettingsError(f"the tool {name} has no docstring, which is what a model would read of it")
        try:
            hints = get_type_hints(function, include_extras=True)
            named = list(inspect.signature(function).parameters.values())
            self._takes_sandbox = bool(named) and hints.get(named[0].name) is Sandbox
            fields = {each.name: _field(each, hints) for each in named[self._takes_sandbox :]}
            self._arguments = create_model(name, __base__=Frozen, **fields)  # type: ignore[call-overload]
        except (NameError, TypeError) as exc:
            raise SettingsError(f"the tool {name} cannot be described: {exc}") from exc
        self.spec = ToolSpec(name=name, description=described, parameters=parameters(self._arguments))

    def parse(self, arguments: dict[str, Any]) -> CallTool:
        self._arguments.model_validate(arguments)
        return CallTool(name=self.spec.name, arguments=arguments)

    async def answer(self, action: CallTool) -> Called | Failed:
        try:
            values = dict(self._arguments.model_validate(action.arguments))
        except ValidationError as exc:
            return Failed(reason="malformed", message=str(exc)[:500])
        try:
            said = self._function(*([self._sandbox] if self._takes_sandbox else []), **values)
            text = _TEXT.validate_python(await said if inspect.isawaitable(said) else said)
        except SandboxError:
            raise  # the machine's fault: the run goes on in another sandbox
        except ToolFailed as exc:
            return Failed(reason="io", message=str(exc)[:2000])
        except Exception as exc:  # a fault in somebody else's code must not cost the run
            logger.warning("tool failed", extra={"tool": self.spec.name}, exc_info=exc)
            what = f"{type(exc).__name__}: {exc}"[:500]
            return Failed(reason="io", message=f"{self.spec.name} failed ({what}). Go on without it.")
        return Called(text=clip(text, MOST))


_TEXT: TypeAdapter[str] = TypeAdapter(str)


def _field(parameter: inspect.Parameter, hints: dict[str, Any]) -> tuple[Any, Any]:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or parameter.name not in hints:
        raise TypeError(f"its argument {parameter.name} has no type of its own")
    return hints[parameter.name], ... if parameter.default is parameter.empty else parameter.default


def own_tools(sandbox: Sandbox) -> Sequence[Tool]:
    """The tools of the packages that are installed beside this one. Raises SettingsError that names the package."""
    found: list[Tool] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            function = entry.load()
        except (ImportError, AttributeError) as exc:
            raise SettingsError(f"the tool {entry.name} of {entry.value} cannot be loaded: {exc}") from exc
        found.append(FunctionTool(function, sandbox))
    return found
