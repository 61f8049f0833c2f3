"""`python -m tests.suites gate|full|records`, which the Makefile calls."""

from __future__ import annotations

import argparse
import signal
import sys
from types import FrameType

from tests.suites.full import record_lines, run_full
from tests.suites.gate import run_gate
from tests.suites.steps import FULL, GATE, Step, chosen


def main() -> int:
    """Run a suite, or say how old the records of the long one are."""
    parser = argparse.ArgumentParser(prog="python -m tests.suites", description=__doc__)
    suites = parser.add_subparsers(dest="suite", required=True)
    gate = suites.add_parser("gate", help="what must pass before a change lands (make test)")
    gate.add_argument("steps", nargs="*", help=f"only these of: {_names(GATE)}")
    full = suites.add_parser("full", help="all other tests, with a record of each stage (make test-full)")
    full.add_argument("steps", nargs="*", metavar="stages", help=f"only these of: {_names(FULL)}")
    suites.add_parser("records", help="how old the record of each stage is, and what is open")
    asked = parser.parse_args()
    # Told to end, it puts away what it has made. SIGINT, too: a background job ignores it. The same where its terminal
    # is closed, unless it was started to go on without one (nohup).
    for told in TOLD:
        if told is not signal.SIGHUP or signal.getsignal(told) is not signal.SIG_IGN:
            signal.signal(told, _end)
    if asked.suite == "records":
        print("\n".join(record_lines()))
        return 0
    try:
        steps = chosen(GATE if asked.suite == "gate" else FULL, asked.steps)
    except ValueError as error:
        parser.error(str(error))
    return run_gate(steps) if asked.suite == "gate" else run_full(steps)


TOLD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _end(number: int, frame: FrameType | None) -> None:
    """Begin to put things away. A second Ctrl-C would leave that half done; Ctrl-\\ ends all at once."""
    for told in TOLD:
        signal.signal(told, signal.SIG_IGN)
    print("\nending: what the tests have made is put away, which may take two minutes", flush=True)
    raise KeyboardInterrupt


def _names(steps: tuple[Step, ...]) -> str:
    return ", ".join(step.name for step in steps)


if __name__ == "__main__":
    sys.exit(main())
