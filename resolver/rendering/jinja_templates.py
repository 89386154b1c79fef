"""Loads the templates of all texts from the operator's directory and from the built-in templates."""

import difflib
from functools import cache
from pathlib import Path

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, FunctionLoader, PackageLoader, StrictUndefined
from jinja2.exceptions import TemplateNotFound

from patchwright.resolver.errors import SettingsError

_BUILTIN_TEMPLATES = PackageLoader("patchwright.templates", package_path="")
_custom_directories: list[Path] = []  # The operator's directory, if one is set.


def read_template(name: str) -> str:
    """Returns the source of a template: the operator's own, or the built-in one."""
    environment = get_environment()
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


@cache
def get_environment() -> Environment:
    """Returns the Jinja environment. A missing value is an error, and values in HTML templates are
    escaped.
    """
    return Environment(
        loader=ChoiceLoader([FunctionLoader(_load_custom_template), _BUILTIN_TEMPLATES]),
        undefined=StrictUndefined,
        autoescape=_is_html,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _is_html(name: str | None) -> bool:
    """Returns True for HTML templates. Markdown templates use `neutralize` and `code_block` instead of HTML
    escapes.
    """
    return name is not None and name.endswith(".html.j2")


def set_template_directory(directory: Path | None) -> None:
    """Sets the directory whose templates override the built-in templates with the same names. None restores
    the built-in templates.

    Raises SettingsError if the directory does not exist or contains a template with an unknown name.
    """
    if directory is not None:
        _check_templates(directory)
    directories = [directory] if directory else []
    has_templates = bool(directories or _custom_directories)
    _custom_directories[:] = directories
    if has_templates and (cache := get_environment().cache) is not None:
        cache.clear()


def _check_templates(directory: Path) -> None:
    if not directory.is_dir():
        raise SettingsError(
            f"PATCHWRIGHT_TEMPLATES: the directory {directory} does not exist. Correct or remove it."
        )
    builtin = _BUILTIN_TEMPLATES.list_templates()
    for path in sorted(directory.rglob("*.j2")):
        if (name := path.relative_to(directory).as_posix()) not in builtin:
            matches = difflib.get_close_matches(name, builtin, n=1)
            hint = f"; did you mean {matches[0]}?" if matches else "."
            raise SettingsError(f"templates: {path} matches no built-in template{hint}")


def _load_custom_template(name: str) -> str | None:
    try:
        return FileSystemLoader(_custom_directories).get_source(get_environment(), name)[0]
    except TemplateNotFound:
        return None
