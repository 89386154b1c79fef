"""What of a patch may leave the sandbox, and what a reviewer should look at first.

`git apply` refuses `../x`, absolute paths and `.git/`. It accepts symbolic links to anywhere, submodules and
workflows, so this leaves them out: before the proof, so that what is judged is what is delivered.
"""

import posixpath
import re
import unicodedata
from fnmatch import fnmatchcase

from pydantic import Field

from resolver.domain import Patch
from resolver.proof.files import decides_how_tests_run, is_test
from resolver.security.noteworthy import in_text
from resolver.settings.settings import Settings
from resolver.words.quotation import drawn, is_drawn
from resolver.workspace import ABSENT, GITLINK, SYMLINK, Change, Workspace
from runtime.frozen import Frozen

MOST_SENTENCES = 10  # of one kind in an answer to a person

FORBIDDEN = (
    (("*/.gitmodules", "*/.lfsconfig"), "it decides where git fetches other code from"),
    (("/.github/workflows/*", "/.github/actions/*", "*/action.yml", "*/action.yaml"), "it runs in CI"),
    (
        (
            *("/.gitlab-ci.yml", "/.gitlab/*", "/.circleci/*", "/.travis.yml", "/.drone.yml", "/.cirrus.yml"),
            *("/.buildkite/*", "/.woodpecker*", "/.forgejo/*", "/.gitea/*", "/.azure-pipelines/*", "/.ci/*"),
            *(
                "/azure-pipelines*.yml",
                "/appveyor.yml",
                "/.appveyor.yml",
                "/bitbucket-pipelines.yml",
                "*/jenkinsfile",
            ),
        ),
        "it runs in CI",
    ),
    (("*/.husky/*", "*/.githooks/*", "*/.pre-commit-config.yaml", "*/lefthook.y*ml"), "it runs on a commit"),
    (
        (
            *(
                "/.github/patchwright.toml",
                "/.github/dependabot.y*ml",
                "/.github/settings.yml",
                "/.github/*.json5",
            ),
            *("*/renovate.json*", "*/.renovaterc*", "/.mergify.yml", "/.github/mergify.yml", "*/codeowners"),
        ),
        "it tells bots what they may do",
    ),
)
"""Patterns of paths (lower case, with a leading slash), and why nobody but a maintainer changes them."""

MANIFESTS = re.compile(
    r"(pyproject\.toml|setup\.(py|cfg)|requirements[^/]*\.(txt|in)|pipfile|package\.json|cargo\.toml|go\.mod|gemfile"
    r"|pom\.xml|build\.gradle(\.kts)?|composer\.json|dockerfile|makefile)|.*(\.lock|-lock\.(json|yaml)|go\.sum)"
)


class Bounds(Frozen):
    """What the operator lets a patch be."""

    files: int = Field(default=100, ge=1)
    """Paths that it changes."""
    megabytes: float = Field(default=4, gt=0)
    """Of its diff, and of what it adds to the tree; 1 MB is 1,000,000 bytes."""
    allowed: tuple[str, ...] = ()
    """Patterns of paths that are not left to maintainers, such as `.github/workflows/*`; case does not matter."""


USUAL = Bounds()


def bounds(settings: Settings) -> Bounds:
    """As the operator set them."""
    return Bounds(files=settings.max_files, megabytes=settings.max_patch_mb, allowed=settings.allow_paths)


class Permitted(Frozen):
    """What of a patch may leave the sandbox."""

    patch: Patch
    """The rest of it; empty when nothing may."""
    left_out: tuple[str, ...] = ()
    """One sentence for each thing that may not, and why."""


class Contents(Frozen):
    """What a patch contains, as far as policy is concerned."""

    files: tuple[str, ...]
    """Paths that it changes."""
    refused: tuple[str, ...] = ()
    """One sentence for each thing that may not be proposed; empty: it may."""
    notes: tuple[str, ...] = ()
    """One sentence for each thing that a reviewer should look at."""


async def permitted(workspace: Workspace, patch: Patch, bounds: Bounds = USUAL) -> Permitted:
    """The patch without what may not be proposed; without anything when it is too much.

    Raises WorkspaceError when git does not accept it at all.
    """
    if patch.empty:
        return Permitted(patch=patch)
    changes = await workspace.changes(patch)
    objections = {
        change.path: sentence for change in changes if (sentence := _objection(change, bounds)) is not None
    }
    kept = tuple(change for change in changes if change.path not in objections)
    rest = await workspace.without(patch, frozenset(objections)) if objections else patch
    excess = _excess(kept, len(rest.diff), bounds)
    left_out = _bounded([*excess, *objections.values()])
    return Permitted(patch=Patch(base=patch.base, diff=b"") if excess else rest, left_out=left_out)


