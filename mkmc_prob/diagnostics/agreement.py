"""Agreement between each kernel and the fitted model, by object and by kernel.

`plots` draws these tables. The rate of EM, other maxima and the choice of the strength are in
`fitting`.
"""

from collections.abc import Hashable, Iterator

import numpy as np
import pandas as pd
import xarray as xr

from ..em.completion import FactorAgreement, kernel_factors
from ..errors import IndefiniteKernelError, KernelError, warn
from ..evaluation.scores import kl_divergence
from ..linalg.cholesky import cholesky, inverse
from ..linalg.lazy import is_lazy
from ..model.conditional import LOG_2_PI, TOO_SINGULAR
from ..model.gaussian import GaussianModel
from ..model.low_rank import LowRankModel
from ..model.sources import Source, Sources
from ..stacks.matrix import labelled
from ..stacks.stack import visible_objects
from ..utils.arguments import checked
from ..utils.memory import in_words
from .protocol import FitResult, as_result

#: Numbers by factors are used if rounding may make up at most this share of them, by an estimate
#: that was up to 10^4 times too low where the noise is 10^-8 of the variance.
LARGEST_LOSS = 1e-10


@checked(result=as_result)
def object_predictive(result: FitResult) -> xr.DataArray:
    """Return the log density of each object given the kernel's other visible objects.

    The density is that of the fitted model, and its logarithm is averaged over the kernel: with
    R = M_vv^-1 (a Schur complement written in terms of the precision), it is

        -(1/2) [log 2 pi - log R_ii + (R Q_vv R)_ii / R_ii]    nats.

    Parameters
    ----------
    result
        A fit.

    Returns
    -------
    DataArray
        Dims ``(kernel, object)``, NaN if the object is hidden in the kernel. The lowest values
        mark the objects on which a kernel and the model disagree most; `disagreement` ranks them.

    Notes
    -----
    The values are exact given M. Because M was fitted to the same data, they are not out-of-sample
    scores, and they are not terms of the log-likelihood (they do not add up to it). An object that
    is visible in few kernels is predicted mostly from the kernel itself, so its score is not an
    independent check; `select_strength` scores held-out objects.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import diagnostics, fit, stack_kernels
    >>> stack = stack_kernels(np.stack([np.eye(3)] * 2), visible=[[1, 1, 0], [1, 0, 1]])
    >>> diagnostics.object_predictive(fit(stack)).isnull().sum().item()
    2
    """
    scores = predictive_scores(result)["log_density"].rename("object_predictive")
    scores.attrs = {
        "long_name": "log density of an object given the kernel's others",
        "units": "nats",
    }
    return scores


@checked(result=as_result)
def disagreement(result: FitResult) -> pd.DataFrame:
    """Rank the objects by how strongly each kernel disagrees with the model about them.

    Parameters
    ----------
    result
        A fit.

    Returns
    -------
    pandas.DataFrame
        One row per kernel and visible object, sorted by decreasing ``squared_residual``:
        ``kernel``; ``object``; ``log_density`` (`object_predictive`); ``squared_residual``, the
        expected squared residual of the object given the others over its conditional variance,
        (R Q_vv R)_ii / R_ii, which is 1 if kernel and model agree; ``kernels``, the number of
        kernels in which the object is visible; ``rank`` (1 is the largest residual); and
        ``rank_in_kernel``, the rank among the objects of the same kernel. The table is not sorted
        by the log density, which is also low for objects that are merely hard to predict.

    Notes
    -----
    The ranking finds an object that one kernel places differently from the others. If kernels
    differ in scale or noise, one of them fills the top ranks; use ``rank_in_kernel`` then.

    Compare residuals with each other, not with 1. Their level depends on the strength: M was
    fitted to these kernels, and the weaker the prior, the closer it comes to each of them; a
    strong prior gives large conditional variances and small residuals. An object that disagrees
    everywhere (differently in each kernel, or visible in one kernel only) is not found, because
    there is no consensus and the model follows it. In an experiment with 80 of the bundled digits,
    none missing, an object swapped with another in one of six kernels ranked (median) 11th of 80 in
    that kernel at strength 0.001, 5th at 0.1 and 3rd at 1, and 120th, 101st and 52nd of 480
    overall. An object swapped with different ones in all six ranked 35th, 32nd and 21st on
    average, little better than chance. The median residual was 1.0, 0.9 and 0.55. To find such
    objects, use a larger strength than for completing the kernels.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import diagnostics, fit, stack_kernels
    >>> kernels = np.stack([np.eye(3)] * 3)
    >>> kernels[2, 1, 1] = 9.0
    >>> diagnostics.disagreement(fit(stack_kernels(kernels))).loc[0, "kernel"]
    'Q3'
    """
    table = predictive_scores(result).to_dataframe().dropna().reset_index()
    table["kernels"] = table.groupby("object")["kernel"].transform("size")
    table = table.sort_values("squared_residual", ascending=False, kind="stable", ignore_index=True)
    table["rank"] = np.arange(1, len(table) + 1)
    table["rank_in_kernel"] = table.groupby("kernel").cumcount() + 1
    return table


