"""Likelihood diagnostics: what a statistician asks after a fit, in numbers with labels.

Enters: a result, a trace or a stack. Leaves: labelled tables and arrays; `plots` draws them. What
the missing data cost (the rate of EM) is in `information`, other maxima in `maxima`, the choice of
the strength in `selection`.
"""

import numpy as np
import pandas as pd
import xarray as xr

from .conditional import LOG_2_PI, TOO_SINGULAR
from .errors import MKMCError, MonotonicityError
from .kernels import visible_objects
from .linalg import cholesky, inverse
from .metrics import kl_divergence
from .result import MKMCResult


def check_monotone(trace: xr.Dataset) -> pd.DataFrame:
    """Check that the penalized log-likelihood rose at every step, and that the trace adds up.

    Parameters
    ----------
    trace
        ``result.trace``.

    Returns
    -------
    pandas.DataFrame
        A row per step, indexed by iteration: ``gain``, the rise in nats; ``rounding``, what
        rounding can have made of it (the bounds at both models); ``clear``, whether the rise is
        more than that.

    Raises
    ------
    MonotonicityError
        Where the likelihood fell by more than rounding explains, or is no number.
    MKMCError
        Where the parts do not add up: the penalized log-likelihood is the sum of the kernels' terms
        and the log prior, the gain of an EM step that of its two parts, neither negative.

    Notes
    -----
    The derivation of the bound is in docs/numerics.md. A rise within it is no evidence against
    the step: near a maximum all rises are.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import diagnostics, fit, stack_kernels
    >>> kernels = np.array([[[2.0, 1.0], [1.0, 2.0]], [[1.0, 0.2], [0.2, 1.0]]])
    >>> result = fit(stack_kernels(kernels, visible=[[1, 1], [0, 1]]), method="em")
    >>> bool(diagnostics.check_monotone(result.trace)["clear"].all())
    True
    """
    level = trace["penalized_log_likelihood"].values
    bound = trace["rounding_bound"].values
    gain, rounding = np.diff(level), bound[1:] + bound[:-1]
    steps = trace["iteration"].values[1:]
    fell = ~(gain >= -rounding)
    if fell.any():
        at = int(np.argmax(fell))
        raise MonotonicityError(
            f"trace: the penalized log-likelihood changed by {gain[at]:.6g} nats in iteration "
            f"{steps[at]}, where rounding explains a fall of {rounding[at]:.3g} at most. Fit "
            "again: the trace was changed, or the model is too near to singular."
        )
    if not np.isfinite(bound).all() or not np.isfinite(trace["log_prior"]).all():
        raise MKMCError(
            "trace: rounding_bound or log_prior is not finite. Fit again: it was changed."
        )
    sums = {
        "the kernels' terms and the log prior": (
            trace["log_likelihood"].sum("kernel").values + trace["log_prior"].values - level,
            bound,
            trace["iteration"].values,
        ),
        "the two parts of the gain": (
            (trace["gain_q_function"] + trace["gain_divergence"]).values[1:] - gain,
            rounding,
            steps,
        ),
    }
    for what, (excess, allowed, iterations) in sums.items():
        wrong = np.abs(excess) > allowed  # NaN, where there are no parts, is not
        if wrong.any():
            at = int(np.argmax(wrong))
            raise MKMCError(
                f"trace: in iteration {iterations[at]} {what} miss the total by {excess[at]:.6g} "
                "nats. Fit again: the trace was changed."
            )
    for name in ("gain_q_function", "gain_divergence"):
        negative = trace[name].values[1:] < -rounding
        if negative.any():
            at = int(np.argmax(negative))
            raise MKMCError(
                f"trace: {name} is {trace[name].values[1:][at]:.6g} nats in iteration {steps[at]}; "
                "it cannot be negative. Fit again: the trace was changed."
            )
    return pd.DataFrame(
        {"gain": gain, "rounding": rounding, "clear": gain > rounding},
        index=pd.Index(steps, name="iteration"),
    )


def pair_counts(stack: xr.DataArray) -> xr.DataArray:
    """Count in how many kernels each pair of objects is seen together.

    Pairs with 0 are identified only through others, and through the prior: read what is filled in
    there with care.

    Parameters
    ----------
    stack
        The incomplete kernels, or a result's ``observed``.

    Returns
    -------
    DataArray
        Dims ``(object, object_bis)``, integers.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import diagnostics, stack_kernels
    >>> stack = stack_kernels(np.stack([np.eye(3)] * 2), visible=[[1, 1, 0], [1, 0, 1]])
    >>> diagnostics.pair_counts(stack).values
    array([[2, 1, 1],
           [1, 1, 0],
           [1, 0, 1]])
    """
    seen = visible_objects(stack)
    there = seen.values.astype(np.float64)
    objects = seen["object"].values
    return xr.DataArray(
        (there.T @ there).round().astype(int),
        dims=("object", "object_bis"),
        coords={"object": objects, "object_bis": objects},
        name="pair_counts",
        attrs={"long_name": "kernels in which both objects are seen"},
    )


