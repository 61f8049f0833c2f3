"""Which node of a pair that failed is the guilty one: what to run next, and when that is known.

A run of two nodes that fails says that one of them, or what is between them, is bad, and not which. So each of the two
is a suspect until it has been well with another partner, which clears it, or until it is guilty: it has failed with
two different partners, each of which has been well with somebody else *since*. Both of one run are never accused by
it, as who is accused has not been well since, and so speaks against nobody. If the network as a whole is slow nobody
is well, and nobody is accused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

PARTNERS: Final = 2
"""Partners with which a node has to fail."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What the runs of a node say."""

    well_at: int | None = None
    """When its last run began, if that was well."""
    failed_with: Mapping[str, int] = field(default_factory=dict)
    """Partner -> when the run that failed began, since the node was last well."""

    @property
    def is_suspect(self) -> bool:
        """It has failed, and not been well since."""
        return bool(self.failed_with)


def witnesses(name: str, standings: Mapping[str, Standing]) -> list[str]:
    """The partners with which a node has failed and that have been well since."""
    mine = standings.get(name, Standing())
    found = []
    for partner, at in sorted(mine.failed_with.items()):
        theirs = standings.get(partner, Standing())
        if theirs.well_at is not None and theirs.well_at > at:
            found.append(partner)
    return found


def is_guilty(name: str, standings: Mapping[str, Standing]) -> bool:
    """Whether it is this node that is bad."""
    return len(witnesses(name, standings)) >= PARTNERS


def next_pairs(standings: Mapping[str, Standing], free: Iterable[str]) -> list[tuple[str, str]]:
    """The runs that help most, of nodes that are free: suspect and partner. No node is in two of them.

    `standings`: of all nodes that could be partners. A partner is a node that is well, and with which the suspect has
    not failed yet. A suspect that has failed with enough partners waits for them to be well with somebody else.
    """
    available = set(free)
    well = sorted(name for name, standing in standings.items() if standing.well_at is not None)
    pairs = []
    for suspect in sorted(_open(standings) & available, key=lambda name: (len(standings[name].failed_with), name)):
        failed_with = standings[suspect].failed_with
        known = {suspect, *failed_with}  # a record may call a suspect well, too
        partner = next((name for name in well if name in available and name not in known), None)
        if partner is not None:
            pairs.append((suspect, partner))
            available -= {suspect, partner}
    return pairs


def _open(standings: Mapping[str, Standing]) -> set[str]:
    """Suspects of which another run would say something: there are too few who speak, or may yet speak, against them.

    A partner that has failed with others too is no better than the suspect, and is not waited for.
    """
    return {
        name
        for name, standing in standings.items()
        if standing.is_suspect
        and len(witnesses(name, standings)) + sum(_may_speak(partner, standings) for partner in standing.failed_with)
        < PARTNERS
    }


def _may_speak(partner: str, standings: Mapping[str, Standing]) -> bool:
    """Whether a partner that failed once is yet to be tried with somebody else."""
    theirs = standings.get(partner, Standing())
    return theirs.is_suspect and len(theirs.failed_with) < PARTNERS
