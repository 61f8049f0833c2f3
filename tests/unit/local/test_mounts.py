from __future__ import annotations

from pathlib import Path

from local import mounts

MOUNTINFO = r"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 27 254:0 /var /var/lib/slurmstack/cluster/ns rw - ext4 /dev/vda rw
41 40 0:4 net:[4026] /var/lib/slurmstack/cluster/ns/control.net rw - nsfs nsfs rw
42 27 0:9 / /var/lib/slurmstack-of-another rw - tmpfs tmpfs rw
43 27 0:9 / /var/lib/slurmstack/with\040space rw - tmpfs tmpfs rw
"""


def test_only_mounts_below_the_directory_and_not_beside_it_are_found_the_last_first() -> None:
    found = mounts.below(mounts.mount_points(MOUNTINFO), Path("/var/lib/slurmstack"))
    assert found == [
        "/var/lib/slurmstack/with space",
        "/var/lib/slurmstack/cluster/ns/control.net",
        "/var/lib/slurmstack/cluster/ns",
    ]
