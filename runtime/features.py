"""Sandbox features: optional additions to the shell and the editor. Each feature is in an image layer of its
own.
"""

import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, get_args

SandboxFeature = Literal["kernel", "documents", "symbols", "browser"]
ALL_FEATURES: tuple[SandboxFeature, ...] = get_args(SandboxFeature)

# For each feature, a Python package. If the package is present, the feature is installed.
_PACKAGES: dict[SandboxFeature, str] = {
    "kernel": "ipykernel",
    "documents": "pypdfium2",
    "symbols": "tree_sitter_python",
    "browser": "playwright",
}
_RUN_CODE = "import sys; sys.path[:0] = sys.argv[1:3]; del sys.argv[1:3]; from {} import main; main()"
_CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True, slots=True)
class SandboxFeatures:
    """Locates the features of one sandbox."""

    directory: Path | None = None
    """A directory with one subdirectory for each feature. The Python packages of a feature are in `lib` in its
    subdirectory. If `directory` is None, the features are installed for this Python as extras of the same names,
    and Chromium is on PATH.
    """

    def has(self, feature: SandboxFeature) -> bool:
        if self.directory is None:
            return find_spec(_PACKAGES[feature]) is not None
        return (self.directory / feature / "lib").is_dir()

    def packages(self, feature: SandboxFeature) -> Path | None:
        """Return the directory to add to the server's import path. Return None if the packages are
        already installed for this Python.
        """
        return None if self.directory is None else self.directory / feature / "lib"

    def kernel_packages(self, version: tuple[int, int]) -> Path | None:
        """Return the directory with the packages that a Jupyter kernel needs to run on this version of
        Python, for example on the Python of a project.

        Returns None if Patchwright has no packages for this version. The packages must then be installed in
        the project's own Python environment.
        """
        if self.directory is None:
            return None
        directory = self.directory / "kernel" / f"cp{version[0]}{version[1]}"
        return directory if directory.is_dir() else None

    def documents_command(self) -> tuple[str, ...] | None:
        """Return the command that starts the document converter, without the converter's own arguments. Return
        None if the converter is not installed.
        """
        if not self.has("documents"):
            return None
        return self.program_command("documents", "patchwright.runtime.documents.converter")

    def program_command(self, feature: SandboxFeature, module: str) -> tuple[str, ...]:
        """Return the command that runs the function `main` of a module with the packages of a feature.

        The command needs no environment variables, so that a project's own Python can start it, too.
        """
        own_packages = Path(__file__).parents[2]
        packages = self.packages(feature) or own_packages
        return (sys.executable, "-I", "-c", _RUN_CODE.format(module), str(own_packages), str(packages))

    def chromium_program(self, path: str | None = None) -> str | None:
        """Return the path of Chromium, or None if Chromium is not found.

        If there is no directory of features, searches `path`, which has the format of PATH.
        """
        if self.directory is None:
            import shutil  # not at the start of each sandbox

            return next(filter(None, (shutil.which(name, path=path) for name in _CHROMIUM_NAMES)), None)
        program = self.directory / "browser" / "bin" / "chromium"
        return str(program) if program.exists() else None

    def missing_message(self, feature: SandboxFeature) -> str:
        """Return the error message for a tool whose feature is missing."""
        if self.directory is not None:
            return (
                f"this sandbox has no `{feature}`: the operator's setting `sandbox_features` does not include it, "
                "or its image layer could not be built (see the operator's log)"
            )
        chromium = ", and Chromium on PATH" if feature == "browser" else ""
        command = f"`pip install patchwright[{feature}]`{chromium}"
        return f"`{feature}` is not installed: the operator can install it with {command}"
