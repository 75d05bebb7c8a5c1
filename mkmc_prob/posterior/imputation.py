"""Multiple imputation: several completed stacks instead of one, drawn.

Enters: a posterior, or a fit. Leaves: completed stacks, which `pooling` hands to any function.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import xarray as xr
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ..diagnostics.fitted import FitResult, is_result
from ..em.em import EM
from ..errors import KernelError, LabelError, MKMCError, warn
from ..linalg.rounding import rounding_share
from ..stacks.degrees import DegreesOfFreedom, degrees_per_kernel
from ..stacks.stack import check_stack, visible_objects
from ..utils.arguments import generator, whole_number
from .entries import Entries
from .gibbs import GibbsSampler
from .run import run_of

#: What `sample_completed` says of its draws in the coordinate ``drawn_from``.
FROM_POSTERIOR, FROM_ESTIMATE = "posterior", "estimate"


class _Drawn(NamedTuple):
    """Draws of the hidden entries, with what says where they belong."""

    entries: Entries
    stack: xr.DataArray
    hidden: NDArray[np.float64]


def sample_completed(
    source: xr.DataTree | FitResult,
    *,
    draws: int,
    degrees_of_freedom: "DegreesOfFreedom | None" = None,
    seed: int | np.random.Generator | None = None,
    observed: xr.DataArray | None = None,
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
    observed
        The stack before `reduce_rank`: its visible entries take the place of their approximations.
        The completed kernels stay positive semidefinite, for what is added is.

    Returns
    -------
    DataArray
        Dims ``("imputation", "kernel", "object", "object_bis")``, without NaN, each kernel exactly
        symmetric; visible entries are those observed, bit for bit. 8 draws K l^2 bytes.
        The coordinate ``drawn_from`` is ``"posterior"`` or ``"estimate"``.

    Raises
    ------
    KernelError
        Where an argument cannot be used, or the degrees of freedom make no Wishart matrix.
    LabelError
        Where `observed` has other kernels or objects.
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
    if is_result(source):
        drawn = _given_the_estimate(source, count, degrees_of_freedom, seed)
        drawn_from = FROM_ESTIMATE
        warn(
            "these completions are drawn at the estimated model, as if it were known: they scatter "
            "too little. Pass a posterior (sample_posterior) where the uncertainty matters."
        )
    else:
        for given, what in ((degrees_of_freedom, "degrees_of_freedom"), (seed, "seed")):
            if given is not None:
                raise KernelError(f"{what}: the posterior has its own. Leave it out.")
        drawn = _of_the_posterior(source, count)
        drawn_from = FROM_POSTERIOR
    stack = drawn.stack if observed is None else _checked_against(observed, drawn.stack)
    return xr.DataArray(
        drawn.entries.kernel_matrices(drawn.hidden, stack.values),
        dims=("imputation", *stack.dims),
        coords={
            "imputation": np.arange(count),
            "drawn_from": ("imputation", np.full(count, drawn_from)),
            "kernel": stack["kernel"].values,
            "object": stack["object"].values,
            "object_bis": stack["object"].values,
        },
        name="completed",
        attrs={"long_name": "completed kernel matrices, drawn"},
    )


def _of_the_posterior(tree: Any, count: int) -> _Drawn:
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
    return _Drawn(run.entries, run.stack, chosen)


def _given_the_estimate(
    result: FitResult, count: int, degrees_of_freedom: Any, seed: Any
) -> _Drawn:
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
    return _Drawn(entries, em.stack, np.stack(drawn))


def _checked_against(observed: Any, stack: xr.DataArray) -> xr.DataArray:
    """Return `observed`, a stack that shows what `stack` shows."""
    given = check_stack(observed, what="observed")
    whose = "Pass the stack that reduce_rank was given."
    for dim in ("kernel", "object"):
        if given[dim].values.tolist() != stack[dim].values.tolist():
            raise LabelError(
                f"observed: its {dim}s, or their order, are not those of the draws. {whose}"
            )
    for name, then, now in zip(
        stack["kernel"].values.tolist(),
        visible_objects(stack).values,
        visible_objects(given).values,
        strict=True,
    ):
        if (then != now).any():
            label = stack["object"].values[then != now].tolist()[0]
            raise KernelError(
                f"observed: kernel {name!r} shows object {label!r} in one of the stacks only. "
                f"{whose}"
            )
    _check_more(given, stack)
    return given


def _check_more(given: xr.DataArray, stack: xr.DataArray) -> None:
    """Raise where the visible blocks of `given` are not those of `stack` and something beside."""
    for name, seen, matrix, reduced, eps in zip(
        stack["kernel"].values.tolist(),
        visible_objects(stack).values,
        given.values,
        stack.values,
        given["rounding"].values.tolist(),
        strict=True,
    ):
        place = np.ix_(seen, seen)
        rest = matrix[place] - reduced[place]
        # What reduce_rank leaves out is positive semidefinite and orthogonal to what it keeps, to
        # the rounding of the kernel itself.
        norm = float(scipy.linalg.norm(matrix[place]))
        tolerance = rounding_share(len(rest), eps)
        common = float((rest * reduced[place]).sum())
        least = float(scipy.linalg.eigvalsh(rest)[0]) if rest.any() else 0.0
        if least < -tolerance * norm or common > tolerance * norm**2:
            raise KernelError(
                f"observed: the draws are not of an approximation of kernel {name!r}: it differs "
                "by more than reduce_rank leaves out. Pass the stack that reduce_rank was given."
            )
