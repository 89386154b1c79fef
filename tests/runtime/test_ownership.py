import os
import subprocess

from patchwright.runtime import ownership


def test_a_live_process_is_a_live_owner() -> None:
    assert not ownership.is_dead(ownership.current_owner())


def test_an_ended_process_is_a_dead_owner() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    parts = ownership.current_owner().split(".")
    assert ownership.is_dead(".".join([*parts[:3], str(process.pid), parts[4]]))


def test_a_reused_pid_is_another_process() -> None:
    *rest, start = ownership.current_owner().split(".")
    assert ownership.is_dead(".".join([*rest, str(int(start) - 1)]))


def test_after_a_reboot_every_owner_is_dead() -> None:
    machine, _, *rest = ownership.current_owner().split(".")
    assert ownership.is_dead(".".join([machine, "00000000", *rest]))


def test_unknown_resources_are_not_reported() -> None:
    machine, boot, _, _, start = ownership.current_owner().split(".")
    assert not ownership.is_dead(f"{machine}.{boot}.1.{os.getpid()}.{int(start) - 1}")  # another namespace
    assert not ownership.is_dead("another.machine.1.2.3")
    assert not ownership.is_dead("nonsense")
