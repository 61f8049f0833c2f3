"""Every version that the local cluster pins. Debian's own programs are not pinned: they are the suite's."""

from __future__ import annotations

KUBERNETES = "v1.34.4"
"""Must equal the requirement in `kubernetes/go.mod`; a test compares them."""

COREDNS = "v1.14.1"
"""Must equal the requirement in `coredns/go.mod`; a test compares them. The last one for Go 1.24 (Debian 13)."""

KUBE_STATE = "v2.15.0"
"""Must equal the requirement in `kube-state/go.mod` and the tag of `slurm.local_cluster.KUBE_STATE_IMAGE`; a test
compares them."""

PAUSE = "1"
"""Our own pause program; counted up when its source changes what it does."""

GO_MINIMUM = (1, 24)
"""The highest `go` line of our modules: an older Go cannot build them."""

PAUSE_IMAGE = f"localhost/slurmstack/pause:{PAUSE}"
COREDNS_IMAGE = f"localhost/slurmstack/coredns:{COREDNS}"
