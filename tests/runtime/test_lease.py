import os
import subprocess

from runtime import lease


def test_a_living_process_holds_its_lease() -> None:
    assert not lease.is_dead(lease.owner())


def test_a_process_that_ended_has_lost_it() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    parts = lease.owner().split(".")
    assert lease.is_dead(".".join([*parts[:3], str(process.pid), parts[4]]))


def test_a_pid_that_was_used_again_is_another_process() -> None:
    *rest, start = lease.owner().split(".")
    assert lease.is_dead(".".join([*rest, str(int(start) - 1)]))


def test_after_a_reboot_every_owner_is_dead() -> None:
    machine, _, *rest = lease.owner().split(".")
    assert lease.is_dead(".".join([machine, "00000000", *rest]))


def test_nothing_is_said_about_what_cannot_be_seen_from_here() -> None:
    machine, boot, _, _, start = lease.owner().split(".")
    assert not lease.is_dead(f"{machine}.{boot}.1.{os.getpid()}.{int(start) - 1}")  # another namespace
    assert not lease.is_dead("another.machine.1.2.3")
    assert not lease.is_dead("nonsense")
