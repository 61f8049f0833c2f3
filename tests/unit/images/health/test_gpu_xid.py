"""Xids in the kernel's log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from images.common.command import Result
from images.common.health.contract import Node
from images.common.health.contract import Result as Found
from images.health.checks import gpu_presence
from images.health.checks.gpu_xid import CHECK, faults_in
from images.health.runner import attempt
from tests.unit.images.health.places import HANGS, gpu_node, machine, text
from tests.unit.images.health.tables import Like, outcomes, table, words


def log(name: str) -> str:
    return text(f"kernel/{name}.log").stdout


def look(where: Node, dmesg: str | Result) -> Found:
    """What the check finds once the GPUs' addresses are known."""
    runner = machine(dmesg=Result(code=0, stdout=dmesg) if isinstance(dmesg, str) else dmesg)
    attempt(gpu_presence.CHECK, where, runner)
    return attempt(CHECK, where, runner)


def line(number: int, words: str, bus: str = "0000:18:00") -> str:
    return f"<3>[99990.0] NVRM: Xid (PCI:{bus}): {number}, {words}\n"


def recovery(action: str) -> str:
    changed = f"GPU recovery action changed from 0x0 (None) to {action}"
    return QUIET + line(154, f"pid='<unknown>', name=<unknown>, {changed}")


QUIET, FALLEN_OFF, RESET = log("quiet"), log("fallen-off"), log("ecc-then-reset").splitlines(keepends=True)
OFF_THE_BUS = "GPU 3: Xid 79"
ASKS = "GPU 0: Xid 154, the driver asks for:"
NOT_PERMITTED = "dmesg: read kernel buffer failed: Operation not permitted"


@outcomes(
    "dmesg",
    [
        ("ok", QUIET),
        (f"fail [hardware]: {OFF_THE_BUS}; GPU 3: Xid 154, the driver asks for: Node Reboot Required", FALLEN_OFF),
        ("ok", "".join(line(number, "pid=1, name=x, words") for number in (13, 31, 43, 63, 999))),
        (f"fail [hardware]: {ASKS} GPU Reset Required", recovery("0x1 (GPU Reset Required)")),
        ("ok", recovery("0x3 (Drain P2P)")),
        ("fail ...GPU 4: Xid 48...", "".join(RESET[:-1])),
        ("ok", "".join(RESET)),
        ("fail [hardware]: GPU 4: Xid 95", "".join(RESET) + line(95, "x", bus="0000:9a:00")),
        (f"fail ...{OFF_THE_BUS}...", FALLEN_OFF + RESET[-1]),  # another GPU's recovery
        ("ok", QUIET + line(79, "x", bus="0009:01:00")),  # another pod's, on the same machine
        ("fail [hardware]: nvswitch0: SXid 20034", log("nvswitch")),
        ("not checked: ...no answer...", HANGS),
        (f"not checked: {NOT_PERMITTED}", Result(code=1, stderr=f"{NOT_PERMITTED}\n")),
    ],
)
def test_the_log_is_judged(tmp_path: Path, expected: str, dmesg: str | Result) -> None:
    assert words(look(gpu_node(tmp_path), dmesg)) == Like(expected)


def test_a_gpu_that_was_lost_before_the_pod_began_is_its_own(tmp_path: Path) -> None:
    where = replace(gpu_node(tmp_path), gpus=9)  # one more than nvidia-smi shows
    assert words(look(where, QUIET + line(79, "x", bus="0000:ee:00"))).startswith("fail ")


LAST = FALLEN_OFF.splitlines(keepends=True)[-1]
AUDIT = ["<6>[91300.0] audit: 1\n", "<6>[91400.0] audit: 2\n"]
NEWER = [LAST + AUDIT[0], AUDIT[0] + AUDIT[1]]


@table(
    "later, status",
    {
        "newer lines have pushed it out of the log": (NEWER, "fail"),
        "a user has filled the log": ([f"<6>[91300.{number:06}] a\n" * 4000 for number in range(2)], "fail"),
        "the log was emptied": (["", ""], "ok"),
        "it was reset": ([LAST + recovery("0x0 (None)").splitlines()[-1].replace("0000:18", "0000:5d")], "ok"),
    },
)
def test_a_fault_holds_until_the_log_is_emptied(tmp_path: Path, later: list[str], status: str) -> None:
    where = gpu_node(tmp_path)
    look(where, FALLEN_OFF)
    for dmesg in later:
        result = look(where, dmesg)
        assert result.status == status
        assert status == "ok" or OFF_THE_BUS in result.message


def test_a_new_start_of_the_machine_settles_a_fault(tmp_path: Path) -> None:
    where = gpu_node(tmp_path)
    look(where, line(79, "GPU has fallen off the bus.") + QUIET)
    assert look(where, QUIET).status == "fail"
    (where.root / "proc/sys/kernel/random/boot_id").write_text("another\n")
    assert look(where, QUIET).status == "ok"


def test_lines_of_all_forms_are_understood() -> None:
    mild, fatal = log("nvlink5").splitlines()[-2:]
    for form, found in [
        ("NVRM: Xid (PCI:0000:25:00 GPU-I:05): 95, pid=1, name=x", {"0000:25:00": {"95": ""}}),
        ("[  12.5] NVRM: Xid (0000:03:00): 79, GPU has fallen off the bus.", {"0000:03:00": {"79": ""}}),
        ("<4>[   12.500000] NVRM: Xid (PCI:00000000:3B:00.0): 46", {"0000:3b:00": {"46": ""}}),
        (mild, {"0018:01:00": {}}),
        (fatal, {"0009:01:00": {"149": ""}}),
    ]:
        assert faults_in([form]) == found


def test_a_user_s_text_in_a_record_is_no_word_of_the_driver_s() -> None:
    """A program has ended whose file has a name with a line break in it: the kernel writes time after time."""
    forged = "NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus."
    record = ["<6>[   12.345678] x", f"<6>[   12.345678] {forged}", f"<6>[   12.345678] {forged}[4711]: segfault at 0"]
    assert faults_in(record) == {}
    assert faults_in([*record, f"<3>[   12.345679] {forged}"])
