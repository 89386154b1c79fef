"""Makes the plugin `symbols`: tree-sitter and the grammars of languages, for our own interpreter.

Runs as root in a build on the bundle's image. Arguments: our directory, the URL of a package index.
"""

import subprocess
import sys
from pathlib import Path

from runtime.recipes.bytecode import compile_to_bytecode
from runtime.recipes.independent import gather
from runtime.recipes.wheels import INSTALLER, fetch_program, install

PINS = Path("runtime/recipes/symbols.txt")
LEFT_OUT = ("*/queries", "*/*.pyi", "*/*.c", "*/*.h")


def main() -> None:
    ours, index = Path(sys.argv[1]), sys.argv[2]
    symbols = ours / "symbols"
    lib = symbols / "lib"
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    install(fetch_program(index, INSTALLER, "uv"), index, PINS, lib, own, LEFT_OUT)
    gather(lib.rglob("*.so"), symbols / "native", known=[ours / "lib"])
    compile_to_bytecode(lib)
    python = ours / "python" / "bin" / "python3"
    modules = (
        pin.partition("==")[0].replace("-", "_") for pin in PINS.read_text().splitlines() if "==" in pin
    )
    check = f"import sys; sys.path.append(sys.argv[1]); import {', '.join(modules)}"
    subprocess.run([python, "-I", "-c", check, lib], check=True)


if __name__ == "__main__":
    main()
