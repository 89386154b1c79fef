"""The tool interface, and the registry that parses a model's calls into actions and executes them."""

import difflib
import functools
import inspect
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Generic, Protocol, TypeVar

import pydantic_core
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from patchwright.resolver.actions import Action, AnyObservation
from patchwright.resolver.llm.model import RawToolCall, ToolSpec
from patchwright.resolver.rendering.template_renderer import render_prompt
from patchwright.resolver.secrets import Secrets, mask_secrets
from patchwright.resolver.tool_actions.lookup_actions import UseTool
from patchwright.resolver.tool_actions.unchecked_actions import CallTool, MalformedCall
from patchwright.resolver.tools.further_tools import USE_TOOL, build_use_tool_spec, describe_tool, unwrap_call
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.runtime.observations import ActionFailure
from patchwright.runtime.tool_action import ToolAction

MAX_LOGGED_ARGUMENTS = 2_000  # characters of a malformed call that are kept in the log and the prompt
MAX_ARGUMENTS = 1_000_000  # characters; no tool needs longer arguments


class Tool(Protocol):
    """A tool that the model can call."""

    @property
    def spec(self) -> ToolSpec: ...

    @property
    def kind(self) -> str:
        """The `kind` of the actions that `parse` returns and `execute` accepts."""

    def parse(self, arguments: dict[str, Any]) -> Action:
        """Returns the action for these arguments. Raises ValidationError."""

    async def execute(self, action: Any) -> AnyObservation: ...


class WrapperTool:
    """Base class of tools that wrap another tool; subclasses implement `execute`."""

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


class MaskingTool(WrapperTool):
    """Masks secrets in the results of a third-party tool before they are logged or shown to the model.

    MaskingSandbox masks the sandbox's output, but these tools also return text from the host or from an HTTP
    server.
    """

    def __init__(self, tool: Tool, secrets: Secrets) -> None:
        super().__init__(tool)
        self._secrets = secrets

    async def execute(self, action: Any) -> AnyObservation:
        return mask_secrets(await self._tool.execute(action), self._secrets)


ActionClass = TypeVar("ActionClass", bound=ToolAction)


class ActionTool(Generic[ActionClass]):
    """A tool that is defined by its action class. The class's docstring is the tool's description, and the
    fields of the class are the tool's arguments.
    """

    def __init__(
        self, action: type[ActionClass], handler: Callable[[ActionClass], Awaitable[AnyObservation]]
    ) -> None:
        self._action = action
        self._handler = handler
        self.kind: str = action.model_fields["kind"].default
        self.spec = ToolSpec(
            name=self.kind,
            description=inspect.getdoc(action) or "",
            parameters=build_parameters_schema(action),
        )

    def parse(self, arguments: dict[str, Any]) -> Action:
        action: Action = self._action.model_validate(arguments)  # type: ignore[assignment]
        return action

    async def execute(self, action: ActionClass) -> AnyObservation:
        return await self._handler(action)


@functools.lru_cache(maxsize=256)  # Each run needs the same ones, and building one takes a millisecond.
def build_parameters_schema(action: type[FrozenModel]) -> dict[str, Any]:
    """Returns the JSON schema of an action's arguments. The schema is simple, because each provider supports
    only some features of JSON Schema.
    """
    schema = action.model_json_schema()
    return {
        "type": "object",
        "properties": {
            name: _simplify_field(_inline_references(field, schema.get("$defs", {})))
            for name, field in schema["properties"].items()
            if "const" not in field
        },
        "required": [name for name in schema.get("required", []) if name != "kind"],
        "additionalProperties": False,
    }


