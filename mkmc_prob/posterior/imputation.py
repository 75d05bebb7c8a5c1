"""Multiple imputation: several completed stacks, drawn from a posterior or at a fit's estimate."""

from typing import Any, cast

import numpy as np
import scipy.linalg
import xarray as xr
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ..diagnostics.protocol import FitResult
from ..em.em import EM
from ..errors import KernelError, LabelError, MKMCError, warn
from ..linalg.rounding import rounding_share
from ..stacks.degrees import DegreesOfFreedom
from ..stacks.stack import check_stack, visible_objects
from ..utils.arguments import checked, optional, whole
from ..utils.arguments import seed as a_seed
from .entries import Entries
from .gibbs import GibbsSampler
from .run import PosteriorRun
from .sampler import Sampler

#: The values of the coordinate ``drawn_from`` of what `sample_completed` returns.
FROM_POSTERIOR, FROM_ESTIMATE = "posterior", "estimate"


@checked(draws=whole(least=1), seed=optional(a_seed))
def sample_completed(
    source: xr.DataTree | FitResult,
    *,
    draws: int,
    degrees_of_freedom: "DegreesOfFreedom | None" = None,
    seed: int | np.random.Generator | None = None,
    observed: xr.DataArray | None = None,
) -> xr.DataArray:
    """Draw completed stacks, instead of estimating one.

    From a posterior, each stack is drawn with its own model, so that the stacks vary as much as the
    data leave open (proper multiple imputation, Rubin 1987). From a fit, all are drawn given its
    one model and its sources, as `GibbsSampler.draw_completed` does (plug-in draws). These vary too
    little, because they ignore the uncertainty of the model, and are not for `pool_estimates`.

    Parameters
    ----------
    source
        What `sample_posterior` returned, or an `MKMCResult`.
    draws
        The number of stacks. From a posterior they are evenly spaced over all chains, and there are
        at most as many as it has draws of all entries; for independent ones, at most its effective
        sample size.
    degrees_of_freedom
        Needed for a fit, and only for a fit: nu_k as in `sample_posterior`. A posterior has its
        own.
    seed
        Needed for a fit, and only for a fit: a whole number or a generator. From a posterior,
        nothing new is drawn.
    observed
        The stack before `reduce_rank`: its visible entries replace their approximations. The
        completed kernels stay positive semidefinite, since what is added is.

    Returns
    -------
    DataArray
        Dims ``("imputation", "kernel", "object", "object_bis")``, without NaN, each kernel exactly
        symmetric; visible entries are those observed, bit for bit. It takes 8 draws K l^2 bytes.
        The coordinate ``drawn_from`` is ``"posterior"`` or ``"estimate"``.

    Raises
    ------
    KernelError
        If an argument cannot be used, or there is no Wishart matrix of these degrees of freedom.
    LabelError
        If `observed` has other kernels or objects.
    MKMCError
        If `source` is neither a posterior nor a fit, or has too few draws.

    Warns
    -----
    MKMCWarning
        If the draws are plug-in draws.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import sample_completed, sample_posterior, stack_kernels
    >>> stack = stack_kernels(np.stack([np.eye(2)] * 2), visible=[[1, 1], [1, 0]])
    >>> options = dict(degrees_of_freedom=9, strength=10.0, draws=300, tune=100, seed=1)
    >>> posterior = sample_posterior(stack, **options)
    >>> sample_completed(posterior, draws=20).sizes
    Frozen({'imputation': 20, 'kernel': 2, 'object': 2, 'object_bis': 2})
    """
    if isinstance(cast(Any, source), FitResult):
        entries, stack, hidden = _at_the_estimate(source, draws, degrees_of_freedom, seed)
        drawn_from = FROM_ESTIMATE
        warn(
            "these completions are drawn at the estimated model, as if it were known: they vary "
            "too little. Pass a posterior (sample_posterior) if the uncertainty matters."
        )
    else:
        for given, what in ((degrees_of_freedom, "degrees_of_freedom"), (seed, "seed")):
            if given is not None:
                raise KernelError(f"{what}: the posterior has its own. Omit it.")
        entries, stack, hidden = _from_the_posterior(source, draws)
        drawn_from = FROM_POSTERIOR
    if observed is not None:
        stack = _checked_against(observed, stack)
    coords: dict[Any, Any] = {dim: stack[dim].values for dim in stack.dims}
    coords["drawn_from"] = "imputation", np.full(draws, drawn_from)
    return xr.DataArray(
        entries.kernel_matrices(hidden, stack.values),
        dims=("imputation", *stack.dims),
        coords={"imputation": np.arange(draws)} | coords,
        name="completed",
        attrs={"long_name": "completed kernel matrices, drawn"},
    )


