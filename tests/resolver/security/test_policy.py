"""What may leave the sandbox: every patch here is one that git itself made or accepted, or refused."""

import os

import pytest

from resolver.domain import Patch
from resolver.errors import WorkspaceError
from resolver.security.policy import USUAL, Bounds, Contents, Permitted, check, permitted
from resolver.workspace import Workspaces
from tests.resolver.repositories import Repository

ZERO, ONE = "0" * 40, "1" * 40


@pytest.fixture
def judged(repository: Repository, workspaces: Workspaces):
    """What policy says of a patch, given as bytes or made of the repository's work tree as it is."""
    base = repository.commit({"a.py": "x = 1\n", "tests/test_a.py": "", "docs/page.md": "", "old.yml": ""})

    async def judge(diff: bytes | None = None) -> Contents:
        if diff is None:
            repository.git("add", "--all", "--force")
            diff = raw_diff(repository)
        async with workspaces.local(repository.path) as workspace:
            return await check(workspace, Patch(base=base, diff=diff))

    return judge


def raw_diff(repository: Repository) -> bytes:
    arguments = ("diff", "--cached", "--binary", "--full-index", "--no-renames", "--output=../patch")
    repository.git(*arguments)
    return (repository.path.parent / "patch").read_bytes()


def new_file(path: str, mode: str = "100644", content: str = "x") -> bytes:
    """A patch as an attacker writes it by hand."""
    return (
        f"diff --git a/{path} b/{path}\nnew file mode {mode}\nindex {ZERO}..{ONE}\n"
        f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{content}\n\\ No newline at end of file\n"
    ).encode()


async def test_an_ordinary_change_may_be_proposed(judged, repository: Repository) -> None:
    repository.write("a.py", "x = 2\n")
    repository.write("tests/test_b.py", "def test_b(): pass\n")
    assert await judged() == Contents(files=("a.py", "tests/test_b.py"))


async def test_bytes_that_are_no_text_may_be_proposed(judged, repository: Repository) -> None:
    repository.write("logo.png", bytes(range(256)))
    repository.write("dos.txt", b"one\r\ntwo\r\n")
    (repository.path / os.fsdecode(b"caf\xe9.txt")).write_bytes(b"\xe9\n")
    assert await judged() == Contents(files=("caf\\xe9.txt", "dos.txt", "logo.png"))


@pytest.mark.parametrize("path", ["../out", "/etc/cron.d/x", "a/../../out", ".git/config", "a/.git/hooks/x"])
async def test_a_path_out_of_the_tree_does_not_even_apply(judged, path: str) -> None:
    with pytest.raises(WorkspaceError, match="The change does not apply"):
        await judged(new_file(path))


@pytest.mark.parametrize("link", ["/etc/passwd", "../../etc/passwd", "..", ".git/config", "docs/../../x"])
async def test_a_link_out_of_the_tree_is_refused(judged, link: str) -> None:
    assert (await judged(new_file("l", "120000", link))).refused == (
        f"l is a symbolic link that points out of the repository, to {link}.",
    )


async def test_a_link_within_the_tree_is_shown(judged) -> None:
    contents = await judged(new_file("docs/l", "120000", "../a.py"))
    assert (contents.refused, contents.notes) == ((), ("docs/l is a symbolic link to ../a.py.",))


async def test_a_submodule_is_refused(judged) -> None:
    gitlink = new_file("vendored", "160000", f"Subproject commit {ONE}").replace(
        b"\\ No newline at end of file\n", b""
    )
    assert (await judged(gitlink)).refused == (
        "vendored is a submodule: it takes in code that this pull request would not show.",
    )


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (".gitmodules", "it decides where git fetches other code from"),
        ("sub/.lfsconfig", "it decides where git fetches other code from"),
        (".github/workflows/ci.yml", "it runs in CI"),
        (".GitHub/Workflows/ci.yml", "it runs in CI"),
        (".github/actions/setup/run.sh", "it runs in CI"),
        ("action.yml", "it runs in CI"),
        (".gitlab-ci.yml", "it runs in CI"),
        (".circleci/config.yml", "it runs in CI"),
        ("ci/Jenkinsfile", "it runs in CI"),
        (".husky/pre-commit", "it runs on a commit"),
        (".pre-commit-config.yaml", "it runs on a commit"),
        (".github/patchwright.toml", "it tells bots what they may do"),
        (".github/dependabot.yml", "it tells bots what they may do"),
        ("docs/CODEOWNERS", "it tells bots what they may do"),
    ],
)
async def test_what_runs_with_other_rights_is_left_to_maintainers(judged, path: str, why: str) -> None:
    assert (await judged(new_file(path))).refused == (f"{path} is left to maintainers: {why}.",)


