"""Builds the feature `symbols`: tree-sitter and its grammars, for our own interpreter.

Runs as root in a build on the bundle's image. The arguments are the install directory and the URL of a
package index.
"""

import subprocess
import sys
from pathlib import Path

from patchwright.runtime.image_build.bytecode import compile_to_bytecode
from patchwright.runtime.image_build.relocatable import copy_libraries
from patchwright.runtime.image_build.wheels import UV_PIN, download_program, install_pins

PINS = Path("patchwright/runtime/image_build/symbols.txt")
EXCLUDED = ("*/queries", "*/*.pyi", "*/*.c", "*/*.h")


def main() -> None:
    install_dir, index = Path(sys.argv[1]), sys.argv[2]
    symbols = install_dir / "symbols"
    lib = symbols / "lib"
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    install_pins(download_program(index, UV_PIN, "uv"), index, PINS, lib, own, EXCLUDED)
    copy_libraries(lib.rglob("*.so"), symbols / "native", provided=[install_dir / "lib"])
    compile_to_bytecode(lib)
    python = install_dir / "python" / "bin" / "python3"
    modules = (
        pin.partition("==")[0].replace("-", "_") for pin in PINS.read_text().splitlines() if "==" in pin
    )
    check = f"import sys; sys.path.append(sys.argv[1]); import {', '.join(modules)}"
    subprocess.run([python, "-I", "-c", check, lib], check=True)


if __name__ == "__main__":
    main()
