"""What a hostile user tries in the jail. The same table is run against the daemons alone and on real Kubernetes.

A command succeeds if, and only if, the attempt does. `refusal` is what has to be printed when it does not, so that a
misspelt command is not taken for a closed door.

The scene (`tests/security/scene.py`): alice attacks, and has sudo; bob has a home with the file `note`, a running job
with a secret in its environment, and files in /tmp and /dev/shm, on the login node and in the job. `$BOB_JOB` is the
number of that job, `$BOB_PID` a process of bob's on the node where the command runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from slurm.rights import IN_JAIL

Where = Literal["login", "job"]
EVERYWHERE: Final[tuple[Where, ...]] = ("login", "job")

_NUMBERS: Final = {
    "CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "FSETID": 4, "KILL": 5, "SETGID": 6, "SETUID": 7, "AUDIT_WRITE": 29,
    "SETFCAP": 31,
}  # fmt: skip
OF_USERS: Final = f"{sum(1 << _NUMBERS[name] for name in IN_JAIL):016x}"
"""The bounding set of every process of a user, as /proc has it."""

DENIED: Final = r"Permission denied|Operation not permitted|EPERM|EACCES"
READ_ONLY: Final = r"Read-only file system"
ABSENT: Final = r"No such file or directory"
MOUNT_REFUSED: Final = r"permission denied|must be superuser|Operation not permitted"
SLURM_DENIED: Final = (
    r"[Aa]ccess/permission denied|Invalid user id|[Aa]ccess denied|not permitted|only be run by|only permitted"
)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attack."""

    name: str
    command: str
    refusal: str
    """Pattern that the output has when it is refused."""
    where: tuple[Where, ...] = EVERYWHERE
    sudo: bool = False
    """Whether alice does it as root, by sudo."""
    in_kubernetes: bool = False
    """Whether it needs what only Kubernetes has around the pods."""


def python(*lines: str) -> str:
    """A command that runs a few lines of Python; an OSError ends it with its message."""
    return (
        "python3 - <<'END'\nimport os, socket, ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        + "\n".join(lines)
        + "\nEND"
    )


def syscall(call: str) -> str:
    """A command that makes one call of the C library and says how it ended."""
    return python(f"result = libc.{call}", "raise SystemExit(result < 0 and os.strerror(ctypes.get_errno()))")


CORE_PATTERN: Final = 'setting=$(cat /proc/sys/kernel/core_pattern); echo "$setting" > /proc/sys/kernel/core_pattern'
"""It stays as it is: where the attempt gets through, it gets through to the machine that runs the tests."""

HANDLE: Final = r"b'\x08\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0'"
"""Of the root directory of most file systems (open_by_handle_at(2))."""

CHROOT_ESCAPE: Final = python("os.makedirs('e', exist_ok=True)", "os.chroot('e')", "os.listdir('../../..')")


def table(
    *rows: tuple[str, str, str], where: tuple[Where, ...] = EVERYWHERE, sudo: bool = False, in_kubernetes: bool = False
) -> tuple[Attempt, ...]:
    """Attempts by name, command and refusal."""
    return tuple(
        Attempt(
            name=f"root: {name}" if sudo else name, command=command, refusal=refusal, where=where, sudo=sudo,
            in_kubernetes=in_kubernetes,
        )
        for name, command, refusal in rows
    )  # fmt: skip


FILES: Final = (
    *table(
        ("read the passwords", "cat /etc/shadow", DENIED),
        ("become another user in the list of users", "echo x >> /etc/passwd", DENIED),
        ("add a key for somebody else", "echo x > /etc/ssh/authorized_keys.d/bob", DENIED),
        ("add a key in somebody's home", "mkdir /home/bob/.ssh", DENIED),
        ("read somebody's file", "cat /home/bob/note", DENIED),
        ("be munged", "mv /run/munge/munge.socket.2 /run/munge/x", f"{DENIED}|{READ_ONLY}"),
        ("replace the plugin", "cp /bin/true /usr/lib/slurmstack/jail.so", DENIED),
        ("fill the machine's disk with last words", "echo x > /dev/termination-log", DENIED),
    ),
    *table(
        ("delete somebody's file in /tmp", "rm -f /tmp/of-bob", DENIED),
        ("delete somebody's shared memory", "rm -f /dev/shm/of-bob", DENIED),
        where=("login",),
    ),
    *table(
        ("write into slurmd's spool", "touch /var/spool/slurmd/x", DENIED),
        ("read somebody's job script", "cat /var/spool/slurmd/job$(printf %05d $BOB_JOB)/slurm_script", DENIED),
        where=("job",),
    ),
)  # fmt: skip
"""What root may not, nobody else may: here and below that is tried by sudo alone."""

