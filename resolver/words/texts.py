"""Where the templates of all texts come from: the operator's directory, where it has one of that name, else ours."""

import difflib
from functools import cache
from pathlib import Path

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, FunctionLoader, PackageLoader, StrictUndefined
from jinja2.exceptions import TemplateNotFound

from resolver.errors import SettingsError

_OURS = PackageLoader("templates", package_path="")
_own: list[Path] = []  # the operator's directory, when there is one


@cache
def environment() -> Environment:
    """Templates by name; a missing value is an error, never a blank. What goes into a page of HTML is escaped."""
    return Environment(
        loader=ChoiceLoader([FunctionLoader(_from_own), _OURS]),
        undefined=StrictUndefined,
        autoescape=_is_html,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _is_html(name: str | None) -> bool:
    """Markdown is not: there `quiet` and `fenced` make a stranger's words harmless."""
    return name is not None and name.endswith(".html.j2")


def use_templates(directory: Path | None) -> None:
    """In this process, take the texts in `directory` before ours of the same names; None: ours alone.

    Raises SettingsError when there is no such directory, or a file in it has the name of none of ours.
    """
    if directory is not None:
        _check(directory)
    _own[:] = [directory] if directory else []
    if (kept := environment().cache) is not None:
        kept.clear()


def _check(directory: Path) -> None:
    if not directory.is_dir():
        raise SettingsError(f"templates: there is no directory {directory}.")
    ours = _OURS.list_templates()
    for path in sorted(directory.rglob("*.j2")):
        if (name := path.relative_to(directory).as_posix()) not in ours:
            near = difflib.get_close_matches(name, ours, n=1)
            hint = f"; did you mean {near[0]}?" if near else "."
            raise SettingsError(f"templates: {path} has the name of no text{hint}")


def _from_own(name: str) -> str | None:
    try:
        return FileSystemLoader(_own).get_source(environment(), name)[0]
    except TemplateNotFound:
        return None