def frees_workflows(allowed: tuple[str, ...]) -> bool:
    """Whether these patterns let a patch change workflows, for which GitHub wants a permission of its own."""
    return any(
        "workflows" in pattern or fnmatchcase(".github/workflows/ci.yml", pattern) for pattern in allowed
    )


async def check(workspace: Workspace, patch: Patch, bounds: Bounds = USUAL) -> Contents:
    """What is in the patch. Raises WorkspaceError when git does not accept it at all."""
    changes = await workspace.changes(patch)
    refused = [sentence for change in changes if (sentence := _objection(change, bounds))]
    notes = [sentence for change in changes if (sentence := _note(change))]
    return Contents(
        files=tuple(change.path for change in changes),
        refused=_bounded([*_excess(changes, len(patch.diff), bounds), *refused]),
        notes=_bounded([*notes, *await in_text(workspace, patch, changes)]),
    )


def _excess(changes: tuple[Change, ...], size: int, bounds: Bounds) -> list[str]:
    """Why these changes, `size` bytes of diff, are too much."""
    sentences = []
    growth = sum(max(0, change.size - change.old_size) for change in changes)
    if max(size, growth) > bounds.megabytes * 1e6:
        most = f"{bounds.megabytes:g} MB are the limit"
        sentences.append(f"It adds {max(size, growth) / 1e6:.1f} MB; {most}.")
    if len(changes) > bounds.files:
        sentences.append(f"It touches {len(changes)} files; {bounds.files} are the limit.")
    return sentences


def _objection(change: Change, bounds: Bounds) -> str | None:
    """Why this change may not be proposed; None: it may."""
    path = change.path
    known = f"/{path}".casefold()
    if change.old_mode == ABSENT and (drawn(path) != path or any(map(_is_no_letter, path))):
        return f"The name of {_printable(path)} holds characters that cannot be seen."
    if GITLINK in (change.mode, change.old_mode):
        return f"{path} is a submodule: it takes in code that this pull request would not show."
    if change.mode == SYMLINK and _leaves(path, change.link or ""):
        return f"{path} is a symbolic link that points out of the repository, to {_printable(change.link or '')}."
    if ".git" in known.split("/"):
        return f"{path} is git's own."
    if any(fnmatchcase(known, f"/{pattern.lstrip('/')}".casefold()) for pattern in bounds.allowed):
        return None
    for patterns, why in FORBIDDEN:
        if any(fnmatchcase(known, pattern) for pattern in patterns):
            return f"{path} is left to maintainers: {why}."
    return None


def _note(change: Change) -> str | None:
    """What a reviewer should know of this change; None: nothing beyond the diff."""
    name = posixpath.basename(change.path).lower()
    if is_test(change.path) and change.mode == ABSENT:
        return f"{change.path} was deleted; it held tests."
    if decides_how_tests_run(change.path):
        return f"{change.path} can change how the tests run."
    if MANIFESTS.fullmatch(name):
        return f"{change.path} says what is installed or built."
    if change.mode == "100755" and change.old_mode != "100755":
        return f"{change.path} became executable."
    if change.mode == SYMLINK:
        return f"{change.path} is a symbolic link to {_printable(change.link or '')}."
    return None


def _leaves(path: str, link: str) -> bool:
    """Whether a link at `path` points out of the repository, or into git's own directory."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
    parts = target.casefold().split("/")
    return link.startswith("/") or parts[0] == ".." or ".git" in parts


def _printable(text: str) -> str:
    shown = (f"\\u{ord(one):04x}" if _is_no_letter(one) or not is_drawn(one) else one for one in text)
    return "".join(shown)[:200]


def _is_no_letter(char: str) -> bool:
    return unicodedata.category(char)[0] == "C"


def _bounded(sentences: list[str]) -> tuple[str, ...]:
    if len(sentences) <= MOST_SENTENCES:
        return tuple(sentences)
    return (*sentences[:MOST_SENTENCES], f"There are {len(sentences) - MOST_SENTENCES} more like these.")
