"""Likelihood diagnostics: what a statistician asks after a fit, in numbers with labels.

Enters: a result, a trace or a stack. Leaves: labelled tables and arrays; `plots` draws them. What
the missing data cost (the rate of EM) is in `information`, other maxima in `maxima`, the choice of
the strength in `selection`.
"""

from collections.abc import Hashable

import numpy as np
import pandas as pd
import xarray as xr

from ..errors import IndefiniteKernelError, warn
from ..evaluation.scores import kl_divergence
from ..linalg.cholesky import cholesky, inverse
from ..model.conditional import LOG_2_PI, TOO_SINGULAR
from ..stacks.stack import visible_objects
from .fitted import FitResult, as_result


def object_predictive(result: FitResult) -> xr.DataArray:
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


def disagreement(result: FitResult) -> pd.DataFrame:
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


def kernel_agreement(result: FitResult) -> pd.DataFrame:
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
    table = agreement_with_model(result)
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


def agreement_with_model(result: FitResult) -> pd.DataFrame:
    """Return tr(M_vv^-1 Q_vv) / n_k and the correlation of Q_vv and M_vv, a row per kernel.

    `kernel_agreement` and `MKMCResult.summary` say what the two columns mean.
    """
    result = as_result(result)
    rows = []
    names = result.observed["kernel"].values
    for name, there in zip(names.tolist(), visible_objects(result.observed).values, strict=True):
        seen = {"object": there, "object_bis": there}
        block = result.observed.sel(kernel=name).isel(seen)
        model = result.model.covariance.isel(seen).values
        cosine = np.nan
        if there.any() and block.values.any():
            one = block.values / np.abs(block.values).max()  # no product under- or overflows
            two = model / np.abs(model).max()
            cosine = np.vdot(one, two) / (np.linalg.norm(one) * np.linalg.norm(two))
        length = _length(result, name, block) / there.sum() if there.any() else np.nan
        rows.append({"mahalanobis": length, "correlation": cosine})
    return pd.DataFrame(rows, index=pd.Index(names, name="kernel"))


def _length(result: FitResult, name: Hashable, block: xr.DataArray) -> float:
    """Return the expected squared Mahalanobis length of a kernel, NaN with a warning."""
    try:
        return result.model.mahalanobis(block)
    except IndefiniteKernelError as error:
        warn(f"kernel {name!r}: its mahalanobis is left out (NaN). {error}")
        return np.nan


def _scores(result: FitResult, *, residual: bool = False) -> xr.DataArray:
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
