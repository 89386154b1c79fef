"""How a repository is tested: as its maintainers say, else as what is in it says."""

import re

from resolver.proof_files import is_test
from resolver.settings import REPO_CONFIG_PATH, RepoConfig
from resolver.suites.kind import Kind
from resolver.suites.suite import REPORT, Suite, Suites
from resolver.workspace import Workspace

PYTEST = re.compile(r"\bpytest\b|\bpy\.test\b")


async def find_suites(workspace: Workspace, config: RepoConfig) -> Suites:
    """How to test the repository at base: as its maintainers say, else as what is in it says."""
    suite = await _likely(workspace, config)
    return Suites(all=(suite,), likely=suite) if suite else Suites()


async def _likely(workspace: Workspace, config: RepoConfig) -> Suite | None:
    """How to test the repository at base: as its maintainers say, else with pytest; None: it has no tests."""
    if config.test_command:
        report: Kind = "none"
        if REPORT in config.test_command:
            report = "junit"
        elif PYTEST.search(config.test_command):
            report = "pytest"
        return Suite(
            command=config.test_command, report=report, why=f"{REPO_CONFIG_PATH} names this command."
        )
    files = await workspace.files()
    tests = [path for path in files if is_test(path)]
    if not tests:
        return None
    source = (
        "PYTHONPATH=src " if any(re.fullmatch(r"src/[^/]+(/__init__)?\.py", path) for path in files) else ""
    )
    others = f" and {len(tests) - 1} more" if len(tests) > 1 else ""
    return Suite(
        command=f"{source}python3 -m pytest",
        report="pytest",
        why=f"Nothing is configured, and {tests[0]}{others} can be run by pytest.",
    )
