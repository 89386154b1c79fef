"""GitHub refuses, and nothing is lost: another branch, a patch in the comment, a file in the run's directory."""

import subprocess
from pathlib import Path

from patchwright.demo.github.bare_repository import GIT_ENVIRONMENT
from patchwright.resolver.domain import Published, Reported
from tests.contracts.forges import file
from tests.end_to_end.publish_scenario import BRANCH, RUN, SHORT, Depot


async def test_work_on_a_branch_that_is_somebody_elses_goes_to_one_of_its_own(depot: Depot) -> None:
    theirs = depot.repo.commit(BRANCH, {"theirs.py": "1\n"})
    outcome = await depot.deliver()
    assert isinstance(outcome, Published)
    assert outcome.branch == f"{BRANCH}-{SHORT}"
    assert depot.repo.bare.branch_sha(BRANCH) == theirs


async def test_a_protected_name_sends_the_work_to_another_branch(depot: Depot) -> None:
    depot.repo.protect(BRANCH, "Only people push here.")
    outcome = await depot.deliver()
    assert isinstance(outcome, Published)
    assert depot.repo.branches == ("main", f"{BRANCH}-{SHORT}")


async def test_where_no_branch_is_to_be_had_the_whole_patch_is_in_the_comment(
    depot: Depot, tmp_path: Path
) -> None:
    odd = "größe `x` ```\n".encode()
    depot.repo.commit("main", {"blank.txt": "a\n\n \n\nb\n", "gone.txt": "1\n"})
    depot.repo.protect("*", "Only people push here.")
    outcome = await depot.deliver(
        file("blank.txt", b"a\n\n \n\nc\n"), file("new/odd.md", odd), file("run.sh", b"1\n", "100755"),
        b"D gone.txt",
    )  # fmt: skip
    assert isinstance(outcome, Reported) and outcome.branch is None
    assert depot.repo.branches == ("main",)
    (comment,) = depot.comments
    assert comment.startswith(
        "I did not open a pull request: GitHub rejected every branch that I tried to push (`"
    )
    applied = apply(depot, comment, tmp_path / "tree")
    assert (applied / "blank.txt").read_text() == "a\n\n \n\nc\n"
    assert (applied / "new/odd.md").read_bytes() == odd
    assert (applied / "run.sh").stat().st_mode & 0o100
    assert not (applied / "gone.txt").exists()


async def test_a_patch_in_a_comment_carries_bytes_that_no_comment_could(depot: Depot, tmp_path: Path) -> None:
    depot.repo.commit("main", {"dos.txt": "a\r\nb\r\n"})
    depot.repo.protect("*", "No.")
    latin = "größer\n".encode("latin-1")
    await depot.deliver(
        file("dos.txt", b"a\r\nc\r\n"), file("latin.txt", latin), file("logo.bin", bytes(range(256)))
    )
    (comment,) = depot.comments
    assert "\r" not in comment and "\ufffd" not in comment
    applied = apply(depot, comment, tmp_path / "tree")
    assert (applied / "dos.txt").read_bytes() == b"a\r\nc\r\n"
    assert (applied / "latin.txt").read_bytes() == latin
    assert (applied / "logo.bin").read_bytes() == bytes(range(256))


def apply(depot: Depot, comment: str, tree: Path) -> Path:
    """A fresh clone with the comment's patch, as a person would apply it."""
    _, _, rest = comment.partition("diff\n")
    fence = comment[: comment.index("diff\n")].rpartition("\n")[2]
    patch, end, _ = rest.partition(f"\n{fence}\n")
    assert end and set(fence) == {"`"}

    def git(*arguments: str, stdin: str = "") -> None:
        subprocess.run(
            ["git", *arguments], input=stdin.encode(), env=GIT_ENVIRONMENT, check=True, capture_output=True
        )

    git("clone", "--quiet", str(depot.repo.bare.path), str(tree))
    git("-C", str(tree), "apply", "-", stdin=patch)
    return tree


async def test_a_patch_too_large_for_a_comment_is_kept_and_the_comment_says_where(depot: Depot) -> None:
    depot.repo.protect("*", "No.")
    await depot.deliver(file("big.txt", b"".join(b"%d\n" % n for n in range(20_000))))
    (comment,) = depot.comments
    assert f"`patch.diff` in the directory of the run `{RUN}`" in comment
    patch = (depot.data / "runs" / RUN / "patch.diff").read_text()
    assert patch.startswith("diff --git a/big.txt b/big.txt") and "\n+19999\n" in patch


async def test_a_workflow_that_the_app_may_not_change_is_never_lost(depot: Depot) -> None:
    depot.settings = {"allowed_paths": (".github/workflows/*",)}
    outcome = await depot.deliver(file(".github/workflows/ci.yml", b"on: push\n"))
    assert isinstance(outcome, Reported) and outcome.branch is None
    assert depot.repo.branches == ("main",)
    (comment,) = depot.comments
    assert "without 'workflows' permission" in comment.replace("\u200b", "")
    assert "+on: push\n" in comment


async def test_where_github_takes_no_pull_request_the_branch_is_named(depot: Depot) -> None:
    depot.world.fail_next_request("POST", "/pulls", status=403)
    outcome = await depot.deliver()
    assert isinstance(outcome, Reported) and outcome.branch == BRANCH
    assert depot.comments[0].startswith("I did not open a pull request: GitHub rejected the pull request")
    assert f"The work is on the branch `{BRANCH}`." in depot.comments[0]


async def test_a_change_of_five_thousand_files_is_delivered_where_the_operator_allows_it(
    depot: Depot,
) -> None:
    depot.settings = {"max_files": 10_000}
    outcome = await depot.deliver(*(file(f"d{n % 50}/f{n}.txt", b"%d\n" % n) for n in range(5_000)))
    assert isinstance(outcome, Published)
    (pull,) = depot.pulls
    assert "fails on this many files (5000)" in pull.body
    assert depot.repo.bare.git("ls-tree", "-r", "--name-only", pull.head.sha).count(b"\n") == 5_001
