"""What the documentation names is there: pages, headings, commands with their options, and settings."""

import contextlib
import io
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from patchwright.bot.cli.main import build_parser
from patchwright.resolver.settings.settings import (
    CLIENT_VARIABLES,
    RepoConfig,
    Settings,
    environment_variable,
)
from patchwright.runtime.docker import capacity
from patchwright.runtime.egress_policy import DEFAULT_HOSTS

ROOT = Path(__file__).parent.parent
ON_GITHUB = (
    tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"] + "/blob/main/"
)
"""How pages link to files that are not part of the site (zensical.toml)."""
ELSEWHERE = {"PATCHWRIGHT_LISTEN", "PATCHWRIGHT_REPORT"}
"""Variables that are no settings: Compose's own, and the one that a test command is given."""


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--", *patterns],
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


PAGES = [
    page
    for page in tracked("*.md")
    if page.relative_to(ROOT).parts[0] in ("docs", ".github", "benchmarks", page.name)
]


def prose(text: str) -> str:
    """A page without its code."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE))


def anchors(text: str) -> set[str]:
    """What GitHub makes of a page's headings, so that links lead to them."""
    found: dict[str, int] = {}
    for heading in re.findall(
        r"^#{1,6} +(.+?) *#*$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE
    ):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
    return {
        slug if not number else f"{slug}-{number}"
        for slug, last in found.items()
        for number in range(last + 1)
    }


def dead_links(page: Path, text: str) -> Iterator[str]:
    """The links of a page that lead nowhere in this repository."""
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(text)):
        if re.match(r"[a-z]+:", link) and not link.startswith(ON_GITHUB):
            continue
        path, _, anchor = unquote(link.removeprefix(ON_GITHUB)).partition("#")
        directory = ROOT if link.startswith(ON_GITHUB) else page.parent
        target = (directory / path).resolve() if path else page
        if not target.exists() or (
            anchor and target.suffix == ".md" and anchor not in anchors(target.read_text() if path else text)
        ):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_has_a_target(page: Path) -> None:
    assert list(dead_links(page, page.read_text())) == []


def test_a_broken_link_is_detected() -> None:
    page = ROOT / "docs" / "dashboard.md"
    text = "# One `two` (three)\n[a](#one-two-three) [b](#one) [c](nothing.md) [d](proof.md#proof) [e](https://x.org/#y)"
    text += f"[f]({ON_GITHUB}LICENSE) [g]({ON_GITHUB}proof.md)"
    assert list(dead_links(page, text)) == ["#one", "nothing.md", "proof.md#proof", f"{ON_GITHUB}proof.md"]


def commands(text: str) -> Iterator[list[str]]:
    """The words of each command in a page's blocks of shell."""
    for block in re.findall(r"^ *```sh\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r"&&|\|\||;| \| ", line.partition(" #")[0]):
                words = shlex.split(
                    re.sub(r"\d?>+ *\S+", "", part), comments=True
                )  # wherever it is written to
                while words and re.match(r"[A-Z_]+=", words[0]):
                    words = words[1:]
                if words and words[0] != "export":
                    yield words


def unknown(words: list[str]) -> str | None:
    """Returns the problem of a command, or None."""
    program = words[0].rpartition("/")[2]
    if words[0].startswith("script/") and not (ROOT / words[0]).is_file():
        return f"{words[0]} does not exist"
    if program != "patchwright":
        return None
    stderr = io.StringIO()
    try:
        with contextlib.redirect_stderr(stderr), contextlib.redirect_stdout(stderr):
            build_parser().parse_args(words[1:])
    except SystemExit as exc:
        return stderr.getvalue() if exc.code else None
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_shown_command_is_valid(page: Path) -> None:
    assert [problems for words in commands(page.read_text()) if (problems := unknown(words))] == []


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("patchwright serve --port 8000  # here", None),
        ("A=1 .venv/bin/patchwright serv", "There is no command serv. Did you mean serve?"),
        ("cd x && patchwright view RUN --opened", "There is no option --opened. Did you mean --open?"),
        ("patchwright runs --json > runs.json 2>/dev/null", None),
        ("script/demos", "script/demos does not exist"),
        ("script/demo", None),
    ],
)
def test_an_unknown_command_is_detected(typed: str, expected: str | None) -> None:
    wrong = [problems for words in commands(f"```sh\n{typed}\n```\n") if (problems := unknown(words))]
    assert (expected is None and wrong == []) or (expected is not None and expected in wrong[0])


