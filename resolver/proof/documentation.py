"""Finds out whether a patch changes only documentation, so that there is nothing to test.

Documentation is prose that only people read. In doubt, a file is not documentation: the tests may read it, a program
may load it, or an AI agent may follow it. The kind of the verdict is the same in both cases.
"""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from patchwright.resolver.domain import Verdict
from patchwright.resolver.git.workspaces import ABSENT, FileChange, Workspace
from patchwright.resolver.proof import verdict_reasons
from patchwright.resolver.proof.test_helpers import MANIFESTS
from patchwright.resolver.proof.unusual_files import PROSE_SUFFIXES, SOURCE_SUFFIXES
from patchwright.resolver.security.sensitive_files import find_file_kind
from patchwright.resolver.suites.affected_tests import find_mentions
from patchwright.resolver.suites.file_classifier import is_runner_config, is_test_related

DIRECTORIES = frozenset({"doc", "docs"})
# A package may load its other prose, for example a prompt or a help text.
WELL_KNOWN_NAMES = re.compile(r"(readme|changelog|changes|contributing|history|security)\b.*", re.IGNORECASE)
REGULAR_MODES = frozenset({ABSENT, "100644"})
MAX_FILES = (
    50  # maximum number of changed files; also of files that are searched for the names of the changed files
)
MAX_FILE_BYTES = 500_000


async def mark_documentation(
    verdict: Verdict, workspace: Workspace, changes: tuple[FileChange, ...]
) -> Verdict:
    """Returns the verdict. It is marked with `documentation_only` if the patch changes only documentation and no test
    fails.
    """
    after = verdict.after
    is_clean = not (verdict.conditions or verdict.flaky or verdict.pass_to_fail or verdict.fail_to_pass)
    if verdict.kind not in ("unproven", "untested") or not is_clean or not all(map(_is_prose, changes)):
        return verdict
    paths = [change.path for change in changes]
    if after and (after.problem or after.failed_count or not after.passed_count):
        return verdict
    if after and any(
        path in test or path.replace("/", ".") in test for path in paths for test in after.results
    ):
        return verdict  # The documents contain tests.
    files = await workspace.list_files()
    if await _is_used_by_code(workspace, files, paths) or await _is_used_by_tests(workspace, files, paths):
        return verdict
    reason = verdict_reasons.explain_documentation(has_tests=after is not None, is_partial=verdict.partial)
    return verdict.model_copy(update={"documentation_only": True, "reason": reason})


def _is_prose(change: FileChange) -> bool:
    """Returns True if the file is prose according to its name, place, and mode."""
    path = PurePosixPath(change.path)
    in_usual_place = (
        len(path.parts) == 1
        or path.parts[0] in DIRECTORIES
        or WELL_KNOWN_NAMES.fullmatch(path.name) is not None
    )
    return (
        in_usual_place
        and path.suffix.lower() in PROSE_SUFFIXES
        and {change.mode, change.old_mode} <= REGULAR_MODES
        and not is_test_related(change.path)
        and not is_runner_config(change.path)
        and find_file_kind(change.path) is None
    )


async def _is_used_by_code(workspace: Workspace, files: Sequence[str], paths: Sequence[str]) -> bool:
    """Returns True if code or the configuration of a tool may read one of the documents at `paths`.

    A manifest such as `pyproject.toml` may name the README file that it shows.
    """
    names = {PurePosixPath(path).name for path in paths}
    readers = {
        path for path in files if (_is_source(path) or is_runner_config(path)) and not _is_manifest(path)
    }
    return await _is_named(workspace, readers, names)


async def _is_used_by_tests(workspace: Workspace, files: Sequence[str], paths: Sequence[str]) -> bool:
    """Returns True if tests, or the configuration of the test runner, may read one of the documents at `paths`
    because of its directory or its suffix.
    """
    patterns = {f"*{PurePosixPath(path).suffix}" for path in paths}
    directories = {PurePosixPath(path).parts[0] for path in paths if "/" in path}
    tests = {path for path in files if is_test_related(path)}
    if await find_mentions(workspace, tests, patterns):
        return True
    return bool(directories) and await _is_named(workspace, set(filter(_is_source, tests)), directories)


async def _is_named(workspace: Workspace, readers: set[str], names: set[str]) -> bool:
    """Returns True if one of the `readers` names one of the files or directories, except in a comment."""
    mentions = await find_mentions(workspace, readers, names)
    if max(len(names), len(mentions)) > MAX_FILES:
        return True
    quoted = re.compile(rf"[\"'`/](?:{'|'.join(map(re.escape, sorted(names)))})[\"'`/]")
    for path in mentions:
        text = await workspace.read(path, MAX_FILE_BYTES)
        # In a shell script, a name needs no quotes.
        if text is None or not _is_source(path) or path.endswith(".sh") or quoted.search(text):
            return True
    return False


def _is_source(path: str) -> bool:
    return PurePosixPath(path).suffix.lower() in SOURCE_SUFFIXES


def _is_manifest(path: str) -> bool:
    return MANIFESTS.fullmatch(path) is not None or PurePosixPath(path).name == "Cargo.toml"
