"""Reads the front matter of a skill file: its fields, its MCP servers and its tools."""

import re
from typing import Literal

import yaml
from pydantic import ValidationError

from patchwright.resolver.settings.run_settings import McpServer

MAX_FRONT_MATTER = 8_000  # characters of front matter
MAX_SERVERS = 10  # MCP servers per skill

Author = Literal["maintainers", "operator", "Patchwright"]
"""Who wrote a skill: the maintainers of the repository, the operator, or Patchwright's developers."""


def split_front_matter(text: str) -> tuple[str | None, str]:
    """Splits a text into its front matter, if any, and the rest."""
    match = re.match(r"---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", text, re.DOTALL | re.MULTILINE)
    return (match[1], text[match.end() :]) if match else (None, text)


def parse_front_matter(front_matter: str) -> dict[object, object]:
    """Parses front matter. Raises ValueError with the problem."""
    if len(front_matter) > MAX_FRONT_MATTER:
        raise ValueError(f"the front matter is longer than {MAX_FRONT_MATTER:,} characters")
    try:
        fields = yaml.safe_load(front_matter)
    except yaml.MarkedYAMLError as exc:
        position = f", line {exc.problem_mark.line + 2}" if exc.problem_mark else ""
        raise ValueError(f"{exc.problem or 'invalid YAML'}{position}") from exc
    except (yaml.YAMLError, RecursionError) as exc:
        raise ValueError("invalid YAML") from exc
    if fields is not None and not isinstance(fields, dict):
        raise ValueError("not a mapping of keys to values")
    return fields or {}


def parse_servers(value: object, author: Author) -> dict[str, McpServer]:
    """Returns the MCP servers of a skill. A repository's servers run in its sandbox. Only the operator may name a URL,
    to which the host would connect. Raises ValueError with the problem.
    """
    if value is None:
        return {}
    if (
        not isinstance(value, dict)
        or not all(isinstance(name, str) for name in value)
        or len(value) > MAX_SERVERS
    ):
        raise ValueError(f"`mcp_servers` must be a mapping of at most {MAX_SERVERS} names to servers")
    servers = {}
    for name, fields in value.items():
        try:
            servers[name] = server = McpServer.model_validate(fields)
        except ValidationError as exc:
            error = exc.errors(include_url=False, include_input=False)[0]["msg"].removeprefix("Value error, ")
            raise ValueError(f"MCP server {one_line(name)[:60]}: {error}") from exc
        if server.url and author == "maintainers":
            raise ValueError(f"MCP server {one_line(name)[:60]}: only the operator can configure a `url`")
    return servers


def parse_tools(value: object, author: Author) -> tuple[str, ...]:
    """Returns the names of installed tools in a skill of the operator. In the skills of other programs, which
    repositories contain, `tools` means something else. Raises ValueError with the problem.
    """
    if value is None or author != "operator":
        return ()
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ValueError("`tools` must be a list of names")
    return tuple(value)


def one_line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())
