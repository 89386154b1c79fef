"""Writes a project's new version into its installed metadata, for the test runs with a patch.

The setup installs the project as it is at the base commit. A test that compares the code with the installed version
would fail with every patch that changes the version, although a person installs the project again. No code of the patch
runs here: only its new version is read, as text, and written where the old one was.
"""

import re
import shlex
from pathlib import PurePosixPath

from patchwright.resolver.domain import Patch
from patchwright.resolver.git.workspaces import ABSENT, FileChange, Workspace
from patchwright.resolver.preparation.install_steps import InstallStep
from patchwright.resolver.preparation.repo_setup import MAX_MANIFEST_BYTES, RepoSetup, run_setup
from patchwright.runtime.sandbox import Sandboxes

TIMEOUT = 120  # seconds
# Files that may determine the version of a Python project.
_VERSION_FILES = re.compile(
    r"pyproject\.toml|setup\.(?:py|cfg)|__init__\.py|__(?:about|meta|version)__\.py|_?version\.(?:py|txt)|VERSION"
)
_VERSION = re.compile(
    r"""^(?:[ \t]*(?:__)?version(?:__)?[ \t]*[:=][^"'\n\d]*)?["']?"""
    r"""(?P<version>\d+(?:\.\d+)+(?:\.?(?:a|b|rc|post|dev)\d+)*)(?=["'\s,;#]|$)""",
    re.MULTILINE | re.IGNORECASE,
)
# Changes the version in the metadata of the project that is installed from the work tree. Fails if there is none.
_REPLACE_VERSION = r"""
import importlib.metadata, pathlib, re, sys
root, (old, new) = pathlib.Path.cwd(), sys.argv[1:]
found = [*root.glob("*.egg-info/PKG-INFO"), *root.glob("src/*.egg-info/PKG-INFO")]
for project in importlib.metadata.distributions():
    files = [pathlib.Path(project.locate_file(file)) for file in project.files or ()]
    links = [file.read_text() for file in files if file.suffix == ".pth" and file.is_file()]
    source = " ".join([project.read_text("direct_url.json") or "", *links])
    if re.search(re.escape(str(root)) + r"(?![^/\s\"'])", source):
        found += [file for file in files if file.name == "METADATA"]
texts = {file: file.read_text(encoding="utf-8") for file in found}
line = re.compile(rf"^Version: {re.escape(old)}$", re.MULTILINE)
changed = {file: line.sub(f"Version: {new}", text, count=1) for file, text in texts.items() if line.search(text)}
for file, text in changed.items():
    file.write_text(text, encoding="utf-8")
sys.exit(not changed)
"""


async def find_version_change(
    workspace: Workspace, patch: Patch, changes: tuple[FileChange, ...]
) -> tuple[str, str] | None:
    """Returns the old and the new version of the Python project. Returns None if the patch does not change the version,
    or if its files disagree.
    """
    found = set[tuple[str, str]]()
    for change in changes:
        is_edited = ABSENT not in (change.mode, change.old_mode) and change.size <= MAX_MANIFEST_BYTES
        if is_edited and _VERSION_FILES.fullmatch(PurePosixPath(change.path).name):
            old = _VERSION.search(await workspace.read(change.path, MAX_MANIFEST_BYTES) or "")
            new = _VERSION.search(
                (await workspace.read_patched(patch, change.path) or b"").decode(errors="replace")
            )
            if old and new and old["version"] != new["version"]:
                found.add((old["version"], new["version"]))
    return found.pop() if len(found) == 1 else None


async def install_version(
    workspace: Workspace, versions: tuple[str, str], sandboxes: Sandboxes, name: str
) -> Sandboxes | None:
    """Returns sandboxes in which the installed metadata has the new version. Returns None if the project is not
    installed from its source.
    """
    command = f"python3 -c {shlex.quote(_REPLACE_VERSION)} {shlex.join(versions)}"
    setup = RepoSetup(steps=(InstallStep(command=command, program="python3"),), key=f"version {versions}")
    patched, prepared, _ = await run_setup(
        workspace, setup, sandboxes, name=f"{name}-version", source=workspace.base, timeout=TIMEOUT
    )
    return patched if prepared.problem is None and not prepared.missing_programs else None
