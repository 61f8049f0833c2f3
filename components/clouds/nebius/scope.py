"""What all resources of one cloud have in common: where they belong, what they are called, what protects them."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi


@dataclass(frozen=True, kw_only=True)
class CloudScope:
    """Project, names and options of the resources that one stack makes.

    The name in the cloud is the name in Pulumi, and it comes from a key of the stack file and never from a position in
    a list: a resource keeps its name whatever comes or goes beside it.
    """

    component: pulumi.Resource
    """Parent of everything, which also hands down the provider."""
    project: str
    prefix: str
    """How all names begin."""
    protects_data: bool
    """Whether Pulumi refuses to delete or replace what holds data."""

    def name(self, suffix: str) -> str:
        """Name of a resource, in the cloud and in Pulumi."""
        return f"{self.prefix}-{suffix}"

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the cloud's resources, by which people find what belongs together."""
        return {"managed-by": "slurmstack", "slurmstack": self.prefix}

    @property
    def options(self) -> pulumi.ResourceOptions:
        """Options of what can be made again.

        The service allows a name only once in a project, so where one resource takes the place of another, the old one
        goes first.
        """
        return pulumi.ResourceOptions(parent=self.component, delete_before_replace=True)

    def data_options(self, *, retain: bool = False) -> pulumi.ResourceOptions:
        """Options of what holds data. `retain`: Pulumi only forgets it where it would delete it."""
        return self.options.merge(
            pulumi.ResourceOptions(protect=self.protects_data, retain_on_delete=retain or None),
        )
