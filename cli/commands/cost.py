"""The command `cost`: what the stack costs an hour, by the prices in its file."""

from __future__ import annotations

import json

import typer

from cli.commands.options import ConfigOption, JsonOption
from cli.cost.parts import cost_of
from cli.cost.present import as_data, print_table
from cli.errors import USAGE, Failure
from cli.stack import open_stack

_EXAMPLE = """write them into it (docs/usage.md), for example
  slurmstack:prices:
    pools: {default: 2.5}    # an hour of one node
    storage: {default: 0.1}  # a month of one GiB"""


def cost(config: ConfigOption = None, *, as_json: JsonOption = False) -> None:
    """Show what the stack costs an hour and a month, at its smallest and at its largest, by the prices in its file.

    Elastic pools, and machines that a cloud adds when they are needed, are counted at their least and at their most;
    a month is 730 hours. Prices are only those that you write into the stack file, from your provider's list:

    slurmstack:prices:
      currency: USD

      machines: {gpu-h100-sxm/8gpu-128vcpu-1600gb: 20, cpu-d3/16vcpu-64gb: 0.4}

      pools: {gpu: 16}

      storage: {filesystem/NETWORK_SSD: 0.08, disk/NETWORK_SSD: 0.07}

      load_balancer: 0.02

      other: {control plane: 0.1}

    machines: an hour of one that the cloud makes. pools: an hour of one node, on a cluster that is already there, or in
    place of the machine's. storage: a month of one GiB; on a cluster that is already there by storage class, or
    default. other: an hour of what you like. What has no price is named, and the sums are then what it costs at least.

    Needs no cluster. `preview` and `validate --against` show the sums, too. Exit status: 0; 2 if the stack file is
    wrong, or has no prices.
    """
    stack = open_stack(config)
    found = cost_of(stack.config)
    if found is None:
        raise Failure("the stack file has no prices", hint=_EXAMPLE, code=USAGE)
    if as_json:
        typer.echo(json.dumps({"stack": stack.name, **as_data(found)}, indent=1))
    else:
        print_table(found)
