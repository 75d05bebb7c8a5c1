"""Standard errors against the posterior and against simulated estimates; run by its name alone.

    python tests/slow/standard_errors.py

The table shows quantiles of the ratio of the posterior's standard deviation of each entry of the
model matrix to its standard error, for linear kernels of 20 digits: at two strengths, and with
4 and 16 times the degrees of freedom and the strength, which leaves the model as it is. The last
row is the ratio of the standard deviation of estimates over simulated problems to the mean standard
error.
"""

import numpy as np
import pandas as pd

from mkmc_prob import (
    datasets,
    effective_degrees_of_freedom,
    fit,
    reduce_rank,
    remove_objects,
    sample_posterior,
    stack_kernels,
    standard_errors,
)

QUANTILES = [0.05, 0.25, 0.5, 0.75, 0.95]


def against_the_posterior(strength, factor, draws=2000):
    """Return the ratios of all entries whose pair some kernel shows."""
    kernels, _ = datasets.load_multiple_features(2, kernel="linear", sources=["fou", "kar", "zer"])
    stack = remove_objects(kernels, 0.2, seed=0)
    nu = effective_degrees_of_freedom(stack).round()
    options = {
        "strength": strength * factor,
        "degrees_of_freedom": factor * nu,
        "sources": "identical",
    }
    reduced = reduce_rank(stack, nu)
    posterior = sample_posterior(reduced, **options, draws=draws, tune=300, seed=1, keep=[])
    found = standard_errors(fit(reduced, tol=1e-8, **options))
    places = {"object": found["object"], "object_bis": found["object_bis"]}
    sd = posterior["posterior_summary"]["model_sd"].sel(places)
    ratio = (sd / found["standard_error"]).values
    return ratio, (places["object"] == places["object_bis"]).values


def against_simulation(size=6, nu=100, repetitions=400):
    """Return the ratios for kernels with features from a known model matrix."""
    rng = np.random.default_rng(0)
    classes = np.arange(size) % 2
    truth = 0.5 * (classes[:, None] == classes) + 0.5 * np.eye(size)
    visible = np.ones((3, size), dtype=bool)
    visible[0, :2] = visible[1, 2:4] = visible[2, 4:] = False
    root, estimates, claimed = np.linalg.cholesky(truth), [], []
    for _ in range(repetitions):
        features = root @ rng.standard_normal((3, size, nu))
        stack = stack_kernels(features @ features.transpose(0, 2, 1) / nu, visible=visible)
        result = fit(stack, strength=1.0, degrees_of_freedom=nu, sources="identical")
        found = standard_errors(result)
        estimates.append(found["value"].values)
        claimed.append(found["standard_error"].values)
    return np.std(estimates, axis=0) / np.mean(claimed, axis=0)


def main():
    rows = {}
    for strength, factor in ((3, 1), (30, 1), (30, 4), (30, 16)):
        ratio, diagonal = against_the_posterior(strength, factor)
        name = f"strength {strength}, {factor} x"
        rows[f"{name}, off the diagonal"] = np.quantile(ratio[~diagonal], QUANTILES)
        rows[f"{name}, on the diagonal"] = np.quantile(ratio[diagonal], QUANTILES)
    rows["simulation"] = np.quantile(against_simulation(), QUANTILES)
    print(pd.DataFrame(rows, index=QUANTILES).T.round(3))


if __name__ == "__main__":
    main()
