"""Multiple imputation: several completed stacks instead of one, and answers pooled over them.

Enters: a posterior or a fit; a function of a completed stack. Leaves: completed stacks, drawn; and
the function's answer with an uncertainty that counts what is missing (Rubin's rules).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy import stats
from threadpoolctl import threadpool_limits

from .checks import generator, real_number, whole_number
from .degrees import DegreesOfFreedom, degrees_per_kernel
from .em import EM
from .entries import Entries
from .errors import KernelError, MKMCError, warn
from .gibbs import GibbsSampler
from .posterior_tree import run_of
from .result import MKMCResult

#: What `sample_completed` says of its draws in ``attrs["drawn_from"]``.
FROM_POSTERIOR, FROM_ESTIMATE = "posterior", "estimate"


def sample_completed(
    source: xr.DataTree | MKMCResult,
    *,
    draws: int,
    degrees_of_freedom: "DegreesOfFreedom | None" = None,
    seed: int | np.random.Generator | None = None,
) -> xr.DataArray:
    """Return completed stacks that are drawn, not estimated.

    From a posterior: every stack with a model of its own, so that they scatter as much as the data
    leave open (proper multiple imputation, Rubin 1987). From a fit: all given its one model, as
    `GibbsSampler.draw_completed` draws them (plug-in). These scatter too little, by all that is
    not known of the model, and are not for `pool_estimates`.

    Parameters
    ----------
    source
        What `sample_posterior` returned, or an `MKMCResult`.
    draws
        How many. From a posterior, evenly spaced over all chains: no more than it has draws of all
        entries; for independent ones no more than its effective sample size.
    degrees_of_freedom
        For a fit only, and needed there: nu_k as in `sample_posterior`. A posterior has its own.
    seed
        For a fit only, and needed there: a whole number or a generator. From a posterior nothing
        is drawn anew.

    Returns
    -------
    DataArray
        Dims ``("imputation", "kernel", "object", "object_bis")``, without NaN, each kernel exactly
        symmetric; visible entries are those observed, bit for bit. 8 draws K l^2 bytes.
        ``attrs["drawn_from"]`` is ``"posterior"`` or ``"estimate"``.

    Raises
    ------
    KernelError
        Where an argument cannot be used, or the degrees of freedom make no Wishart matrix.
    MKMCError
        Where `source` is neither, or has too few draws.

    Warns
    -----
    MKMCWarning
        Where the draws are plug-in draws.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import sample_completed, sample_posterior, stack_kernels
    >>> stack = stack_kernels(np.stack([np.eye(2)] * 2), visible=[[1, 1], [1, 0]])
    >>> posterior = sample_posterior(stack, degrees_of_freedom=9, strength=2.0, draws=2000, seed=1)
    >>> sample_completed(posterior, draws=20).sizes
    Frozen({'imputation': 20, 'kernel': 2, 'object': 2, 'object_bis': 2})
    """
    count = whole_number(draws, "draws", least=1)
    if isinstance(source, MKMCResult):
        completed = _given_the_estimate(source, count, degrees_of_freedom, seed)
        drawn_from = FROM_ESTIMATE
        warn(
            "these completions are drawn at the estimated model, as if it were known: they scatter "
            "too little. Pass a posterior (sample_posterior) where the uncertainty matters."
        )
    else:
        for given, what in ((degrees_of_freedom, "degrees_of_freedom"), (seed, "seed")):
            if given is not None:
                raise KernelError(f"{what}: the posterior has its own. Leave it out.")
        completed = _of_the_posterior(source, count)
        drawn_from = FROM_POSTERIOR
    completed.attrs = {"long_name": "completed kernel matrices, drawn", "drawn_from": drawn_from}
    return completed


def pool_estimates(
    function: Callable[[xr.DataArray], Any],
    completed: xr.DataArray,
    *,
    complete_degrees_of_freedom: float = np.inf,
    confidence: float = 0.95,
) -> xr.Dataset:
    """Apply a function to every completed stack, and pool what it returns by Rubin's rules.

    With m stacks, estimates q_i and their variances u_i for complete data:

        q = mean q_i,  W = mean u_i,  B = sum (q_i - q)^2 / (m - 1),  T = W + (1 + 1/m) B,

    and (q - true value) / sqrt(T) is Student's t with nu degrees of freedom, where
    lambda = (1 + 1/m) B / T is the share of the variance that is due to what is missing,
    1/nu = lambda^2 / (m - 1) + 1/nu_obs, nu_obs = nu_com (nu_com + 1) / (nu_com + 3) (1 - lambda)
    (Rubin 1987, *Multiple Imputation for Nonresponse in Surveys*, 3.1; Barnard and Rubin 1999,
    *Biometrika* 86, 948).

    Parameters
    ----------
    function
        From a completed stack, dims ``("kernel", "object", "object_bis")``, to an estimate or to
        ``(estimate, variance)``: numbers, arrays or labelled arrays of one shape, entry by entry.
        An estimate alone describes these very objects: u_i = 0.
    completed
        At least two, of `sample_completed` from a posterior.
    complete_degrees_of_freedom
        nu_com, those of the function's own t-test with nothing missing; infinite is a normal one.
    confidence
        Of the intervals, between 0 and 1.

    Returns
    -------
    Dataset
        Over the dims of the estimate: ``estimate``, ``standard_error`` (sqrt T), ``lower`` and
        ``upper``, ``within`` (W), ``between`` (B), ``degrees_of_freedom`` (nu),
        ``missing_share`` (lambda) and ``missing_information``, the fraction of information that is
        missing, (r + 2 / (nu + 3)) / (r + 1) with r = (1 + 1/m) B / W.

    Raises
    ------
    MKMCError
        Where the stacks were not drawn from a posterior: Rubin's rules hold for proper imputations
        only; where there are less than two; where what the function returns is not finite, differs
        in shape, or has a negative variance.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import pool_estimates, sample_completed, sample_posterior, stack_kernels
    >>> stack = stack_kernels(np.stack([np.eye(2)] * 2), visible=[[1, 1], [1, 0]])
    >>> posterior = sample_posterior(stack, degrees_of_freedom=9, strength=2.0, draws=2000, seed=1)
    >>> completed = sample_completed(posterior, draws=50)
    >>> pooled = pool_estimates(lambda stack: stack.mean(("object", "object_bis")), completed)
    >>> pooled["missing_share"].values  # one estimate does not vary, the other misses all
    array([0., 1.])
    """
    stacks = _checked(completed)
    m = len(stacks)
    level = real_number(confidence)
    if level is None or not 0.0 < level < 1.0:
        raise MKMCError(f"confidence: {confidence!r} found; a number between 0 and 1 is needed.")
    complete = real_number(complete_degrees_of_freedom)
    if complete_degrees_of_freedom == np.inf:
        complete = np.inf
    if complete is None or not complete > 0.0:
        raise MKMCError(
            f"complete_degrees_of_freedom: {complete_degrees_of_freedom!r} found; a number > 0 is "
            "needed, or infinity."
        )
    answers = [_answer(function, stack, i) for i, stack in enumerate(stacks)]
    first = answers[0][0]
    for i, answer in enumerate(answers):
        for part in answer:
            if part.dims != first.dims or part.shape != first.shape:
                raise MKMCError(
                    f"function: shape {part.shape} {part.dims} found for imputation {i}, "
                    f"{first.shape} {first.dims} for the first. All must be alike."
                )
    estimates = np.stack([estimate.values for estimate, _ in answers])
    within = np.stack([variance.values for _, variance in answers]).mean(axis=0)
    # From the first: what does not vary has no variance, whatever the rounding of a mean.
    apart = estimates - estimates[0]
    mean = estimates[0] + apart.mean(axis=0)
    between = apart.var(axis=0, ddof=1)
    extra = (1.0 + 1.0 / m) * between
    total = within + extra
    share = np.divide(extra, total, out=np.zeros_like(total), where=total > 0.0)
    nu = _degrees(share, within, m, complete)
    half = stats.t.ppf(0.5 + level / 2.0, nu) * np.sqrt(total)
    # r / (r + 1) is lambda, and 1 / (r + 1) is 1 - lambda: no division by W.
    information = share + (1.0 - share) * 2.0 / (nu + 3.0)
    values = {
        "estimate": mean,
        "standard_error": np.sqrt(total),
        "lower": mean - half,
        "upper": mean + half,
        "within": within,
        "between": between,
        "degrees_of_freedom": nu,
        "missing_share": share,
        "missing_information": np.where(total > 0.0, information, 0.0),
    }
    pooled = xr.Dataset({name: first.copy(data=value) for name, value in values.items()})
    pooled.attrs = {"imputations": m, "confidence": level}
    return pooled


def _degrees(
    share: NDArray[np.float64], within: NDArray[np.float64], m: int, complete: float
) -> NDArray[np.float64]:
    """Return Barnard and Rubin's degrees of freedom; without a complete-data variance, m - 1."""
    of_missing = np.divide(share**2, m - 1)
    if np.isinf(complete):
        of_observed = np.zeros_like(share)
    else:
        observed = complete * (complete + 1.0) / (complete + 3.0) * (1.0 - share)
        of_observed = np.divide(1.0, observed, out=np.zeros_like(share), where=within > 0.0)
    inverse = of_missing + of_observed
    return np.divide(1.0, inverse, out=np.full_like(share, np.inf), where=inverse > 0.0)


