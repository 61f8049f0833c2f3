"""What a login does with the jail before it is entered."""

from __future__ import annotations

BIND = """
import sys
sys.path.insert(0, "/usr/lib/slurmstack")
from pathlib import Path
from images.common.jail_view import LOGIN_BINDS, bind_into_jail
bind_into_jail(Path("/jail"), LOGIN_BINDS, print)
"""
