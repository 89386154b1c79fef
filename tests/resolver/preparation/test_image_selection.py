"""Sandbox images by language: which one a repository gets, and what is reported if it is unavailable."""

import json
from pathlib import Path

import pytest

from patchwright.resolver.activity.summary import summarize_run
from patchwright.resolver.domain import Verdict
from patchwright.resolver.errors import SettingsError
from patchwright.resolver.git.workspaces import WorkspaceFactory
from patchwright.resolver.pipeline.run_start import select_image
from patchwright.resolver.publishing import reply_texts
from patchwright.resolver.run_events import BaseImageChoice, EnvironmentPrepared
from patchwright.resolver.runner_names import Language
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.settings.settings import RepoConfig, build_settings, parse_environment
from patchwright.resolver.suites.discovery import detect_suites, find_suites
from patchwright.resolver.suites.suite import Suite, Suites
from patchwright.resolver.viewer.run_html import render_run_html
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes
from patchwright.runtime.execution.local_sandboxes import LocalSandboxes
from patchwright.runtime.sandbox import Sandboxes
from tests.resolver.git_repository import Repository, shell
from tests.resolver.sample_runs import RUN, run_of, started
from tests.runtime.marked_images import MARK, marked_images

PYTHON = {"calc.py": "", "test_calc.py": "def test(): pass\n"}
JAVASCRIPT = {"package.json": json.dumps({"scripts": {"test": "node --test"}}), "calc.test.js": ""}
GO = {"go.mod": "module calc\n", "calc_test.go": "package calc\n"}
ABSENT = "localhost:1/no/such:image"


def language(tree: dict[str, str], config: RepoConfig | None = None) -> Language | None:
    likely = detect_suites(tuple(sorted(tree)), tree, config or RepoConfig()).primary
    return likely.language if likely else None


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (PYTHON, "python"),
        (JAVASCRIPT, "javascript"),
        (GO, "go"),
        ({"Cargo.toml": "[package]\n", "src/lib.rs": ""}, "rust"),
        ({"pom.xml": "<project/>", "src/test/java/ATest.java": ""}, "java"),
        ({"Gemfile": "gem 'rspec'\n", ".rspec": "", "spec/a_spec.rb": ""}, "ruby"),
        ({"Makefile": "test:\n\t./check.sh\n", "check.c": ""}, "make"),
        ({"Makefile": "test:\n\tpython3 -m pytest\n"}, "python"),
        ({**GO, "web/package.json": JAVASCRIPT["package.json"]}, "go"),
        ({"README.md": ""}, None),
    ],
)
def test_the_language_is_that_of_the_primary_suite(tree: dict[str, str], expected: str | None) -> None:
    assert language(tree) == expected


def test_a_configured_commands_language_comes_from_its_runner_or_files() -> None:
    assert language(PYTHON, RepoConfig(test_command="go test ./...")) == "go"
    hidden = RepoConfig(test_command="./ci/check")
    assert language(JAVASCRIPT, hidden) == "javascript"
    assert language({"README.md": ""}, hidden) is None
    suites = detect_suites(tuple(GO), GO, hidden)
    assert suites.primary in suites.all


def test_images_are_configured_as_a_table_or_json(tmp_path: Path) -> None:
    table = {"go": "golang:1.23", "make": "gcc:14"}
    given = parse_environment({"PATCHWRIGHT_LANGUAGE_IMAGES": json.dumps(table)})
    for images in (given["language_images"], table):
        made = build_settings({"data": tmp_path, "language_images": images})
        assert made.language_images == table


@pytest.mark.parametrize("images", ['{"golang": "golang:1.23"}', '{"go": ""}', "go=golang", "[]"])
def test_an_unknown_language_or_an_empty_name_is_an_error(tmp_path: Path, images: str) -> None:
    with pytest.raises(SettingsError, match="images"):
        build_settings({"data": tmp_path, "language_images": images})


async def test_the_local_sandbox_reports_no_image(sandboxes: LocalSandboxes) -> None:
    tests = Suite(command="go test ./...", runner="go", command_reason="", language="go")
    same, chosen = await select_image(Suites(all=(tests,), primary=tests), {"go": ABSENT}, sandboxes)
    assert same is sandboxes and chosen is None


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (None, "docker sandbox on `node:22`"),
        ("@all: no such image", "The image for javascript is not available"),
    ],
)
def test_the_image_is_shown_in_the_pull_request_and_the_viewer(problem: str | None, words: str) -> None:
    chosen = BaseImageChoice(language="javascript", image="node:22", problem=problem)
    run = run_of(started(), EnvironmentPrepared(commands=(), was_cached=True, seconds=0, base_image=chosen))
    assert run.run_started is not None
    untested = Verdict(kind="untested", reason="There are no tests.")
    body = reply_texts.render_pull_request_body(run.run_started.thread, untested, summarize_run(run))
    assert words in body and "@all" not in body and "setup" not in body
    assert ("node:22`" in body) == (problem is None)
    page = render_run_html(RUN, run, lambda delegate: None, Secrets([]))
    assert "image was chosen by language" in page and (problem or "node:22") in page


@pytest.mark.docker
@pytest.mark.slow
async def test_each_language_gets_its_image_or_the_default(
    tmp_path: Path, workspaces: WorkspaceFactory, docker_sandboxes: DockerSandboxes
) -> None:
    async def on(
        tree: dict[str, str], images: dict[Language, str]
    ) -> tuple[Sandboxes, BaseImageChoice | None, str]:
        repository = Repository(tmp_path / "repositories" / "-".join(tree))
        repository.commit({"README.md": str(images), **tree})
        async with workspaces.local(repository.path) as workspace:
            suites = await find_suites(workspace, RepoConfig())
        made, chosen = await select_image(suites, images, docker_sandboxes)
        async with made.open("image-by-language") as sandbox:
            return made, chosen, await shell(sandbox, f"cat {MARK} 2>/dev/null || printf usual")

    async with marked_images("javascript", "go") as named:
        images: dict[Language, str] = {"javascript": named["javascript"], "go": named["go"]}
        python, unchosen, text = await on(PYTHON, images)
        assert (python is docker_sandboxes, unchosen, text) == (True, None, "usual")
        go, chosen, text = await on(GO, images)
        assert (chosen, text) == (BaseImageChoice(language="go", image=named["go"]), "go")
        javascript, chosen, text = await on(JAVASCRIPT, images)
        assert (chosen, text) == (
            BaseImageChoice(language="javascript", image=named["javascript"]),
            "javascript",
        )
        # The baseline cache uses the digest as part of its key.
        assert len({await each.content_digest() for each in (python, go, javascript)}) == 3
        again, _, _ = await on(GO, images)
        assert await again.content_digest() == await go.content_digest()

    for absent in (ABSENT, "Not a name!"):
        usual, missed, text = await on(GO, {"go": absent})
        assert usual is docker_sandboxes and text == "usual"
        assert missed and missed.image == absent and absent in str(missed.problem)
