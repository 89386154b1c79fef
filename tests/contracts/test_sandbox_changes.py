"""Change detection of every sandbox: no change is ever missed."""

import os
from pathlib import Path

import pytest

from patchwright.runtime.actions import CreateFile, Execute, FingerprintTree
from patchwright.runtime.observations import TreeFingerprint
from patchwright.runtime.sandbox import Sandbox
from tests.contracts.conftest import DOCKER, EXEC
from tests.contracts.sandbox_actions import shell

READ = (
    "true",
    "git init -q; git -c user.name=a -c user.email=b commit -qm x --allow-empty",
    "cat a sub/b; ls -R; grep -r x . || true; git status; git diff",
    "echo >$SCRATCH/outside; mkdir $SCRATCH/directory; rm -r $SCRATCH/directory",
)
WRITTEN = (
    "echo x >>a",
    "printf x | dd of=sub/b conv=notrunc status=none",
    "truncate -s 1 a",
    "chmod +x a",
    "touch new",
    "rm new",
    "ln -s /nowhere link",
    "ln a hard && echo x >>hard",
    "mv sub other",
    "echo x >>other/b",
    "mkdir -p x/y/z",
    "echo x >x/y/z/file",
    "mkdir p && mv p x/y/p",
    "echo x >x/y/p/file",
    "mv x $SCRATCH/x",
    "mv $SCRATCH/x x",
    "echo x >>x/y/p/file",
    "rm -r x",
    "mkdir x && mkdir x/y && echo >x/y/z",
    "rm x/y/z",
    "mv .git moved",
    "echo >>moved/HEAD",
)
MAPPED = """
import mmap
with open("a", "r+b") as file:
    mapping = mmap.mmap(file.fileno(), 0)
mapping[0:1] = b"%"
mapping.flush()
mapping.close()
"""


async def mark(sandbox: Sandbox) -> str | None:
    result = await sandbox.act(FingerprintTree())
    assert isinstance(result, TreeFingerprint), result
    return result.fingerprint


async def test_the_fingerprint_is_stable_until_something_is_written(sandbox: Sandbox) -> None:
    await shell(sandbox, f"SCRATCH={sandbox.scratch}; mkdir sub; echo a >a; echo b >sub/b")
    await shell(sandbox, READ[1])
    first = await mark(sandbox)
    assert first is not None
    for command in READ:
        await shell(sandbox, command)
        assert await mark(sandbox) == first, command
    fingerprints = [first]
    for command in WRITTEN:
        assert (await shell(sandbox, command)).exit_code == 0, command
        now = await mark(sandbox)
        assert now is not None and now not in fingerprints, command
        assert await mark(sandbox) == now, command
        fingerprints.append(now)


async def test_writes_of_any_process_change_the_fingerprint(sandbox: Sandbox) -> None:
    await shell(sandbox, "mkdir -p sub/deep; echo a >a")
    before = await mark(sandbox)
    await sandbox.act(CreateFile(path="made", content=""))
    edited = await mark(sandbox)
    await sandbox.act(Execute(argv=("sh", "-c", "echo >sub/deep/made")))
    executed = await mark(sandbox)
    await shell(sandbox, "(sleep 0.3; echo >sub/deep/later) & sleep 0.01")
    started = await mark(sandbox)
    await shell(sandbox, "wait")
    finished = await mark(sandbox)
    assert len({before, edited, executed, finished}) == 4 and None not in (before, edited, executed, finished)
    assert started == executed


async def test_a_write_through_a_mapping_is_noticed_when_the_mapping_closes(sandbox: Sandbox) -> None:
    if (await shell(sandbox, "command -v python3")).exit_code != 0:
        pytest.skip("this sandbox's image has no python3")
    await shell(sandbox, f"SCRATCH={sandbox.scratch}; echo abc >a; cat >$SCRATCH/map.py <<'END'\n{MAPPED}END")
    before = await mark(sandbox)
    assert (await shell(sandbox, "python3 $SCRATCH/map.py; cat a")).output == "%bc\n"
    assert await mark(sandbox) != before


@pytest.mark.slow
async def test_writes_into_a_new_directory_are_not_missed(sandbox: Sandbox) -> None:
    """A process keeps creating directories with files; the last file of each round must be noticed."""
    await shell(
        sandbox, "(n=0; while [ $n -lt 400 ]; do mkdir -p d$n/e && echo >d$n/e/f; n=$((n+1)); done) &"
    )
    for _ in range(20):
        await mark(sandbox)
    await shell(sandbox, "wait")
    last = await mark(sandbox)
    assert last is not None
    for number in (0, 200, 399):
        await shell(sandbox, f"echo x >>d{number}/e/f")
        assert await mark(sandbox) != last
        last = await mark(sandbox)


async def test_an_event_overflow_counts_as_a_change(sandbox: Sandbox) -> None:
    await shell(sandbox, "mkdir sub")
    before = await mark(sandbox)
    flood = "i=0; while [ $i -lt 9000 ]; do : >a; : >b; i=$((i+1)); done; mkdir sub/new; : >sub/new/file"
    await shell(sandbox, flood, timeout=120)
    after = await mark(sandbox)
    assert after is not None and after != before
    await shell(sandbox, ": >sub/new/file")
    assert await mark(sandbox) != after


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "mkdir many && cd many && seq 4001 | xargs mkdir",
        "i=0; while [ $i -lt 60 ]; do d=$(printf 'x%.0s' $(seq 99)); mkdir $d && cd $d; i=$((i+1)); done",
    ],
    ids=["many", "deep"],
)
async def test_a_tree_that_cannot_be_watched_has_no_fingerprint(sandbox: Sandbox, command: str) -> None:
    assert await mark(sandbox) is not None
    await shell(sandbox, f"({command})")
    assert await mark(sandbox) is None
    assert await mark(sandbox) is None


@pytest.mark.parametrize("sandbox", [DOCKER, EXEC], indirect=True)  # in the others the user may be root
async def test_an_unreadable_directory_has_no_fingerprint(sandbox: Sandbox) -> None:
    await shell(sandbox, "mkdir -p closed/in; chmod 000 closed")
    assert await mark(sandbox) is None
    await shell(sandbox, "chmod 755 closed")
    opened = await mark(sandbox)
    assert opened is not None
    await shell(sandbox, "echo >closed/in/file")
    assert await mark(sandbox) not in (opened, None)


async def test_the_targets_of_links_are_not_watched(sandbox: Sandbox) -> None:
    await shell(
        sandbox,
        f"SCRATCH={sandbox.scratch}; mkdir $SCRATCH/there; ln -s $SCRATCH/there link; ln -s / everything",
    )
    before = await mark(sandbox)
    assert before is not None
    await shell(sandbox, "echo >link/file")
    assert await mark(sandbox) == before


def test_undecodable_names_are_watched(tmp_path: Path) -> None:
    """File names are bytes for the kernel."""
    import asyncio

    from patchwright.runtime.tree_watcher import TreeWatcher

    name = os.path.join(os.fsencode(tmp_path), b"\xff\n")
    os.mkdir(name)
    changes = TreeWatcher(tmp_path)
    before = asyncio.run(changes.read_state())
    Path(os.fsdecode(name), "file").write_text("")
    assert asyncio.run(changes.read_state()) not in (before, None)
    changes.close()
    changes.close()
    assert asyncio.run(changes.read_state()) is None