_HELPER: Final = "$(pgrep -o -x helper)"

_NONE_OF: Final = python(
    "import glob, sys",
    "said = set()",
    "for root in ['', *glob.glob('/proc/[0-9]*/root'), *glob.glob('/proc/[0-9]*/cwd')]:",
    "    try:",
    "        ACTION",
    "        sys.exit(0)",
    "    except OSError as error:",
    "        said.add(error.strerror)",
    "sys.exit(', '.join(sorted(said)))",
)
"""Tries something with the root and the directory of each process. There is always one that may not be looked at."""

_WALK: Final = _NONE_OF.replace("ACTION", "assert os.listdir(f'{root}/PLACE') is not None")
_CONNECT: Final = _NONE_OF.replace(
    "ACTION", "socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect(f'{root}/run/slurmstack/helper/socket')"
)
_ONE_DENIED: Final = f"{ABSENT}.*(?:{DENIED})"

JOB_MOUNTS: Final = table(
    ("see somebody's file in /tmp", "ls /tmp/of-bob", ABSENT),
    ("enter somebody's job directory", "ls /tmp/jobs/$BOB_JOB", ABSENT),
    ("prepare somebody's job directory", "mkdir /tmp/jobs/99999", ABSENT),
    ("see the mounts of others", "ls /run/slurmstack/job-mounts", ABSENT),
    ("see the mounts of others from any process", _WALK.replace("PLACE", "run/slurmstack/job-mounts"), _ONE_DENIED),
    ("see all jobs' directories from any process", _WALK.replace("PLACE", "tmp/jobs"), _ONE_DENIED),
    ("look into somebody's mount", "ls /proc/$BOB_PID/root/tmp/", DENIED),
    ("ask the helper", _CONNECT, _ONE_DENIED),
    ("look where the helper is", f"ls /proc/{_HELPER}/root/", DENIED),
    ("read the helper's memory", f"head -c1 /proc/{_HELPER}/mem", DENIED),
    ("take over the helper", syscall("ptrace(16, int(os.popen('pgrep -o -x helper').read()), 0, 0)"), DENIED),
    ("take a file of the helper", syscall(
        "syscall(438, libc.syscall(434, int(os.popen('pgrep -o -x helper').read()), 0), 3, 0)"
    ), DENIED),
    ("enter the helper's mounts", f"nsenter --target {_HELPER} --mount true", DENIED),
    ("uncover the node's /tmp", "umount --lazy /tmp", MOUNT_REFUSED),
    ("look below what is mounted", syscall("syscall(428, -100, b'/', 1)"), DENIED),
    ("make /dev/shm larger", "mount -o remount,size=90% /dev/shm", MOUNT_REFUSED),
    ("have another /tmp", "mv /tmp /tmp-of-mine", f"{DENIED}|busy"),
    ("have the old root back", syscall("syscall(155, b'/', b'/')"), DENIED),
    where=("job",), sudo=True,
)  # fmt: skip
"""Each job is in a mount of its own, and the helper that makes these is for slurmd alone."""

_FORGED: Final = """SLURM_JWT=$(python3 -c 'import base64, hmac, json, time
enc = lambda data: base64.urlsafe_b64encode(data).rstrip(b"=").decode()
head = enc(b"{\\"alg\\":\\"HS256\\",\\"typ\\":\\"JWT\\"}")
body = enc(json.dumps({"exp": int(time.time()) + 600, "iat": int(time.time()), "sun": "root"}).encode())
print(f"{head}.{body}." + enc(hmac.digest(b"0" * 32, f"{head}.{body}".encode(), "sha256")))'"""

KEYS: Final = (
    *table(
        ("read munge's key", "cat /etc/munge/munge.key", f"{DENIED}|{ABSENT}"),
        ("read the pod's Secrets", "cat /secrets/*/*", ABSENT),
        ("read the pod's token", "cat /run/secrets/kubernetes.io/serviceaccount/token", ABSENT),
        ("read the host key", "cat /etc/ssh/ssh_host_ed25519_key", ABSENT),
        ("read the key of tokens", "cat /run/slurmstack/keys/jwt_hs256.key", ABSENT),
        ("ask for somebody's token", "scontrol token username=bob 2>&1", SLURM_DENIED),
        (
            "change a munge credential", "munge -n | sed -E 's/^(MUNGE:.{40}).{6}/\\1AAAAAA/' | unmunge 2>&1",
            "Invalid credential|[Ii]nvalid",
        ),
        (
            "use a munge credential twice",
            "munge -n > credential && unmunge -i credential > /dev/null && unmunge -i credential 2>&1", "[Rr]eplayed",
        ),
    ),
    *table(
        (
            "forge a token", f"{_FORGED}) timeout 8 scontrol show job $BOB_JOB 2>&1",
            "[Aa]uthentication|authenticat|credential",
        ),
        where=("login",),
    ),
)  # fmt: skip

