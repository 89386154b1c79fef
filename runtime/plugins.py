"""Plugins: what a sandbox has beyond its shell and its editor, and where it lies. Each is an image layer of its own."""

import shutil
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, get_args

Plugin = Literal["kernel", "documents", "symbols", "browser"]
PLUGINS: tuple[Plugin, ...] = get_args(Plugin)

# The Python package of each, as it is told whether an extra is installed.
_PACKAGES: dict[Plugin, str] = {
    "kernel": "ipykernel",
    "documents": "pypdfium2",
    "symbols": "tree_sitter_python",
    "browser": "playwright",
}
_CONVERTER = (
    "import sys; sys.path[:0] = sys.argv[1:3]; del sys.argv[1:3]; "
    "from runtime.documents.converter import main; main()"
)
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


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

    def kernel_packages(self, version: tuple[int, int]) -> Path | None:
        """What must be on the path of a project's Python of this version, so that it can run the kernel.

        None: there is nothing for this version, or that Python has to bring its own.
        """
        if self.home is None:
            return None
        directory = self.home / "kernel" / f"cp{version[0]}{version[1]}"
        return directory if directory.is_dir() else None

    def documents_command(self) -> tuple[str, ...] | None:
        """How the program that reads documents is started, up to its own arguments. None: it is not here.

        It needs nothing of the environment, so that also a project's own Python may start it.
        """
        if not self.has("documents"):
            return None
        ours = Path(__file__).parent.parent
        lib = self.packages("documents") or ours
        return (sys.executable, "-I", "-c", _CONVERTER, str(ours), str(lib))

    def chromium(self, path: str | None = None) -> str | None:
        """Chromium's program. `path`: where it is looked for, as in PATH, if it is not the plugin's. None: nowhere."""
        if self.home is None:
            return next(filter(None, (shutil.which(name, path=path) for name in _CHROMIUM)), None)
        program = self.home / "browser" / "bin" / "chromium"
        return str(program) if program.exists() else None

    def missing(self, plugin: Plugin) -> str:
        """What a tool says that needs a plugin which is not there."""
        if self.home is not None:
            return (
                f"this sandbox has no `{plugin}`: the operator's setting `plugins` does not name it, "
                "or it could not be made, of which the operator was told"
            )
        chromium = ", and Chromium on PATH" if plugin == "browser" else ""
        return f"`{plugin}` is not installed: the operator gets it with `pip install patchwright[{plugin}]`{chromium}"
