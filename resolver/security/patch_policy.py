"""Decides which parts of a patch may be published, and which parts a reviewer should look at first.

`git apply` rejects `../x`, absolute paths and `.git/`. It accepts submodules, workflows, and symbolic links to
any path. This module removes forbidden changes before verification, so that exactly the verified patch is
published.
"""

import posixpath
import re
import unicodedata
from fnmatch import fnmatchcase

from pydantic import Field

from patchwright.resolver.domain import Patch
from patchwright.resolver.proof.file_classifier import is_pytest_file, is_runner_config
from patchwright.resolver.security.dependency_notes import find_dependency_notes
from patchwright.resolver.security.review_notes import find_review_notes
from patchwright.resolver.settings.settings import Settings
from patchwright.resolver.text.untrusted import is_visible_character, strip_invisible
from patchwright.resolver.workspaces import ABSENT, GITLINK, SYMLINK, FileChange, Workspace
from patchwright.runtime.frozen_model import FrozenModel

MAX_SENTENCES = 10  # maximum number of sentences of one kind in a message

CI_SERVICE_FILES = (
    *("/.gitlab-ci.yml", "/.gitlab/*", "/.circleci/*", "/.travis.yml", "/.drone.yml", "/.cirrus.yml"),
    *("/.buildkite/*", "/.woodpecker*", "/.forgejo/*", "/.gitea/*", "/.azure-pipelines/*", "/.ci/*"),
    *(
        "/azure-pipelines*.yml",
        "/appveyor.yml",
        "/.appveyor.yml",
        "/bitbucket-pipelines.yml",
        "*/jenkinsfile",
    ),
)
"""Patterns for the configuration of CI services other than GitHub Actions, in lowercase."""

PROTECTED_PATHS = (
    (("*/.gitmodules", "*/.lfsconfig"), "this file decides where git fetches other code from"),
    (("/.github/workflows/*", "/.github/actions/*", "*/action.yml", "*/action.yaml"), "this file runs in CI"),
    (CI_SERVICE_FILES, "this file runs in CI"),
    (
        ("*/.husky/*", "*/.githooks/*", "*/.pre-commit-config.yaml", "*/lefthook.y*ml"),
        "this file runs on a commit",
    ),
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
        "this file configures what bots may do",
    ),
)
"""Patterns for paths that only maintainers may change, each with the reason. The patterns are lowercase and
begin with a slash.
"""

MANIFESTS = re.compile(
    r"(pyproject\.toml|setup\.(py|cfg)|requirements[^/]*\.(txt|in)|pipfile|package\.json|cargo\.toml|go\.mod|gemfile"
    r"|pom\.xml|build\.gradle(\.kts)?|composer\.json|dockerfile|makefile)|.*(\.lock|-lock\.(json|yaml)|go\.sum)"
)


class PatchLimits(FrozenModel):
    """The operator's limits for patches."""

    max_files: int = Field(default=100, ge=1)
    """Maximum number of changed paths."""
    max_megabytes: float = Field(default=4, gt=0)
    """Maximum size of the diff in megabytes (1,000,000 bytes). The same limit applies to the data that the
    diff adds to the tree.
    """
    allowed_paths: tuple[str, ...] = ()
    """Patterns for protected paths that the agent may change nevertheless, such as `.github/workflows/*`.
    Upper and lower case are not distinguished.
    """


DEFAULT_LIMITS = PatchLimits()


def build_patch_limits(settings: Settings) -> PatchLimits:
    """Returns the limits from the operator's settings."""
    return PatchLimits(
        max_files=settings.max_files,
        max_megabytes=settings.max_patch_mb,
        allowed_paths=settings.allowed_paths,
    )


class FilteredPatch(FrozenModel):
    """The allowed part of a patch."""

    patch: Patch
    """The allowed changes; an empty patch if none are allowed."""
    removed: tuple[str, ...] = ()
    """One sentence for each removed change, with the reason."""


class PatchCheck(FrozenModel):
    """The result of checking a patch against the policy."""

    files: tuple[str, ...]
    """Changed paths."""
    violations: tuple[str, ...] = ()
    """One sentence for each violation of the policy. The patch may be published only if there is no
    violation.
    """
    notes: tuple[str, ...] = ()
    """One sentence for each change that a reviewer should look at."""


async def filter_patch(
    workspace: Workspace, patch: Patch, limits: PatchLimits = DEFAULT_LIMITS
) -> FilteredPatch:
    """Returns the patch without forbidden changes, or an empty patch if it exceeds the limits.

    Raises WorkspaceError if git cannot apply the patch.
    """
    if patch.is_empty:
        return FilteredPatch(patch=patch)
    changes = await workspace.list_changes(patch)
    violations = {
        change.path: sentence
        for change in changes
        if (sentence := _find_violation(change, limits)) is not None
    }
    allowed = tuple(change for change in changes if change.path not in violations)
    filtered = await workspace.revert_paths(patch, frozenset(violations)) if violations else patch
    exceeded_limits = _find_size_violations(allowed, len(filtered.diff), limits)
    removed = _limit_sentences([*exceeded_limits, *violations.values()])
    return FilteredPatch(
        patch=Patch(base_sha=patch.base_sha, diff=b"") if exceeded_limits else filtered, removed=removed
    )