def _inline_references(schema: Any, definitions: dict[str, Any]) -> Any:
    """Replaces the references in a schema with their definitions, because some providers do not resolve
    references.
    """
    if isinstance(schema, list):
        return [_inline_references(part, definitions) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if reference := schema.get("$ref"):
        return _inline_references(definitions[reference.rpartition("/")[2]], definitions)
    # Only the title of a schema is dropped. A property with the name `title` is kept.
    inlined = {key: _inline_references(part, definitions) for key, part in schema.items()}
    return {key: part for key, part in inlined.items() if key != "title" or not isinstance(part, str)}


_OMITTED_KEYWORDS = ("title", "minLength", "maxLength", "minimum")
"""Keywords that would cost tokens in each request. A call is checked against the class of its action."""


def _simplify_field(field: dict[str, Any]) -> dict[str, Any]:
    """Drops titles, lower limits, and defaults that are empty. Also drops `null` from the types of optional fields,
    because such a field can be left out.
    """
    simplified = {
        key: value
        for key, value in field.items()
        if key not in _OMITTED_KEYWORDS and (key != "default" or value)
    }
    if "anyOf" in simplified:
        (option_schema,) = (option for option in simplified.pop("anyOf") if option != {"type": "null"})
        simplified = {
            **_simplify_field(option_schema),
            **{key: value for key, value in simplified.items() if key != "default"},
        }
    return simplified


def _build_use_tool(further: Sequence[Tool]) -> Tool:
    specs = [tool.spec for tool in further]

    async def describe(action: UseTool) -> AnyObservation:
        return describe_tool(action, specs)

    use_tool = ActionTool(UseTool, describe)
    use_tool.spec = build_use_tool_spec(specs)
    return use_tool


class ToolRegistry:
    """The tools of one run. Whatever the model writes, `parse` raises no exception, and `execute` only
    ConfirmationRequired.
    """

    def __init__(self, tools: Sequence[Tool], offered: Collection[str] | None = None) -> None:
        """`offered` are the names of the tools whose schemas each request contains. The model calls the others
        through `use_tool`. None means that all tools are offered.
        """
        further = [tool for tool in tools if offered is not None and tool.spec.name not in offered]
        direct = [tool for tool in tools if tool not in further]
        if further:
            direct.append(_build_use_tool(further))
        self.specs = tuple(tool.spec for tool in direct)
        if any(tool.spec.name == "send_input" for tool in further):  # Its description names the field.
            self.specs = tuple(
                spec.without_field("interactive") if spec.name == "run_shell" else spec for spec in self.specs
            )
        self._by_name = {tool.spec.name: tool for tool in (*direct, *further)}
        self._by_kind = {tool.kind: tool for tool in (*direct, *further)}

    def parse(self, call: RawToolCall) -> Action:
        """Returns the action of a call. If the call is invalid, returns a MalformedCall with the problem and
        the correct form.
        """
        if call.name == USE_TOOL in self._by_name:
            call = unwrap_call(call)
        tool = self._by_name.get(call.name)
        if tool is None:
            malformed = _build_malformed(call, self._render_unknown_tool(call.name))
            return malformed.model_copy(update={"is_unknown_tool": True})
        try:
            return tool.parse(_parse_arguments(call.arguments))
        except ValidationError as exc:
            problems = _format_errors(exc, tool.spec.parameters)
            return _build_malformed(
                call, render_prompt("malformed_call.md.j2", tool=tool.spec, problems=problems)
            )
        except ValueError as exc:
            return _build_malformed(
                call, render_prompt("malformed_call.md.j2", tool=tool.spec, problems=[str(exc)])
            )

    async def execute(self, action: Action) -> AnyObservation:
        """Executes an action and returns its result."""
        if isinstance(action, MalformedCall):
            return ActionFailure(reason="malformed", message=action.problem)
        if isinstance(action, CallTool):
            tool, name = self._by_name.get(action.name), action.name
        else:
            tool, name = self._by_kind.get(action.kind), action.kind
        if tool is None:
            return ActionFailure(reason="refused", message=self._render_unknown_tool(name))
        return await tool.execute(action)

    def _render_unknown_tool(self, name: str) -> str:
        matches = difflib.get_close_matches(name, self._by_name, n=1, cutoff=0.6)
        return render_prompt(
            "unknown_tool.md.j2",
            name=name[:100],
            suggestions=matches[0] if matches else None,
            known=tuple(self._by_name),
        )


def _parse_arguments(text: str) -> dict[str, Any]:
    """Returns the arguments as an object. Raises ValueError with the position of the JSON error."""
    if len(text) > MAX_ARGUMENTS:
        raise ValueError(f"the arguments are {len(text):,} characters long; the limit is {MAX_ARGUMENTS:,}")
    # Unlike `json`, this rejects lone surrogates and excessive nesting with a ValueError.
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


def _format_errors(exc: ValidationError, parameters: dict[str, Any]) -> list[str]:
    errors = exc.errors(include_url=False, include_input=False, include_context=False)
    places = [error["loc"] for error in errors]
    return [
        _format_error(error, parameters)
        for error in errors
        # pydantic also reports a list with invalid items as too short, so only the errors of the items are kept.
        if not any(place[: len(error["loc"])] == error["loc"] != place for place in places)
    ][:5]


def _format_error(error: ErrorDetails, parameters: dict[str, Any]) -> str:
    *parents, name = error["loc"] or ("",)
    field = ".".join(str(part) for part in error["loc"])
    match error["type"]:
        case "missing":
            return f"`{field}` is missing."
        case "extra_forbidden":
            known = _list_fields(parameters, parents)
            close = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
            return f"`{field}` is not a field.{f' Did you mean `{close[0]}`?' if close else ''}"
        case "model_type":
            return f"`{field}` must be an object."
        case _:
            problem = (
                error["msg"][:200].replace("Input should be", "must be").replace(" after validation", "")
            )
            return f"`{field}`: {problem}."


def _list_fields(parameters: dict[str, Any], parents: Sequence[int | str]) -> tuple[str, ...]:
    """Returns the names of the fields of a nested object. `parents` is the path to this object: field names,
    and an index for each list item.
    """
    schema = parameters
    for part in parents:
        schema = (
            schema.get("items", {}) if isinstance(part, int) else schema.get("properties", {}).get(part, {})
        )
    return tuple(schema.get("properties", ()))


def _build_malformed(call: RawToolCall, problem: str) -> MalformedCall:
    return MalformedCall(
        name=call.name[:100], arguments=call.arguments[:MAX_LOGGED_ARGUMENTS], problem=problem
    )
