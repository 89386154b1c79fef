"""Finds the test target of a Makefile. If the Makefile shows which test runner it starts, the report of this
runner is used. Otherwise, only the exit code is used.
"""

import re
from collections.abc import Iterator

from patchwright.resolver.runner_names import RunnerName
from patchwright.resolver.suites.project_dir import (
    MAX_COMMAND_LENGTH,
    DeclaredCommand,
    LanguageSupport,
    ProjectDir,
)
from patchwright.resolver.suites.runners import RUNNERS, detect_runner
from patchwright.resolver.suites.suite import Suite

MAKEFILE_NAMES = ("GNUmakefile", "makefile", "Makefile")
TEST_TARGETS = ("test", "tests", "check")
_TARGET_NAMES = re.compile(r"[\w. -]+")


def find_suite(project: ProjectDir) -> Suite | None:
    name, rules = _parse_rules(project)
    target = next((target for target in TEST_TARGETS if target in rules), None)
    if target is None:
        return None
    runner = detect_target_runner(project, f"make {target}")
    return project.make_suite(f"make {target}", runner, f"The file {name} has the target `{target}`.")


def detect_target_runner(project: ProjectDir, command: str) -> RunnerName:
    """Returns the runner that `make test` starts, if environment variables can make this runner report each
    test. Otherwise, returns "none".
    """
    target = re.fullmatch(r"make(?: -\S+)* ([\w.-]+)", command.strip())
    if target is None:
        return "none"
    _, rules = _parse_rules(project)
    runners = [
        runner
        for line in _recipe_lines(rules, target[1], depth=0)
        if (runner := detect_runner(line)) != "none"
    ]
    return runners[0] if len(runners) == 1 and RUNNERS[runners[0]].environment_suffices else "none"


def find_declared_commands(project: ProjectDir) -> Iterator[DeclaredCommand]:
    """Yields the commands of the test targets. Leaves out commands that work only inside `make`."""
    name, rules = _parse_rules(project)
    for target in TEST_TARGETS:
        for line in _recipe_lines(rules, target, depth=0):
            if "$" not in line and (runner := detect_runner(line)) != "none":
                yield DeclaredCommand(line, runner, f"The target `{target}` of the {name}")


def _parse_rules(project: ProjectDir) -> tuple[str, dict[str, tuple[list[str], list[str]]]]:
    """Returns the name of the Makefile. Also returns the prerequisites and the recipe lines of each target."""
    name = next((name for name in MAKEFILE_NAMES if name in project.contents), "Makefile")
    rules: dict[str, tuple[list[str], list[str]]] = {}
    recipe: list[str] | None = None
    for line in project.contents.get(name, "").replace("\\\n", " ").splitlines():
        if line.startswith("\t"):
            if recipe is not None:
                recipe.append(line.strip().lstrip("@-+ ")[:MAX_COMMAND_LENGTH])
        elif (rule := _parse_rule(line)) is not None:
            prerequisites, recipe = rule[1], []
            for target in rule[0]:
                rules.setdefault(target, (prerequisites, recipe))
        elif line.strip() and not line.startswith("#"):
            recipe = None
    return name, rules


def _parse_rule(line: str) -> tuple[list[str], list[str]] | None:
    """Returns the targets and prerequisites of a rule line, or None if the line is not a rule."""
    targets, colon, prerequisites = line[:MAX_COMMAND_LENGTH].partition("#")[0].partition(":")
    if not colon or prerequisites.startswith(("=", ":=")) or not _TARGET_NAMES.fullmatch(targets):
        return None
    return targets.split(), prerequisites.lstrip(":").partition(";")[0].split()


def _recipe_lines(rules: dict[str, tuple[list[str], list[str]]], target: str, depth: int) -> Iterator[str]:
    prerequisites, recipe = rules.get(target, ([], []))
    if depth < 3:
        for prerequisite in prerequisites[:20]:
            yield from _recipe_lines(rules, prerequisite, depth + 1)
    yield from recipe[:50]


MAKE = LanguageSupport("make", re.compile("|".join(MAKEFILE_NAMES)), re.compile(r"(?!)"), (), find_suite)
