"""What the benchmarks share: how large they are, and where their numbers go.

Enters: rows of numbers. Leaves, of a full run: tables on the terminal, in ``results.json``, and on
the page ``docs/benchmarks.md``. A part that did not run keeps its last table. In the test run,
where benchmarks are disabled, all are tiny and nothing is written: there they only show that they
work. No time decides a test.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from page import as_page, as_table, machine

RESULTS = Path(__file__).parent / "results.json"
PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
tables: dict[str, list[dict[str, str]]] = {}


@pytest.fixture
def full(pytestconfig: pytest.Config) -> bool:
    """Whether the sizes are those of the page, and not tiny."""
    return bool(pytestconfig.getoption("benchmark_enable"))


@pytest.fixture
def report(
    request: pytest.FixtureRequest, full: bool
) -> Iterator[Callable[[dict[str, str]], None]]:
    """Put one row, column by column, into the table of the part that the test is of."""
    part = request.module.__name__.removeprefix("test_")
    rows = tables.setdefault(part, [])
    made_on = []

    def add(row: dict[str, str]) -> None:
        rows.append(row)
        made_on.append(machine())  # now: the number of threads may be limited

    yield add
    if full and made_on:
        results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
        results[part] = {"machine": made_on[-1], "rows": rows}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(as_page(results), encoding="utf-8")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if config.getoption("benchmark_enable") and any(tables.values()):
        terminalreporter.section("benchmarks")
        terminalreporter.write_line(machine())
        for part, rows in tables.items():
            terminalreporter.write_line(f"\n{part}\n{as_table(rows)}" if rows else part)
