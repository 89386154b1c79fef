"""What the server in the container imports before its first answer. Each module delays the start of every sandbox."""

import subprocess
import sys
from pathlib import Path

from patchwright.runtime.execution.action_server import BOOTSTRAP_CODE

CHECKOUT = Path(__file__).parents[3]
LATE = (
    *("argparse", "email", "httpx", "importlib.metadata", "shutil", "ssl", "tempfile"),
    *("patchwright.resolver", "patchwright.runtime.docker", "patchwright.runtime.execution.editor"),
    *("patchwright.runtime.browser", "patchwright.runtime.kernel", "patchwright.runtime.documents"),
    "patchwright.runtime.line_process",
)


def run_bootstrap(program: str) -> str:
    """Runs the code that starts the server, with `program` in place of the server itself."""
    start, is_main, _ = BOOTSTRAP_CODE.rpartition("main()\n")
    assert is_main
    code = f"{start}{program}"
    command = [sys.executable, "-I", "-c", code, str(CHECKOUT)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def test_the_server_imports_no_module_that_its_first_answer_does_not_need() -> None:
    loaded = run_bootstrap("print(*sys.modules)").split()
    assert "patchwright.runtime.execution.action_server" in loaded
    assert [name for name in LATE if name in loaded] == []


def test_what_the_start_leaves_out_can_be_imported_later() -> None:
    program = """
import ssl, typing_extensions
from patchwright.runtime.actions import RunShell
class Typed(typing_extensions.TypedDict):
    x: int
print(ssl.OPENSSL_VERSION_INFO[0] > 0, typing_extensions.is_typeddict(Typed))
try:
    RunShell.model_validate_json('{"command": "true", "timeout": 0}')
except ValueError as error:
    print(error.error_count())
"""
    assert run_bootstrap(program).split() == ["True", "True", "1"]
