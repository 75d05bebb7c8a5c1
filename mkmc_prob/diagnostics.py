"""Likelihood diagnostics: what a statistician asks after a fit, in numbers with labels.

Enters: a result, a trace or a stack. Leaves: labelled tables and arrays; `plots` draws them. What
the missing data cost (the rate of EM) is in `information`, other maxima in `maxima`, the choice of
the strength in `selection`.
"""

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from .conditional import LOG_2_PI, TOO_SINGULAR
from .errors import KernelError, MKMCError, MonotonicityError
from .kernels import visible_objects
from .labels import name_some
from .linalg import cholesky, inverse
from .metrics import kl_divergence
from .result import MKMCResult

#: An empirical rate is told where rounding moves it by no more than this share of 1 - rate.
CLEAR = 0.1


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
        Where `trace` is no trace, or misses a variable. Where the parts do not add up: the
        penalized log-likelihood is the sum of the kernels' terms and the log prior, the gain of an
        EM step that of its two parts, neither negative.

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
    trace = as_trace(
        trace,
        "penalized_log_likelihood",
        "log_likelihood",
        "log_prior",
        "rounding_bound",
        "gain_q_function",
        "gain_divergence",
    )
    level = trace["penalized_log_likelihood"].values
    bound = trace["rounding_bound"].values
    gain, rounding = np.diff(level), bound[1:] + bound[:-1]
    steps = trace["iteration"].values[1:]
    changed = "Fit again: the trace was changed, or the model is too near to singular."
    fell = ~(gain >= -rounding)
    if fell.any():
        at = int(np.argmax(fell))
        raise MonotonicityError(
            f"trace: the penalized log-likelihood changed by {gain[at]:.6g} nats in iteration "
            f"{steps[at]}, where rounding explains a fall of {rounding[at]:.3g} at most. {changed}"
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
                f"nats. {changed}"
            )
    for name in ("gain_q_function", "gain_divergence"):
        negative = trace[name].values[1:] < -rounding
        if negative.any():
            at = int(np.argmax(negative))
            raise MKMCError(
                f"trace: {name} is {trace[name].values[1:][at]:.6g} nats in iteration {steps[at]}; "
                f"it cannot be negative. {changed}"
            )
    return pd.DataFrame(
        {"gain": gain, "rounding": rounding, "clear": gain > rounding},
        index=pd.Index(steps, name="iteration"),
    )