@checked(result=as_result)
def kernel_agreement(result: FitResult) -> pd.DataFrame:
    """Compare each kernel with the model: scale, direction, rank and divergence.

    Parameters
    ----------
    result
        A fit.

    Returns
    -------
    pandas.DataFrame
        One row per kernel, with n_k visible objects: ``mahalanobis``, the expected squared
        Mahalanobis length divided by n_k, tr(M_vv^-1 Q_vv) / n_k, which is 1 if the scales agree
        (`GaussianModel.mahalanobis` returns the squared length itself, not divided);
        ``correlation``, tr(Q_vv M_vv) / (||Q_vv|| ||M_vv||); ``effective_rank``,
        (tr Q_vv)^2 / tr Q_vv^2, at most n_k; ``kl_divergence``, KL(N(0, Q_vv) || N(0, M_vv)) in
        nats, infinite if Q_vv is singular. With sources, M_vv stands for the kernel's own
        covariance under the model; ``mahalanobis`` and ``correlation`` are NaN for a kernel that
        shares nothing. All are NaN for a kernel without visible objects;
        ``mahalanobis`` is also NaN if M_vv is too close to singular, with a warning.

    Notes
    -----
    The model averages over the kernels, including the one it is compared with, which matters most
    if there are few kernels. Agreement does not prove that a kernel is good, nor disagreement that
    it is poor.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import diagnostics, fit, stack_kernels
    >>> result = fit(stack_kernels(np.stack([np.eye(3), np.ones((3, 3))])))
    >>> diagnostics.kernel_agreement(result)["effective_rank"].tolist()
    [3.0, 1.0]
    """
    ranks, divergences = [], []
    for _, kernel, model in _visible_blocks(result):
        scaled = kernel.values / (np.abs(kernel.values).max(initial=0.0) or 1.0)  # no overflow
        size = float(np.vdot(scaled, scaled))
        ranks.append(float(np.trace(scaled)) ** 2 / size if size else np.nan)
        divergences.append(kl_divergence(kernel, model) if kernel.size else np.nan)
    return agreement_with_model(result).assign(effective_rank=ranks, kl_divergence=divergences)


def agreement_with_model(result: FitResult) -> pd.DataFrame:
    """Return the columns ``mahalanobis`` and ``correlation`` of `kernel_agreement`."""
    rows = []
    index = pd.Index(result.observed["kernel"].values, name="kernel")
    by_factors = _accurate_factors(result)
    if by_factors is None and is_lazy(result.observed.data):
        warn(
            "the model is too close to singular for mahalanobis and correlation, which are left "
            "out (NaN). Raise the strength, or the noise_strength of the structure."
        )
        columns = {"mahalanobis": np.nan, "correlation": np.nan}
        return pd.DataFrame(columns, index=index)
    if by_factors is not None:
        for source, own in by_factors:
            shares = source.sharing > 0.0 and len(own.diagonal) > 0
            values = (own.mahalanobis, own.correlation) if shares else (np.nan, np.nan)
            rows.append(dict(zip(("mahalanobis", "correlation"), values, strict=True)))
        return pd.DataFrame(rows, index=index)
    for name, kernel, model in _visible_blocks(result):
        row = {"mahalanobis": np.nan, "correlation": np.nan}
        if float(result.sources["sharing"].sel(kernel=name)) == 0.0:
            rows.append(row)  # the kernel has nothing in common with the model
            continue
        if kernel.size:
            try:
                row["mahalanobis"] = GaussianModel(model).mahalanobis(kernel) / len(kernel)
            except IndefiniteKernelError as error:
                warn(f"kernel {name!r}: its mahalanobis is left out (NaN). {error}")
        if kernel.values.any():
            q, m = (block.values / np.abs(block.values).max() for block in (kernel, model))
            row["correlation"] = np.vdot(q, m) / (np.linalg.norm(q) * np.linalg.norm(m))
        rows.append(row)
    return pd.DataFrame(rows, index=index)


