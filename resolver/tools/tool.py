"""The seam of a tool, and the registry that turns whatever a model wrote into an action and an answer."""

import difflib
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import pydantic_core
from pydantic import ValidationError

from resolver import prose
from resolver.actions import Action, CallTool, Malformed, Result
from resolver.llm.model import ToolCall, ToolSpec
from runtime.frozen import Frozen
from runtime.observations import Failed

KEPT_ARGUMENTS = 2_000  # characters of a malformed call that stay in the log and in the prompt
MAX_ARGUMENTS = 1_000_000  # characters; longer ones are no call that a tool here could want


class Tool(Protocol):
    """One thing that the model may call."""

    @property
    def spec(self) -> ToolSpec: ...

    @property
    def kind(self) -> str:
        """The `kind` of the actions that `parse` makes and `answer` takes."""

    def parse(self, arguments: dict[str, Any]) -> Action:
        """The action that these arguments ask for. Raises ValidationError."""

    async def answer(self, action: Any) -> Result: ...


class Around:
    """What every wrapper of a tool is: the same to the model, with another `answer`."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool

    @property
    def spec(self) -> ToolSpec:
        return self._tool.spec

    @property
    def kind(self) -> str:
        return self._tool.kind

    def parse(self, arguments: dict[str, Any]) -> Action:
        return self._tool.parse(arguments)


ActionClass = TypeVar("ActionClass", bound=Frozen)


class ActionTool(Generic[ActionClass]):
    """A tool that is described by its action's class: name, docstring and fields."""

    def __init__(self, action: type[ActionClass], answer: Callable[[ActionClass], Awaitable[Result]]) -> None:
        self._action = action
        self._answer = answer
        self.kind: str = action.model_fields["kind"].default
        self.spec = ToolSpec(
            name=self.kind, description=inspect.getdoc(action) or "", parameters=parameters(action)
        )

    def parse(self, arguments: dict[str, Any]) -> Action:
        action: Action = self._action.model_validate(arguments)  # type: ignore[assignment]
        return action

    async def answer(self, action: ActionClass) -> Result:
        return await self._answer(action)


def parameters(action: type[Frozen]) -> dict[str, Any]:
    """The JSON schema of an action's arguments, as plain as it can be said: providers differ in the rest."""
    schema = action.model_json_schema()
    return {
        "type": "object",
        "properties": {
            name: _plain(_inlined(field, schema.get("$defs", {})))
            for name, field in schema["properties"].items()
            if "const" not in field
        },
        "required": [name for name in schema.get("required", []) if name != "kind"],
        "additionalProperties": False,
    }


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """A schema with its definitions in the places that refer to them: not every provider follows a reference."""
    if isinstance(schema, list):
        return [_inlined(part, definitions) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if reference := schema.get("$ref"):
        return _inlined(definitions[reference.rpartition("/")[2]], definitions)
    # A text that is called `title` stays, the title of a schema goes.
    named = {key: _inlined(part, definitions) for key, part in schema.items()}
    return {key: part for key, part in named.items() if key != "title" or not isinstance(part, str)}


def _plain(field: dict[str, Any]) -> dict[str, Any]:
    """A field's schema without titles, and an optional one without `null`: it can be left out."""
    plain = {key: value for key, value in field.items() if key != "title"}
    if "anyOf" in plain:
        (kind,) = (option for option in plain.pop("anyOf") if option != {"type": "null"})
        plain = {**kind, **{key: value for key, value in plain.items() if key != "default"}}
    return plain


class Tools:
    """The tools of one run. Nothing that a model writes makes `parse` or `answer` raise."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._by_name = {tool.spec.name: tool for tool in tools}
        self._by_kind = {tool.kind: tool for tool in tools}

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self._by_name.values())

    def parse(self, call: ToolCall) -> Action:
        """The action of a call, or Malformed with what is wrong and how it would be right."""
        tool = self._by_name.get(call.name)
        if tool is None:
            return _malformed(call, self._unknown(call.name))
        try:
            return tool.parse(_arguments(call.arguments))
        except ValidationError as exc:
            return _malformed(call, prose.malformed(tool.spec, _problems(exc)))
        except ValueError as exc:
            return _malformed(call, prose.malformed(tool.spec, [str(exc)]))

    async def answer(self, action: Action) -> Result:
        """What came of an action."""
        if isinstance(action, Malformed):
            return Failed(reason="malformed", message=action.problem)
        if isinstance(action, CallTool):
            tool, name = self._by_name.get(action.name), action.name
        else:
            tool, name = self._by_kind.get(action.kind), action.kind
        if tool is None:
            return Failed(reason="refused", message=self._unknown(name))
        return await tool.answer(action)

    def _unknown(self, name: str) -> str:
        near = difflib.get_close_matches(name, self._by_name, n=1, cutoff=0.5)
        return prose.unknown_tool(name[:100], near[0] if near else None, tuple(self._by_name))


def _arguments(text: str) -> dict[str, Any]:
    """The arguments as an object. Raises ValueError that says where the JSON breaks."""
    if len(text) > MAX_ARGUMENTS:
        raise ValueError(f"the arguments are {len(text):,} characters long; {MAX_ARGUMENTS:,} are the limit")
    # Unlike `json`, this refuses lone surrogates and bottomless nesting as an ordinary error.
    try:
        value = pydantic_core.from_json(text) if text.strip() else {}
    except ValueError as exc:
        raise ValueError(f"the arguments are not valid JSON: {exc}") from exc
    if not isinstance(value, dict):
        raise ValueError(f"the arguments are a JSON {_json_type(value)}, not an object")
    return value


def _json_type(value: object) -> str:
    names = {list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")


def _problems(exc: ValidationError) -> list[str]:
    return [
        f"`{'.'.join(str(part) for part in error['loc'])}`: {error['msg'][:200]}"
        for error in exc.errors(include_url=False, include_input=False, include_context=False)[:5]
    ]


def _malformed(call: ToolCall, problem: str) -> Malformed:
    return Malformed(name=call.name[:100], arguments=call.arguments[:KEPT_ARGUMENTS], problem=problem)
