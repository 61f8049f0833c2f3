"""`slurmstack:dashboard`: a page for people, behind the TLS of the REST API."""

from __future__ import annotations

from pydantic import Field

from config.base import Section


class Dashboard(Section):
    """A page that shows nodes, queue, use and jobs; it changes nothing. Its users log in with a token of Slurm's."""

    enabled: bool = Field(default=False, strict=True)
    """Whether there is a page, at `/dashboard/` of the REST API, which must be there too (`rest.enabled`)."""
