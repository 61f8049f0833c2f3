"""`python -m local up|down|status|restart-node NAME|stop-node NAME|load FILE`: the local cluster alone."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from local import cluster, status
from local.errors import LocalError
from local.report import open_report


def main(arguments: list[str] | None = None) -> int:
    """Run one command; 0 when it went well."""
    parser = argparse.ArgumentParser(prog="python -m local", description="A real Kubernetes on this machine.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up").add_argument("--nodes", type=int, default=2)
    commands.add_parser("down").add_argument("--purge", action="store_true", help="remove the caches too")
    commands.add_parser("status")
    commands.add_parser("restart-node").add_argument("name")
    commands.add_parser("stop-node").add_argument("name")
    commands.add_parser("load").add_argument("file", type=Path)
    options = parser.parse_args(arguments)
    try:
        _dispatch(options)
    except LocalError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; the same command can be run again\n")
        return 130
    return 0


def _dispatch(options: argparse.Namespace) -> None:
    report = open_report()
    if options.command == "up":
        cluster.up(report, options.nodes)
    elif options.command == "down":
        cluster.down(report, purge=options.purge)
    elif options.command == "status":
        sys.stdout.write("\n".join(status.lines(cluster.status())) + "\n")
    elif options.command == "restart-node":
        cluster.restart_node(options.name, report)
    elif options.command == "stop-node":
        cluster.stop_node(options.name, report)
    else:
        with report.step(f"Load {options.file} into the nodes") as step:
            step.note("loaded" if cluster.load_archive(options.file) else "already there")


if __name__ == "__main__":
    sys.exit(main())
