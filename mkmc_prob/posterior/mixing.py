"""Warnings about a posterior: chains that have not mixed, entries that the data leave open."""

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from ..errors import ConvergenceWarning, IdentifiabilityWarning, warn
from .entries import Entries

#: Vehtari et al. 2021, Bayesian Analysis 16, 667.
LARGEST_R_HAT = 1.01
SMALLEST_SIZE = 400
#: How many entries of a variable are examined, evenly spread; each takes some milliseconds.
EXAMINED = 500


def warn_of_entries(entries: Entries) -> None:
    """Warn of entries that only the prior determines, and of those without a variance."""
    lower = entries.lower
    alone = int(entries.prior_only[0][lower].sum())
    of_model, of_kernels = entries.has_variance
    without = int((~of_model[lower]).sum() + (~of_kernels[:, lower]).sum())
    if alone:
        warn(
            f"the prior alone determines {alone} of {lower.sum()} entries of the model: no chain "
            "of kernels ties their objects. posterior_summary['model_prior_only'] flags them.",
            IdentifiabilityWarning,
        )
    if without:
        warn(
            f"{without} entries have no variance in the posterior: the data and the prior count "
            "for too few observations. Their sd is infinite, and neither sd nor Monte Carlo "
            "errors of means describe them: use quantiles. posterior_summary flags them "
            "(has_variance).",
            IdentifiabilityWarning,
        )


def warn_of_chains(tree: xr.DataTree) -> None:
    """Warn if ArviZ's diagnostics find that the chains have not mixed, or are too short."""
    import arviz_stats  # slow to import

    stats: Any = arviz_stats
    parts = [tree["sample_stats"]["lp"].expand_dims(entry=["lp"], axis=2)]
    for name, draws in tree["posterior"].data_vars.items():
        dim, count = draws.dims[2], draws.shape[2]
        places = np.linspace(0, count - 1, min(count, EXAMINED)).astype(np.intp)
        own = draws[:, :, places].rename({dim: "entry"})
        parts.append(own.assign_coords(entry=[f"{name} {label}" for label in own["entry"].values]))
    examined = xr.concat(parts, "entry")
    dims = ["chain", "draw"]
    messages = []
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes = [stats.ess(examined, sample_dims=dims, method=how) for how in ("bulk", "tail")]
        r_hat = stats.rhat(examined, sample_dims=dims) if examined.sizes["chain"] > 1 else None
    # Constants have NaN, which must not pass for mixed.
    if r_hat is not None:
        ((entry, worst),) = r_hat.to_series().sort_values(na_position="last")[-1:].items()
        if not worst <= LARGEST_R_HAT:
            messages.append(f"R-hat is up to {worst:.3f} ({entry}), above {LARGEST_R_HAT:g}")
    ranked = pd.concat([size.to_series() for size in sizes]).sort_values(na_position="first")
    ((entry, worst),) = ranked[:1].items()
    if not worst >= SMALLEST_SIZE:
        messages.append(
            f"the effective sample size is down to {worst:.0f} ({entry}), below {SMALLEST_SIZE}"
        )
    if messages:
        warn(
            f"{'; '.join(messages)}: the chains are too short. Continue with "
            "continue_posterior(tree, draws=...), or sample more draws.",
            ConvergenceWarning,
        )
