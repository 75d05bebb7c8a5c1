"""What a posterior lacks: chains that have not mixed, entries that the data say too little of.

Enters: the sampled entries, and the tree of the draws. Leaves: warnings that name the worst.
"""

from typing import Any

import numpy as np
import xarray as xr

from ..errors import ConvergenceWarning, IdentifiabilityWarning, warn
from .entries import Entries

#: Vehtari et al. 2021, Bayesian Analysis 16, 667.
LARGEST_R_HAT = 1.01


SMALLEST_SIZE = 400.0


#: So many entries of a variable are looked at, evenly spread; each takes some milliseconds.
LOOKED_AT = 500


def warn_of_entries(entries: Entries) -> None:
    """Warn of entries that only the prior determines, and of those without a variance."""
    lower = entries.lower
    alone = int(entries.prior_only[lower].sum())
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
            "errors of means describe them: take quantiles. posterior_summary flags them "
            "(has_variance).",
            IdentifiabilityWarning,
        )


def warn_of_chains(tree: xr.DataTree) -> None:
    """Warn where ArviZ's diagnostics say that the chains have not mixed, or are too short."""
    import arviz_stats  # slow to import

    stats: Any = arviz_stats

    kept = tree["posterior"].to_dataset().assign(lp=tree["sample_stats"]["lp"])
    dims = ["chain", "draw"]
    worst: dict[str, tuple[float, str]] = {}
    for what in ("r_hat", "bulk", "tail"):
        for name in kept.data_vars:
            values = kept[name]
            if values.ndim > 2 and values.shape[2] > LOOKED_AT:
                places = np.linspace(0, values.shape[2] - 1, LOOKED_AT).astype(np.intp)
                values = values[:, :, places]
            if what == "r_hat" and values.sizes["chain"] < 2:
                continue
            with np.errstate(divide="ignore", invalid="ignore"):  # of constants: NaN, see below
                if what == "r_hat":
                    found = stats.rhat(values, sample_dims=dims)
                else:
                    found = stats.ess(values, sample_dims=dims, method=what)
            sign = 1.0 if what == "r_hat" else -1.0
            flat = sign * np.atleast_1d(found.values)
            # NaN: constant to all digits, or not finite; it must not pass for mixed.
            at = int(np.argmax(np.where(np.isnan(flat), np.inf, flat)))
            entry = str(name)
            if found.ndim:
                entry = f"{name} {kept[found.dims[0]].values[at]!s}"
            if what not in worst or not flat[at] <= sign * worst[what][0]:
                worst[what] = float(sign * flat[at]), entry
    messages = []
    if "r_hat" in worst and not worst["r_hat"][0] <= LARGEST_R_HAT:
        value, entry = worst["r_hat"]
        messages.append(f"R-hat is up to {value:.3f} ({entry}), above {LARGEST_R_HAT:g}")
    size, entry = min(
        (worst[what] for what in ("bulk", "tail")),
        key=lambda found: -np.inf if np.isnan(found[0]) else found[0],
    )
    if not size >= SMALLEST_SIZE:
        messages.append(f"the effective sample size is down to {size:.0f} ({entry}), below 400")
    if messages:
        warn(
            f"{'; '.join(messages)}: the chains are too short. Go on with "
            "continue_posterior(tree, draws=...), or take more draws.",
            ConvergenceWarning,
        )