def _of_the_posterior(tree: Any, count: int) -> xr.DataArray:
    run = run_of(tree)
    group = tree["thinned_posterior" if run.plan.every else "posterior"].to_dataset()
    if run.sampler.size == 0:
        raise MKMCError("the kernels hide nothing: there is nothing to draw.")
    draws = group["hidden"].values
    draws = draws.reshape(-1, draws.shape[-1])  # chain by chain
    if count > len(draws):
        more = " (quantile_draws=)" if run.plan.every else ""
        raise MKMCError(
            f"draws: {count} found, but the posterior has {len(draws)} draws of all entries. Ask "
            f"for fewer, or sample more{more}."
        )
    # The middles of `count` equal stretches.
    chosen = draws[((np.arange(count) + 0.5) * len(draws) / count).astype(np.intp)]
    return _stacked(run.entries, run.stack, chosen)


def _given_the_estimate(
    result: MKMCResult, count: int, degrees_of_freedom: Any, seed: Any
) -> xr.DataArray:
    if degrees_of_freedom is None:
        raise KernelError(
            "degrees_of_freedom: a fit does not say how many independent features make each "
            "kernel. Pass their numbers, as to sample_posterior."
        )
    if seed is None:
        raise KernelError("seed: draws from a fit need one. Pass a whole number.")
    rng = generator(seed)
    stack = result.observed
    nu = degrees_per_kernel(degrees_of_freedom, stack["kernel"].values.tolist())
    em = EM(stack, result.prior, nu)
    sampler, entries = GibbsSampler(em), Entries(em)
    if sampler.size == 0:
        raise MKMCError("the kernels hide nothing: there is nothing to draw.")
    with threadpool_limits(1):  # as the posterior's: the same draws whatever the machine's threads
        drawn = [sampler.draw_completed(result.model, rng).hidden for _ in range(count)]
    return _stacked(entries, em.stack, np.stack(drawn))


