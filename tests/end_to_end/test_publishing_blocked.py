"""GitHub rejects a write, and nothing is lost: another branch, a patch in the comment, or a file."""

import subprocess
from pathlib import Path

import pytest

from patchwright.demo.github.bare_repository import GIT_ENVIRONMENT
from patchwright.resolver.domain import Published, Reported
from tests.contracts.forges import file
from tests.end_to_end.publish_scenario import BRANCH, RUN, SHORT, PublishScenario


@pytest.mark.slow
async def test_an_existing_foreign_branch_is_not_overwritten(
    publish_scenario: PublishScenario,
) -> None:
    theirs = publish_scenario.repo.commit(BRANCH, {"theirs.py": "1\n"})
    outcome = await publish_scenario.publish()
    assert isinstance(outcome, Published)
    assert outcome.branch == f"{BRANCH}-{SHORT}"
    assert publish_scenario.repo.bare.branch_sha(BRANCH) == theirs


@pytest.mark.slow
async def test_a_protected_branch_name_is_replaced_by_another(publish_scenario: PublishScenario) -> None:
    publish_scenario.repo.protect(BRANCH, "Only people push here.")
    outcome = await publish_scenario.publish()
    assert isinstance(outcome, Published)
    assert publish_scenario.repo.branches == ("main", f"{BRANCH}-{SHORT}")


async def test_without_any_branch_the_comment_contains_the_whole_patch(
    publish_scenario: PublishScenario, tmp_path: Path
) -> None:
    odd = "größe `x` ```\n".encode()
    publish_scenario.repo.commit("main", {"blank.txt": "a\n\n \n\nb\n", "gone.txt": "1\n"})
    publish_scenario.repo.protect("*", "Only people push here.")
    outcome = await publish_scenario.publish(
        file("blank.txt", b"a\n\n \n\nc\n"), file("new/odd.md", odd), file("run.sh", b"1\n", "100755"),
        b"D gone.txt",
    )  # fmt: skip
    assert isinstance(outcome, Reported) and outcome.branch is None
    assert publish_scenario.repo.branches == ("main",)
    (comment,) = publish_scenario.comments
    assert comment.startswith("**No pull request:** GitHub rejected every branch that I tried to push (`")
    applied = apply_patch(publish_scenario, comment, tmp_path / "tree")
    assert (applied / "blank.txt").read_text() == "a\n\n \n\nc\n"
    assert (applied / "new/odd.md").read_bytes() == odd
    assert (applied / "run.sh").stat().st_mode & 0o100
    assert not (applied / "gone.txt").exists()


@pytest.mark.slow
async def test_a_patch_in_a_comment_preserves_arbitrary_bytes(
    publish_scenario: PublishScenario, tmp_path: Path
) -> None:
    publish_scenario.repo.commit("main", {"dos.txt": "a\r\nb\r\n"})
    publish_scenario.repo.protect("*", "No.")
    latin = "größer\n".encode("latin-1")
    await publish_scenario.publish(
        file("dos.txt", b"a\r\nc\r\n"), file("latin.txt", latin), file("logo.bin", bytes(range(256)))
    )
    (comment,) = publish_scenario.comments
    assert "\r" not in comment and "\ufffd" not in comment
    applied = apply_patch(publish_scenario, comment, tmp_path / "tree")
    assert (applied / "dos.txt").read_bytes() == b"a\r\nc\r\n"
    assert (applied / "latin.txt").read_bytes() == latin
    assert (applied / "logo.bin").read_bytes() == bytes(range(256))


def apply_patch(publish_scenario: PublishScenario, comment: str, tree: Path) -> Path:
    """Applies the comment's patch to a new clone, as a person would."""
    _, _, rest = comment.partition("diff\n")
    fence = comment[: comment.index("diff\n")].rpartition("\n")[2]
    patch, end, _ = rest.partition(f"\n{fence}\n")
    assert end and set(fence) == {"`"}

    def git(*arguments: str, stdin: str = "") -> None:
        subprocess.run(
            ["git", *arguments], input=stdin.encode(), env=GIT_ENVIRONMENT, check=True, capture_output=True
        )

    git("clone", "--quiet", str(publish_scenario.repo.bare.path), str(tree))
    git("-C", str(tree), "apply", "-", stdin=patch)
    return tree


