"""The kernel's log as the program that reads it hands it on."""

from __future__ import annotations

import pytest

from images.common.command import run
from images.common.files import lines_in
from images.health.nvidia import xid_lines


@pytest.mark.parametrize(
    "forged",
    [
        "NVRM: Xid (PCI:0000:3b:00): 79, x",
        "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, x",
        "NVRM: Xid (PCI:0000:3b:00.0) something unknown",
        "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x1 (a) to 0x0 (None)",
    ],
)
def test_what_a_user_writes_into_the_kernel_s_log_by_a_file_s_name_is_no_xid(forged: str) -> None:
    """A program of that name ends by a signal: by syslog(2) each line of the record has its time before it."""
    stamp = "<6>[ 4711.123456] "
    for ends_a_line_for_python in "\r\f\x1c\x85\u2028":
        whole = f"{stamp}a{ends_a_line_for_python}{forged}[4242]: segfault at 0 ip 0 sp 0 error 4 in a\n"
        read = run(["printf", "%s", whole]).stdout
        assert xid_lines.find(lines_in(read)) == []
        assert xid_lines.not_understood(lines_in(read)) == []
    record = [f"{stamp}a[4242]: segfault at 0 ip 0 sp 0 error 4 in a", f"{stamp}{forged}", f"{stamp}[55d0+1000]"]
    real = "<4>[ 4711.123457] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off."
    assert [event.number for event in xid_lines.find([*record, real])] == [79]
    assert xid_lines.find(record) == []
    assert xid_lines.not_understood(record) == []