async def test_a_workflow_is_not_deleted_either(repository: Repository, workspaces: Workspaces) -> None:
    base = repository.commit({".github/workflows/ci.yml": "on: push\n"})
    repository.git("rm", "--quiet", ".github/workflows/ci.yml")
    async with workspaces.local(repository.path) as workspace:
        contents = await check(workspace, Patch(base=base, diff=raw_diff(repository)))
    assert contents.refused == (".github/workflows/ci.yml is left to maintainers: it runs in CI.",)


@pytest.mark.parametrize("letter", ["\u202e", "\u3164", "\ufe01"], ids=ascii)
async def test_a_name_that_reads_otherwise_than_it_is_is_refused(
    judged, repository: Repository, letter: str
) -> None:
    repository.write(f"safe{letter}yp.exe", "")
    assert (await judged()).refused == (
        f"The name of safe\\u{ord(letter):04x}yp.exe holds characters that cannot be seen.",
    )


@pytest.mark.slow
async def test_five_thousand_files_are_too_many(judged, repository: Repository) -> None:
    for number in range(5000):
        repository.write(f"many/{number}.txt", f"{number}\n")
    contents = await judged()
    assert contents.refused == ("It touches 5000 files; 100 are the limit.",)


@pytest.mark.parametrize("content", [os.urandom(6_000_000), bytes(50_000_000)], ids=["random", "zeros"])
async def test_too_many_bytes_are_refused_however_well_they_pack(judged, repository, content: bytes) -> None:
    repository.write("big.bin", content)
    (sentence,) = (await judged()).refused
    assert sentence.startswith("It adds ") and sentence.endswith(" MB; 4 MB are the limit.")


async def test_a_patch_that_inflates_to_gigabytes_ends_at_a_limit(judged, repository: Repository) -> None:
    repository.write("big.bin", bytes(60_000_000))
    repository.git("add", "--all")
    bomb = raw_diff(repository).replace(b"literal 60000000", b"literal 9000000000")
    with pytest.raises(WorkspaceError, match=r"The change does not apply.*Out of memory"):
        await judged(bomb)


async def test_what_a_reviewer_should_look_at_is_named(judged, repository: Repository) -> None:
    repository.write("conftest.py", "")
    repository.write("requirements-dev.txt", "pytest\n")
    repository.write("poetry.lock", "")
    repository.write("run.sh", "")
    (repository.path / "run.sh").chmod(0o755)
    (repository.path / "tests/test_a.py").unlink()
    assert (await judged()).notes == (
        "conftest.py can change how the tests run.",
        "poetry.lock says what is installed or built.",
        "requirements-dev.txt says what is installed or built.",
        "run.sh became executable.",
        "tests/test_a.py was deleted; it held tests.",
    )


async def test_a_long_list_of_objections_is_cut_and_says_so(judged, repository: Repository) -> None:
    for number in range(14):
        repository.write(f".github/workflows/{number:02}.yml", "")
    refused = (await judged()).refused
    assert len(refused) == 11 and refused[-1] == "There are 4 more like these."


# --- what may go, without what may not ----------------------------------------------------------------------