@pytest.mark.slow
async def test_a_patch_too_large_for_a_comment_is_stored_and_the_comment_names_the_file(
    publish_scenario: PublishScenario,
) -> None:
    publish_scenario.repo.protect("*", "No.")
    await publish_scenario.publish(file("big.txt", b"".join(b"%d\n" % n for n in range(20_000))))
    (comment,) = publish_scenario.comments
    assert f"`patch.diff` in the directory of the run `{RUN}`" in comment
    patch = (publish_scenario.data / "runs" / RUN / "patch.diff").read_text()
    assert patch.startswith("diff --git a/big.txt b/big.txt") and "\n+19999\n" in patch


@pytest.mark.slow
async def test_a_workflow_change_without_permission_is_not_lost(
    publish_scenario: PublishScenario,
) -> None:
    publish_scenario.settings = {"allowed_paths": (".github/workflows/*",)}
    outcome = await publish_scenario.publish(file(".github/workflows/ci.yml", b"on: push\n"))
    assert isinstance(outcome, Reported) and outcome.branch is None
    assert publish_scenario.repo.branches == ("main",)
    (comment,) = publish_scenario.comments
    assert "without 'workflows' permission" in comment.replace("\u200b", "")
    assert "+on: push\n" in comment


async def test_a_workflow_that_may_not_open_pull_requests_is_told_which_setting_allows_it(
    publish_scenario: PublishScenario,
) -> None:
    refused = {"message": "GitHub Actions is not permitted to create or approve pull requests."}
    publish_scenario.fake_github.fail_next_request("POST", "/pulls", status=403, body=refused)
    await publish_scenario.publish()
    (comment,) = publish_scenario.comments
    repo_url = f"{publish_scenario.fake_github.server_url}/acme/calc"
    assert (
        f"or [allow it]({repo_url}/settings/actions) (*Allow GitHub Actions to create and approve pull"
        in comment
    )
    assert "the App" not in comment


async def test_if_github_rejects_the_pull_request_the_branch_is_named(
    publish_scenario: PublishScenario,
) -> None:
    publish_scenario.fake_github.fail_next_request("POST", "/pulls", status=403)
    outcome = await publish_scenario.publish()
    assert isinstance(outcome, Reported) and outcome.branch == BRANCH
    comment, repo_url = publish_scenario.comments[0], publish_scenario.fake_github.server_url + "/acme/calc"
    assert comment.startswith(
        "**No pull request:** GitHub does not let me open pull requests here.\n\n**Fixed:** 1 test that failed before "
        "passes now, and no test broke.\n\n[Open it "
        f"yourself]({repo_url}/compare/main...{BRANCH}?expand=1), or [allow it]({repo_url}/settings/installations) "
        "(the App's permission `pull_requests: write`) and comment `@agent retry`.\n"
    )
    assert "POST" not in comment and "/pulls" not in comment
    assert f"The work is on the branch `{BRANCH}`." in publish_scenario.comments[0]


@pytest.mark.slow
async def test_a_change_of_five_thousand_files_is_published_if_the_operator_allows_it(
    publish_scenario: PublishScenario,
) -> None:
    publish_scenario.settings = {"max_files": 10_000}
    outcome = await publish_scenario.publish(
        *(file(f"d{n % 50}/f{n}.txt", b"%d\n" % n) for n in range(5_000))
    )
    assert isinstance(outcome, Published)
    (pull,) = publish_scenario.pulls
    assert "fails on this many files (5000)" in pull.body
    assert publish_scenario.repo.bare.git("ls-tree", "-r", "--name-only", pull.head.sha).count(b"\n") == 5_001
