"""The trace of an ascent: its record, labelled.

Enters: a finished `Ascent`. Leaves: an `xarray.Dataset` with one entry per model matrix, the start
included, and, what a step did, with the model that it led to.
"""

import numpy as np
import xarray as xr

from .ascent import Ascent

#: By variable: what it is, and its unit ("" where it has none).
VARIABLES = {
    "penalized_log_likelihood": ("penalized log-likelihood", "nats"),
    "log_likelihood": ("expected log-likelihood of each kernel", "nats"),
    "log_prior": ("log prior, without its constant", "nats"),
    "gain_q_function": ("rise of the Q-function in an EM step", "nats"),
    "gain_divergence": ("Kullback-Leibler part of the gain of an EM step", "nats"),
    "gradient_norm": ("norm of the gradient, ||B^-1 F(M) B'^-1 - I||", ""),
    "step_length": ("length of the step in the affine-invariant metric", ""),
    "gain_to_come": ("estimated gain still to come", "nats"),
    "rounding_bound": ("bound on the rounding of the penalized log-likelihood", "nats"),
    "seconds": ("time since the start", "s"),
    "evaluations": ("evaluations of the EM map so far", ""),
}


def trace_of(ascent: Ascent, *, constant: float = 0.0) -> xr.Dataset:
    """Return the record of an ascent as a labelled trace.

    Equations :eq:`eq-gain-q`, :eq:`eq-gain-kl`, :eq:`eq-metric` and :eq:`eq-gradient-norm` of the
    derivation.

    The gain of an EM step from M to M+ = F(M) has two parts, neither negative: the rise of the
    Q-function, ((lambda + N) / 2) (tr M^-1 M+ - l - log det M^-1 M+), and the Kullback-Leibler
    divergences sum_k nu_k E_q KL(p(h|v, M) || p(h|v, M+)), which come here by difference. They are
    NaN where a step was not EM's. Where the method knows no better, the norm of the gradient before
    an EM step and the length of the step are 2 sqrt(rise of Q / (lambda + N)), which is what both
    are to second order; NaN where no EM step tells.

    Parameters
    ----------
    ascent
        The ascent.
    constant
        What to add to the log prior and the log-likelihood, for objects left out of the ascent.
    """
    records = ascent.records
    column = {
        name: np.array([getattr(record, name) for record in records]) for name in records[0]._fields
    }
    column["penalized_log_likelihood"] = column["penalized_log_likelihood"] + constant
    column["log_prior"] = column["log_prior"] + constant
    # Adding it rounds, too, twice in each sum.
    sizes = abs(constant) + np.abs(column["penalized_log_likelihood"])
    eps = float(np.finfo(np.float64).eps)
    column["rounding_bound"] = column["rounding_bound"] + 2.0 * eps * sizes * bool(constant)
    weight = ascent.em.prior.strength + ascent.em.total_degrees_of_freedom
    rise, divergence, length = np.full((3, len(records)), np.nan)
    by_em = column["by_em"][1:]
    excess = column["update_trace"][:-1] - len(ascent.em.objects)
    excess -= np.diff(column["log_determinant"])
    rise[1:][by_em] = 0.5 * weight * excess[by_em]
    gains = np.diff(column["penalized_log_likelihood"])
    divergence[1:][by_em] = gains[by_em] - rise[1:][by_em]
    length[1:] = 2.0 * np.sqrt(np.maximum(rise[1:], 0.0) / weight)
    known = column["gradient_norm"]
    column |= {
        "gain_q_function": rise,
        "gain_divergence": divergence,
        "step_length": np.where(np.isnan(column["step_length"]), length, column["step_length"]),
        "gradient_norm": np.where(np.isnan(known), np.append(length[1:], np.nan), known),
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
        coords={"iteration": np.arange(len(records)), "kernel": ascent.em.names},
    )
    trace.attrs["long_name"] = "trace of the ascent, one entry per model matrix"
    return trace
