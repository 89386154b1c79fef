"""Pytest options that would hide tests: they do nothing, whatever sets them."""

import shutil

import pytest

from patchwright.resolver.domain import TestRun
from patchwright.resolver.settings.settings import RepoConfig
from patchwright.resolver.suites.discovery import detect_suites
from patchwright.resolver.suites.run_problems import require_known_options
from patchwright.resolver.suites.suite import Suite

FAILING_FIRST = "def test_a(): assert False\n\n\ndef test_b(): assert False\n\n\ndef test_c(): pass\n"
ALL = {"test_x.py::test_a": "failed", "test_x.py::test_b": "failed", "test_x.py::test_c": "passed"}


async def run_pytest(open_verifier, files: dict[str, str], command: str = "python3 -m pytest") -> TestRun:
    async with open_verifier({"test_x.py": FAILING_FIRST, **files}) as verifier:
        run: TestRun = await verifier.run(Suite(command=command, runner="pytest", command_reason=""))
        return run


async def test_settings_of_old_pytest_in_setup_cfg_count(open_verifier) -> None:
    """pytest 4 and later refuse to start if setup.cfg has a section `[pytest]`."""
    files = {"setup.cfg": "[pytest]\npython_files = tests.py\naddopts = -q\n", "code/tests.py": FAILING_FIRST}
    suite = detect_suites(tuple(files), files, RepoConfig()).primary
    assert suite is not None
    run = await run_pytest(open_verifier, files, suite.command)
    named = {test.replace("test_x", "code/tests"): result for test, result in ALL.items()}
    assert (run.problem, run.results) == (None, named), run.output
    files = {"setup.cfg": files["setup.cfg"], "test_x.py": ""}
    assert detect_suites(tuple(files), files, RepoConfig()).all[0].command == (
        "python3 -m pytest -c /dev/null --rootdir=. -q -o python_files=tests.py"
    )


needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")

PLACES = ("pyproject.toml", "setup.cfg", "tox.ini", "command")
OPTIONS = ("-x", "--exitfirst", "--maxfail=1", "--lf --lfnf=none", "-p xdist -n 2 -x")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "options"),
    [("pytest.ini", options) for options in OPTIONS]
    + [(place, "-x --sw") for place in PLACES]
    + [pytest.param("Makefile", "-x --sw", marks=needs_make)],
)
async def test_options_that_stop_a_run_early_do_nothing(open_verifier, place: str, options: str) -> None:
    files: dict[str, str] = {}
    command = "python3 -m pytest"
    match place:
        case "pytest.ini" | "tox.ini":
            files = {place: f"[pytest]\naddopts = {options}\n"}
        case "setup.cfg":
            files = {place: f"[tool:pytest]\naddopts = {options}\n"}
        case "pyproject.toml":
            files = {place: f"[tool.pytest.ini_options]\naddopts = {options!r}\n"}
        case "command":
            command = f"python3 -m pytest {options}"
        case "Makefile":
            files, command = {place: f"test:\n\tpython3 -m pytest {options}\n"}, "make test"
    run = await run_pytest(open_verifier, files, command)
    assert (run.problem, run.results, run.ignored_options) == (None, ALL, ()), run.output


@pytest.mark.slow
@needs_make
async def test_without_the_plugin_the_options_would_stop_the_run(open_verifier) -> None:
    # A script that replaces PYTHONPATH: the plugin is not found, but the variable PYTEST_ADDOPTS still counts.
    files = {"Makefile": "test:\n\tPYTHONPATH= python3 -m pytest $(OPTIONS)\n"}
    cut = await run_pytest(open_verifier, files, "make test OPTIONS=--sw")
    assert (cut.problem, list(cut.results)) == (None, ["test_x.py::test_a"])
    whole = await run_pytest(open_verifier, {**files, "pytest.ini": "[pytest]\naddopts = -x\n"}, "make test")
    assert (whole.problem, whole.results) == (None, ALL)


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "PYTHONPATH=src python3 -m pytest --sw",
        "PYTHONPATH=src PYTEST_ADDOPTS='--sw' python3 -m pytest",
        "export PYTEST_ADDOPTS=--sw; python3 -m pytest",
        "env PYTHONPATH=src:. python3 -m pytest --sw",
    ],
)
async def test_a_command_may_set_the_variables_that_the_report_needs(open_verifier, command: str) -> None:
    files = {"src/calc.py": "", "test_y.py": "import calc\n\ndef test_y(): pass\n"}
    if "src" not in command:
        files = {"test_y.py": "def test_y(): pass\n"}
    run = await run_pytest(open_verifier, files, command)
    assert (run.problem, run.results) == (None, {**ALL, "test_y.py::test_y": "passed"}), run.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "ignored"),
    [
        ("--cov=src --cov-report term-missing -q", ("--cov=src", "--cov-report term-missing")),
        ("--cov src --no-such-flag", ("--cov src", "--no-such-flag")),
        ("-p no_such_plugin --such=1", ("-p no_such_plugin", "--such=1")),
        ("-p no_such.plugin", ("-p no_such.plugin",)),
    ],
)
async def test_options_of_missing_plugins_are_ignored_and_named(open_verifier, options: str, ignored) -> None:
    files = {"pytest.ini": f"[pytest]\naddopts = --strict-markers {options}\n", "src/calc.py": ""}
    run = await run_pytest(open_verifier, files)
    assert (run.problem, run.results, run.ignored_options) == (None, ALL, ignored), run.output