def object_predictive(result: MKMCResult) -> xr.DataArray:
    """Return how well each object is predicted by the others, kernel by kernel.

    The log density of object i given the kernel's other visible objects, under the fitted model,
    expected under the kernel: with R = M_vv^-1 (a Schur complement written by the precision)

        -(1/2) [log 2 pi - log R_ii + (R Q_vv R)_ii / R_ii]    nats.

    Parameters
    ----------
    result
        A fit.

    Returns
    -------
    DataArray
        Dims ``(kernel, object)``, NaN where the kernel misses the object. The lowest are the
        objects about which a kernel disagrees most with the consensus; `disagreement` ranks them.

    Notes
    -----
    Exact given M. But M was fitted to these very data, so these are not out-of-sample scores, and
    they are not terms of the log-likelihood (they do not add up to it). An object that few kernels
    show is predicted mostly by the kernel itself: do not trust its score as an independent check;
    `select_strength` scores held-out objects.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import diagnostics, fit, stack_kernels
    >>> stack = stack_kernels(np.stack([np.eye(3)] * 2), visible=[[1, 1, 0], [1, 0, 1]])
    >>> diagnostics.object_predictive(fit(stack)).isnull().sum().item()
    2
    """
    scores = _scores(result)
    scores.name = "object_predictive"
    scores.attrs = {
        "long_name": "log density of an object given the kernel's others",
        "units": "nats",
    }
    return scores


def disagreement(result: MKMCResult) -> pd.DataFrame:
    """Rank the objects by how much a kernel disagrees with the model about them.

    Parameters
    ----------
    result
        A fit.

    Returns
    -------
    pandas.DataFrame
        A row per visible object and kernel, the worst first: ``kernel``, ``object``,
        ``log_density`` (`object_predictive`), ``squared_residual`` (the expected squared residual
        of the object given the others over its conditional variance, (R Q_vv R)_ii / R_ii: 1 where
        kernel and model agree) and ``kernels``, how many kernels show the object. Sorted by the
        residual: the log density also falls where an object is merely hard to predict.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import diagnostics, fit, stack_kernels
    >>> kernels = np.stack([np.eye(3)] * 3)
    >>> kernels[2, 1, 1] = 9.0
    >>> diagnostics.disagreement(fit(stack_kernels(kernels))).loc[0, "kernel"]
    'Q3'
    """
    density, residual = _scores(result), _scores(result, residual=True)
    seen = visible_objects(result.observed).sum("kernel").to_series()
    table = pd.DataFrame(
        {"log_density": density.to_series(), "squared_residual": residual.to_series()}
    ).dropna()
    table = table.reset_index()
    table["kernels"] = table["object"].map(seen).to_numpy()
    order = table["squared_residual"].sort_values(ascending=False, kind="stable").index
    return table.loc[order].reset_index(drop=True)


def kernel_agreement(result: MKMCResult) -> pd.DataFrame:
    """Return how each kernel relates to the model: scale, direction, rank, divergence.

    Parameters
    ----------
    result
        A fit.

    Returns
    -------
    pandas.DataFrame
        A row per kernel: ``mahalanobis``, tr(M_vv^-1 Q_vv) / n_k, 1 where the scales agree;
        ``correlation``, tr(Q_vv M_vv) / (||Q_vv|| ||M_vv||); ``effective_rank``,
        (tr Q_vv)^2 / tr Q_vv^2, of at most n_k; ``kl_divergence``, KL(N(0, Q_vv) || N(0, M_vv)) in
        nats, infinite where Q_vv is singular. NaN for a kernel that shows nothing.

    Notes
    -----
    The model is an average that contains the kernel itself, the more so the fewer kernels there
    are: agreement is no proof of quality, disagreement no proof of its lack.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import diagnostics, fit, stack_kernels
    >>> result = fit(stack_kernels(np.stack([np.eye(3), np.ones((3, 3))])))
    >>> diagnostics.kernel_agreement(result)["effective_rank"].tolist()
    [3.0, 1.0]
    """
    table = result.summary()[["mahalanobis", "correlation"]]
    ranks, divergences = [], []
    for name, there in zip(table.index, visible_objects(result.observed).values, strict=True):
        seen = {"object": there, "object_bis": there}
        block = result.observed.sel(kernel=name).isel(seen)
        if not there.any():
            ranks.append(np.nan)
            divergences.append(np.nan)
            continue
        largest = float(np.abs(block).max()) or 1.0
        scaled = block.values / largest  # no square under- or overflows
        size = float(np.vdot(scaled, scaled))
        ranks.append(float(np.trace(scaled)) ** 2 / size if size else np.nan)
        divergences.append(kl_divergence(block, result.model.covariance.isel(seen)))
    return table.assign(effective_rank=ranks, kl_divergence=divergences)


def _scores(result: MKMCResult, *, residual: bool = False) -> xr.DataArray:
    """Return the log densities of `object_predictive`, or the squared residuals in them."""
    seen = visible_objects(result.observed)
    out = xr.full_like(seen, np.nan, dtype=np.float64)
    for k, there in enumerate(seen.values):
        if not there.any():
            continue
        block = np.ix_(there, there)
        labels = result.model.objects[there]
        factor = cholesky(result.model.matrix[block], "model matrix", labels, TOO_SINGULAR)
        precision = inverse(factor, overwrite=True)
        moment = result.observed.values[k][block]
        diagonal = np.diagonal(precision)
        squared = np.einsum("ij,ij->i", precision @ moment, precision) / diagonal
        density = -0.5 * (LOG_2_PI - np.log(diagonal) + squared)
        out.values[k, there] = squared if residual else density
    return out