def allows_workflows(allowed_paths: tuple[str, ...]) -> bool:
    """Returns True if these patterns allow changes to workflows. GitHub requires a separate permission for
    such changes.
    """
    return any(
        "workflows" in pattern or fnmatchcase(".github/workflows/ci.yml", pattern)
        for pattern in allowed_paths
    )


async def check_patch(workspace: Workspace, patch: Patch, limits: PatchLimits = DEFAULT_LIMITS) -> PatchCheck:
    """Checks a patch against the policy. Raises WorkspaceError if git cannot apply it."""
    changes = await workspace.list_changes(patch)
    violations = [sentence for change in changes if (sentence := _find_violation(change, limits))]
    dependency_notes = await find_dependency_notes(workspace, patch, changes)
    notes = [note for change in changes if (note := dependency_notes.get(change.path) or _get_note(change))]
    return PatchCheck(
        files=tuple(change.path for change in changes),
        violations=_limit_sentences([*_find_size_violations(changes, len(patch.diff), limits), *violations]),
        notes=_limit_sentences([*notes, *await find_review_notes(workspace, patch, changes)]),
    )


def _find_size_violations(changes: tuple[FileChange, ...], size: int, limits: PatchLimits) -> list[str]:
    """Returns a sentence for each exceeded limit. `size` is the number of bytes in the diff."""
    sentences = []
    growth = sum(max(0, change.size - change.old_size) for change in changes)
    if max(size, growth) > limits.max_megabytes * 1e6:
        limit = f"the limit is {limits.max_megabytes:g} MB"
        sentences.append(f"The patch adds {max(size, growth) / 1e6:.1f} MB; {limit}.")
    if len(changes) > limits.max_files:
        sentences.append(f"The patch touches {len(changes)} files; the limit is {limits.max_files}.")
    return sentences


def _find_violation(change: FileChange, limits: PatchLimits) -> str | None:
    """Returns why this change is forbidden, or None if it is allowed."""
    path = change.path
    normalized = f"/{path}".casefold()
    if change.old_mode == ABSENT and (strip_invisible(path) != path or any(map(_is_control_character, path))):
        return f"The name of {_escape_invisible(path)} contains invisible characters."
    if GITLINK in (change.mode, change.old_mode):
        return f"{path} is a submodule, so the pull request would not show its code."
    if change.mode == SYMLINK and _points_outside(path, change.link_target or ""):
        target = _escape_invisible(change.link_target or "")
        return f"{path} is a symbolic link that points outside the repository, to {target}."
    if ".git" in normalized.split("/"):
        return f"{path} is in git's own directory."
    if any(fnmatchcase(normalized, f"/{pattern.lstrip('/')}".casefold()) for pattern in limits.allowed_paths):
        return None
    for patterns, reason in PROTECTED_PATHS:
        if any(fnmatchcase(normalized, pattern) for pattern in patterns):
            return f"Only maintainers may change {path}, because {reason}."
    return None


def _get_note(change: FileChange) -> str | None:
    """Returns a sentence that a reviewer should read about this change, or None if there is none."""
    name = posixpath.basename(change.path).lower()
    if is_pytest_file(change.path) and change.mode == ABSENT:
        return f"{change.path} was deleted; it contained tests."
    if is_runner_config(change.path):
        return f"{change.path} can change how the tests run."
    if MANIFESTS.fullmatch(name):
        return f"{change.path} changes what is installed or built."
    if change.mode == "100755" and change.old_mode != "100755":
        return f"{change.path} became executable."
    if change.mode == SYMLINK:
        return f"{change.path} is a symbolic link to {_escape_invisible(change.link_target or '')}."
    return None


def _points_outside(path: str, link: str) -> bool:
    """Returns True if a link at `path` points out of the repository or into its `.git` directory."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
    parts = target.casefold().split("/")
    return link.startswith("/") or parts[0] == ".." or ".git" in parts


def _escape_invisible(text: str) -> str:
    characters = (
        f"\\u{ord(char):04x}" if _is_control_character(char) or not is_visible_character(char) else char
        for char in text
    )
    return "".join(characters)[:200]


def _is_control_character(char: str) -> bool:
    return unicodedata.category(char)[0] == "C"


def _limit_sentences(sentences: list[str]) -> tuple[str, ...]:
    if len(sentences) <= MAX_SENTENCES:
        return tuple(sentences)
    return (*sentences[:MAX_SENTENCES], f"There are {len(sentences) - MAX_SENTENCES} more like these.")
