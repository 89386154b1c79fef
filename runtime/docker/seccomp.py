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
from typing import Any

_FILES = """
access chdir chmod chown chroot close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2
fadvise64 fadvise64_64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr
flistxattr flock fremovexattr fsetxattr fstat fstatfs fsync ftruncate futimesat getcwd getdents getdents64
getxattr inotify_add_watch inotify_init inotify_init1 inotify_rm_watch ioctl lchown lgetxattr link linkat
listxattr llistxattr lremovexattr lseek lsetxattr lstat memfd_create mkdir mkdirat mknod mknodat newfstatat
open openat openat2 pread64 preadv preadv2 pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv
removexattr rename renameat renameat2 rmdir sendfile setxattr splice stat statfs statx symlink symlinkat sync
sync_file_range syncfs tee truncate umask unlink unlinkat utime utimensat utimes vmsplice write writev
"""
_MEMORY = """
brk cachestat get_mempolicy madvise map_shadow_stack membarrier mincore mlock mlock2 mlockall
mmap mprotect mremap mseal msync munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect process_madvise
process_mrelease remap_file_pages set_mempolicy set_mempolicy_home_node
"""
_PROCESSES = """
alarm arch_prctl capget capset execve execveat exit exit_group fork futex futex_requeue futex_wait futex_waitv
futex_wake get_robust_list get_thread_area getcpu getegid geteuid getgid getgroups getitimer getpgid getpgrp
getpid getppid getpriority getresgid getresuid getrlimit getrusage getsid gettid getuid ioprio_get ioprio_set
kill landlock_add_rule landlock_create_ruleset landlock_restrict_self nanosleep pause pidfd_open
pidfd_send_signal prctl prlimit64 restart_syscall rseq rt_sigaction rt_sigpending rt_sigprocmask
rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max
sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval
sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp set_robust_list
set_thread_area set_tid_address setfsgid setfsuid setgid setgroups setitimer setpgid setpriority setregid
setresgid setresuid setreuid setrlimit setsid setuid sigaltstack sysinfo tgkill times tkill uname vfork wait4
waitid
"""
_WAITING = """
epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd
eventfd2 io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit pipe pipe2 poll ppoll pselect6
select signalfd signalfd4
"""
_CLOCKS = """
clock_getres clock_gettime clock_nanosleep getrandom gettimeofday time timer_create timer_delete
timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime
"""
_SOCKETS = """
accept accept4 bind connect getpeername getsockname getsockopt listen mq_getsetattr mq_notify mq_open
mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd recvfrom recvmmsg recvmsg semctl semget
semop semtimedop sendmmsg sendmsg sendto setsockopt shmat shmctl shmdt shmget shutdown
"""
ALLOWED_CALLS = frozenset(" ".join((_FILES, _MEMORY, _PROCESSES, _WAITING, _CLOCKS, _SOCKETS)).split())
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
