"""Decides which parts of a patch may be published, and which parts a reviewer should look at first.

`git apply` rejects `../x`, absolute paths and `.git/`. It accepts submodules, workflows, and symbolic links to
any path. This module removes forbidden changes before verification, so that exactly the verified patch is
published.
"""

import posixpath
import unicodedata
from fnmatch import fnmatchcase

from pydantic import Field

from patchwright.resolver.domain import Patch, Verdict
from patchwright.resolver.git.workspaces import ABSENT, GITLINK, SYMLINK, FileChange, Workspace
from patchwright.resolver.rendering.filters import list_names
from patchwright.resolver.security.dependency_notes import find_dependency_notes
from patchwright.resolver.security.review_notes import find_review_notes
from patchwright.resolver.security.sensitive_files import find_file_kind
from patchwright.resolver.security.special_cases import find_special_cases
from patchwright.resolver.settings.settings import Settings
from patchwright.resolver.suites.file_classifier import is_runner_config, is_test_file
from patchwright.resolver.text.untrusted import is_visible_character, strip_invisible
from patchwright.runtime.frozen_model import FrozenModel

MAX_SENTENCES = 10  # maximum number of sentences of one kind in a message
MAX_NAMES = 3  # maximum number of files that one note names


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
    return PatchLimits(max_files=settings.max_files, allowed_paths=settings.allowed_paths)


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
    """Sentences about the changes that a reviewer should look at. One sentence may name several files."""


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


async def check_patch(
    workspace: Workspace,
    patch: Patch,
    limits: PatchLimits = DEFAULT_LIMITS,
    verdict: Verdict | None = None,
) -> PatchCheck:
    """Checks a patch against the policy. The notes repeat none of the verdict's conditions. Raises WorkspaceError if
    git cannot apply the patch.
    """
    changes = await workspace.list_changes(patch)
    violations = [sentence for change in changes if (sentence := _find_violation(change, limits))]
    dependency_notes = await find_dependency_notes(workspace, patch, changes)
    others = tuple(change for change in changes if change.path not in dependency_notes)
    known_kinds = ("deleted_test_file", "changed_test_config")
    conditions, tests = (verdict.conditions, verdict.fail_to_pass) if verdict else ((), ())
    known = frozenset(condition.path for condition in conditions if condition.kind in known_kinds)
    return PatchCheck(
        files=tuple(change.path for change in changes),
        violations=_limit_sentences([*_find_size_violations(changes, len(patch.diff), limits), *violations]),
        notes=(
            *await find_review_notes(workspace, patch, changes),
            *_limit_sentences(await find_special_cases(workspace, patch, changes, tests)),
            *_limit_sentences(list(dependency_notes.values())),
            *_describe_changes(others, known),
        ),
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
    if (kind := find_file_kind(path)) and kind.handling == "maintainers":
        return f"Only maintainers may change {path}, because this file {kind.reason}."
    return None


def _describe_changes(changes: tuple[FileChange, ...], known: frozenset[str]) -> list[str]:
    """Returns one sentence for all files that a reviewer should look at for the same reason. A long list of
    harmless files therefore hides no other file. The reader already knows what `known` paths mean for the tests.
    """
    paths: dict[str, list[str]] = {}
    for change in changes:
        if predicate := _get_note(change, known):
            paths.setdefault(predicate, []).append(change.path)
    return [_join_sentence(names, predicate) for predicate, names in paths.items()]


def _join_sentence(names: list[str], predicate: str) -> str:
    if len(names) > 1:
        verb, _, rest = predicate.partition(" ")
        verb = {"was": "were", "is": "are"}.get(verb) or verb.removesuffix("s")
        predicate = f"{verb} {rest}".replace(" its ", " their ")
    return f"{list_names(names, MAX_NAMES)} {predicate}."


def _get_note(change: FileChange, known: frozenset[str]) -> str | None:
    """Returns the predicate of a sentence that a reviewer should read about this change, or None if there is
    nothing to say about it.
    """
    if is_test_file(change.path) and change.mode == ABSENT:
        return None if change.path in known else "was deleted with its tests"
    if is_runner_config(change.path) and change.path not in known:
        return "can change how the tests run"
    if kind := find_file_kind(change.path):
        return kind.reason
    if change.mode == "100755" and change.old_mode != "100755":
        return "is executable now"
    if change.mode == SYMLINK:
        return f"is a symbolic link to {_escape_invisible(change.link_target or '')}"
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
