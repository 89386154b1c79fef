"""Plugins: what a sandbox has beyond its shell and its editor, and where it lies. Each is an image layer of its own."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, get_args

Plugin = Literal["kernel", "documents", "browser"]
PLUGINS: tuple[Plugin, ...] = get_args(Plugin)

# The Python package of each, as it is told whether an extra is installed.
_PACKAGES: dict[Plugin, str] = {
    "kernel": "ipykernel",
    "documents": "markitdown",
    "browser": "playwright",
}


@dataclass(frozen=True, slots=True)
class Plugins:
    """The plugins of one sandbox."""

    home: Path | None = None
    """Directory with one for each plugin, which holds its Python packages in `lib`. None: they are installed for
    this Python, as the extras of the same names, and Chromium is on PATH."""

    def has(self, plugin: Plugin) -> bool:
        if self.home is None:
            return find_spec(_PACKAGES[plugin]) is not None
        return (self.home / plugin / "lib").is_dir()

    def packages(self, plugin: Plugin) -> Path | None:
        """What must be on the path of the server's own Python. None: nothing, they are installed."""
        return None if self.home is None else self.home / plugin / "lib"

    def missing(self, plugin: Plugin) -> str:
        """What a tool says that needs a plugin which is not there."""
        if self.home is None:
            return (
                f"`{plugin}` is not installed: the operator gets it with `pip install patchwright[{plugin}]`"
            )
        return f"this sandbox has no `{plugin}`: the operator's setting `plugins` names those that it gets"
