"""Binary files in a patch that is printed."""

import os
from pathlib import Path

from patchwright.bot.commands.attempt_output import hide_binary_hunks, new_binary_files
from tests.resolver.git_repository import Repository


def test_new_binary_files_are_named_and_their_content_is_not_shown(tmp_path: Path) -> None:
    made = Repository(tmp_path / "made")
    made.commit({"a.txt": "GIT binary patch\n", "z.txt": "old\n"})
    (made.path / "old.bin").write_bytes(b"\0old")
    made.git("add", "old.bin")
    made.git("commit", "-qm", "binary")
    (made.path / "old.bin").write_bytes(b"\0new")
    for name in (b"b c.pyc", 'ä "é".png'.encode(), b"\xff.bin"):
        Path(os.fsdecode(bytes(made.path) + b"/" + name)).write_bytes(b"\0" + bytes(range(256)) * 9)
    made.write("a.txt", "diff --git a/x b/x\nGIT binary patch\n")
    made.write("z.txt", "new\n")
    made.git("add", "-A")
    diff = made.git("diff", "--cached", "--binary", "--full-index")
    assert new_binary_files(diff) == ["b c.pyc", 'ä "é".png', "\\xff.bin"]
    shown = hide_binary_hunks(diff)
    assert shown.count("(binary patch not shown)\n") == 4 and "\nliteral " not in shown
    assert "\n+diff --git a/x b/x\n GIT binary patch\n" in shown and "-old\n+new" in shown
    assert hide_binary_hunks(shown) == shown
