"""The script of the kernel process. It runs IPython and the skills. Its output goes to descriptor 1.

It runs in the repository's own Python (3.9 or newer), and of our modules it imports only the skills, cell_output
and skill_kernel. The parent process passes a `SessionConfig` as JSON. All output goes to one pipe, in the order
in which it is written. This includes the output of child processes and C extensions. Only images and the end of
a cell go through Jupyter's channels.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.pop(0)  # Our own directory must not shadow the standard library or the repository.

import contextlib
import ctypes
import json
import os
import signal
from collections.abc import Callable
from importlib import import_module, util
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import TypedDict

    class SessionConfig(TypedDict):
        root: str
        """Directory whose modules can always be imported, even if a cell changes the current directory."""
        directory: str
        """The session's own directory, which contains `connection.json`."""
        ready: int
        """Descriptor to which the process writes as soon as cells can run. The process then closes it."""
        packages: dict[str, str]
        """Maps each Python version to the directory that contains ipykernel for it."""
        own_packages_first: bool
        """True if the packages in `packages` take precedence over the repository's packages of the same names."""
        skills: str
        """Directory of the package that is imported as `agentskills`."""
        scratch: str
        """Directory for temporary files of skills."""
        documents_command: list[str] | None
        """Command that starts the document converter; None if the converter is not installed."""
        missing_message: str
        """Error message of a skill that needs the document converter, if the converter is missing."""


_PDEATHSIG = 1  # prctl(2)


def import_package(name: str, directory: str) -> ModuleType:
    """Import the package in a directory under the given name, without a change of `sys.path`."""
    source = os.path.join(directory, "__init__.py")
    spec = util.spec_from_file_location(name, source, submodule_search_locations=[directory])
    assert spec is not None and spec.loader is not None
    package = sys.modules[name] = util.module_from_spec(spec)
    spec.loader.exec_module(package)
    return package


def create_app(config: SessionConfig) -> Any:
    """Create Jupyter's kernel. From here on, all output goes to the pipe."""
    import_package("patchwright_kernel", os.path.dirname(os.path.abspath(__file__)))
    output = import_module("patchwright_kernel.cell_output").CellOutput()
    output.restore()
    os.environ["IPYTHONDIR"] = config["directory"]
    sys.modules["debugpy"] = None  # type: ignore[assignment]  # it takes 0.2 s and prints a message
    skill_kernel = import_module("patchwright_kernel.skill_kernel")
    app = skill_kernel.create_app(config["directory"], output)
    del sys.modules["debugpy"], os.environ["IPYTHONDIR"]
    sys.breakpointhook = skill_kernel.refuse_debugger
    return app


def load_skills(config: SessionConfig, ask_model: Callable[..., str]) -> dict[str, Any]:
    """Import the skills as `agentskills`, and connect them to this session. Return the package and its functions by
    public name. A skill whose feature is missing cannot be imported; if it is called, it says which feature is missing.
    """
    package = import_package("agentskills", config["skills"])
    host = import_module("agentskills.host")
    host.connect(
        ask_model=ask_model,
        documents_command=config["documents_command"],
        missing_message=config["missing_message"],
        scratch=config["scratch"],
    )
    functions = {name: getattr(package, name) for name in package.__all__}
    if config["documents_command"] is None:
        package.hide_document_skills(config["missing_message"])
    return {"agentskills": package, **functions}


def main() -> None:
    config: SessionConfig = json.loads(sys.argv[1])
    sys.argv = [""]
    sys.dont_write_bytecode = True  # importing the repository's modules must not add files to its tree
    if ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        sys.exit("error: the Linux kernel cannot end this process together with its parent")
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")  # When memory runs out, the kernel should kill this process before the server.
    version = "{}.{}".format(*sys.version_info)
    if version not in config["packages"]:
        sys.exit(f"there is no IPython for Python {version}")
    packages = config["packages"][version]
    if packages not in sys.path:
        sys.path.insert(0 if config["own_packages_first"] else len(sys.path), packages)
    app = create_app(config)
    sys.path.insert(0, config["root"])
    app.kernel.shell.push(load_skills(config, app.kernel.ask), interactive=False)
    os.write(config["ready"], version.encode())
    os.close(config["ready"])
    app.start()


if __name__ == "__main__":
    main()