def _from_the_posterior(tree: Any, count: int) -> tuple[Entries, xr.DataArray, NDArray[np.float64]]:
    """Return the entries, the stack, and draws of the hidden entries."""
    run = PosteriorRun.from_datatree(tree)
    _check_hidden(run.sampler)
    draws = tree["thinned_posterior" if run.plan.every else "posterior"]["hidden"].values
    draws = draws.reshape(-1, draws.shape[-1])  # chain by chain
    if count > len(draws):
        more = " (quantile_draws=)" if run.plan.every else ""
        raise MKMCError(
            f"draws: {count} found, but the posterior has {len(draws)} draws of all entries. Ask "
            f"for fewer, or sample more{more}."
        )
    # The middles of `count` equal stretches.
    chosen = draws[((np.arange(count) + 0.5) * len(draws) / count).astype(np.intp)]
    return run.entries, run.stack, chosen


def _at_the_estimate(
    result: FitResult, count: int, degrees_of_freedom: Any, seed: Any
) -> tuple[Entries, xr.DataArray, NDArray[np.float64]]:
    """Return the entries, the stack, and draws of the hidden entries given the model."""
    if degrees_of_freedom is None:
        raise KernelError(
            "degrees_of_freedom: a fit does not say how many independent features each kernel was "
            "made of. Pass their numbers, as to sample_posterior."
        )
    if seed is None:
        raise KernelError("seed: draws from a fit need one. Pass a whole number.")
    rng = np.random.default_rng(seed)
    em = EM(result.observed, result.prior, degrees_of_freedom, result.sources)
    sampler, model = GibbsSampler(em), em.adapted(result.model)
    _check_hidden(sampler)
    with threadpool_limits(1):  # the same draws whatever the number of threads
        drawn = [sampler.draw_completed(model, rng).hidden for _ in range(count)]
    return Entries(em), em.stack, np.stack(drawn)


def _check_hidden(sampler: Sampler) -> None:
    if sampler.size == 0:
        raise MKMCError("the kernels hide nothing: there is nothing to draw.")


def _checked_against(observed: Any, stack: xr.DataArray) -> xr.DataArray:
    """Return `observed`; raise unless `reduce_rank` can have made `stack` of it."""
    given = check_stack(observed, what="observed")
    remedy = "Pass the stack that reduce_rank was given."
    for dim in ("kernel", "object"):
        if given[dim].values.tolist() != stack[dim].values.tolist():
            raise LabelError(
                f"observed: its {dim}s, or their order, are not those of the draws. {remedy}"
            )
    for name, visible, own, matrix, reduced, eps in zip(
        stack["kernel"].values.tolist(),
        visible_objects(stack).values,
        visible_objects(given).values,
        given.values,
        stack.values,
        given["rounding"].values.tolist(),
        strict=True,
    ):
        if (visible != own).any():
            label = stack["object"].values[visible != own].tolist()[0]
            raise KernelError(
                f"observed: kernel {name!r} shows object {label!r} in one of the stacks only. "
                f"{remedy}"
            )
        matrix, reduced = (each[np.ix_(visible, visible)] for each in (matrix, reduced))
        rest = matrix - reduced
        # What reduce_rank omits is positive semidefinite and orthogonal to what it keeps, up to
        # the rounding of the kernel itself.
        norm, tolerance = float(scipy.linalg.norm(matrix)), rounding_share(len(rest), eps)
        common = float((rest * reduced).sum())
        least = float(scipy.linalg.eigvalsh(rest)[0]) if rest.any() else 0.0
        if least < -tolerance * norm or common > tolerance * norm**2:
            raise KernelError(
                f"observed: the draws are not of an approximation of kernel {name!r}, which "
                f"differs by more than reduce_rank omits. {remedy}"
            )
    return given
