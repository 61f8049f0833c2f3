"""The document behind `preview` and `validate --against`: the same whatever the stack is compared with."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from cli.change.change import Change, counts_of
from cli.change.effects import Effect
from cli.change.jobs import JobsTouched, refusal
from cli.errors import CHANGES, REFUSED, Refused
from cli.preview.policy import PolicyPlan
from cli.preview.policy import as_data as policy_as_data
from cli.preview.summary import Summary
from cli.preview.summary import as_data as summary_as_data

Outcome = Literal["none", "changes", "refused"]

NOT_COMPARED = "what else would change is not known: correct what is refused first"


@dataclass(frozen=True, kw_only=True)
class Preview:
    """What it takes to bring a cluster in line with a stack file."""

    stack: str
    against: Literal["cluster", "engine", "file"]
    """What the stack file was compared with: the cluster, Pulumi's state and the cluster, or an earlier stack file."""
    summary: Summary
    summary_before: Summary | None = None
    """What the earlier stack file asked for; None where there is none."""
    changes: tuple[Change, ...] = ()
    effects: tuple[Effect, ...] = ()
    notes: tuple[str, ...] = ()
    policy: PolicyPlan | None = None
    jobs: JobsTouched = field(default_factory=JobsTouched)
    """Which jobs the change touches; none where there is no queue to look at."""

    @property
    def compared(self) -> bool:
        """Whether all that would change is known."""
        return NOT_COMPARED not in self.notes

    @property
    def refused(self) -> tuple[str, ...]:
        """Each reason why the change is refused, with the way out."""
        effects = (f"{effect.kind} {effect.name}: {effect.refused}" for effect in self.effects if effect.refused)
        jobs = refusal(self.jobs)
        return (*effects, *([in_one_line(jobs)] if jobs else []))

    @property
    def outcome(self) -> Outcome:
        """Whether anything is to be changed, and whether it may be."""
        if self.refused:
            return "refused"
        # Without an answer of Slurm the policy's lines are those of a first start: they alone are no change.
        of_policy = self.policy is not None and self.policy.compared and self.policy.changes
        return "changes" if self.changes or of_policy else "none"

    def counts(self) -> dict[str, int]:
        """Number of objects by action."""
        return counts_of(self.changes)

    def as_data(self) -> dict[str, Any]:
        """The document for scripts."""
        return {
            "outcome": self.outcome,
            "stack": self.stack,
            "against": self.against,
            "changes": [change.as_data() for change in self.changes],
            "effects": [asdict(effect) for effect in self.effects],
            "refused": len(self.refused),
            "refusals": list(self.refused),
            "notes": list(self.notes),
            "jobs": self.jobs.as_data(),
            "summary": summary_as_data(self.summary, self.effects),
            "summary_before": None if self.summary_before is None else summary_as_data(self.summary_before),
            "policy": policy_as_data(self.policy),
        }


def exit_status(preview: Preview, *, detailed: bool) -> int:
    """0, or REFUSED; with `detailed` CHANGES if there is something to change."""
    if preview.outcome == "refused":
        return REFUSED
    return CHANGES if detailed and preview.outcome == "changes" else 0


def in_one_line(refused: Refused) -> str:
    """A refusal in one line, with the way out."""
    return f"{refused.message}. {refused.hint}" if refused.hint else refused.message
