"""An image by language: which one a repository gets, and what is said where it cannot be had."""

import json
from pathlib import Path

import pytest

from resolver import prose
from resolver.circumstances import Chosen, Prepared
from resolver.domain import Verdict
from resolver.errors import SettingsError
from resolver.preparing.preparing import on_image
from resolver.secrets import Secrets
from resolver.settings.settings import RepoConfig, build, from_environment
from resolver.suites.find import find_suites, suites_in
from resolver.suites.kind import Language
from resolver.suites.suite import Suite, Suites
from resolver.summary import summarize
from resolver.viewer.viewer import view
from resolver.workspace import Workspaces
from runtime.docker.docker import DockerSandboxes
from runtime.local import LocalSandboxes
from runtime.sandbox import Sandboxes
from tests.resolver.repositories import Repository, shell
from tests.resolver.seen_runs import RUN, run_of, started
from tests.runtime.marked_images import MARK, marked_images

PYTHON = {"calc.py": "", "test_calc.py": "def test(): pass\n"}
JAVASCRIPT = {"package.json": json.dumps({"scripts": {"test": "node --test"}}), "calc.test.js": ""}
GO = {"go.mod": "module calc\n", "calc_test.go": "package calc\n"}
ABSENT = "localhost:1/no/such:image"


def language(tree: dict[str, str], config: RepoConfig | None = None) -> Language | None:
    likely = suites_in(tuple(sorted(tree)), tree, config or RepoConfig()).likely
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
def test_the_language_is_that_of_the_tests_that_are_run_while_the_agent_works(
    tree: dict[str, str], expected: str | None
) -> None:
    assert language(tree) == expected


def test_a_configured_command_says_its_language_or_else_the_files_do() -> None:
    assert language(PYTHON, RepoConfig(test_command="go test ./...")) == "go"
    hidden = RepoConfig(test_command="./ci/check")
    assert language(JAVASCRIPT, hidden) == "javascript"
    assert language({"README.md": ""}, hidden) is None
    suites = suites_in(tuple(GO), GO, hidden)
    assert suites.likely in suites.all


def test_images_are_written_as_a_table_or_as_json(tmp_path: Path) -> None:
    table = {"go": "golang:1.23", "make": "gcc:14"}
    given = from_environment({"PATCHWRIGHT_IMAGES": json.dumps(table)})
    for images in (given["images"], table):
        made = build({"data": tmp_path, "images": images}, "the test")
        assert made.images == table


@pytest.mark.parametrize("images", ['{"golang": "golang:1.23"}', '{"go": ""}', "go=golang", "[]"])
def test_an_unknown_language_or_an_empty_name_is_an_error(tmp_path: Path, images: str) -> None:
    with pytest.raises(SettingsError, match="images"):
        build({"data": tmp_path, "images": images}, "the test")


async def test_the_local_sandbox_has_no_image_and_nothing_is_said_of_one(sandboxes: LocalSandboxes) -> None:
    tests = Suite(command="go test ./...", report="go", why="", language="go")
    same, chosen = await on_image(Suites(all=(tests,), likely=tests), {"go": ABSENT}, sandboxes)
    assert same is sandboxes and chosen is None


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (None, "docker sandbox on `node:22`"),
        ("@all: no such image", "The image for javascript could not be had"),
    ],
)
def test_the_image_is_told_in_the_pull_request_and_in_the_viewer(problem: str | None, words: str) -> None:
    chosen = Chosen(language="javascript", image="node:22", problem=problem)
    run = run_of(started(), Prepared(commands=(), warm=True, seconds=0, chosen=chosen))
    assert run.started is not None
    untested = Verdict(kind="untested", reason="There are no tests.")
    body = prose.pull_body(run.started.thread, untested, summarize(run), (), ())
    assert words in body and "@all" not in body and "set-up" not in body
    assert ("node:22`" in body) == (problem is None)
    seen = view(RUN, run, lambda delegate: None, Secrets([]))
    assert "image was chosen by language" in seen and (problem or "node:22") in seen


@pytest.mark.docker
@pytest.mark.slow
async def test_each_language_gets_its_image_or_the_usual_one(
    tmp_path: Path, workspaces: Workspaces, docker_sandboxes: DockerSandboxes
) -> None:
    async def on(tree: dict[str, str], images: dict[Language, str]) -> tuple[Sandboxes, Chosen | None, str]:
        repository = Repository(tmp_path / "repositories" / "-".join(tree))
        repository.commit({"README.md": str(images), **tree})
        async with workspaces.local(repository.path) as workspace:
            suites = await find_suites(workspace, RepoConfig())
        made, chosen = await on_image(suites, images, docker_sandboxes)
        async with made.open("image-by-language") as sandbox:
            return made, chosen, await shell(sandbox, f"cat {MARK} 2>/dev/null || printf usual")

    async with marked_images("javascript", "go") as named:
        images: dict[Language, str] = {"javascript": named["javascript"], "go": named["go"]}
        python, unchosen, said = await on(PYTHON, images)
        assert (python is docker_sandboxes, unchosen, said) == (True, None, "usual")
        go, chosen, said = await on(GO, images)
        assert (chosen, said) == (Chosen(language="go", image=named["go"]), "go")
        javascript, chosen, said = await on(JAVASCRIPT, images)
        assert (chosen, said) == (Chosen(language="javascript", image=named["javascript"]), "javascript")
        # What is remembered of the tests at base is kept apart by this.
        assert len({await each.contents() for each in (python, go, javascript)}) == 3
        again, _, _ = await on(GO, images)
        assert await again.contents() == await go.contents()

    for absent in (ABSENT, "Not a name!"):
        usual, missed, said = await on(GO, {"go": absent})
        assert usual is docker_sandboxes and said == "usual"
        assert missed and missed.image == absent and absent in str(missed.problem)
