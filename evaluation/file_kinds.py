"""Tells tests from product code by their paths. The rules are independent of those that the verdict uses."""

import re
from pathlib import PurePosixPath

from patchwright.evaluation.release_pairs import Registry

_TESTS = re.compile(r"(^|/)(tests?|testing|spec|__tests__)(/|\.\w+$)|(^|/)test_[^/]+$|[_.-](test|spec)\.\w+$")
_OTHER = re.compile(
    r"(^|/)(docs?|examples?|benchmarks?|bench|scripts?|tools|dist|node_modules|\.[^/]+)/"
    r"|(^|/)(setup|conf|conftest|noxfile|tasks|_version|version)\.py$|(^|/)[^/]*(config|rc)\.[cm]?[jt]s$|\.min\.js$"
)
_SUFFIXES: dict[Registry, tuple[str, ...]] = {"pypi": (".py",), "npm": (".js", ".cjs", ".mjs", ".ts")}


def is_test(path: str) -> bool:
    return _TESTS.search(path) is not None


def is_product(path: str, registry: Registry) -> bool:
    suffix = PurePosixPath(path).suffix
    return suffix in _SUFFIXES[registry] and not is_test(path) and _OTHER.search(path) is None