PROCESSES: Final = (
    *table(
        ("read the environment of somebody's process", "cat /proc/$BOB_PID/environ", DENIED),
        ("read somebody's memory", "head -c1 /proc/$BOB_PID/mem", DENIED),
        ("take over somebody's process", syscall("ptrace(16, int(os.environ['BOB_PID']), 0, 0)"), DENIED),
        ("end somebody's process", "kill -9 $BOB_PID", DENIED),
        ("end the first process", "kill -9 1", DENIED),
        ("become root by su", "su -c id root < /dev/null", "Authentication failure|Password"),
        ("be root in a user namespace", "unshare --user --map-root-user id", DENIED),
        (
            "load a program into the kernel", syscall("syscall(321, 5, 0, 0)"),
            f"{DENIED}|Bad address|Invalid argument",
        ),
    ),
    *table(("end the helper", "kill -9 $(pgrep -x helper)", DENIED), where=("job",)),
)  # fmt: skip

JOBS: Final = (
    *table(
        ("end somebody's job", "scancel $BOB_JOB", SLURM_DENIED),
        ("change somebody's job", "scontrol update jobid=$BOB_JOB timelimit=1 2>&1", SLURM_DENIED),
        (
            "read somebody's job script from Slurm",
            'said=$(scontrol write batch_script $BOB_JOB - 2>&1); echo "$said"; [[ $said = *sleep* ]]', SLURM_DENIED,
        ),
        ("run in somebody's job", "srun --jobid=$BOB_JOB --overlap id 2>&1", SLURM_DENIED),
        ("submit as somebody", "sbatch --uid=bob --wrap id 2>&1", "only permitted by root|not permitted|root"),
        ("drain a node", "scontrol update nodename=default-0 state=drain reason=x 2>&1", SLURM_DENIED),
        ("reconfigure Slurm", "scontrol reconfigure 2>&1", SLURM_DENIED),
    ),
    *table(
        (
            "write outside the jail with sbcast", "sbcast --force /etc/hostname /usr/lib/slurmstack/images/x 2>&1",
            f"{DENIED}|{READ_ONLY}",
        ),
        where=("job",),
    ),
)  # fmt: skip

ROOT: Final = table(
    ("mount a file system", "mount -t tmpfs none /mnt", MOUNT_REFUSED),
    ("make the kernel's settings writable", "mount -o remount,bind,rw /proc/sys", MOUNT_REFUSED),
    ("make the configuration writable", "mount -o remount,bind,rw /run/slurm", MOUNT_REFUSED),
    ("uncover what is under a mount", "umount --lazy /etc/hostname", MOUNT_REFUSED),
    ("mount by the newer calls", syscall("syscall(430, b'tmpfs', 0)"), DENIED),
    ("say what a crash starts", CORE_PATTERN, f"{DENIED}|{READ_ONLY}"),
    ("ask the kernel for help", "echo h > /proc/sysrq-trigger", f"{DENIED}|{READ_ONLY}|{ABSENT}"),
    ("chroot out of the jail", CHROOT_ESCAPE, DENIED),
    ("look out of the jail", "ls /proc/1/root/", DENIED),
    ("enter the pod's mounts", "nsenter --target 1 --mount true", DENIED),
    ("read the pod's environment", "cat /proc/1/environ", DENIED),
    ("take over PID 1", syscall("ptrace(16, 1, 0, 0)"), DENIED),
    ("look where sshd or slurmd is", "ls /proc/$(pgrep -o -x 'sshd|slurmd')/root/", DENIED),
    ("take a file of PID 1", syscall("syscall(438, libc.syscall(434, 1, 0), 1, 0)"), DENIED),
    ("make a device", "mknod /tmp/vda b 254 0", DENIED),
    ("have a namespace for mounts", "unshare --mount true", DENIED),
    ("have a namespace for users", "unshare --user true", DENIED),
    ("open a file by its handle", syscall(f"syscall(304, -100, {HANDLE}, 0)"), DENIED),
    ("load a module", syscall("syscall(175, b'x', 1, b'')"), f"{DENIED}|not implemented"),
    ("read the kernel's log", "dmesg", f"{DENIED}|{READ_ONLY}"),
    ("listen to all packets", python("socket.socket(socket.AF_PACKET, socket.SOCK_RAW)"), DENIED),
    ("get it back from a file", "cp /bin/id i && setcap cap_sys_admin+ep i && ./i", DENIED),
    ("get it back from oneself", "setpriv --inh-caps=+sys_admin --ambient-caps=+sys_admin true", DENIED),
    ("change the configuration", "echo '# x' >> /run/slurm/conf/slurm.conf", READ_ONLY),
    ("listen where munged does", "touch /run/munge/x", READ_ONLY),
    ("redirect names", "echo 10.0.0.1 controller-0 >> /etc/hosts", READ_ONLY),
    ("run a job as root", "srun true 2>&1", "not permitted|Access|denied|disabled|Invalid"),
    sudo=True,
)  # fmt: skip

