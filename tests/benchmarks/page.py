"""The page ``docs/benchmarks.md``: the docstrings of the benchmarks, each with its last table.

Enters: rows of numbers and what they were measured on. Leaves: Markdown.
"""

import ast
import os
import platform
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from threadpoolctl import threadpool_info

import mkmc_prob

#: The parts, in the order of the page.
PARTS = (
    "per_step",
    "evaluations",
    "whole_fit",
    "growth",
    "memory",
    "quality",
    "few_factors",
    "relationship",
    "disk",
    "features",
    "growth_of_forms",
    "threads",
)
INTRODUCTION = """\
# Benchmarks

This page is written by `make bench`; `make bench ARGS="-k per_step"` runs one part and renews its
table alone. Times are medians in seconds. What is compared runs in one process in turns, one round
after the other, so that a change of the machine's speed hits all alike: trust the ratios, not the
seconds. Numbers of evaluations and of bytes do not depend on the machine, or hardly. The
environment variables `OPENBLAS_CORETYPE` and `OPENBLAS_L2_SIZE` are unset, and all cores are used
where nothing else is said.

The data are `make_fusion_problem()`, rows removed by `remove_objects(seed=0)`, and the bundled
digits. K is the number of kernels, l of objects, n and m of the visible and the missing ones of a
kernel.
"""


@cache
def processor() -> str:
    from cpuinfo import get_cpu_info  # a part of pytest-benchmark; slow to ask

    return str(get_cpu_info().get("brand_raw", platform.machine()))


def machine() -> str:
    """Say what the numbers are measured on: no paths, no names of hosts."""
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    blas = {f"{p['internal_api']} {p['version']} (threads: {p['num_threads']})" for p in pools}
    return (
        f"{processor()}, {os.cpu_count()} cores; {platform.system()}, "
        f"Python {platform.python_version()}, NumPy {np.__version__}, "
        f"SciPy {scipy.__version__}, mkmc_prob {mkmc_prob.__version__}; "
        f"BLAS: {', '.join(sorted(blas)) or 'unknown'}"
    )


def as_table(rows: list[dict[str, str]]) -> str:
    columns = list(rows[0])
    lines = [columns, ["---"] * len(columns), *(list(row.values()) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def as_page(results: dict[str, Any]) -> str:
    sections = [INTRODUCTION]
    for part in PARTS:
        source = Path(__file__).with_name(f"test_{part}.py").read_text(encoding="utf-8")
        title, _, text = str(ast.get_docstring(ast.parse(source))).partition("\n\n")
        found = results.get(part)
        table = f"{as_table(found['rows'])}\n\n{found['machine']}." if found else "Not run yet."
        command = f'`make bench ARGS="-k {part}"`'
        sections.append(f"## {title.rstrip('.')}\n\n{text}\n\n{table}\n\n{command}\n")
    return "\n".join(sections)
