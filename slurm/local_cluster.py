"""Where the local cluster of this machine is found: by these names, whoever looks for it."""

from __future__ import annotations

import os
from pathlib import Path

LOCAL_CONTEXT = "slurmstack-local"
"""Name of the context in the local cluster's kubeconfig."""


KUBE_STATE_IMAGE = "localhost/kube-state-metrics:v2.15.0"
"""Image of kube-state-metrics that is built here, for stacks with `monitoring.kube_state`; the tag is its version."""


def local_directory() -> Path:
    """Where the local cluster keeps everything: `$SLURMSTACK_LOCAL_DIR`, by default `/var/lib/slurmstack`."""
    return Path(os.environ.get("SLURMSTACK_LOCAL_DIR") or "/var/lib/slurmstack").resolve()


def kubeconfig() -> Path:
    """The administrator's kubeconfig of the local cluster."""
    return local_directory() / "cluster" / "kubeconfig"


def login_key() -> Path:
    """The private SSH key that every user of a stack on the local cluster accepts; `.pub` beside it."""
    return local_directory() / "cluster" / "ssh" / "id_ed25519"
