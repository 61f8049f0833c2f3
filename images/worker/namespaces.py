"""Namespaces for the tasks of a step that asks for them (`srun --user-namespace`), so that containers run in jobs.

The kernel makes no user namespace for a process in a chroot, which a step is in: its job's mount. So the tasks get a
mount namespace in which that is the root file system and nothing else is mounted, and a user namespace that is their
user's own and owns that one. They enter both by themselves, as the user, which takes no right at all
(images/spank/jail.c): nobody gets any that he did not have.

Both are made by a process that is the user's in the end, as who makes a user namespace owns it. Whoever has that
number could stop it or end it. So it is a process of its own, in which nothing of the pod is left to be reached by
then, and who waits for it is one, too: the helper goes on at once.

pivot_root(2) would be the way to leave the pod's file systems. containerd's list of system calls for containers lacks
it, also for those with CAP_SYS_ADMIN. What is done here comes to the same: the pod's root goes, and the mount takes its
place on the kernel's own first one, which is empty.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

from images.common.files import Owner
from images.common.mountinfo import copy_tree, expect_done, libc, put_tree
from images.worker.job_mounts import close_all_but

NEW_MOUNTS: Final = 0x00020000
NEW_USER: Final = 0x10000000

PATIENCE: Final = 5.0
"""Seconds for the process that is the user's. It takes a few thousandths of one."""

FILES: Final = ("user", "mnt")
"""Of /proc/PID/ns, in the order in which they are handed on."""

RIGHTS: Final = ("SYS_CHROOT", "SETUID", "SETGID", "KILL")
"""What this takes of capabilities besides the helper's others."""

_MS_REC_PRIVATE: Final = 0x4000 | 1 << 18
_MNT_DETACH: Final = 2
_PR_SET_DUMPABLE: Final = 4
_PR_SET_NAME: Final = 15


def leave_for(job_mount: Path) -> None:
    """Go into a mount namespace of this process alone, with a copy of the job's tree and nothing else."""
    expect_done(libc().unshare(NEW_MOUNTS), "make a mount namespace")
    expect_done(libc().mount(None, b"/", None, _MS_REC_PRIVATE, None), "keep mounts apart")
    here = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    tree = copy_tree(job_mount, recursive=True)
    expect_done(libc().umount2(b"/", _MNT_DETACH), "leave the pod's root")
    enter(here)
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    put_tree(tree, root, job_mount)
    os.close(root)
    os.close(tree)
    enter(here)
    os.close(here)


def enter(namespace: int) -> None:
    """Whoever enters one gets the uppermost of what is mounted at its root for his own, and is in no chroot."""
    expect_done(libc().setns(namespace, NEW_MOUNTS), "enter the mount namespace")


def become(owner: Owner) -> None:
    """Be the user, for good."""
    os.setgroups([])
    uid, gid = owner
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    # The kernel has seen to it already; a setting (fs.suid_dumpable) says how.
    expect_done(libc().prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0), "keep others from looking in")


def own_namespaces() -> None:
    """Go into namespaces of the user's own."""
    expect_done(libc().unshare(NEW_USER | NEW_MOUNTS), "make a user namespace")


def make(job_mount: Path, owner: Owner) -> tuple[int, ...]:
    """Descriptors for new namespaces, as FILES says. Raises OSError.

    For a process that waits, and ends afterwards: not for the helper itself.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        child = os.fork()
        if child == 0:
            _make_as_user(theirs, job_mount, owner)
        theirs.close()
        try:
            ours.settimeout(PATIENCE)
            files = _received(ours)
            _write_maps(child, owner)
            return files
        except TimeoutError:
            raise OSError(f"the process that makes them did not do so within {PATIENCE:g} s") from None
        finally:
            # It is there until it has been waited for, so that the number is nobody else's.
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _received(ours: socket.socket) -> tuple[int, ...]:
    text, files, _, _ = socket.recv_fds(ours, 1024, len(FILES))
    if len(files) == len(FILES):
        return tuple(files)
    raise OSError(text.decode(errors="replace") or "the process that makes them was ended")


def _write_maps(child: int, owner: Owner) -> None:
    """Who has which number in the namespace: the user his own and his first group, and nobody else any.

    The other groups are his all the same, and have no name in there. Nobody can leave one (`setgroups`): files may be
    for everybody but a group.
    """
    process = Path(f"/proc/{child}")
    (process / "setgroups").write_text("deny")
    for number, name in zip(reversed(owner), ("gid_map", "uid_map"), strict=True):
        (process / name).write_text(f"{number} {number} 1\n")


def _make_as_user(theirs: socket.socket, job_mount: Path, owner: Owner) -> NoReturn:
    """The process that becomes the user's. Nothing of the helper's may be open in it by then."""
    try:
        close_all_but(theirs.fileno(), first=0)
        try:
            leave_for(job_mount)
            become(owner)
            own_namespaces()
            files = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in FILES]
        except OSError as error:
            theirs.send(str(error.strerror or error).encode())
        else:
            socket.send_fds(theirs, [b"made"], files)
            theirs.recv(1)  # until the other end is closed: the maps are written by this process's number
    finally:
        os._exit(0)


def answer_later(connection: int, job_mount: Path, owner: Owner, log: Callable[[str], None]) -> None:
    """Make namespaces and send them to who asked, in a process of its own. Returns at once.

    That is nobody's child in the end: the container's first process waits for it.
    """
    first = os.fork()
    if first:
        os.waitpid(first, 0)
        return
    try:
        if os.fork() == 0:
            close_all_but(connection)  # those of others would not be seen to end
            libc().prctl(_PR_SET_NAME, b"namespaces")
            _answer(connection, job_mount, owner, log)
    finally:
        os._exit(0)


def _answer(connection: int, job_mount: Path, owner: Owner, log: Callable[[str], None]) -> None:
    with socket.socket(fileno=connection) as asked:
        try:
            files = make(job_mount, owner)
        except OSError as error:
            message = str(error.strerror or error)
            log(f"no namespaces for user {owner[0]}: {message}")
            asked.send(message.encode(), socket.MSG_DONTWAIT)
        else:
            socket.send_fds(asked, [b"ok"], files, socket.MSG_DONTWAIT)
