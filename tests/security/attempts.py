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

FILES: Final = (
    Attempt(name="read the passwords", command="cat /etc/shadow", refusal=DENIED),
    Attempt(name="become another user in the list of users", command="echo x >> /etc/passwd", refusal=DENIED),
    Attempt(name="add a key for somebody else", command="echo x > /etc/ssh/authorized_keys.d/bob", refusal=DENIED),
    Attempt(name="add a key in somebody's home", command="mkdir /home/bob/.ssh", refusal=DENIED),
    Attempt(name="read somebody's file", command="cat /home/bob/note", refusal=DENIED),
    Attempt(name="delete somebody's file in /tmp", command="rm -f /tmp/of-bob", refusal=DENIED, where=("login",)),
    Attempt(name="delete somebody's shared memory", command="rm -f /dev/shm/of-bob", refusal=DENIED, where=("login",)),
    Attempt(
        name="replace the configuration", command="mv /run/slurm/conf /run/slurm/x", refusal=f"{DENIED}|{READ_ONLY}"
    ),
    Attempt(name="add a configuration", command="touch /run/slurm/x", refusal=f"{DENIED}|{READ_ONLY}"),
    Attempt(
        name="change the configuration", command="echo x >> /run/slurm/conf/slurm.conf", refusal=f"{DENIED}|{READ_ONLY}"
    ),
    Attempt(name="be munged", command="mv /run/munge/munge.socket.2 /run/munge/x", refusal=f"{DENIED}|{READ_ONLY}"),
    Attempt(name="replace the plugin", command="cp /bin/true /usr/lib/slurmstack/jail.so", refusal=DENIED),
    Attempt(name="redirect names", command="echo 10.0.0.1 controller-0 >> /etc/hosts", refusal=f"{DENIED}|{READ_ONLY}"),
    Attempt(name="fill the machine's disk with last words", command="echo x > /dev/termination-log", refusal=DENIED),
    Attempt(name="write into slurmd's spool", command="touch /var/spool/slurmd/x", refusal=DENIED, where=("job",)),
    Attempt(
        name="read somebody's job script",
        command="cat /var/spool/slurmd/job$(printf %05d $BOB_JOB)/slurm_script",
        refusal=DENIED,
        where=("job",),
    ),
)

_WARDEN: Final = "$(pgrep -o -x warden)"

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
    "ACTION", "socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect(f'{root}/run/slurmstack/warden/socket')"
)
_ONE_DENIED: Final = f"{ABSENT}.*(?:{DENIED})"

CELLS: Final = tuple(
    Attempt(name=f"root: {name}", command=command, refusal=refusal, sudo=True, where=("job",))
    for name, command, refusal in (
        ("see somebody's file in /tmp", "ls /tmp/of-bob", ABSENT),
        ("see somebody's shared memory", "ls /dev/shm/of-bob", ABSENT),
        ("enter somebody's job directory", "ls /tmp/jobs/$BOB_JOB", ABSENT),
        ("prepare somebody's job directory", "mkdir /tmp/jobs/99999", ABSENT),
        ("see the cells of others", "ls /run/slurmstack/cells", ABSENT),
        ("see the cells of others from any process", _WALK.replace("PLACE", "run/slurmstack/cells"), _ONE_DENIED),
        ("see all jobs' directories from any process", _WALK.replace("PLACE", "tmp/jobs"), _ONE_DENIED),
        ("look into somebody's cell", "ls /proc/$BOB_PID/root/tmp/", DENIED),
        ("ask the warden", _CONNECT, _ONE_DENIED),
        ("look where the warden is", f"ls /proc/{_WARDEN}/root/", DENIED),
        ("go where the warden is", f"cd /proc/{_WARDEN}/cwd", DENIED),
        ("see what the warden holds", f"stat --dereference /proc/{_WARDEN}/fd/0", DENIED),
        ("read the warden's memory", f"head -c1 /proc/{_WARDEN}/mem", DENIED),
        ("take over the warden", syscall("ptrace(16, int(os.popen('pgrep -o -x warden').read()), 0, 0)"), DENIED),
        ("take a file of the warden", syscall(
            "syscall(438, libc.syscall(434, int(os.popen('pgrep -o -x warden').read()), 0), 3, 0)"
        ), DENIED),
        ("enter the warden's mounts", f"nsenter --target {_WARDEN} --mount true", DENIED),
        ("uncover the node's /tmp", "umount --lazy /tmp", MOUNT_REFUSED),
        ("uncover the node's shared memory", "umount --lazy /dev/shm", MOUNT_REFUSED),
        ("look below what is mounted", syscall("syscall(428, -100, b'/', 1)"), DENIED),
        ("make /dev/shm larger", "mount -o remount,size=90% /dev/shm", MOUNT_REFUSED),
        ("have another /tmp", "mv /tmp /tmp-of-mine", f"{DENIED}|busy"),
        ("have the old root back", syscall("syscall(155, b'/', b'/')"), DENIED),
    )
)  # fmt: skip
"""Each job is in a cell of its own, and the warden that makes these is for slurmd alone.

What root may not, nobody else may: here and below it is tried by sudo alone.
"""

