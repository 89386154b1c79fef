"""The documentation's site (zensical.toml, script/docs): its pages, its navigation, and its links."""

import re
import shutil
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

ROOT = Path(__file__).parent.parent
PROGRAM = Path(sys.executable).with_name("zensical")
DOCS = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the site needs of a checkout."""
    if not PROGRAM.exists():
        pytest.skip("zensical is not installed: it is in the extra `dev`")
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    return tmp_path


def build(checkout: Path) -> subprocess.CompletedProcess[str]:
    """Builds the site as script/docs does."""
    command = re.findall(r'^exec "\$bin/zensical" (.+)$', (ROOT / "script/docs").read_text(), re.MULTILINE)
    return subprocess.run(
        [PROGRAM, *command[0].split()], cwd=checkout, capture_output=True, text=True, check=False
    )


class Links(HTMLParser):
    """The ids of a page, and the addresses that it links to or loads."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.addresses: list[str] = []
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            elif name in ("href", "src") and value and tag != "base":
                self.addresses.append(value)


def test_every_page_and_every_link_of_the_site_exists(checkout: Path) -> None:
    built = build(checkout)
    assert built.returncode == 0, built.stdout + built.stderr
    pages = {page: Links(page) for page in (checkout / "site").rglob("index.html")}
    assert len(pages) == len(DOCS)
    dead = []
    for page, links in pages.items():
        for address in links.addresses:
            path, _, anchor = unquote(address).partition("#")
            if re.match(r"[a-z]+:", path):
                continue
            target = (page.parent / path.partition("?")[0]).resolve() if path else page
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file() or (anchor and target in pages and anchor not in pages[target].ids):
                dead.append(f"{page.relative_to(checkout)}: {address}")
    assert sum(len(links.addresses) for links in pages.values()) > 1000
    assert dead == []


def test_a_broken_link_fails_the_build(checkout: Path) -> None:
    shutil.rmtree(checkout / "docs")
    (checkout / "docs").mkdir()
    (checkout / "docs/index.md").write_text("# Index\n\n[Here](#index) [Gone](#gone)\n")
    (checkout / "zensical.toml").write_text('[project]\nsite_name = "Patchwright"\n')
    built = build(checkout)
    assert (built.returncode != 0, "1 issue found" in built.stdout + built.stderr) == (True, True)


def test_the_navigation_has_each_page_once() -> None:
    sections = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
    assert sorted(page for section in sections for pages in section.values() for page in pages) == DOCS


def test_nested_content_is_indented_by_four_as_the_generator_expects() -> None:
    shallow = re.compile(r"^ {1,3}(?:[-*]|\d+\.|```)", re.MULTILINE)
    for name in DOCS:
        text = re.sub(r"^```.*?^```", "", (ROOT / "docs" / name).read_text(), flags=re.DOTALL | re.MULTILINE)
        assert shallow.findall(text) == [], name


def test_ci_builds_the_site_and_publishes_it_from_main_only() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    assert {"run": "script/docs"} in jobs["docs"]["steps"]
    assert jobs["publish-docs"]["needs"] == "docs"
    assert jobs["publish-docs"]["if"].startswith("github.ref == 'refs/heads/main'")