def predictive_scores(result: FitResult) -> xr.Dataset:
    """Return ``log_density`` and ``squared_residual`` (see `disagreement`), NaN if hidden."""
    visible = visible_objects(result.observed)
    density = xr.full_like(visible, np.nan, dtype=np.float64)
    residual = density.copy()
    by_factors = _accurate_factors(result)
    if by_factors is not None:
        for k, (_, own) in enumerate(by_factors):
            squared, precision, places = own.squared_residuals, own.precision_diagonal, own.v
            residual.values[k, places] = squared
            density.values[k, places] = -0.5 * (LOG_2_PI - np.log(precision) + squared)
        return xr.Dataset({"log_density": density, "squared_residual": residual})
    for k, (name, kernel, model) in enumerate(_visible_blocks(result)):
        what = f"kernel {name!r}: model matrix of its objects"
        factor = cholesky(model.values, what, model["object"].values, TOO_SINGULAR)
        precision = inverse(factor, overwrite=True)
        diagonal = np.diagonal(precision)
        squared = np.einsum("ij,ij->i", precision @ kernel.values, precision) / diagonal
        residual.values[k, visible.values[k]] = squared
        density.values[k, visible.values[k]] = -0.5 * (LOG_2_PI - np.log(diagonal) + squared)
    return xr.Dataset({"log_density": density, "squared_residual": residual})


def _by_factors(result: FitResult) -> Iterator[tuple[Source, FactorAgreement]]:
    """Yield each kernel of a model of few factors: one product with it, and nothing l x l."""
    assert isinstance(result.model, LowRankModel)
    stack = result.completion.kernels  # type: ignore[attr-defined]
    sources = Sources.of_dataset(result.sources, stack.names)
    for kernel, source in zip(stack.kernels(), sources, strict=True):
        loadings, noise = kernel_factors(source, sources.shared_constant, result.model)
        yield source, FactorAgreement.of(kernel, source.scale, loadings, noise)


def _accurate_factors(result: FitResult) -> list[tuple[Source, FactorAgreement]] | None:
    """Return what `_by_factors` yields; None if dense matrices are needed.

    That is for the full structure, and if too many digits are lost by factors.
    """
    if not isinstance(result.model, LowRankModel):
        return None
    found = list(_by_factors(result))
    lost = max((own.lost for _, own in found), default=0.0)
    return found if lost <= LARGEST_LOSS else None


def _visible_blocks(
    result: FitResult,
) -> Iterator[tuple[Hashable, xr.DataArray, xr.DataArray]]:
    """Yield the name of each kernel, its visible block and the model's covariance of it.

    That is M_vv for the paper's model, and d (s M_vv + (1 - s) T_vv + c J) with sources.
    """
    if is_lazy(result.observed.data):
        raise KernelError(
            "result: its kernels are not in memory, which this needs for these numbers: "
            f"{in_words(8.0 * result.observed.size)}. Fit some of the objects, "
            "fit(stack.load(objects), ...); result.summary() compares kernels with the model."
        )
    visible = visible_objects(result.observed)
    names, matrix = visible["kernel"].values.tolist(), result.model.matrix
    scale = None
    if not result.prior.is_identity:
        scale = result.prior.scale_matrix(result.model.objects)
    sources = Sources.of_dataset(result.sources, names)
    for name, own, source in zip(names, visible.values, sources, strict=True):
        places = np.ix_(own, own)
        block = source.covariance(matrix[places], None if scale is None else scale[places])
        kernel = result.observed.sel(kernel=name).isel({"object": own, "object_bis": own})
        yield name, kernel, labelled(block, result.model.objects[own], "model")
