"""Write the tables of docs/configuration.md from the settings models: `python -m tests.settings_reference`.

Names, types, defaults, and meanings come from the models; this file adds only the further links.
"""

import argparse
import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from patchwright.bot.cli.main import build_parser
from patchwright.resolver.settings.model_settings import ModelSettings
from patchwright.resolver.settings.run_settings import RunSettings
from patchwright.resolver.settings.sandbox_settings import SandboxSettings
from patchwright.resolver.settings.server_settings import ServerSettings
from patchwright.resolver.settings.settings import (
    SENSITIVE_SETTINGS,
    RepoConfig,
    Settings,
    environment_variable,
)

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"
TABLES: Mapping[str, type[BaseModel]] = {
    "models": ModelSettings,
    "github": Settings,
    "server": ServerSettings,
    "runs": RunSettings,
    "sandboxes": SandboxSettings,
    "repository": RepoConfig,
}
READ_ON = {
    "allowed_paths": "security.md#what-a-patch-may-contain",
    "browser_calls": "tools.md#sets-of-browser-calls",
    "browser_observation": "tools.md#what-an-agent-sees",
    "agent_uses_browser": "tools.md#configure-the-browser",
    "archive": "runs.md#archive-ended-runs",
    "max_ci_repairs": "ci.md#when-checks-fail",
    "metrics_label": "runs.md#metrics",
    "max_context_tokens": "instructions.md#long-conversations",
    "credentials_key": "security.md#saved-credentials",
    "hold_ci": "ci.md#held-ci",
    "language_images": "#images-by-language",
    "log_level": "runs.md#logs",
    "mcp_servers": "tools.md#add-an-mcp-server",
    "allowed_models": "commands.md#options",
    "oauth_client_id": "dashboard.md",
    "operator_token": "dashboard.md",
    "sandbox_features": "#sandbox-features",
    "poll": "#poll-without-a-webhook",
    "risk_threshold": "security.md#risk-ratings",
    "risk_response": "security.md#ask-for-approval",
    "risk_analyzers": "tools.md#add-an-analyzer-or-a-policy",
    "risk_policy": "tools.md#add-an-analyzer-or-a-policy",
    "search_api_key": "#web-search",
    "review_model": "proof.md#second-opinions-and-several-attempts",
    "secrets_file": "security.md#repository-secrets",
    "setup": "#setup",
    "test_command": "#how-tests-are-found",
    "tests": "#how-tests-are-found",
}
"""Pages with more about a setting, relative to docs/."""

DEFAULT = re.compile(
    r" ?By default, (?:this is|there is|Patchwright uses|the server works for) (.+?)\.(?= |$)", re.DOTALL
)
"""The sentence of a docstring that describes a computed default. It goes to the column "default"."""


def reference(page: str) -> str:
    """Returns the page with new tables, each between `<!-- settings: NAME -->` and `<!-- end -->`."""
    for name, model in TABLES.items():
        begin, end = f"<!-- settings: {name} -->\n", "<!-- end -->"
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        page = f"{before}{begin}{table(model)}{end}{after}"
    return page


def table(model: type[BaseModel]) -> str:
    """One line for each setting that this class declares."""
    operators = model is not RepoConfig
    head = ["setting", *(["environment, option"] if operators else []), "takes", "default", "meaning"]
    lines = [head, ["---"] * len(head)]
    for key, meaning, otherwise in meanings(model):
        field = model.model_fields[key]
        given = [f"`{environment_variable(key)}`" + option(key)] if operators else []
        mark = " †" if operators and key in SENSITIVE_SETTINGS else ""
        more = f" [More]({READ_ON[key]})" if key in READ_ON else ""
        lines.append(
            [f"`{key}`{mark}", *given, takes(field), otherwise or default(field), f"{meaning}{more}"]
        )
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def meanings(model: type[BaseModel]) -> Iterator[tuple[str, str, str]]:
    """Each setting, what its docstring says, and what that says of its absence."""
    (declared,) = ast.parse(inspect.getsource(model)).body
    assert isinstance(declared, ast.ClassDef)
    for node, below in zip(declared.body, [*declared.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            text = (
                below.value.value
                if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
                else None
            )
            assert isinstance(text, str), f"{model.__name__}.{node.target.id} says nothing of itself"
            text = " ".join(text.split())
            otherwise = DEFAULT.search(text)
            yield node.target.id, DEFAULT.sub("", text).strip(), otherwise[1] if otherwise else ""


def option(key: str) -> str:
    """The option of the command line by which the setting is given, if there is one."""
    (commands,) = (
        action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction)
    )
    for name in ("resolve", "serve"):
        for known in commands.choices[name]._actions:
            if known.dest == key and known.option_strings:
                return f", `{known.option_strings[-1]}`" + ("" if name == "resolve" else f" of `{name}`")
    return ""


def takes(field: FieldInfo) -> str:
    """What may be given, in words."""
    kind, least, most = field.annotation, _bound(field, "ge", "gt"), _bound(field, "le", "lt")
    if get_origin(kind) in (Union, UnionType):
        kinds = [each for each in get_args(kind) if each is not NoneType]
        kind = kinds[0] if len(kinds) == 1 else kind
    words = _words(kind)
    if not least or words == "text":
        return words
    if "than" in least:
        return f"{words} {least}, at most {most}" if most else f"{words} {least}"
    return f"{words} from {least} to {most}" if most else f"{words}, at least {least}"


def _words(kind: Any) -> str:
    if get_origin(kind) is Annotated:
        return _words(get_args(kind)[0])
    if get_origin(kind) is Literal:
        return ", ".join(f"`{word}`" for word in get_args(kind))
    if get_origin(kind) is tuple:
        each = _words(get_args(kind)[0])
        return f"list of {each}" if "`" in each else "tables" if each == "table" else "list"
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(_words(each) for each in get_args(kind) if each is not NoneType)
    if get_origin(kind) is dict or (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return "table"
    return {
        bool: "`true`, `false`",
        int: "whole number",
        float: "number",
        Decimal: "number",
        SecretStr: "secret",
        Path: "path",
        str: "text",
    }[kind]


def _bound(field: FieldInfo, *names: str) -> str:
    for rule in field.metadata:
        for name in names:
            if (bound := getattr(rule, name, None)) is not None:
                return ("greater than " if name == "gt" else "") + f"{bound:,}"
    return ""


def default(field: FieldInfo) -> str:
    """What holds when nothing is given."""
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, tuple):
        return ", ".join(f"`{each}`" for each in value) or "none"
    if value is None or value == {}:
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


if __name__ == "__main__":
    PAGE.write_text(reference(PAGE.read_text()))
