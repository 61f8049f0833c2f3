"""health: look at this node's health by hand.

    health list                     all checks, when they run, and whether this node has what they look at
    health run CHECK [--json]       run one now

Exit codes of `run`: 0 well, or a warning; 1 failed; 2 no such check; 3 not checked.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from images.common.health.contract import Check, Node, Status
from images.common.health.report import line_of
from images.health.local import Local, find_local, pod_environment, prepare_environment, with_jobs
from images.health.registry import find_checks, has
from images.health.runner import Outcome, run_checks
from images.health.verdict import not_checked

CODES: Final = {Status.OK: 0, Status.WARN: 0, Status.FAIL: 1, Status.NOT_CHECKED: 3}
USAGE: Final = 2


@dataclass(kw_only=True)
class ByHand:
    """What an administrator asked for."""

    local: Local
    checks: Mapping[str, Check]
    say: Callable[[str], None]
    complain: Callable[[str], None]

    def run(self, arguments: Sequence[str]) -> int:
        """Returns the exit code."""
        if list(arguments) == ["list"]:
            return self._list()
        words = [word for word in arguments if word != "--json"]
        if len(words) == 2 and words[0] == "run":
            return self._run(words[1], as_json="--json" in arguments)
        self.complain("usage: health list | health run CHECK [--json]")
        return USAGE

    def _list(self) -> int:
        width = max((len(name) for name in self.checks), default=0)
        for name, check in sorted(self.checks.items()):
            self.say(f"{name:<{width}}  {self._when(check):<20}  {check.summary}")
        return 0

    def _when(self, check: Check) -> str:
        if check.name in self.local.off:
            return "turned off"
        if not has(self.local.node, check.hardware):
            return f"never: no {check.hardware}"
        return "between jobs" if check.between_jobs else "every interval"

    def _run(self, name: str, *, as_json: bool) -> int:
        node = with_jobs(self.local.node)
        if name not in self.checks:
            self.complain(f"there is no check {name!r}; `health list` shows all")
            return USAGE
        outcome = self._outcome(self.checks[name], node)
        result = outcome.result
        if as_json:
            text = {"node": node.name, "check": name, "status": result.status.value, "fault": result.fault}
            more = {"message": result.message, "values": dict(result.values), "seconds": round(outcome.seconds, 4)}
            self.say(json.dumps(text | more))
        else:
            self.say(line_of(name, result).removesuffix(":"))
            for value, figure in sorted(result.values.items()):
                self.say(f"  {value} {figure:g}")
        return CODES[result.status]

    def _outcome(self, check: Check, node: Node) -> Outcome:
        if not has(node, check.hardware):
            return Outcome(result=not_checked(f"this node should have no {check.hardware}"))
        return run_checks([check], node, self.local.thresholds)[check.name]


def main() -> int:
    """Entry point."""
    prepare_environment()

    def complain(text: str) -> None:
        sys.stderr.write(text + "\n")

    def say(text: str) -> None:
        sys.stdout.write(text + "\n")

    local = find_local(pod_environment())
    if local.problem:
        complain(local.problem)
    return ByHand(local=local, checks={**find_checks(), **local.programs}, say=say, complain=complain).run(sys.argv[1:])
