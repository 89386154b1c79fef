"""A Makefile's target that tests: what it runs where that can be seen, else its exit code."""

import re
from collections.abc import Iterator

from resolver.suites.kind import Kind
from resolver.suites.part import MOST_CHARACTERS, Family, Part, Said
from resolver.suites.runners import RUNNERS, kind_of
from resolver.suites.suite import Suite

NAMES = ("GNUmakefile", "makefile", "Makefile")
TARGETS = ("test", "tests", "check")
_NAMES = re.compile(r"[\w. -]+")


def find(part: Part) -> Suite | None:
    name, rules = _rules(part)
    target = next((target for target in TARGETS if target in rules), None)
    if target is None:
        return None
    kind = target_kind(part, f"make {target}")
    return part.suite(f"make {target}", kind, f"The {name} here has the target `{target}`.")


def target_kind(part: Part, command: str) -> Kind:
    """The runner behind `make test`, when variables suffice to make it tell each outcome."""
    target = re.fullmatch(r"make(?: -\S+)* ([\w.-]+)", command.strip())
    if target is None:
        return "none"
    _, rules = _rules(part)
    kinds = [kind for line in _lines(rules, target[1], depth=0) if (kind := kind_of(line)) != "none"]
    return kinds[0] if len(kinds) == 1 and RUNNERS[kinds[0]].wherever else "none"


def said(part: Part) -> Iterator[Said]:
    """The commands of the target that tests, where they say by themselves what they run."""
    name, rules = _rules(part)
    for target in TARGETS:
        for line in _lines(rules, target, depth=0):
            if "$" not in line and (kind := kind_of(line)) != "none":
                yield Said(line, kind, f"The target `{target}` of the {name}")


def _rules(part: Part) -> tuple[str, dict[str, tuple[list[str], list[str]]]]:
    """The file's name; of each target what it needs, and the lines of its recipe."""
    name = next((name for name in NAMES if name in part.texts), "Makefile")
    rules: dict[str, tuple[list[str], list[str]]] = {}
    recipe: list[str] | None = None
    for line in part.texts.get(name, "").replace("\\\n", " ").splitlines():
        if line.startswith("\t"):
            if recipe is not None:
                recipe.append(line.strip().lstrip("@-+ ")[:MOST_CHARACTERS])
        elif (rule := _rule(line)) is not None:
            needs, recipe = rule[1], []
            for target in rule[0]:
                rules.setdefault(target, (needs, recipe))
        elif line.strip() and not line.startswith("#"):
            recipe = None
    return name, rules


def _rule(line: str) -> tuple[list[str], list[str]] | None:
    """The targets that a line is the rule of, and what they need."""
    targets, colon, needs = line[:MOST_CHARACTERS].partition("#")[0].partition(":")
    if not colon or needs.startswith(("=", ":=")) or not _NAMES.fullmatch(targets):
        return None
    return targets.split(), needs.lstrip(":").partition(";")[0].split()


def _lines(rules: dict[str, tuple[list[str], list[str]]], target: str, depth: int) -> Iterator[str]:
    needs, recipe = rules.get(target, ([], []))
    if depth < 3:
        for need in needs[:20]:
            yield from _lines(rules, need, depth + 1)
    yield from recipe[:50]


MAKE = Family("make", re.compile("|".join(NAMES)), re.compile(r"(?!)"), (), find)