KEYS: Final = (
    Attempt(name="read munge's key", command="cat /etc/munge/munge.key", refusal=f"{DENIED}|{ABSENT}"),
    Attempt(name="read the pod's Secrets", command="cat /secrets/*/*", refusal=ABSENT),
    Attempt(name="read the pod's token", command="cat /run/secrets/kubernetes.io/serviceaccount/token", refusal=ABSENT),
    Attempt(name="read the host key", command="cat /etc/ssh/ssh_host_ed25519_key", refusal=ABSENT),
    Attempt(name="read the key of tokens", command="cat /run/slurmstack/keys/jwt_hs256.key", refusal=ABSENT),
    Attempt(name="ask for somebody's token", command="scontrol token username=bob 2>&1", refusal=SLURM_DENIED),
    Attempt(
        name="forge a token",
        command="SLURM_JWT=$(python3 -c 'import base64, hmac, json, time\n"
        'enc = lambda data: base64.urlsafe_b64encode(data).rstrip(b"=").decode()\n'
        'head = enc(b"{\\"alg\\":\\"HS256\\",\\"typ\\":\\"JWT\\"}")\n'
        'body = enc(json.dumps({"exp": int(time.time()) + 600, "iat": int(time.time()), "sun": "root"}).encode())\n'
        'print(f"{head}.{body}." + enc(hmac.digest(b"0" * 32, f"{head}.{body}".encode(), "sha256")))'
        "') timeout 8 scontrol show job $BOB_JOB 2>&1",
        refusal="[Aa]uthentication|authenticat|credential",
        where=("login",),
    ),
    Attempt(
        name="change a munge credential",
        refusal="Invalid credential|[Ii]nvalid",
        command="munge -n | sed -E 's/^(MUNGE:.{40}).{6}/\\1AAAAAA/' | unmunge 2>&1",
    ),
    Attempt(
        name="use a munge credential twice",
        refusal="[Rr]eplayed",
        command="munge -n > credential && unmunge -i credential > /dev/null && unmunge -i credential 2>&1",
    ),
)

PROCESSES: Final = (
    Attempt(name="read the environment of somebody's process", command="cat /proc/$BOB_PID/environ", refusal=DENIED),
    Attempt(name="read somebody's memory", command="head -c1 /proc/$BOB_PID/mem", refusal=DENIED),
    Attempt(
        name="take over somebody's process",
        command=syscall("ptrace(16, int(os.environ['BOB_PID']), 0, 0)"),
        refusal=DENIED,
    ),
    Attempt(name="end somebody's process", command="kill -9 $BOB_PID", refusal=DENIED),
    Attempt(name="end the first process", command="kill -9 1", refusal=DENIED),
    Attempt(name="end the warden", command="kill -9 $(pgrep -x warden)", refusal=DENIED, where=("job",)),
    Attempt(name="become root by su", command="su -c id root < /dev/null", refusal="Authentication failure|Password"),
    Attempt(
        name="become somebody by su", command="su -c id bob < /dev/null", refusal="Authentication failure|Password"
    ),
)

JOBS: Final = (
    Attempt(name="end somebody's job", command="scancel $BOB_JOB", refusal=SLURM_DENIED),
    Attempt(
        name="change somebody's job", command="scontrol update jobid=$BOB_JOB timelimit=1 2>&1", refusal=SLURM_DENIED
    ),
    Attempt(
        name="read somebody's job script from Slurm",
        refusal=SLURM_DENIED,
        command='said=$(scontrol write batch_script $BOB_JOB - 2>&1); echo "$said"; [[ $said = *sleep* ]]',
    ),
    Attempt(name="run in somebody's job", command="srun --jobid=$BOB_JOB --overlap id 2>&1", refusal=SLURM_DENIED),
    Attempt(
        name="submit as somebody",
        command="sbatch --uid=bob --wrap id 2>&1",
        refusal="only permitted by root|not permitted|root",
    ),
    Attempt(
        name="drain a node",
        command="scontrol update nodename=default-0 state=drain reason=x 2>&1",
        refusal=SLURM_DENIED,
    ),
    Attempt(name="stop slurmctld", command="scontrol shutdown slurmctld 2>&1", refusal=SLURM_DENIED),
    Attempt(name="reconfigure Slurm", command="scontrol reconfigure 2>&1", refusal=SLURM_DENIED),
    Attempt(
        name="reserve all nodes",
        command="scontrol create reservation user=alice nodes=ALL starttime=now duration=9 2>&1",
        refusal=SLURM_DENIED,
    ),
    Attempt(
        name="write outside the jail with sbcast",
        where=("job",),
        refusal=f"{DENIED}|{READ_ONLY}",
        command="sbcast --force /etc/hostname /usr/lib/slurmstack/images/x 2>&1",
    ),
)

