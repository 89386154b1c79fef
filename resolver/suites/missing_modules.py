"""Finds the modules that a test run could not import, from its output."""

import re
from typing import Literal

from patchwright.resolver.settings.settings import REPO_CONFIG_PATH
from patchwright.runtime.frozen_model import FrozenModel

INSTALL_ADVICE = f"install it with `setup` in {REPO_CONFIG_PATH}, or add it to the image"
_MISSING = {
    "python": re.compile(
        r"\b(?:ModuleNotFoundError|ImportError): No module named ['\"]?(?P<name>[A-Za-z_]\w*)"
    ),
    "javascript": re.compile(
        r"Cannot find (?:module|package) ['\"](?!node:)(?P<name>(?:@[\w.-]+/)?[\w][\w.-]*)[^'\"]*['\"]"
    ),
    "ruby": re.compile(r"cannot load such file -- (?P<name>[\w-]+)"),
}


class MissingModule(FrozenModel):
    """A module that a test run could not import."""

    language: Literal["python", "javascript", "ruby"]
    name: str
    """The name in the code, without submodules. The distribution that contains it may have another name."""

    @property
    def description(self) -> str:
        kind = {"python": "the Python module", "javascript": "the package", "ruby": "the Ruby library"}
        return f"{kind[self.language]} `{self.name}`"


def find_missing_modules(output: str) -> tuple[MissingModule, ...]:
    """Returns the modules that could not be imported, in the order of the output. The modules may also belong to
    the repository itself.
    """
    matches = [
        (match.start(), MissingModule(language=language, name=match["name"]))
        for language, pattern in _MISSING.items()
        for match in pattern.finditer(output)
    ]
    return tuple(dict.fromkeys(module for _, module in sorted(matches, key=lambda match: match[0])))
