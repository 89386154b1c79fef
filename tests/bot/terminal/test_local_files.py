"""The file of a patch is checked before a run costs anything."""

from pathlib import Path

import pytest

from patchwright.bot.terminal.local_files import apply_command, check_writable
from patchwright.resolver.errors import UsageError


def test_an_unwritable_patch_file_is_named_with_the_reason(tmp_path: Path) -> None:
    for out, reason in (
        (tmp_path, "Is a directory"),
        (tmp_path / "nowhere/fix.diff", "No such file or directory"),
        (Path("/proc/fix.diff"), "No such file or directory"),
    ):
        with pytest.raises(UsageError, match=f"Cannot write the patch to {out}: {reason}"):
            check_writable(out)


def test_the_check_of_a_patch_file_changes_nothing(tmp_path: Path) -> None:
    existing = tmp_path / "old.diff"
    existing.write_text("old")
    check_writable(existing)
    check_writable(tmp_path / "new.diff")
    assert (existing.read_text(), list(tmp_path.iterdir())) == ("old", [existing])


def test_the_command_that_applies_a_patch_works_in_every_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = apply_command(Path("/src/my project"), "fix.diff")
    assert command == f"git -C '/src/my project' apply {tmp_path}/fix.diff"