ROOT_IN_JOB: Final = table(
    (
        "have slurmd load a plugin", "echo 'required /tmp/x.so' >> /var/spool/slurmd/conf-cache/plugstack.conf",
        READ_ONLY,
    ),
    ("replace slurmd's configuration", "mv /var/spool/slurmd/conf-cache /var/spool/slurmd/x", "busy|Read-only"),
    where=("job",), sudo=True,
)  # fmt: skip

_NODE: Final = "$(ip route show default | cut -d' ' -f3)"
"""The machine, as seen from its pods on the local cluster."""
_ASK: Final = "curl --silent --show-error --insecure --fail-with-body --max-time 5"

PORTS: Final = table(
    (
        "read Secrets from the API server",
        f"{_ASK} https://kubernetes.default.svc.cluster.local/api/v1/namespaces/default/secrets", "Forbidden",
    ),
    ("ask the kubelet for pods", f"{_ASK} https://{_NODE}:10250/pods", "401"),
    ("run a command by the kubelet", f"{_ASK} -X POST https://{_NODE}:10250/run/x/controller-0/slurmctld", "401"),
    ("ask the kubelet where nobody logs in", f"{_ASK} http://{_NODE}:10255/pods", "Failed to connect"),
    ("ask containerd", f"{_ASK} http://{_NODE}:10010/", "Failed to connect|timed out"),
    ("have another configuration", f"{_ASK} -X POST http://controller-0:8817/config", "501"),
    ("enter the database without a password", python(
        "connection = socket.create_connection(('database', 3306), 5)",
        "connection.recv(4096)",
        # HandshakeResponse41: PROTOCOL_41 and SECURE_CONNECTION, user root, no password
        "login = b'\\0\\x82\\0\\0' + bytes(4) + b'!' + bytes(23) + b'root\\0\\0'",
        "connection.sendall(len(login).to_bytes(3, 'little') + b'\\x01' + login)",
        "answer = connection.recv(4096)",
        "raise SystemExit(answer[4] == 255 and answer[7:].decode(errors='replace'))",
    ), "Access denied|not allowed to connect"),
    ("be an administrator of accounting", "sacctmgr -i modify user where name=alice set adminlevel=Admin 2>&1",
     SLURM_DENIED),
    ("have an account", "sacctmgr -i add account mine 2>&1", "Only admins"),
    ("have somebody's jobs ended in accounting", "sacctmgr -i archive dump jobs purgejobafter=1hours 2>&1",
     f"{SLURM_DENIED}|[Oo]nly admins"),
    in_kubernetes=True,
)  # fmt: skip
"""On the local cluster nothing enforces network policies: each of these doors is shut by who answers there."""

_PROOF: Final = "case ,$PMIX_SECURITY_MODE, in *,native,*) exit 0;; esac; echo only $PMIX_SECURITY_MODE; exit 1"

MPI: Final = table(
    (
        "have root make a directory anywhere",
        "SLURM_PMIX_TMPDIR=/etc srun -Q --overlap --mpi=pmix bash -c 'ls -d /etc/spmix*'", ABSENT,
    ),
    (
        "take a step's directory before it starts",
        "mkdir $(printf '/var/spool/slurmd/spmix_appdir_10002_%d.0 ' {1..9})", DENIED,
    ),
    (
        "be believed by somebody's MPI server without a proof",
        f"PMIX_MCA_psec=native srun -Q --overlap --mpi=pmix bash -c '{_PROOF}'",
        "only munge(?!,)",
    ),
    where=("job",), in_kubernetes=True,
)  # fmt: skip
"""With PMIx, which the local cluster's version of Slurm has."""


ATTEMPTS: Final = (*FILES, *JOB_MOUNTS, *KEYS, *PROCESSES, *JOBS, *PORTS, *MPI, *ROOT, *ROOT_IN_JOB)
