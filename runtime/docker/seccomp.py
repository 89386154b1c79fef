"""The system calls that a sandbox may make. All others are denied.

Because this is an allowlist, the calls of new kernels are denied until a maintainer adds them. The list
is the engine's default list without calls that are useful to attackers and not needed by agents. It does not
contain keyrings, bpf, perf, userfaultfd, io_uring, ptrace, and calls that read the memory of other processes.

The only permitted socket families are Unix, IPv4, IPv6 and netlink, so AF_ALG and AF_VSOCK are denied. 32-bit
calls are denied, because one of them, `socketcall`, would hide the family of a socket.

Source: man7.org/linux/man-pages/man2/syscalls.2.html; docs.docker.com/engine/security/seccomp
"""

import errno
import json
from functools import cache
from pathlib import Path
from typing import Any

_LINES = Path(__file__).with_name("allowed_calls.txt").read_text().splitlines()
ALLOWED_CALLS = frozenset(" ".join(line for line in _LINES if not line.startswith("#")).split())
"""Calls that are allowed with all arguments."""

ALLOWED_ADDRESS_FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}
"""Socket families that a program may open. getaddrinfo uses netlink to list this machine's addresses."""

# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. Source: linux/sched.h
_NEW_NAMESPACES = 0x7E02_0000
# The permitted arguments of personality(2) are Linux and 32-bit Linux, each also with UNAME26, and the value
# that only reads the current personality. Source: sys/personality.h
_PERSONALITIES = (0, 0x0008, 0x0002_0000, 0x0002_0008, 0xFFFF_FFFF)


@cache
def build_profile() -> str:
    """Return the profile as JSON for the engine."""
    rules: list[dict[str, Any]] = [
        {"names": sorted(ALLOWED_CALLS), "action": "SCMP_ACT_ALLOW"},
        *(_allow_only("socket", family) for family in ALLOWED_ADDRESS_FAMILIES.values()),
        _allow_only("socketpair", ALLOWED_ADDRESS_FAMILIES["AF_UNIX"]),
        *(_allow_only("personality", persona) for persona in _PERSONALITIES),
        {
            "names": ["clone"],
            "action": "SCMP_ACT_ALLOW",
            "args": [{"index": 0, "value": _NEW_NAMESPACES, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}],
        },
        # No filter can check the flags of `clone3`, because they are in memory. ENOSYS makes the C library
        # use `clone` instead.
        {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS},
    ]
    return json.dumps(
        {"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": errno.EPERM, "syscalls": rules},
        separators=(",", ":"),
    )


def _allow_only(call: str, value: int) -> dict[str, Any]:
    return {
        "names": [call],
        "action": "SCMP_ACT_ALLOW",
        "args": [{"index": 0, "value": value, "valueTwo": 0, "op": "SCMP_CMP_EQ"}],
    }
