"""Selects the pairs: `python -m benchmarks.real_fixes.select`.

The rules, which do not depend on what the verdicts are:

1. `candidates.json` names packages of different size, age, layout, and test runner. Their order is that of
   the SHA-256 of their names.
2. Of each package, only releases count that are not yanked, no prereleases, and admit Python 3.11, in the
   order of their versions.
   The newest pair of consecutive releases is taken for which all of this holds:
   - only the last number of the version differs;
   - both archives contain tests, and at least one test file differs;
   - between 1 and 200 lines of product code differ, and the whole difference has at most 60,000 characters
     and contains no binary file.
3. The first 40 packages of PyPI and the first 20 of npm with such a pair are taken.
"""

import difflib
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from patchwright.evaluation.file_kinds import is_product, is_test
from patchwright.evaluation.release_pairs import (
    PAIRS,
    Files,
    Pair,
    Registries,
    Registry,
    Release,
    load_pairs,
    read_archive,
)

REGISTRIES = Registries.from_environment(os.environ)
CANDIDATES = Path(__file__).parent / "candidates.json"
WANTED: dict[Registry, int] = {"pypi": 40, "npm": 20}
PYTHON = Version("3.11")
MAX_PRODUCT_LINES, MAX_CHARACTERS, MAX_ARCHIVE, MAX_PAIRS = 200, 60_000, 5_000_000, 15


def main() -> None:
    candidates: dict[Registry, list[str]] = json.loads(CANDIDATES.read_text())
    known = {(pair.registry, pair.name): pair for pair in load_pairs()}
    selected: list[Pair] = []
    for registry, names in candidates.items():
        order = sorted(names, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
        with ThreadPoolExecutor(4) as pool:
            found = [pair for pair in pool.map(partial(_try_select, registry), order) if pair]
        print(f"{registry}: {len(found)} of {len(order)} candidates have a pair", file=sys.stderr)
        for pair in found[: WANTED[registry]]:
            judged = known.get((registry, pair.name))
            selected.append(judged if judged and judged.new == pair.new else pair)
    rows = [pair.model_dump(exclude_defaults=True) for pair in selected]
    PAIRS.write_text(json.dumps(rows, indent=1) + "\n")


def _try_select(registry: Registry, name: str) -> Pair | None:
    try:
        return select_pair(registry, name)
    except (httpx.HTTPError, ValueError, KeyError, OSError) as exc:
        print(f"{registry} {name}: {exc!r}", file=sys.stderr)
        return None


def select_pair(registry: Registry, name: str) -> Pair | None:
    """Returns the newest pair that the rules allow, or None."""
    releases = list(_releases(registry, name))
    tried = 0
    for (old_version, old), (new_version, new) in reversed(list(pairwise(releases))):
        if old_version.release[:-1] != new_version.release[:-1] or len(new_version.release) < 3:
            continue
        if (tried := tried + 1) > MAX_PAIRS:
            return None
        before, after = _read(old), _read(new)
        if before and after and _is_suitable(registry, before[1], after[1]):
            return Pair(registry=registry, name=name, old=before[0], new=after[0])
    return None


def _releases(registry: Registry, name: str) -> Iterator[tuple[Version, tuple[str, str]]]:
    """Yields each release with its version as it is written and its URL, from old to new."""
    found: dict[Version, tuple[str, str]] = {}
    if registry == "pypi":
        for file in REGISTRIES.describe(registry, name)["files"]:
            archive = re.fullmatch(r".+-(\d[^-]*)\.tar\.gz", file["filename"])
            if archive and not file.get("yanked") and file.get("size", 0) <= MAX_ARCHIVE and _runs_here(file):
                found |= _parsed(archive[1], file["url"])
    else:
        for version, package in REGISTRIES.describe(registry, name)["versions"].items():
            if "deprecated" not in package and package["dist"].get("unpackedSize", 0) <= MAX_ARCHIVE:
                found |= _parsed(version, package["dist"]["tarball"])
    yield from sorted(found.items())


def _runs_here(file: dict[str, Any]) -> bool:
    try:
        return PYTHON in SpecifierSet(file.get("requires-python") or "")
    except InvalidSpecifier:  # such as ">=3.5.*", which old releases have
        return True


def _parsed(version: str, url: str) -> dict[Version, tuple[str, str]]:
    try:
        parsed = Version(version)
    except InvalidVersion:
        return {}
    return {} if parsed.is_prerelease or parsed.is_postrelease else {parsed: (version, url)}


def _read(release: tuple[str, str]) -> tuple[Release, Files] | None:
    version, url = release
    content = REGISTRIES.fetch(url)
    if len(content) > MAX_ARCHIVE:
        return None
    return Release(version=version, sha256=hashlib.sha256(content).hexdigest()), read_archive(content)


def _is_suitable(registry: Registry, old: Files, new: Files) -> bool:
    changed = [path for path in sorted({*old, *new}) if old.get(path) != new.get(path)]
    tests = [path for path in changed if is_test(path)]
    has_tests = all(any(is_test(path) for path in files) for files in (old, new))
    if not tests or not has_tests:
        return False
    try:
        texts = {path: (old.get(path, b"").decode(), new.get(path, b"").decode()) for path in changed}
    except UnicodeDecodeError:
        return False
    product_lines = characters = 0
    for path, (before, after) in texts.items():
        rows = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=3))
        characters += sum(map(len, rows))
        if is_product(path, registry):
            product_lines += sum(row[0] in "+-" and not row.startswith(("+++", "---")) for row in rows if row)
        if characters > MAX_CHARACTERS:
            return False
    return 1 <= product_lines <= MAX_PRODUCT_LINES


if __name__ == "__main__":
    main()