def _stacked(entries: Entries, stack: xr.DataArray, hidden: NDArray[np.float64]) -> xr.DataArray:
    return xr.DataArray(
        entries.kernel_matrices(hidden, stack.values),
        dims=("imputation", *stack.dims),
        coords={
            "imputation": np.arange(len(hidden)),
            "kernel": stack["kernel"].values,
            "object": stack["object"].values,
            "object_bis": stack["object"].values,
        },
        name="completed",
    )


def _checked(completed: Any) -> xr.DataArray:
    dims = ("imputation", "kernel", "object", "object_bis")
    if not isinstance(completed, xr.DataArray) or completed.dims != dims:
        raise MKMCError(f"completed: dims {dims} are needed. Pass what sample_completed returns.")
    if completed.attrs.get("drawn_from") != FROM_POSTERIOR:
        raise MKMCError(
            "completed: not drawn from a posterior. Rubin's rules need draws whose models were "
            "drawn, too: completions at an estimate understate the variance. Pass "
            "sample_completed(posterior, draws=...)."
        )
    if len(completed) < 2:
        raise MKMCError("completed: one stack has no variance. Draw two at least, better 20.")
    return completed


def _answer(
    function: Callable[[xr.DataArray], Any], stack: xr.DataArray, place: int
) -> tuple[xr.DataArray, xr.DataArray]:
    """Return what the function says of one stack: estimate and variance, labelled, finite."""
    answer = function(stack)
    estimate, variance = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, 0.0)
    try:
        labelled = _labelled(estimate)
        spread = _labelled(variance)
    except (TypeError, ValueError) as error:
        raise MKMCError(
            f"function: {answer!r} found for imputation {place}; numbers are needed, an estimate "
            "or (estimate, variance)."
        ) from error
    if spread.ndim == 0:
        spread = xr.full_like(labelled, spread.item())
    if not (np.isfinite(labelled).all() and np.isfinite(spread).all() and (spread >= 0.0).all()):
        raise MKMCError(
            f"function: an estimate or a variance for imputation {place} is not finite, or a "
            "variance is negative. Such answers cannot be pooled."
        )
    return labelled, spread


def _labelled(values: Any) -> xr.DataArray:
    if not isinstance(values, xr.DataArray):
        array = np.asarray(values)
        if array.dtype.kind not in "biuf":
            raise TypeError("not numbers")
        values = xr.DataArray(array, dims=[f"dim_{i}" for i in range(array.ndim)])
    plain: xr.DataArray = values.reset_coords(drop=True).astype(np.float64)
    return plain