ESCAPES: Final = (
    Attempt(name="be root in a user namespace", command="unshare --user --map-root-user id", refusal=DENIED),
    Attempt(
        name="load a program into the kernel",
        command=syscall("syscall(321, 5, 0, 0)"),
        refusal=f"{DENIED}|Bad address|Invalid argument",
    ),
)

ROOT: Final = tuple(
    Attempt(name=f"root: {name}", command=command, refusal=refusal, sudo=True)
    for name, command, refusal in (
        ("mount a file system", "mount -t tmpfs none /mnt", MOUNT_REFUSED),
        ("bind a directory", "mount --bind /tmp /mnt", MOUNT_REFUSED),
        ("make the kernel's settings writable", "mount -o remount,bind,rw /proc/sys", MOUNT_REFUSED),
        ("make the configuration writable", "mount -o remount,bind,rw /run/slurm", MOUNT_REFUSED),
        ("uncover what is under a mount", "umount --lazy /etc/hostname", MOUNT_REFUSED),
        ("mount by the newer calls", syscall("syscall(430, b'tmpfs', 0)"), DENIED),
        ("say what a crash starts", CORE_PATTERN, f"{DENIED}|{READ_ONLY}"),
        ("ask the kernel for help", "echo h > /proc/sysrq-trigger", f"{DENIED}|{READ_ONLY}|{ABSENT}"),
        ("chroot out of the jail", CHROOT_ESCAPE, DENIED),
        ("look out of the jail", "ls /proc/1/root/", DENIED),
        ("go where PID 1 is", "cd /proc/1/cwd", DENIED),
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
        ("set the clock", 'date --set="$(date -Ins)"', DENIED),
        ("rename the machine", "hostname $(hostname)", f"{DENIED}|permission|must be root"),
        ("change the network", "ip link set lo mtu 65536", DENIED),
        ("listen to all packets", python("socket.socket(socket.AF_PACKET, socket.SOCK_RAW)"), DENIED),
        ("get it back from a file", "cp /bin/id i && setcap cap_sys_admin+ep i && ./i", DENIED),
        ("get it back from oneself", "setpriv --inh-caps=+sys_admin --ambient-caps=+sys_admin true", DENIED),
        ("add a configuration", "touch /run/slurm/x", READ_ONLY),
        ("change the configuration", "echo '# x' >> /run/slurm/conf/slurm.conf", READ_ONLY),
        ("listen where munged does", "touch /run/munge/x", READ_ONLY),
        ("redirect names", "echo 10.0.0.1 controller-0 >> /etc/hosts", READ_ONLY),
        ("read munge's key", "cat /secrets/munge/munge.key", ABSENT),
        ("run a job as root", "srun true 2>&1", "not permitted|Access|denied|disabled|Invalid"),
    )
)  # fmt: skip

ROOT_IN_JOB: Final = tuple(
    Attempt(name=f"root: {name}", command=command, refusal=refusal, sudo=True, where=("job",))
    for name, command, refusal in (
        (
            "have slurmd load a plugin", "echo 'required /tmp/x.so' >> /var/spool/slurmd/conf-cache/plugstack.conf",
            READ_ONLY,
        ),
        ("replace slurmd's configuration", "mv /var/spool/slurmd/conf-cache /var/spool/slurmd/x", "busy|Read-only"),
    )
)  # fmt: skip

_NODE: Final = "$(ip route show default | cut -d' ' -f3)"
"""The machine, as seen from its pods on the local cluster."""
_ASK: Final = "curl --silent --show-error --insecure --fail-with-body --max-time 5"

PORTS: Final = tuple(
    Attempt(name=name, command=command, refusal=refusal, in_kubernetes=True)
    for name, command, refusal in (
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
    )
)  # fmt: skip
"""On the local cluster nothing enforces network policies: each of these doors is shut by who answers there."""

_PROOF: Final = "case ,$PMIX_SECURITY_MODE, in *,native,*) exit 0;; esac; echo only $PMIX_SECURITY_MODE; exit 1"

MPI: Final = tuple(
    Attempt(name=name, command=command, refusal=refusal, where=("job",), in_kubernetes=True)
    for name, command, refusal in (
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
    )
)  # fmt: skip
"""With PMIx, which the local cluster's version of Slurm has."""


ATTEMPTS: Final = (*FILES, *CELLS, *KEYS, *PROCESSES, *JOBS, *ESCAPES, *PORTS, *MPI, *ROOT, *ROOT_IN_JOB)
