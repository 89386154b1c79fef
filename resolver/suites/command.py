"""A suite's command as it is run for a judgement: with its runner's options, and with some tests only."""

import re

from resolver.suites.kind import Kind
from resolver.suites.runners import MOST_SELECTED, RUNNERS

_MANAGER = re.compile(r"\s*(?P<name>npm|pnpm|yarn)\s+(?:run\s+|run-script\s+)?[\w:.-]+\s*")
_SIMPLE = re.compile(r"[^;&|<>()$`\n#]*")
_WORD = re.compile(r"(?:[^\s'\"]|'[^']*'|\"[^\"]*\")+")
# What they are given is no path that others would be added to, or is needed beside them.
_KEEP_ALL: tuple[Kind, ...] = ("unittest", "cargo", "maven")
# After another option a word may be its value.
_FLAG = re.compile(r"-[qvxsl]+|-ra|--\S+=.*|--(?:ci|run|exit|coverage|verbose|runInBand|recursive|no-\S+)")


def selects(command: str, kind: Kind) -> bool:
    """Whether single tests, or test files, can be named for this command."""
    return _prefix(command, kind) is not None


def narrowed(command: str, kind: Kind, only: tuple[str, ...]) -> str:
    """The command for these tests or files alone; as it is, where they cannot be named."""
    runner = RUNNERS.get(kind)
    if not only or len(only) > MOST_SELECTED or runner is None or runner.select is None:
        return command
    words, prefix = runner.select(only), _prefix(command, kind)
    if words is None or prefix is None:
        return command
    handed_on = " --" if (manager := _MANAGER.fullmatch(command)) and manager["name"] == "npm" else ""
    return f"{prefix.strip()}{handed_on} {words}"


def judging(command: str, kind: Kind) -> str:
    """The command with what makes the runner tell each outcome."""
    runner = RUNNERS.get(kind)
    if runner is None:
        return command
    if start := runner.pattern.search(command):
        told = start["words"] if runner.instead is None else f"{start['python']}{runner.instead}"
        options = f" {runner.options}" if runner.options else ""
        command = f"{command[: start.start('words')]}{told}{options}{command[start.end('words') :]}"
    elif runner.forward and (manager := _MANAGER.match(command)):
        handed_on = "--" if manager["name"] == "npm" else ""
        rest = command[manager.end() :].strip().removeprefix(handed_on)
        command = " ".join(filter(None, (manager[0].strip(), handed_on, runner.options, rest)))
    return command


def _prefix(command: str, kind: Kind) -> str | None:
    """The command without the paths that it names, to which others can be added; None: it cannot be said."""
    runner = RUNNERS.get(kind)
    if runner is None or runner.select is None or not _SIMPLE.fullmatch(command):
        return None
    if _MANAGER.fullmatch(command):
        # What a script names itself stays: jest does not mind, others would run more.
        return command if kind == "jest" else None
    start = runner.pattern.match(command)
    if start is None:
        return None
    kept, may_be_path = [], True
    for word in _WORD.findall(command[start.end("words") :]):
        if word == "--":
            return None
        if word.startswith("-"):
            kept.append(word)
            may_be_path = _FLAG.fullmatch(word) is not None
        elif not may_be_path or kind in _KEEP_ALL:
            kept.append(word)
            may_be_path = True
    return " ".join([command[: start.end("words")], *kept])
