"""Makes instances of pairs of published releases: the older one has a bug that the newer one fixes.

They need nothing but a package index. A release has no issue, so the changelog of the newer one is the problem.
"""

import asyncio
import difflib
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import httpx

from patchwright.evaluation.built_repository import BuiltRepository
from patchwright.evaluation.file_kinds import is_test
from patchwright.evaluation.instances import Instance
from patchwright.evaluation.release_pairs import Files, Pair, Registries, load_pairs
from patchwright.resolver.errors import UsageError

FIX_VERDICTS = ("fixed", "conditional")
MAX_PROBLEM = 4_000  # characters
_CHANGELOG = re.compile(r"(change|history|news|release)[\w-]*(\.(md|rst|txt))?", re.IGNORECASE)


def select_pairs(names: Sequence[str]) -> tuple[Pair, ...]:
    """Returns the pairs with these names, such as `attrs` or `npm:qs`. Without a name, returns all pairs whose own
    tests can show the fix. Raises UsageError if there is no such pair.
    """
    pairs = load_pairs()
    if not names:
        return tuple(pair for pair in pairs if set(pair.verdicts) <= set(FIX_VERDICTS))
    known = {name: pair for pair in pairs for name in (pair.name, f"{pair.registry}:{pair.name}")}
    if unknown := [name for name in names if name not in known]:
        raise UsageError(
            f"There is no pair of releases for {', '.join(unknown)}. evaluation/pairs.json lists all"
        )
    return tuple(known[name] for name in names)


async def build_instance(pair: Pair, registries: Registries, directory: Path) -> Instance:
    """Downloads both releases, and makes the instance. Raises UsageError if a release cannot be downloaded."""
    try:
        old, new = [
            await asyncio.to_thread(registries.download, pair.registry, pair.name, release)
            for release in (pair.old, pair.new)
        ]
    except (httpx.HTTPError, ValueError) as exc:
        raise UsageError(f"The releases of {pair.name} cannot be downloaded: {exc}") from exc
    name = f"{pair.registry}-{pair.name}-{pair.new.version}"
    repository = await BuiltRepository.create(directory / f"{name}.git", old, f"v{pair.old.version}")
    changed = [path for path in {*old, *new} if old.get(path) != new.get(path)]
    return Instance(
        id=name,
        repo=f"{pair.registry}/{pair.name}",
        url=str(repository.path),
        base_commit=repository.commit,
        problem=describe_fix(pair, old, new),
        gold_patch=await repository.diff(_replace(old, new, [path for path in changed if not is_test(path)])),
        test_patch=await repository.diff(_replace(old, new, [path for path in changed if is_test(path)])),
    )


def _replace(old: Files, new: Files, paths: Sequence[str]) -> Files:
    """Returns the old files, with these paths as in the new files."""
    kept = {path: content for path, content in old.items() if path not in paths}
    return kept | {path: new[path] for path in paths if path in new}


def describe_fix(pair: Pair, old: Files, new: Files) -> str:
    """Returns the text of the issue: the lines that the newer release adds to its changelog."""
    title = f"Fix what {pair.name} {pair.new.version} fixes"
    added: list[str] = []
    for path in sorted(new):
        if _CHANGELOG.fullmatch(PurePosixPath(path).name) and path.count("/") <= 1:
            before, after = (
                files.get(path, b"").decode(errors="replace").splitlines() for files in (old, new)
            )
            rows = difflib.ndiff(before, after)
            added += [row[2:] for row in rows if row.startswith("+ ")]
    text = "\n".join(added).strip()[:MAX_PROBLEM]
    intro = f"Version {pair.old.version} of {pair.name} has a bug, which version {pair.new.version} fixes."
    return f"{title}\n\n{intro}" + (f" Its changelog says:\n\n{text}" if text else "")