def empirical_rate(trace: xr.Dataset) -> xr.DataArray:
    """Return the rate of EM as its own steps show it: the root of the ratio of successive gains.

    Near a maximum EM's distance to it shrinks by the rate r at every step, and so the gains, which
    are its squares, by r^2. From below, as the slower directions come to light, sqrt(gain of the
    step / gain of the step before) rises to the r that `missing_information` computes.

    Parameters
    ----------
    trace
        ``result.trace``.

    Returns
    -------
    DataArray
        Dims ``(iteration,)``; NaN unless the step and the one before were EM's, and their gains so
        far above rounding that it moves the rate by a tenth of 1 - rate at most.

    Raises
    ------
    MKMCError
        Where `trace` is no trace, or misses a variable.

    Notes
    -----
    Do not take the last value for r where it is still rising: the fit ended before the slowest
    direction was alone. With ``method="geodesic"`` few steps are EM's, and mostly nothing is told.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import diagnostics, fit, stack_kernels
    >>> stack = stack_kernels(np.stack([np.eye(3) + 1] * 2), visible=[[1, 1, 0], [1, 0, 1]])
    >>> rate = diagnostics.empirical_rate(fit(stack, method="em", tol=1e-6).trace)
    >>> bool((rate.dropna("iteration") < 1).all())
    True
    """
    trace = as_trace(trace, "penalized_log_likelihood", "rounding_bound", "gain_q_function")
    bound = trace["rounding_bound"].values
    gain, rounding = np.diff(trace["penalized_log_likelihood"].values), bound[1:] + bound[:-1]
    by_em = np.isfinite(trace["gain_q_function"].values[1:])
    told = by_em & (gain > rounding)
    gain, share = np.where(told, gain, np.nan), np.where(told, rounding, np.nan)
    share /= gain
    rate = np.full(len(bound), np.nan)
    rate[2:] = np.sqrt(gain[1:] / gain[:-1])
    doubt = 0.5 * rate[2:] * (share[1:] + share[:-1])
    rate[2:][~(doubt <= CLEAR * np.abs(1.0 - rate[2:]))] = np.nan
    return xr.DataArray(
        rate,
        dims="iteration",
        coords={"iteration": trace["iteration"].values},
        name="empirical_rate",
        attrs={"long_name": "root of the ratio of successive gains of EM steps"},
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


def never_seen_together(stack: xr.DataArray) -> xr.DataArray:
    """Return which pairs of objects no kernel sees together.

    Their entries are identified only through other objects, which some kernel sees with the one
    and some kernel with the other, and through the prior: read what is filled in there with care.
    Where no chain of kernels ties the two, or no kernel shows one of them, it is the prior alone.

    Parameters
    ----------
    stack
        The incomplete kernels, or a result's ``observed``.

    Returns
    -------
    DataArray
        Bool, dims ``(object, object_bis)``; on the diagonal, whether no kernel shows the object.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import diagnostics, stack_kernels
    >>> stack = stack_kernels(np.stack([np.eye(3)] * 2), visible=[[1, 1, 0], [1, 0, 1]])
    >>> diagnostics.never_seen_together(stack).values.astype(int)
    array([[0, 0, 0],
           [0, 0, 1],
           [0, 1, 0]])
    """
    never = pair_counts(stack) == 0
    never.name = "never_seen_together"
    never.attrs = {"long_name": "pairs that no kernel sees together"}
    return never


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
    scores = _scores(as_result(result))
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
        kernel and model agree), ``kernels``, how many kernels show the object, ``rank`` (1 the
        worst) and ``rank_in_kernel``, among the kernel's own objects. Sorted by the residual: the
        log density also falls where an object is merely hard to predict.

    Notes
    -----
    It finds an object that one kernel places elsewhere than the others do. Where kernels differ in
    scale or noise, one of them fills the upper ranks: then read ``rank_in_kernel``.

    Residuals compare with one another, not with 1. Their level depends on the strength: M was
    fitted to these kernels, and the weaker the prior the nearer it comes to what each of them says;
    a strong prior makes conditional variances large and residuals small. An object that disagrees
    everywhere (in each kernel otherwise, or shown by one kernel only) has no consensus to disagree
    with: the model is pulled to it, and it is not found. On 80 of the bundled digits, none missing,
    an object that changed places with another in one of six kernels came (median) 11th of 80 in
    that kernel at a strength of 0.001, 5th at 0.1, 3rd at 1, and 120th, 101st and 52nd of 480
    overall; one that changed places with different ones in all six came 35th, 32nd and 21st on
    average, little better than by chance. The median residual was 1.0, 0.9 and 0.55. To find
    objects, fit at a larger strength than to complete kernels.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import diagnostics, fit, stack_kernels
    >>> kernels = np.stack([np.eye(3)] * 3)
    >>> kernels[2, 1, 1] = 9.0
    >>> diagnostics.disagreement(fit(stack_kernels(kernels))).loc[0, "kernel"]
    'Q3'
    """
    result = as_result(result)
    density, residual = _scores(result), _scores(result, residual=True)
    seen = visible_objects(result.observed).sum("kernel").to_series()
    table = pd.DataFrame(
        {"log_density": density.to_series(), "squared_residual": residual.to_series()}
    ).dropna()
    table = table.reset_index()
    table["kernels"] = table["object"].map(seen).to_numpy()
    order = table["squared_residual"].sort_values(ascending=False, kind="stable").index
    table = table.loc[order].reset_index(drop=True)
    table["rank"] = np.arange(1, len(table) + 1)
    table["rank_in_kernel"] = table.groupby("kernel").cumcount() + 1
    return table


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
        nats, infinite where Q_vv is singular. NaN for a kernel that shows nothing, ``mahalanobis``
        also where `MKMCResult.summary` warns that it cannot be computed.

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
    table = as_result(result).summary()[["mahalanobis", "correlation"]]
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


def as_trace(given: Any, *needed: str) -> xr.Dataset:
    """Return `given` if it is a trace with the variables needed; raise MKMCError otherwise."""
    if not isinstance(given, xr.Dataset):
        raise MKMCError(
            f"trace: {type(given).__name__} found; the xarray.Dataset of a fit is needed. Pass "
            "result.trace."
        )
    if absent := [name for name in needed if name not in given.data_vars]:
        raise MKMCError(f"trace: it has no variable {name_some(absent)}. Pass result.trace whole.")
    for name in needed:
        dims = {"iteration", "kernel"} if name == "log_likelihood" else {"iteration"}
        found = given[name]
        if set(found.dims) != dims or not found.size or found.dtype.kind not in "fiu":
            raise MKMCError(
                f"trace: {name} has dims {found.dims}, shape {found.shape} and dtype "
                f"{found.dtype}; numbers over {tuple(sorted(dims))} are needed, one at least. Pass "
                "result.trace."
            )
    return given


def as_result(given: Any) -> MKMCResult:
    """Return `given` if it is a result; raise KernelError otherwise."""
    if not isinstance(given, MKMCResult):
        raise KernelError(
            f"result: {type(given).__name__} found; pass the MKMCResult that fit(stack) returns."
        )
    return given


def _scores(result: MKMCResult, *, residual: bool = False) -> xr.DataArray:
    """Return the log densities of `object_predictive`, or the squared residuals in them."""
    seen = visible_objects(result.observed)
    out = xr.full_like(seen, np.nan, dtype=np.float64)
    for k, there in enumerate(seen.values):
        if not there.any():
            continue
        block = np.ix_(there, there)
        labels = result.model.objects[there]
        what = f"kernel {seen['kernel'].values.tolist()[k]!r}: model matrix of its objects"
        factor = cholesky(result.model.matrix[block], what, labels, TOO_SINGULAR)
        precision = inverse(factor, overwrite=True)
        moment = result.observed.values[k][block]
        diagonal = np.diagonal(precision)
        squared = np.einsum("ij,ij->i", precision @ moment, precision) / diagonal
        density = -0.5 * (LOG_2_PI - np.log(diagonal) + squared)
        out.values[k, there] = squared if residual else density
    return out