@pytest.mark.slow
async def test_missing_plugins_and_settings_are_ignored_and_named(open_verifier) -> None:
    config = "[pytest]\nrequired_plugins = pytest-nothing>=1\naddopts = --strict-config\nno_setting = 1\n"
    run = await run_pytest(open_verifier, {"pytest.ini": config})
    assert (run.problem, run.results) == (None, ALL), run.output
    assert run.ignored_options == (
        "Missing required plugins: pytest-nothing>=1",
        "Unknown config option: no_setting",
    )


@pytest.mark.slow
@needs_make
async def test_all_of_addopts_is_ignored_as_a_last_resort(open_verifier) -> None:
    files = {
        "pytest.ini": "[pytest]\naddopts = --no-such-flag\n",
        "Makefile": "test:\n\tPYTHONPATH= python3 -m pytest\n",
    }
    run = await run_pytest(open_verifier, files, "make test")
    assert (run.problem, run.results) == (None, ALL), run.output
    assert run.ignored_options == ("unrecognized arguments: --no-such-flag",)


async def test_a_plugin_of_the_repository_that_cannot_be_imported_is_a_problem(open_verifier) -> None:
    files = {"pytest.ini": "[pytest]\naddopts = -p helpers.plugin\n", "lib/helpers/plugin.py": ""}
    run = await run_pytest(open_verifier, files)
    assert (run.results, run.ignored_options) == ({}, ())
    assert run.problem and run.problem.startswith("no test ran, because the Python module `helpers` is not")


@pytest.mark.slow
async def test_a_pytest_that_a_test_starts_is_left_alone(open_verifier) -> None:
    inner = (
        "import subprocess, sys\n\n\ndef test_inner(tmp_path):\n"
        "    (tmp_path / 'test_in.py').write_text('def test_1(): assert 0\\ndef test_2(): assert 0\\n')\n"
        "    command = [sys.executable, '-m', 'pytest', '-x', '-p', 'no:cacheprovider', str(tmp_path)]\n"
        "    done = subprocess.run(command, capture_output=True, text=True)\n"
        "    assert '1 failed' in done.stdout and 'stopping after 1' in done.stdout, done\n"
    )
    run = await run_pytest(open_verifier, {"test_y.py": inner})
    assert (run.problem, run.results) == (None, {**ALL, "test_y.py::test_inner": "passed"}), run.output


OUTCOMES = """\
import pytest

@pytest.mark.xfail
def test_xfailed(): assert False

@pytest.mark.xfail
def test_xpassed(): pass

@pytest.mark.xfail(strict=True)
def test_strict(): pass

@pytest.mark.skip
def test_skipped(): pass

def test_passed(): pass

@pytest.fixture
def broken(): raise OSError

def test_error(broken): pass
"""


async def test_outcomes_are_counted_as_pytest_names_them(open_verifier) -> None:
    run = await run_pytest(open_verifier, {"test_x.py": OUTCOMES})
    assert run.counts == {"failed": 1, "error": 1, "passed": 1, "xpassed": 1, "xfailed": 1, "skipped": 1}
    assert "1 failed, 1 passed, 1 skipped, 1 xfailed, 1 xpassed, 1 error" in run.output
    assert run.results["test_x.py::test_xpassed"] == "passed"
    assert run.results["test_x.py::test_xfailed"] == "skipped"
    assert run.results["test_x.py::test_strict"] == "failed"


RERUNS = """\
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    from _pytest.runner import runtestprotocol
    item.execution_count = 1
    while any(report.failed for report in runtestprotocol(item, nextitem=nextitem, log=False)):
        item.execution_count += 1
    for report in runtestprotocol(item, nextitem=nextitem, log=False):
        item.ihook.pytest_runtest_logreport(report=report)
    return True
"""


async def test_retries_are_counted(open_verifier) -> None:
    # Plugins such as pytest-rerunfailures count the runs of a test in this way.
    flaky = "runs = []\n\n\ndef test_flaky():\n    runs.append(1)\n    assert len(runs) > 2\n"
    run = await run_pytest(open_verifier, {"conftest.py": RERUNS, "test_x.py": flaky})
    assert (run.counts, run.retries) == ({"passed": 1}, {"test_x.py::test_flaky": 2})


@pytest.mark.slow
async def test_a_patch_cannot_remove_a_plugin_and_what_it_checks(open_verifier) -> None:
    plugin = "def pytest_addoption(parser):\n    parser.addoption('--strictly', action='store_true')\n"
    test = "def test_x(request): assert not request.config.getoption('strictly', False)\n"
    config = "[pytest]\naddopts = -p strictness --strictly\n"
    files = {"strictness.py": plugin, "pytest.ini": config, "test_x.py": test, "calc.py": ""}
    suite = Suite(command="python3 -m pytest", runner="pytest", command_reason="")
    async with open_verifier(files) as verifier:
        patch = await verifier.patch({"calc.py": "# fixed\n", "strictness.py": None})
        base, fooled = await verifier.run(suite), await verifier.run(suite, patch)
    assert (base.failed_tests, fooled.failed_tests) == (("test_x.py::test_x",), ())
    assert fooled.ignored_options == ("-p strictness", "--strictly")
    checked = require_known_options(base, fooled)
    assert (checked.results, checked.problem) == (
        {},
        "options that the test runner knows without the patch are unknown with it (-p strictness)",
    )
    assert require_known_options(fooled, fooled) == fooled
