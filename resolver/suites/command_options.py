"""Adds report options to a suite's test command, and restricts it to selected tests."""

import re

from patchwright.resolver.runner_names import RunnerName
from patchwright.resolver.suites.runners import MAX_SELECTED, REPORTER_DIR_VARIABLE, RUNNERS, RunnerSpec

_PACKAGE_MANAGER = re.compile(r"\s*(?P<name>npm|pnpm|yarn)\s+(?:run\s+|run-script\s+)?[\w:.-]+\s*")
_SIMPLE_COMMAND = re.compile(r"[^;&|<>()$`\n#]*")
_WORD = re.compile(r"(?:[^\s'\"]|'[^']*'|\"[^\"]*\")+")
# For these runners, all arguments are kept. The arguments are not paths, or they are needed even if single
# tests are selected.
_KEEP_ALL_ARGUMENTS: tuple[RunnerName, ...] = ("unittest", "cargo", "maven")
# Options that take no value. After any other option, the next word may be the option's value and not a path.
_FLAG = re.compile(r"-[qvxsl]+|-ra|--\S+=.*|--(?:ci|run|exit|coverage|verbose|runInBand|recursive|no-\S+)")


def can_select_tests(command: str, runner_name: RunnerName) -> bool:
    """Returns True if this command can be restricted to single tests or test files."""
    return _command_without_paths(command, runner_name) is not None


def select_tests(command: str, runner_name: RunnerName, selected: tuple[str, ...]) -> str:
    """Restricts the command to these tests or files, and returns it. Returns the command unchanged if it
    cannot be restricted.
    """
    runner = RUNNERS.get(runner_name)
    if not selected or len(selected) > MAX_SELECTED or runner is None or runner.select_tests is None:
        return command
    arguments, prefix = runner.select_tests(selected), _command_without_paths(command, runner_name)
    if arguments is None or prefix is None:
        return command
    separator = " --" if (manager := _PACKAGE_MANAGER.fullmatch(command)) and manager["name"] == "npm" else ""
    return f"{prefix.strip()}{separator} {arguments}"


def build_plain_command(command: str, runner_name: RunnerName, selected: tuple[str, ...]) -> str | None:
    """Restricts the command to these tests, and returns it in a form in which the code under test cannot easily tell
    that it is being tested. Returns None if there is no such form.
    """
    runner, selected_command = RUNNERS.get(runner_name), select_tests(command, runner_name, selected)
    start = runner.command_pattern.match(selected_command) if runner else None
    if runner is None or start is None or selected_command == command:
        return None
    if not runner.plain_start:
        return f"unset CI; {selected_command}"
    first = re.search(r"\S*$", start["before"])
    place = start.start("words") - len(first[0] if first else "")
    program = selected_command[place : start.end("words")]
    python, module, _ = program.partition(" -m ")
    if not module:  # The first line of the program's file names the interpreter.
        python = f"$(sed -n '1s/^#!//p' \"$(command -v {program})\")"
    # The code under test can read the command line of its process, so the path of the file is hidden, too.
    file = f'<(cat "${REPORTER_DIR_VARIABLE}/{runner.plain_start}")'
    return f"{selected_command[:place]}{python} {file}{selected_command[start.end('words') :]}"


def add_report_options(
    command: str, runner_name: RunnerName, run_all: bool = True, has_report_options: bool = True
) -> str:
    """Adds the options that make the runner report each test result. If `run_all` is True, also adds the options
    that make it run all tests. Old versions of some runners have no options for reports (`has_report_options`).
    """
    runner = RUNNERS.get(runner_name)
    if runner is None:
        return command
    report_options = runner.report_options if has_report_options else ""
    options = " ".join(filter(None, (report_options, runner.run_all_options if run_all else "")))
    if start := runner.command_pattern.search(command):
        invocation = (
            start["words"]
            if runner.module_replacement is None
            else f"{start['python']}{runner.module_replacement}"
        )
        rest = _remove_options(command[start.end("words") :], runner)
        command = f"{command[: start.start('words')]}{invocation}{' ' * bool(options)}{options}{rest}"
    elif options and runner.forwards_options and (manager := _PACKAGE_MANAGER.match(command)):
        separator = "--" if manager["name"] == "npm" else ""
        rest = command[manager.end() :].strip().removeprefix(separator)
        command = " ".join(filter(None, (manager[0].strip(), separator, options, rest)))
    return command


def has_conflicting_option(command: str, runner_name: RunnerName) -> bool:
    """Returns True if the command tells its runner to stop at the first failure, or to write another report."""
    runner = RUNNERS.get(runner_name)
    return runner is not None and _remove_options(command, runner) != command


def _remove_options(arguments: str, runner: RunnerSpec) -> str:
    """Removes the options that conflict with ours. Other commands after `;`, `&` or `|` are kept."""
    if not runner.removed_options:
        return arguments
    own, *others = re.split(r"(?=[;&|])", arguments, maxsplit=1)
    return re.sub(rf"\s(?:{runner.removed_options})(?=\s|$)", "", own) + "".join(others)


def extend_variable(command: str, name: str, addition: str) -> str:
    """Appends text to the value that the command assigns to an environment variable. The shell expands the
    variables in the text. Returns the command unchanged if it does not assign the variable.
    """
    assignment = re.compile(rf"""(?<![\w$]){name}=(?:"[^"\n]*"|'[^'\n]*'|[^\s"';&|()<>])*""")
    return assignment.sub(lambda match: f'{match[0]}"{addition}"', command)


def _command_without_paths(command: str, runner_name: RunnerName) -> str | None:
    """Returns the command without its path arguments, so that selected tests can be appended. Returns None if
    the command is too complex.
    """
    runner = RUNNERS.get(runner_name)
    if runner is None or runner.select_tests is None or not _SIMPLE_COMMAND.fullmatch(command):
        return None
    if _PACKAGE_MANAGER.fullmatch(command):
        # The script may contain paths, which cannot be removed here. Jest then runs only the selected tests that
        # match these paths. Other runners would also run the unselected tests at these paths.
        return command if runner_name == "jest" else None
    start = runner.command_pattern.match(command)
    if start is None:
        return None
    words, may_be_path = [], True
    for word in _WORD.findall(command[start.end("words") :]):
        if word == "--":
            return None
        if word.startswith("-"):
            words.append(word)
            may_be_path = _FLAG.fullmatch(word) is not None
        elif not may_be_path or runner_name in _KEEP_ALL_ARGUMENTS:
            words.append(word)
            may_be_path = True
    return " ".join([command[: start.end("words")], *words])
