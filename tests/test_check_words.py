"""script/check-words finds retired words, and the repository contains none."""

import importlib.machinery
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "script" / "check-words"


def load_script() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("check_words", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_words", loader))
    sys.modules["check_words"] = module
    loader.exec_module(module)
    return module


check_words = load_script()
RULES, EXEMPTIONS = check_words.read_list((ROOT / "script" / "words.txt").read_text())


def findings(path: str, text: str) -> list[str]:
    return [str(finding) for finding in check_words.find(path, text, RULES, EXEMPTIONS)]


@pytest.mark.slow  # script/check checks the same
def test_the_repository_contains_no_retired_word() -> None:
    found = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=120)
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


def test_a_planted_word_is_printed_with_its_line_and_its_replacement(tmp_path: Path) -> None:
    file = tmp_path / "planted.py"
    file.write_text("from typing import Any\n\n\nclass Glance:\n    value: Any\n")
    found = subprocess.run([sys.executable, str(SCRIPT), str(file)], capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (1, f"{file}:4: Glance: use RunSummary\n")


@pytest.mark.parametrize(
    ("path", "text", "complaint"),
    [
        ("bot/a.py", "desk = 1", "bot/a.py:1: desk: use the noun of what it is"),
        ("bot/told.py", "", "bot/told.py:1: told: use a noun for what the variable holds"),
        ("bot/a.py", "told = 1", "bot/a.py:1: told: use a noun for what the variable holds"),
        ("tests/a.py", '"""One.\n\nA stand-in."""', "tests/a.py:3: stand-in: use fake (server), test double"),
        ("tests/a.py", "def test_a_labelled_issue(): ...", "tests/a.py:1: labelled: use labeled, labeling"),
        ("templates/a.md.j2", "I mended it.", "templates/a.md.j2:1: mended: use fix"),
        ("docs/a.md", "See `Lookout`.", "docs/a.md:1: Lookout: use LeaderLease"),
        ("action.yml", "# Take the parcel", "action.yml:1: parcel: use artifact"),
    ],
)
def test_a_retired_word_is_found(path: str, text: str, complaint: str) -> None:
    assert findings(path, text) == [complaint]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("bot/a.py", 'text = "The user was told so."'),
        ("tests/a.py", "came = 1"),
        ("docs/a.md", "We condensed it: Told, Seen, and Ran are plain words here. An amendment is, too."),
        ("docs/a.md", "[Setup](self-hosting.md#set-up-in-the-browser)"),
    ],
)
def test_the_same_letters_with_another_meaning_are_accepted(path: str, text: str) -> None:
    assert findings(path, text) == []


def test_an_exemption_allows_a_word_in_the_files_that_it_names() -> None:
    rules, exemptions = check_words.read_list(
        "[words everywhere]\ncolour -> color\n[allowed]\ntests/css/* colour: quotes a style sheet\n"
    )
    assert list(check_words.find("tests/css/a.py", "# colour", rules, exemptions)) == []
    assert len(list(check_words.find("tests/a.py", "# colour", rules, exemptions))) == 1


@pytest.mark.parametrize("line", ["colour -> color", "[words]", "[allowed]\ntests/* colour"])
def test_a_list_with_a_wrong_line_is_rejected(line: str) -> None:
    with pytest.raises(SystemExit, match="is invalid"):
        check_words.read_list(line)


def test_every_exemption_is_still_needed() -> None:
    paths = check_words.tracked_files()
    for exemption in EXEMPTIONS:
        used = [
            path
            for path in paths
            if check_words.fnmatch(path, exemption.path)
            for finding in check_words.find(path, (ROOT / path).read_text(errors="replace"), RULES, [])
            if exemption.word.fullmatch(finding.word)
        ]
        assert used, exemption
