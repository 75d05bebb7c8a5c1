"""The trace of an ascent: its record as a labeled Dataset."""

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
import xarray as xr

from .ascent import Ascent

#: Description and unit of each variable ("" if it has no unit).
VARIABLES = {
    "penalized_log_likelihood": ("penalized log-likelihood", "nats"),
    "log_likelihood": ("expected log-likelihood of each kernel", "nats"),
    "log_prior": ("log prior, without its constant", "nats"),
    "gain_q_function": ("rise of the Q-function in an EM step", "nats"),
    "gain_divergence": ("Kullback-Leibler part of the gain of an EM step", "nats"),
    "gain_constants": ("rise by the update of the kernels' constants", "nats"),
    "gradient_norm": ("norm of the gradient in EM's metric", ""),
    "step_length": ("length of the step in EM's metric", ""),
    "gain_to_come": ("estimated gain still to come", "nats"),
    "entries_to_come": ("estimated change of any entry still to come, by the diagonal", ""),
    "rounding_bound": ("bound on the rounding of the penalized log-likelihood", "nats"),
    "seconds": ("time since the start", "s"),
    "evaluations": ("evaluations of the EM map so far", ""),
}


def trace_of(
    ascent: Ascent,
    *,
    constant: float = 0.0,
    alone: Mapping[Hashable, float] | None = None,
    names: Sequence[Hashable] | None = None,
) -> xr.Dataset:
    """Return the record of an ascent as a Dataset with one entry per model matrix.

    Equations :eq:`eq-gain-q`, :eq:`eq-gain-kl`, :eq:`eq-three-gains`, :eq:`eq-metric` and
    :eq:`eq-gradient-norm` of the derivation.

    The gain of an EM step from M to M+ = F(M) has three nonnegative parts: the rise of the
    Q-function, ((lambda + N) / 2) (tr M^-1 M+ - l - log det M^-1 M+); the Kullback-Leibler
    divergences sum_k nu_k E_q KL(p(h|v, M) || p(h|v, M+)), computed as the difference; and the rise
    when the constants are updated for M+ (0 if none is estimated). They are NaN for other steps. If
    the method does not record them, the norm of the gradient before an EM step and the length of
    the step are set to sqrt(2 rise of Q / w), w the weight of the metric, to which both are equal
    to second order; they are NaN for other steps. For the full structure the metric is the
    affine-invariant one, the gradient B^-1 F(M) B'^-1 - I, and w = (lambda + N) / 2.

    The start is the first entry. The results of a step are stored with the model it led to.

    Parameters
    ----------
    ascent
        A finished ascent.
    constant
        Added to the log prior and the penalized log-likelihood, for objects left out of the
        ascent.
    alone
        The log-likelihoods of the kernels that were left out of the ascent, by name.
    names
        All kernels in their order; those of the ascent if left out.
    """
    records = ascent.records
    column = {
        name: np.array([getattr(record, name) for record in records]) for name in records[0]._fields
    }
    column["penalized_log_likelihood"] = column["penalized_log_likelihood"] + constant
    column["log_prior"] = column["log_prior"] + constant
    own, alone = ascent.em.names, alone or {}
    names = own if names is None else names
    kernels = np.empty((len(records), len(names)))
    for k, name in enumerate(names):
        if name in alone:
            kernels[:, k] = alone[name]
        else:
            kernels[:, k] = column["log_likelihood"][:, own.index(name)]
    column["log_likelihood"] = kernels
    added = float(sum(alone.values()))
    column["penalized_log_likelihood"] = column["penalized_log_likelihood"] + added
    constant += added
    # Adding the constant rounds, too, twice in each sum.
    sizes = abs(constant) + np.abs(column["penalized_log_likelihood"])
    eps = float(np.finfo(np.float64).eps)
    column["rounding_bound"] = column["rounding_bound"] + 2.0 * eps * sizes * bool(constant)
    divergence, moved, length = np.full((3, len(records)), np.nan)
    rise = column["rise_of_q"]
    by_em = column["by_em"][1:]
    gains = np.diff(column["penalized_log_likelihood"])
    moved[1:][by_em] = column["gain_of_constants"][1:][by_em]
    divergence[1:][by_em] = gains[by_em] - rise[1:][by_em] - moved[1:][by_em]
    length[1:] = np.sqrt(2.0 * np.maximum(rise[1:], 0.0) / ascent.em.metric_weight)
    recorded = column["gradient_norm"]
    column |= {
        "gain_q_function": rise,
        "gain_divergence": divergence,
        "gain_constants": moved,
        "step_length": np.where(np.isnan(column["step_length"]), length, column["step_length"]),
        "gradient_norm": np.where(np.isnan(recorded), np.append(length[1:], np.nan), recorded),
    }
    trace = xr.Dataset(
        {
            name: (
                ("iteration", "kernel") if name == "log_likelihood" else ("iteration",),
                column[name],
                {"long_name": words} | ({"units": unit} if unit else {}),
            )
            for name, (words, unit) in VARIABLES.items()
        },
        coords={"iteration": np.arange(len(records)), "kernel": list(names)},
    )
    trace.attrs["long_name"] = "trace of the ascent, one entry per model matrix"
    trace.attrs["limit"] = ascent.limit
    return trace
