"""Which calls of the kernel a container may make that has Kubernetes' profile `RuntimeDefault`: containerd's list.

The names are those of containerd 1.7 (contrib/seccomp/seccomp_default.go, Apache License 2.0) for amd64.
"""

from __future__ import annotations

import errno
from collections.abc import Collection
from typing import Any

_ALWAYS = """
accept accept4 access adjtimex alarm bind brk cachestat capget capset chdir chmod chown chown32 clock_adjtime
clock_adjtime64 clock_getres clock_getres_time64 clock_gettime clock_gettime64 clock_nanosleep clock_nanosleep_time64
close close_range connect copy_file_range creat dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_ctl_old
epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2 execve execveat exit exit_group faccessat
faccessat2 fadvise64 fadvise64_64 fallocate fanotify_mark fchdir fchmod fchmodat fchmodat2 fchown fchown32 fchownat
fcntl fcntl64 fdatasync fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat fstat64 fstatat64 fstatfs
fstatfs64 fsync ftruncate ftruncate64 futex futex_requeue futex_time64 futex_wait futex_waitv futex_wake futimesat
getcpu getcwd getdents getdents64 getegid getegid32 geteuid geteuid32 getgid getgid32 getgroups getgroups32 getitimer
getpeername getpgid getpgrp getpid getppid getpriority getrandom getresgid getresgid32 getresuid getresuid32 getrlimit
get_robust_list getrusage getsid getsockname getsockopt get_thread_area gettid gettimeofday getuid getuid32 getxattr
inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel ioctl io_destroy io_getevents io_pgetevents
io_pgetevents_time64 ioprio_get ioprio_set io_setup io_submit io_uring_enter io_uring_register io_uring_setup ipc kill
landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lchown32 lgetxattr link linkat listen
listxattr llistxattr _llseek lremovexattr lseek lsetxattr lstat lstat64 madvise membarrier memfd_create memfd_secret
mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall map_shadow_stack mmap mmap2 mprotect mq_getsetattr mq_notify
mq_open mq_timedreceive mq_timedreceive_time64 mq_timedsend mq_timedsend_time64 mq_unlink mremap msgctl msgget msgrcv
msgsnd msync munlock munlockall munmap name_to_handle_at nanosleep newfstatat _newselect open openat openat2 pause
pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll ppoll_time64 prctl pread64
preadv preadv2 prlimit64 process_mrelease pselect6 pselect6_time64 pwrite64 pwritev pwritev2 read readahead readlink
readlinkat readv recv recvfrom recvmmsg recvmmsg_time64 recvmsg remap_file_pages removexattr rename renameat renameat2
restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend
rt_sigtimedwait rt_sigtimedwait_time64 rt_tgsigqueueinfo sched_getaffinity sched_getattr sched_getparam
sched_get_priority_max sched_get_priority_min sched_getscheduler sched_rr_get_interval sched_rr_get_interval_time64
sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp select semctl semget semop
semtimedop semtimedop_time64 send sendfile sendfile64 sendmmsg sendmsg sendto setfsgid setfsgid32 setfsuid setfsuid32
setgid setgid32 setgroups setgroups32 setitimer setpgid setpriority setregid setregid32 setresgid setresgid32
setresuid setresuid32 setreuid setreuid32 setrlimit set_robust_list setsid setsockopt set_thread_area set_tid_address
setuid setuid32 setxattr shmat shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4 sigprocmask sigreturn
socketcall socketpair splice stat stat64 statfs statfs64 statx symlink symlinkat sync sync_file_range syncfs sysinfo
tee tgkill time timer_create timer_delete timer_getoverrun timer_gettime timer_gettime64 timer_settime timer_settime64
timerfd_create timerfd_gettime timerfd_gettime64 timerfd_settime timerfd_settime64 times tkill truncate truncate64
ugetrlimit umask uname unlink unlinkat utime utimensat utimensat_time64 utimes vfork vmsplice wait4 waitid waitpid
write writev
process_vm_readv process_vm_writev ptrace arch_prctl modify_ldt
"""

_WITH: dict[str, str] = {
    "DAC_READ_SEARCH": "open_by_handle_at",
    "SYS_ADMIN": "bpf clone clone3 fanotify_init fsconfig fsmount fsopen fspick lookup_dcookie mount mount_setattr "
    "move_mount open_tree perf_event_open quotactl quotactl_fd setdomainname sethostname setns syslog umount umount2 "
    "unshare",
    "SYS_BOOT": "reboot",
    "SYS_CHROOT": "chroot",
    "SYS_MODULE": "delete_module init_module finit_module",
    "SYS_PACCT": "acct",
    "SYS_PTRACE": "kcmp pidfd_getfd process_madvise",
    "SYS_RAWIO": "iopl ioperm",
    "SYS_TIME": "settimeofday stime clock_settime clock_settime64",
    "SYS_TTY_CONFIG": "vhangup",
    "SYS_NICE": "get_mempolicy mbind set_mempolicy set_mempolicy_home_node",
    "SYSLOG": "syslog",
    "BPF": "bpf",
    "PERFMON": "perf_event_open",
}
"""Capability -> what it adds."""

_NEW_NAMESPACES = 0x7E020000
"""CLONE_NEW* of every kind but those of time: clone(2) is for processes and threads only without CAP_SYS_ADMIN."""

_AF_ALG, _AF_VSOCK = 38, 40
_PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)


def default_profile(capabilities: Collection[str]) -> dict[str, Any]:
    """The profile of a container with these capabilities, as `linux.seccomp` of its configuration."""
    calls = [_allow(_ALWAYS)]
    # One condition each: several on one argument would be alternatives.
    calls += [
        _allow("socket", 0, _AF_ALG, "SCMP_CMP_LT"),
        _allow("socket", 0, _AF_ALG + 1, "SCMP_CMP_EQ"),
        _allow("socket", 0, _AF_VSOCK, "SCMP_CMP_GT"),
    ]
    calls += [_allow("personality", 0, value, "SCMP_CMP_EQ") for value in _PERSONALITIES]
    calls += [_allow(names) for capability, names in _WITH.items() if capability in capabilities]
    if "SYS_ADMIN" not in capabilities:
        calls.append(_allow("clone", 0, _NEW_NAMESPACES, "SCMP_CMP_MASKED_EQ"))
        calls.append({"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS})
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
        "syscalls": calls,
    }


def _allow(names: str, index: int = 0, value: int = 0, operator: str = "") -> dict[str, Any]:
    argument = {"index": index, "value": value, "valueTwo": 0, "op": operator}
    return {"names": names.split(), "action": "SCMP_ACT_ALLOW", "args": [argument] if operator else []}