def missing_files(text: str) -> list[str]:
    """Returns the paths of our own files that a page names in backticks and that do not exist."""
    text = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    named = re.findall(
        r"`((?:bot|resolver|runtime|demo|templates|tests|benchmarks|script|packaging|docs)/[\w./-]*)(?:::\w+)?`",
        text,
    )
    return [path for path in named if not (ROOT / path).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_named_file_exists(page: Path) -> None:
    assert missing_files(page.read_text()) == []


def test_a_missing_file_is_detected() -> None:
    text = "`bot/cli/main.py` `bot/desk.py` `tests/test_docs.py::test_x` `runtime/` `tests/gone.py::test_x` `src/a.py`"
    assert missing_files(text) == ["bot/desk.py", "tests/gone.py"]


SETTINGS = {environment_variable(key) for key in Settings.model_fields} | CLIENT_VARIABLES
NAMING = [
    *PAGES,
    *tracked("action.yml", ".github", "compose*.yaml", "*.env.example", "packaging", "Dockerfile"),
]


@pytest.mark.parametrize("file", NAMING, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_named_variable_is_a_setting(file: Path) -> None:
    named = set(re.findall(r"PATCHWRIGHT_[A-Z_]*[A-Z]", file.read_text()))
    assert named - SETTINGS - ELSEWHERE == set()


def test_every_key_of_an_example_is_a_setting() -> None:
    known = Settings.model_fields.keys() | RepoConfig.model_fields.keys() | {"command", "directory", "runner"}
    for page in PAGES:
        for block in re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
            keys, table = [], ""
            for line in block.splitlines():
                if head := re.match(r"\[+([\w.-]+)", line):
                    table = head[1].partition(".")[0]
                    keys.append(table)
                elif key := re.match(r"(\w+) *=", line):
                    keys += [] if table and table != "tests" else [key[1]]
            if '"acme/shop"' not in block and "[project." not in block:
                assert [key for key in keys if key not in known] == [], page


def test_the_recommended_machine_has_room_for_the_default_number_of_jobs() -> None:
    page, fields = (ROOT / "docs/self-hosting.md").read_text(), Settings.model_fields
    (memory,) = map(int, re.findall(r"2 cores and (\d+) GB of memory", page))
    assert (
        f"You need Linux, 2 cores, and {memory} GB of memory for two runs" in (ROOT / "README.md").read_text()
    )
    (jobs,) = map(int, re.findall(r"(\d+) runs at a time \(`max_concurrent_jobs`\)", page))
    most = {key: int(size) for size, key in re.findall(r"(\d+) GB at most \(`(\w+)`\)", page)}
    data = {"max_concurrent_jobs": jobs, **{key: size << 10 for key, size in most.items()}}
    assert data == {key: fields[key].default for key in ("max_concurrent_jobs", "memory_mb", "disk_mb")}
    server = 512  # MiB of its processes: "less than half a GB"
    assert memory << 10 >= jobs * data["memory_mb"] + capacity.MIN_FREE_MEMORY_MB + server


def test_the_readme_says_that_only_frames_of_videos_are_read_and_no_desktop_is_controlled() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "| read pictures, single video frames, documents, and " in readme
    (limits,) = (row for row in readme.splitlines() if "control desktop applications" in row)
    assert "control desktop applications" in limits.split("|")[2], "in the column of what it cannot do"


def test_the_documented_default_hosts_are_the_allowed_ones() -> None:
    page = (ROOT / "docs/self-hosting.md").read_text()
    section = page.partition("These hosts are allowed by default:\n\n")[2].partition("\n\n")[0]
    lists = [line.partition(": ")[2].split(", ") for line in section.splitlines()]
    assert sorted(host for hosts in lists for host in hosts) == sorted(DEFAULT_HOSTS)
