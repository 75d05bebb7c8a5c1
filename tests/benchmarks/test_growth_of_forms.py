"""Growth by form, objects, kernels, missing rows and rank.

Seconds per evaluation of an accelerated fit (ten steps, everything included that the loop does),
and the peak of what it allocates (`tracemalloc`), in MB: for the full structure, for a model of few
factors with kernels in memory, for the same in zarr stores of float32 in chunks of 500, and for
kernels by 100 features. One of l, K, the share of missing rows and the rank is varied, the others
are l = 1,000 (full: 500), K = 4, 50 % and 20. Kernels have ten factors in common. The exponent is
the slope of a straight line through the logarithms; by shares, that of the visible rows.
"""

import time
import warnings

import numpy as np
from work import climb, peak_of

from mkmc_prob import EM, PPCA, Sources, WishartPrior, io, kernels, remove_objects, stack_kernels
from mkmc_prob.io import stores
from mkmc_prob.linalg import tiles

BASE = {"l": 1000, "K": 4, "missing": 0.5, "rank": 20}
VARIED = {
    "l": (500, 1000, 2000, 4000),
    "K": (2, 4, 8),
    "missing": (0.2, 0.5, 0.8),
    "rank": (5, 20, 80),
}


def tables(size, count):
    """Return tables of 100 features with ten factors in common."""
    rng = np.random.default_rng(0)
    common = rng.standard_normal((size, 10))
    return {
        f"k{k}": common @ rng.standard_normal((10, 100)) + rng.standard_normal((size, 100))
        for k in range(count)
    }


def problem(form, l, K, missing, rank, folder):  # noqa: E741
    """Return a stack of this form, and the structure."""
    found = tables(l, K)
    dense = stack_kernels({name: table @ table.T / 100 for name, table in found.items()})
    dense = remove_objects(dense, missing, seed=0)
    if form == "features":
        shown = dense.notnull().any("object_bis").values
        for own, table in zip(shown, found.values(), strict=True):
            table[~own] = np.nan
        return stack_kernels({name: kernels.Features(table) for name, table in found.items()})
    if form == "disk":
        io.write_stack(dense, folder / "stack.zarr", dtype="float32")
        return io.read_stack(folder / "stack.zarr")
    return dense


def test_growth_of_forms(full, benchmark, report, tmp_path, monkeypatch):
    for module in (tiles, stores):
        monkeypatch.setattr(module, "CHUNK" if module is stores else "TILE", 500 if full else 20)
    base = BASE if full else {"l": 40, "K": 2, "missing": 0.5, "rank": 2}
    varied = VARIED if full else {"l": (30, 40)}
    steps = 10 if full else 2

    def measured(form, at):
        stack = problem(form, folder=tmp_path, **at)
        structure = "full" if form == "full" else PPCA(at["rank"])
        em = EM(stack, WishartPrior(1.0), sources=Sources.estimated(stack), structure=structure)
        start = time.perf_counter()
        count = climb(em, "geodesic", steps)
        seconds = (time.perf_counter() - start) / count
        return seconds, peak_of(lambda: climb(em, "geodesic", 3)) / 1e6

    def once():
        for form in ("full", "in memory", "disk", "features"):
            for name, values in varied.items():
                if form == "full" and name == "rank":
                    continue
                own = base | ({"l": base["l"] // 2} if form == "full" else {})
                used = [value for value in values if form != "full" or name != "l" or value <= 2000]
                found = [measured(form, own | {name: value}) for value in used]
                x = [1 - value if name == "missing" else value for value in used]
                row = {"form": form, "varied": name, "values": ", ".join(f"{v:g}" for v in used)}
                for what, column in zip(("seconds", "MB"), zip(*found, strict=True), strict=True):
                    row[what] = ", ".join(f"{value:.3g}" for value in column)
                    slope = np.polyfit(np.log(x), np.log(column), 1)[0]
                    row[f"exponent of {what}"] = f"{slope:.2f}"
                report(row)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        benchmark.pedantic(once, rounds=1)
