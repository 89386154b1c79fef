"""What makes a container one that is confined as `runtime/docker/confinement.py` confines it. Pure.

Source: docs.docker.com/reference/api/engine
"""

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from runtime.docker.confinement import LOG, OPEN_FILES, SETUP, SHARED_MB, user
from runtime.docker.image import SCRATCH
from runtime.docker.reaper import OWNER
from runtime.docker.seccomp import profile

OUR_LABELS = "io.patchwright."
"""Begins every label that a container may be given: other programs on the machine may obey theirs."""
MOST_PROCESSES = 32_768  # of one container; the kernel's own limit for a whole machine, unless raised
MOST_BYTES = 1 << 40  # of one file
# Bytes of memory; the engine's machine is this one.
MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

Held: TypeAlias = Callable[[Any], bool]


def described(asked: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """What of a container to be made is looser than a sandbox ("" is nothing), and what is sent of it.

    That has only the names that were looked at, in the one spelling that they have here.
    """
    host = asked.get("HostConfig")
    if not isinstance(host, dict):
        return "a container without limits", {}
    found = [name for name, held in CONTAINER.items() if not held(asked.get(name))]
    found += [f"HostConfig.{name}" for name, held in HOST.items() if not held(host.get(name))]
    found += [name for name, value in asked.items() if name not in CONTAINER and value]
    found += [f"HostConfig.{name}" for name, value in host.items() if name not in HOST and value]
    if host.get("MemorySwap") != host.get("Memory"):
        found.append("HostConfig.MemorySwap")
    if found:
        loose = ", ".join(found)[:500]
        return f"a container is confined as a sandbox of this version of Patchwright: not so {loose}", {}
    kept = {name: host[name] for name in HOST if name in host}
    return "", {name: asked[name] for name in CONTAINER if name in asked} | {"HostConfig": kept}


def is_ours(labels: Mapping[str, str] | None) -> bool:
    """Whether a container with these labels is one of ours."""
    return OWNER in (labels or {})


def is_switch(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def is_words(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(each, str) for each in value))


def is_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _number(most: int) -> Held:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and 0 < value <= most


def _labels(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and is_ours(value)
        and all(name.startswith(OUR_LABELS) and isinstance(said, str) for name, said in value.items())
    )


def _calls(value: Any) -> bool:
    return is_words(value) and sorted(value or ()) == ["no-new-privileges", f"seccomp={profile()}"]


def _scratch(value: Any) -> bool:
    if not value:
        return True
    options = value.get(SCRATCH) if isinstance(value, dict) and len(value) == 1 else None
    return isinstance(options, str) and bool(_SCRATCH_OPTIONS.fullmatch(options))


def _ulimits(value: Any) -> bool:
    """A core dump leaves the container where the kernel pipes it to a program of the machine's."""
    most = {"core": 0, "nofile": OPEN_FILES, "fsize": MOST_BYTES}
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        return False
    if sorted(str(each.get("Name")) for each in value) != sorted(most):
        return False
    return all(
        each.keys() == {"Name", "Soft", "Hard"}
        and all(type(each[end]) is int and 0 <= each[end] <= most[each["Name"]] for end in ("Soft", "Hard"))
        for each in value
    )


def _health(value: Any) -> bool:
    """None: its client says null of all that it leaves out."""
    return isinstance(value, dict) and {name: said for name, said in value.items() if said is not None} == {
        "Test": ["NONE"]
    }


_SCRATCH_OPTIONS = re.compile(r"rw,exec,nosuid,nodev,mode=1777,size=[0-9]{1,9}m")

CONTAINER: Mapping[str, Held] = {
    "HostConfig": lambda value: isinstance(value, dict),
    "Image": lambda value: isinstance(value, str),
    "User": lambda value: value in (user(root=False), user(root=True)),
    "Labels": _labels,
    "Healthcheck": lambda value: not value or _health(value),
    **dict.fromkeys(("Cmd", "Entrypoint", "Env"), is_words),
    **dict.fromkeys(("WorkingDir", "Hostname"), is_text),
    **dict.fromkeys(("Tty", "OpenStdin", "StdinOnce"), is_switch),
    **dict.fromkeys(("AttachStdin", "AttachStdout", "AttachStderr", "NetworkDisabled"), is_switch),
}
"""What may stand in the description of a container, and how. All else is empty, and is not sent."""

HOST: Mapping[str, Held] = {
    "NetworkMode": lambda value: value == "none",
    "CapDrop": lambda value: value == ["ALL"],
    "CapAdd": lambda value: is_words(value) and set(value or ()) <= SETUP.keys(),
    "SecurityOpt": _calls,
    "Memory": _number(MACHINE),
    "MemorySwap": _number(MACHINE),
    "PidsLimit": _number(MOST_PROCESSES),
    "NanoCpus": _number(1 << 50),  # the engine knows how many it has, and allows no more
    "ShmSize": _number(SHARED_MB << 20),
    "Tmpfs": _scratch,
    "LogConfig": lambda value: value == {"Type": LOG["type"], "Config": LOG["config"]},
    "Init": lambda value: value is True,
    "Ulimits": _ulimits,
}
"""The same for its host configuration: no mount, no device, no namespace of the host's, no privilege."""
