"""How high numbers have come is known also where the tables are lost (tests/slurm/test_backup.py asks MariaDB)."""

from __future__ import annotations

import re
from typing import Any

from images.backup.database import MARKS, Database


class Tables(Database):
    """A database with two tables, and what it is asked."""

    def __init__(self) -> None:
        storage: Any = type("Storage", (), {"database": "slurm"})
        super().__init__(storage, storage)
        self.reached = {"c_job_table": 0, "c_assoc_table": 0}
        self.marks: dict[str, int] = {}
        self.following: dict[str, int] = {}

    def ask(self, sql: str, *, seconds: float = 0.0) -> list[str]:
        del seconds
        if "information_schema.tables" in sql:
            return [*self.reached, MARKS]
        if "information_schema.columns" in sql:
            return [f"{table}\tnumber" for table in self.reached]
        if sql.startswith("INSERT"):
            for name, value in re.findall(r"\('([^']+)', (\d+)\)", sql):
                self.marks[name] = max(self.marks.get(name, 0), int(value)) if "GREATEST" in sql else int(value)
        elif sql.startswith("SELECT name"):
            return [f"{name}\t{value}" for name, value in self.marks.items()]
        elif found := re.fullmatch(r"ALTER TABLE `(\w+)` AUTO_INCREMENT = (\d+)", sql):
            self.following[found[1]] = int(found[2])
        elif found := re.search(r"COALESCE.* FROM `(\w+)`", sql):
            return [str(self.reached[found[1]])]
        elif "UNION" in sql:
            return ["0", "NULL", str(self.marks.get("job ids", 0))]
        return []


def test_numbers_go_on_above_those_of_before_the_first_try() -> None:
    tables = Tables()
    tables.reached = {"c_job_table": 700, "c_assoc_table": 40}
    tables.marks["job ids"] = 650
    tables.remember("c")
    tables.reached = {"c_job_table": 3, "c_assoc_table": 0}  # the load was cut short
    tables.remember("c")
    tables.go_on_above()
    assert tables.following == {"c_job_table": 701, "c_assoc_table": 41}
    assert tables.highest_id("c") == 650
