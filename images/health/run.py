"""health run CHECK [--json]: runs one check now, for `slurmstack health run`.

Exit codes: 0 well, or a warning; 1 failed; 2 no such check; 3 not checked.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from images.common.health.contract import Check, Status
from images.common.health.report import line_of
from images.health.local import Local, find_local, pod_environment, prepare_environment, with_jobs
from images.health.registry import find_checks, has
from images.health.runner import Outcome, run_checks
from images.health.verdict import not_checked

CODES: Final = {Status.OK: 0, Status.WARN: 0, Status.FAIL: 1, Status.NOT_CHECKED: 3}
USAGE: Final = 2


def by_hand(arguments: Sequence[str], local: Local, checks: Mapping[str, Check]) -> int:
    """Do what an administrator asked for. Returns the exit code."""
    match arguments:
        case ["run", name, *form] if form in ([], ["--json"]) and name in checks:
            return _run(checks[name], local, as_json=bool(form))
        case ["run", name, *form] if form in ([], ["--json"]):
            print(f"there is no check {name!r}; there are {', '.join(sorted(checks))}", file=sys.stderr)
        case _:
            print("usage: health run CHECK [--json]", file=sys.stderr)
    return USAGE


def _run(check: Check, local: Local, *, as_json: bool) -> int:
    node = with_jobs(local.node, {})
    outcome = Outcome(result=not_checked(f"this node should have no {check.hardware}"))
    if has(node, check.hardware):
        outcome = run_checks([check], node, local.thresholds)[check.name]
    result = outcome.result
    text = {"node": node.name, "check": check.name, "status": result.status.value, "fault": result.fault}
    more = {"message": result.message, "values": dict(result.values), "seconds": round(outcome.seconds, 4)}
    if as_json:
        print(json.dumps(text | more))
    else:
        print(line_of(check.name, result).removesuffix(":"))
        for value, figure in sorted(result.values.items()):
            print(f"  {value} {figure:g}")
    return CODES[result.status]


def main() -> int:
    """Entry point."""
    prepare_environment()
    local = find_local(pod_environment())
    return by_hand(sys.argv[1:], local, {**find_checks(), **local.programs})
