"""Checks that a request to create a container sets the limits from `runtime/docker/hardening.py`.

No function in this module has side effects. Source: docs.docker.com/reference/api/engine
"""

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from patchwright.runtime.docker.build_context import SCRATCH_DIR
from patchwright.runtime.docker.hardening import (
    LOG_CONFIG,
    MAX_OPEN_FILES,
    MAX_SHM_MB,
    SETUP_CAPABILITIES,
    container_user,
)
from patchwright.runtime.docker.reaper import OWNER_LABEL
from patchwright.runtime.docker.seccomp import build_profile

LABEL_PREFIX = "io.patchwright."
"""The prefix of every allowed label. Labels with other prefixes are rejected, because other programs on the
machine may act on them.
"""
# maximum number of processes in one container; this is the kernel's default for a whole machine
MAX_PROCESSES = 32_768
MAX_FILE_BYTES = 1 << 40  # maximum bytes of one file
# The memory of this machine. The engine runs on the same machine.
HOST_MEMORY_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

FieldCheck: TypeAlias = Callable[[Any], bool]


def check_container(body: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Checks a request to create a container. Returns the reason for a rejection, and the container description
    to send to the engine.

    If the container is allowed, the reason is "". The description then contains only checked fields, with their
    canonical names. If the container is not allowed, the reason names the fields that are not allowed, and the
    description is empty.
    """
    host = body.get("HostConfig")
    if not isinstance(host, dict):
        return "a container needs a HostConfig", {}
    found = [name for name, is_allowed in CONTAINER_FIELDS.items() if not is_allowed(body.get(name))]
    found += [
        f"HostConfig.{name}"
        for name, is_allowed in HOST_CONFIG_FIELDS.items()
        if not is_allowed(host.get(name))
    ]
    found += [name for name, value in body.items() if name not in CONTAINER_FIELDS and value]
    found += [
        f"HostConfig.{name}" for name, value in host.items() if name not in HOST_CONFIG_FIELDS and value
    ]
    if host.get("MemorySwap") != host.get("Memory"):
        found.append("HostConfig.MemorySwap")
    if found:
        fields = ", ".join(found)[:500]
        return f"a container must have the limits of a Patchwright sandbox; not allowed: {fields}", {}
    allowed = {name: host[name] for name in HOST_CONFIG_FIELDS if name in host}
    return "", {name: body[name] for name in CONTAINER_FIELDS if name in body} | {"HostConfig": allowed}


def is_own_container(labels: Mapping[str, str] | None) -> bool:
    """Returns whether a container with these labels was created by Patchwright."""
    return OWNER_LABEL in (labels or {})


def is_optional_bool(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def is_optional_string_list(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(each, str) for each in value))


def is_optional_string(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_number_up_to(maximum: int) -> FieldCheck:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and 0 < value <= maximum


def _has_own_labels(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and is_own_container(value)
        and all(name.startswith(LABEL_PREFIX) and isinstance(label, str) for name, label in value.items())
    )


def _has_security_options(value: Any) -> bool:
    return is_optional_string_list(value) and sorted(value or ()) == [
        "no-new-privileges",
        f"seccomp={build_profile()}",
    ]


def _is_scratch_tmpfs(value: Any) -> bool:
    if not value:
        return True
    options = value.get(SCRATCH_DIR) if isinstance(value, dict) and len(value) == 1 else None
    return isinstance(options, str) and bool(_SCRATCH_OPTIONS.fullmatch(options))


def _has_safe_ulimits(value: Any) -> bool:
    """Returns whether the ulimits are safe.

    Core dumps must be off, because the kernel may pipe them to a program on the host, outside the container.
    """
    maximums = {"core": 0, "nofile": MAX_OPEN_FILES, "fsize": MAX_FILE_BYTES}
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        return False
    if sorted(str(each.get("Name")) for each in value) != sorted(maximums):
        return False
    return all(
        each.keys() == {"Name", "Soft", "Hard"}
        and all(
            type(each[end]) is int and 0 <= each[end] <= maximums[each["Name"]] for end in ("Soft", "Hard")
        )
        for each in value
    )


def _is_disabled_healthcheck(value: Any) -> bool:
    """Returns whether the health check is disabled.

    Fields with the value null are ignored, because the Docker client sends null for every field that is not
    set.
    """
    return isinstance(value, dict) and {
        name: field for name, field in value.items() if field is not None
    } == {"Test": ["NONE"]}


_SCRATCH_OPTIONS = re.compile(r"rw,exec,nosuid,nodev,mode=1777,size=[0-9]{1,9}m")

CONTAINER_FIELDS: Mapping[str, FieldCheck] = {
    "HostConfig": lambda value: isinstance(value, dict),
    "Image": lambda value: isinstance(value, str),
    "User": lambda value: value in (container_user(as_root=False), container_user(as_root=True)),
    "Labels": _has_own_labels,
    "Healthcheck": lambda value: not value or _is_disabled_healthcheck(value),
    **dict.fromkeys(("Cmd", "Entrypoint", "Env"), is_optional_string_list),
    **dict.fromkeys(("WorkingDir", "Hostname"), is_optional_string),
    **dict.fromkeys(("Tty", "OpenStdin", "StdinOnce"), is_optional_bool),
    **dict.fromkeys(("AttachStdin", "AttachStdout", "AttachStderr", "NetworkDisabled"), is_optional_bool),
}
"""The allowed fields of a container description, with their checks. Any other field must be empty, and is not
sent to the engine.
"""

HOST_CONFIG_FIELDS: Mapping[str, FieldCheck] = {
    "NetworkMode": lambda value: value == "none",
    "CapDrop": lambda value: value == ["ALL"],
    "CapAdd": lambda value: is_optional_string_list(value) and set(value or ()) <= SETUP_CAPABILITIES.keys(),
    "SecurityOpt": _has_security_options,
    "Memory": _is_number_up_to(HOST_MEMORY_BYTES),
    "MemorySwap": _is_number_up_to(HOST_MEMORY_BYTES),
    "PidsLimit": _is_number_up_to(MAX_PROCESSES),
    "NanoCpus": _is_number_up_to(1 << 50),  # the engine rejects values above the machine's number of CPUs
    "ShmSize": _is_number_up_to(MAX_SHM_MB << 20),
    "Tmpfs": _is_scratch_tmpfs,
    "LogConfig": lambda value: value == {"Type": LOG_CONFIG["type"], "Config": LOG_CONFIG["config"]},
    "Init": lambda value: value is True,
    "Ulimits": _has_safe_ulimits,
}
"""The allowed fields of `HostConfig`, with their checks. Fields for mounts, devices, host namespaces or
privileges are not allowed.
"""