@pytest.fixture
def allowed(repository: Repository, workspaces: Workspaces):
    """What may go of the work tree as it is, and the names of what is in it."""
    base = repository.commit({"a.py": "x = 1\n", ".github/workflows/ci.yml": "on: push\n", "run/me": "old\n"})

    async def part(bounds: Bounds = USUAL) -> tuple[Permitted, tuple[str, ...]]:
        repository.git("add", "--all", "--force")
        patch = Patch(base=base, diff=raw_diff(repository))
        async with workspaces.local(repository.path) as workspace:
            kept = await permitted(workspace, patch, bounds)
            return kept, tuple(change.path for change in await workspace.changes(kept.patch))

    return part


WORKFLOW = ".github/workflows/ci.yml is left to maintainers: it runs in CI."


async def test_what_may_go_goes_and_what_may_not_is_left_out_with_the_reason(
    allowed, repository: Repository
) -> None:
    repository.write("a.py", "x = 2\n")
    repository.write(".github/workflows/ci.yml", "on: [push, pull_request]\n")
    repository.write("logo.png", bytes(range(256)))
    (repository.path / os.fsdecode(b"caf\xe9.txt")).write_bytes(b"\xe9\r\n")
    (repository.path / "etc").symlink_to("/etc/passwd")
    kept, files = await allowed()
    assert files == ("a.py", "caf\\xe9.txt", "logo.png")
    assert kept.left_out == (
        WORKFLOW,
        "etc is a symbolic link that points out of the repository, to /etc/passwd.",
    )


async def test_a_patch_without_objections_is_not_touched(allowed, repository: Repository) -> None:
    repository.write("a.py", "x = 2\n")
    repository.git("add", "--all")
    kept, _ = await allowed()
    assert (kept.patch.diff, kept.left_out) == (raw_diff(repository), ())


async def test_a_deleted_or_moved_workflow_stays_where_it_was(allowed, repository: Repository) -> None:
    repository.git("mv", ".github/workflows/ci.yml", "ci.yml")
    kept, files = await allowed()
    assert (files, kept.left_out) == (("ci.yml",), (WORKFLOW,))


async def test_a_file_in_the_place_of_the_workflows_goes_with_them(allowed, repository: Repository) -> None:
    repository.git("rm", "-r", "--quiet", ".github")
    repository.write(".github", "a file\n")
    kept, files = await allowed()
    assert (files, kept.left_out) == ((), (WORKFLOW,))


async def test_nothing_goes_of_a_patch_that_is_about_forbidden_paths_alone(
    allowed, repository: Repository
) -> None:
    repository.write(".github/workflows/ci.yml", "on: []\n")
    kept, files = await allowed()
    assert (kept.patch.empty, files, kept.left_out) == (True, (), (WORKFLOW,))


async def test_nothing_goes_of_a_patch_that_is_too_much(allowed, repository: Repository) -> None:
    for number in range(4):
        repository.write(f"{number}.py", "")
    assert (await allowed(Bounds(files=4)))[0].left_out == ()
    kept, _ = await allowed(Bounds(files=3))
    assert (kept.patch.empty, kept.left_out) == (True, ("It touches 4 files; 3 are the limit.",))


async def test_what_is_left_out_does_not_count_as_much(allowed, repository: Repository) -> None:
    repository.write(".github/workflows/big.yml", os.urandom(6_000_000).hex())
    repository.write("a.py", "x = 2\n")
    kept, files = await allowed()
    assert files == ("a.py",)
    assert kept.left_out == (".github/workflows/big.yml is left to maintainers: it runs in CI.",)


async def test_the_operator_may_allow_a_path_and_more_of_everything(allowed, repository: Repository) -> None:
    repository.write(".github/workflows/ci.yml", "on: []\n")
    repository.write("big.bin", os.urandom(6_000_000))
    kept, files = await allowed(Bounds(megabytes=20, allowed=(".github/Workflows/*",)))
    assert (files, kept.left_out) == ((".github/workflows/ci.yml", "big.bin"), ())


async def test_no_switch_allows_a_link_out_of_the_tree(allowed, repository: Repository) -> None:
    (repository.path / "etc").symlink_to("/etc")
    kept, files = await allowed(Bounds(allowed=("*",)))
    assert (files, len(kept.left_out)) == ((), 1)
