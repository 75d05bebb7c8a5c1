"""A prior of few factors.

Simulated relationship matrices: 200 individuals of four populations (Balding and Nichols, F_ST
0.1), five disjoint panels of 150 markers each, a relationship matrix per panel in which an
individual is missing with probability 0.55, and as the truth the relationship matrix of all
markers. 5 seeds, and one population for comparison. Relative errors (Frobenius) of the entries of
the model matrix whose individuals some panel shows together, of those that none does, and of the
completed rows, by `complete(stack, priors=(None,))` and `complete(stack)`, which tries `PPCA(3)`
and `PPCA(8)`.
"""

import warnings

import numpy as np

from mkmc_prob import complete, stack_kernels
from mkmc_prob.errors import MKMCWarning


def simulated(seed, *, populations, individuals, panels=5, markers=150, f_st=0.1, shown=0.45):
    """Return the kernels, the truth, and which individuals each panel shows."""
    rng = np.random.default_rng(seed)
    total = panels * markers
    ancestral = rng.uniform(0.1, 0.9, total)
    spread = (1.0 - f_st) / f_st
    frequencies = np.repeat(ancestral[None], populations, axis=0)
    if populations > 1:
        frequencies = rng.beta(frequencies * spread, (1.0 - frequencies) * spread)
    population = np.arange(individuals) % populations
    genotypes = rng.binomial(2, frequencies[population]).astype(float)
    own = genotypes.mean(axis=0) / 2.0
    used = (own > 0.02) & (own < 0.98)
    scaled = (genotypes[:, used] - 2.0 * own[used]) / np.sqrt(2.0 * own[used] * (1.0 - own[used]))
    panel = (np.arange(total) % panels)[used]
    parts = [scaled[:, panel == number] for number in range(panels)]
    kernels = np.array([part @ part.T / part.shape[1] for part in parts])
    visible = rng.random((panels, individuals)) < shown
    nowhere = np.flatnonzero(~visible.any(axis=0))
    visible[rng.integers(panels, size=len(nowhere)), nowhere] = True
    return kernels, scaled @ scaled.T / scaled.shape[1], visible


def errors(result, truth, visible):
    """Return the relative errors of seen pairs, of unseen pairs, and of completed rows."""
    together = (visible[:, :, None] & visible[:, None, :]).any(axis=0)
    apart, off = ~together, ~np.eye(len(truth), dtype=bool)
    pairs = [
        np.linalg.norm((result.model.matrix - truth)[chosen]) / np.linalg.norm(truth[chosen])
        for chosen in (together & off, apart & off)
    ]
    rows = [
        np.linalg.norm((completed - truth)[~shown]) / np.linalg.norm(truth[~shown])
        for completed, shown in zip(result.completed.values, visible, strict=True)
    ]
    return [*pairs, np.mean(rows)]


def test_relationship(full, benchmark, report):
    individuals, seeds = (200, range(5)) if full else (20, range(1))

    def measured():
        for populations in (4, 1):
            for seed in seeds:
                kernels, truth, visible = simulated(
                    seed, populations=populations, individuals=individuals
                )
                stack = stack_kernels(kernels, visible=visible)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", MKMCWarning)
                    without = complete(stack, priors=(None,))
                    chosen = complete(stack)
                yield populations, seed, visible, truth, without, chosen

    found = benchmark.pedantic(lambda: list(measured()), rounds=1)
    table = {}
    for populations, seed, visible, truth, without, chosen in found:
        together = (visible[:, :, None] & visible[:, None, :]).any(axis=0)
        prior = chosen.selection.chosen.prior
        both = [errors(each, truth, visible) for each in (without, chosen)]
        table.setdefault(populations, []).append((prior is not None, both))
        names = ("seen pairs", "unseen pairs", "rows")
        report(
            {
                "populations": str(populations),
                "seed": str(seed),
                "unseen pairs": f"{int(np.triu(~together, 1).sum()):,}",
                "prior chosen": "I + b J" if prior is None else prior.name,
                "strength": f"{chosen.selection.chosen.strength:g}",
            }
            | {
                f"{name}, {how}": f"{value:.3f}"
                for how, values in zip(("I + b J", "chosen"), both, strict=True)
                for name, value in zip(names, values, strict=True)
            }
        )
    for populations, rows in table.items():
        means = np.mean([both for _, both in rows], axis=0)
        report(
            {
                "populations": str(populations),
                "seed": "mean",
                "unseen pairs": "",
                "prior chosen": f"{sum(one for one, _ in rows)} of {len(rows)}",
                "strength": "",
            }
            | {
                f"{name}, {how}": f"{value:.3f}"
                for how, values in zip(("I + b J", "chosen"), means, strict=True)
                for name, value in zip(names, values, strict=True)
            }
        )
