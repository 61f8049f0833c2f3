"""What nginx is told; tests/slurm/test_rest.py asks through a real one."""

from __future__ import annotations

from images.rest.proxy import render
from slurm.names import REST_PORT


def test_nginx_listens_with_tls_only_also_where_the_kernel_has_no_ipv6() -> None:
    for ipv6, listen in ((True, f"[::]:{REST_PORT} ssl ipv6only=off;"), (False, f"{REST_PORT} ssl;")):
        conf = render(ipv6=ipv6, dashboard=False)
        listening = [line.strip() for line in conf.splitlines() if line.strip().startswith("listen")]
        assert listening == [f"listen {listen}"]
