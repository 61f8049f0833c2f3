"""What users install in the jail: each step once, by apt or pip in the jail's own root, kept in the local cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from shlex import quote

from local import paths
from local.files import hold, whole_directory
from slurm.images import DEBIAN_SUITES
from tests.rootfs import rootfs

VERSION = "24.11"
UID = 25301

POM = """<project><modelVersion>4.0.0</modelVersion><groupId>a</groupId><artifactId>a</artifactId><version>1</version>
<packaging>pom</packaging><dependencies><dependency><groupId>io.nextflow</groupId><artifactId>nextflow</artifactId>
<version>24.10.0</version></dependency></dependencies></project>"""

LEGACY_STORE = (
    r"/^    from .device_mesh import/i\    TCPStore = type('TCPStore', (TCPStore,), {'__init__': lambda self, *given, "
    "_of=TCPStore, **named: _of.__init__(self, *given, **named | {'use_libuv': False})})"
)

STEPS = {
    "debian": "apt-get -qq update; apt-get -qq install --no-install-recommends python3-torch=2.6.* "
    "environment-modules=5.5.* charliecloud=0.38-* skopeo umoci maven; apt-get clean; rm -r /var/lib/apt/lists/*",
    "ray": "python3 -m venv ~/ray; ~/ray/bin/pip install --quiet ray==2.60.0",
    "torchx": "python3 -m venv --system-site-packages ~/torchx; ~/torchx/bin/pip install --quiet torchx==0.7.0",
    "jupyter": "python3 -m venv ~/jupyter; ~/jupyter/bin/pip install --quiet jupyter-server==2.21.1 ipykernel==7.4.0",
    "nextflow": f"mkdir ~/nextflow; cd ~/nextflow; echo {quote(POM)} > pom.xml; mvn -q -B -Dmaven.repo.local=/tmp/m2 "
    "dependency:copy-dependencies -DoutputDirectory=jars",
    # Debian 13 has none: this is unstable's, and what it needs is that of Debian 13.
    "apptainer": "sed s/trixie/sid/ /etc/apt/sources.list | head -n1 > /etc/apt/sources.list.d/sid.list; "
    "apt-get -qq -o Acquire::Check-Valid-Until=false update; "
    "apt-get -qq -o APT::Default-Release=trixie install --no-install-recommends apptainer=1.4.*; "
    "apt-get clean; rm -r /var/lib/apt/lists/* /etc/apt/sources.list.d/sid.list",
    # Debian's is built without libuv and asks for it by default. PyPI has it with CUDA alone, which is large.
    "pytorch": f"sed -i {quote(LEGACY_STORE)} /usr/lib/python3/dist-packages/torch/distributed/__init__.py",
    "ssh": "apt-get -qq update; apt-get -qq install --no-install-recommends pdsh=2.35-* neovim=0.10.*; "
    "apt-get clean; rm -r /var/lib/apt/lists/*",
    "deepspeed": "python3 -m venv --system-site-packages ~/deepspeed; "
    "DS_BUILD_OPS=0 ~/deepspeed/bin/pip install --quiet deepspeed==0.19.8",
}
"""Name -> commands. Each goes on from those before it."""

OF_ROOT = ("debian", "apptainer", "pytorch", "ssh")
"""The steps with `sudo apt`; the others are alice's, in her home."""

INSTALL = r"""
mkdir "$WORK/upper" "$WORK/work" "$WORK/root" "$WORK/tmp"
mount -t overlay overlay -o "lowerdir=$LOWER,upperdir=$WORK/upper,workdir=$WORK/work" "$WORK/root"
cd "$WORK/root"
mount --bind "$WORK/tmp" tmp; chmod 1777 tmp
mount -t proc proc proc
for place in dev etc/resolv.conf etc/hosts; do mount --rbind "/$place" "$place"; done
# Whom this machine trusts, as a copy: packages of Debian write there.
cp -r -L /etc/ssl/certs "$WORK/certs"; mkdir -p etc/ssl/certs; mount --bind "$WORK/certs" etc/ssl/certs
[ -d home/alice ] || install -d -m 700 -o "$OWNER" -g "$OWNER" home/alice
unset PIP_FIND_LINKS
export HOME=/home/alice PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
exec chroot . setpriv --reuid="$AS" --regid="$AS" --clear-groups bash -ec "$COMMANDS"
"""


def layers() -> list[Path]:
    """Directories for an overlay above the jail's root file system, topmost first."""
    below, found = rootfs("jail", VERSION), list[Path]()
    kept, key = paths.cache() / "clients", DEBIAN_SUITES[VERSION]  # what users have installed outlives our programs
    with hold(paths.cache() / "clients.lock", lambda: None):
        for name, commands in STEPS.items():
            uid = 0 if name in OF_ROOT else UID
            key = hashlib.sha256(f"{key}{uid}{commands}{INSTALL}".encode()).hexdigest()[:12]
            place = kept / f"{name}-{key}"
            if not place.is_dir():
                for old in kept.glob(f"{name}-*"):
                    shutil.rmtree(old)
                with whole_directory(place) as work:
                    _install(":".join(map(str, [*found, below])), work, uid, commands)
            found.insert(0, place / "upper")
    return found


def _install(lower: str, work: Path, uid: int, commands: str) -> None:
    """Leave in `upper` what the commands write, on this machine's network and with its settings of pip."""
    env = {**os.environ, "LOWER": lower, "WORK": str(work), "AS": str(uid), "OWNER": str(UID), "COMMANDS": commands}
    alone = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", INSTALL]
    done = subprocess.run(alone, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{commands}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    for name in ("work", "root", "tmp", "certs"):
        shutil.rmtree(work / name)
