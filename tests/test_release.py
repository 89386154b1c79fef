"""A release: its version, its notes, the lines of the docs that name it, and the workflow that publishes it."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from patchwright.runtime import VERSION

ROOT = Path(__file__).parents[1]
WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
TEXT = """\
uses: OWNER/patchwright@COMMIT
gh attestation verify FILE --repo somebody/patchwright
gh api repos/somebody/patchwright/commits/v0.0.1 --jq .sha
git clone https://github.com/somebody/patchwright.git
image = "https://raw.githubusercontent.com/somebody/patchwright/main/docs/demo.png"
site_url = "https://somebody.github.io/patchwright/"
docker pull ghcr.io/somebody/patchwright:0.0.1
pip install 'patchwright[mcp]==0.0.1' patchwright==0.0.1
patchwright resolve https://github.com/OWNER/REPO/issues/7
"""


def release(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [checkout / "script/release", *arguments], capture_output=True, text=True, check=False
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of version 1.2.3 in the repository acme/patchwright."""
    for name in ("script", "runtime", "docs"):
        (tmp_path / name).mkdir()
    shutil.copy(ROOT / "script/release", tmp_path / "script")
    (tmp_path / "runtime/__init__.py").write_text('VERSION = "1.2.3"\n')
    (tmp_path / "pyproject.toml").write_text(
        '[project.urls]\nRepository = "https://github.com/acme/patchwright"\n'
    )
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [1.2.3]\n\n- New.\n\n## [1.2.2]\n\n- Old.\n")
    (tmp_path / "docs/page.md").write_text(TEXT)
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    subprocess.run(["git", "-C", tmp_path, "add", "."], check=True)
    return tmp_path


def test_every_line_that_names_a_release_names_this_version_and_repository() -> None:
    checked = release(ROOT, "check")
    assert (checked.returncode, checked.stdout) == (0, ""), checked.stdout
    action = (ROOT / ".github/examples/label.yml").read_text()
    assert f"uses: patchwright/patchwright@v{VERSION}" in action


def test_the_version_and_the_repository_are_filled_into_every_line(checkout: Path) -> None:
    outdated = "docs/page.md: another version or repository: run script/release fill\n"
    assert (release(checkout, "check").returncode, release(checkout, "check").stdout) == (1, outdated)
    assert release(checkout, "fill").stdout == "docs/page.md\n"
    assert (release(checkout, "check").returncode, release(checkout, "check").stdout) == (0, "")
    assert (checkout / "docs/page.md").read_text() == (
        "uses: acme/patchwright@v1.2.3\n"
        "gh attestation verify FILE --repo acme/patchwright\n"
        "gh api repos/acme/patchwright/commits/v1.2.3 --jq .sha\n"
        "git clone https://github.com/acme/patchwright.git\n"
        'image = "https://raw.githubusercontent.com/acme/patchwright/main/docs/demo.png"\n'
        'site_url = "https://acme.github.io/patchwright/"\n'
        "docker pull ghcr.io/acme/patchwright:1.2.3\n"
        "pip install 'patchwright[mcp]==1.2.3' patchwright==1.2.3\n"
        "patchwright resolve https://github.com/OWNER/REPO/issues/7\n"
    )


def test_the_notes_of_a_release_are_its_section_of_the_changelog(checkout: Path) -> None:
    assert release(checkout, "notes", "v1.2.3").stdout == "- New.\n"
    assert release(ROOT, "notes", f"v{VERSION}").returncode == 0


def test_a_tag_that_is_not_the_version_is_not_released(checkout: Path) -> None:
    other = release(checkout, "notes", "v1.2.2")
    assert (other.returncode, other.stdout) == (1, "")
    assert other.stderr == "The tag is v1.2.2, but the version in runtime/__init__.py is 1.2.3.\n"
    (checkout / "CHANGELOG.md").write_text("## [Unreleased]\n\n- New.\n")
    assert release(checkout, "notes", "v1.2.3").stderr == "CHANGELOG.md has no section [1.2.3].\n"


def test_the_version_is_written_down_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"] and "version" not in project["project"]
    assert (ROOT / project["tool"]["hatch"]["version"]["path"]).samefile(ROOT / "runtime/__init__.py")


def test_a_release_is_published_only_after_every_test_and_without_a_stored_token() -> None:
    jobs = WORKFLOW["jobs"]
    assert WORKFLOW[True] == {"push": {"tags": ["v*"]}}  # YAML 1.1 reads the key `on` as true
    assert jobs["test"]["uses"] == "./.github/workflows/ci.yml"
    assert {*jobs["pypi"]["needs"]} == {*jobs["image"]["needs"]} == {"test", "build"}
    assert {*jobs["github"]["needs"]} == {"pypi", "image"}
    assert (
        jobs["pypi"]["permissions"] == {"id-token": "write"} and jobs["pypi"]["environment"]["name"] == "pypi"
    )
    assert WORKFLOW["permissions"] == {}
    assert not re.search(r"\bsecrets\b", (ROOT / ".github/workflows/release.yml").read_text())

    # GitHub rejects a workflow that grants less than a called job requests, even if that job is skipped.
    called = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    for job in (called, *called["jobs"].values()):
        assert job.get("permissions", {}).items() <= jobs["test"]["permissions"].items()
    for job in ("build", "image"):
        actions = [step.get("uses", "").partition("@")[0] for step in jobs[job]["steps"]]
        assert "actions/attest-build-provenance" in actions
    commands = [step["run"] for step in jobs["build"]["steps"] if "run" in step]
    assert commands.index('script/release notes "$GITHUB_REF_NAME" > notes.md') < len(commands) - 1
