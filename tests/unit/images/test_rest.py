"""What nginx is told; tests/slurm/test_rest.py asks through a real one."""

from __future__ import annotations

from images.rest.proxy import render
from slurm.names import REST_PORT


def test_pages_of_one_address_are_bounded_and_what_is_refused_is_in_no_error_log_which_has_the_query() -> None:
    conf = render(ipv6=True, dashboard=True)
    page = conf[conf.index("location /dashboard {") :].partition("}")[0]
    assert "limit_req zone=page burst=50 nodelay;" in page
    assert "limit_req_status 429;" in page
    assert "limit_req_log_level info;" in page
    assert "limit_req_zone $binary_remote_addr zone=page:1m rate=20r/s;" in conf


def test_nginx_listens_with_tls_only_also_where_the_kernel_has_no_ipv6() -> None:
    for ipv6, listen in ((True, f"[::]:{REST_PORT} ssl ipv6only=off;"), (False, f"{REST_PORT} ssl;")):
        conf = render(ipv6=ipv6, dashboard=False)
        listening = [line.strip() for line in conf.splitlines() if line.strip().startswith("listen")]
        assert listening == ["listen unix:/run/nginx/away.sock;", f"listen {listen}"]
