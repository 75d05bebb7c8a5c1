"""The posterior of the model matrix and of the hidden entries: sampled, continued, saved, loaded.

`gibbs` has the sampler, `chains` its chains, `entries` the sampled entries, and `run` the run that
becomes an `xarray.DataTree` in ArviZ's schema.
"""

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import xarray as xr

from ..em.em import EM
from ..em.problem import DEFAULT_STRENGTH, one_prior, problem_of
from ..errors import ConvergenceWarning, KernelError, MKMCError, warn
from ..model.prior import WishartPrior
from ..model.structures import Structure
from ..stacks.degrees import DegreesOfFreedom
from ..stacks.stack import warn_of_scales
from ..utils.arguments import checked, choice, whole
from ..utils.arguments import seed as a_seed
from ..utils.netcdf import open_tree, write_netcdf
from ..utils.processes import interrupts_held
from .chains import Chains, Moments, Plan, run_chains, start_chain
from .entries import Entries
from .mixing import warn_of_chains, warn_of_entries
from .run import PosteriorRun
from .samplers import sampler_of

#: All entries are kept if their draws take no more bytes than this.
ALL_BYTES = 2**27
#: How many entries are kept in full if not all are and none is named.
SPREAD = 200


@checked(
    draws=whole(least=4),
    tune=whole(least=0),
    chains=whole(least=1),
    seed=a_seed,
    quantile_draws=whole(least=1),
    workers=whole(least=1),
)
def sample_posterior(
    stack: xr.DataArray,
    *,
    degrees_of_freedom: DegreesOfFreedom,
    sources: str | xr.Dataset = "adaptive",
    sharing: DegreesOfFreedom = 1.0,
    structure: str | Structure = "full",
    strength: float | None = None,
    prior: WishartPrior | None = None,
    draws: int = 1000,
    tune: int = 500,
    chains: int = 4,
    seed: int | np.random.Generator,
    keep: str | Iterable[tuple[Any, ...]] = "auto",
    quantile_draws: int = 200,
    workers: int = 1,
    progress: bool = False,
) -> xr.DataTree:
    """Draw the model matrix and the hidden entries of all kernels from their posterior.

    Equation :eq:`eq-posterior` of the derivation.

    The model is that of `fit` with the same arguments. The draws come from Gibbs sampling with data
    augmentation, the stochastic counterpart of EM: `GibbsSampler` compares the updates of both, and
    `FactorGibbsSampler` does for models of few factors. It has no tuning parameters; the `tune`
    draws only let a chain forget its start.

    Parameters
    ----------
    stack
        The incomplete kernels, from `stack_kernels`. It is not changed.
    degrees_of_freedom
        nu_k, the number of independent features of kernel k: nu_k Q(k) ~ Wishart(nu_k, M). A whole
        number that is at least the rank of the visible block, or any number above l - 1 (above l
        if the kernel has a constant, and l more if its sharing is between 0 and 1); one for
        all kernels, one per kernel, or labeled by kernel. It determines the width of the posterior,
        so there is no default. Dependent features count for fewer than their number.
    sources
        How each kernel relates to the model matrix, as in `fit`. "adaptive": each kernel has a
        scale and a constant. The scales, and the constant that all kernels share, are estimated by
        moments and held. The variance c_k of each kernel's constant, in units of its scale, is
        drawn; the prior of sqrt(c_k) is half-Cauchy with scale 1. "identical": the paper's model,
        without scales and constants. A Dataset like ``result.sources`` holds all of them at its
        values; constants that are NaN are drawn.
    sharing
        As in `fit`; held.
    structure
        The structure of the model matrix, as in `fit`: "full", ``PPCA(rank)`` or
        ``FactorAnalysis(rank)``. For these two every nu_k must be a whole number, and the prior is
        that of `FactorGibbsSampler`, which is not the penalty that `fit` maximizes.
    strength, prior
        As in `fit`: lambda, or the prior itself; one of them is needed. It is relative to the
        degrees of freedom: the strength that `select_model` or `complete` chooses for kernels of
        weight 1 stands for that number times the mean of nu_k. The prior is used in
        its proper form, M^-1 ~ Wishart(lambda + l + 1, (lambda T)^-1).
    draws, tune
        How many draws each chain keeps, at least 4, and how many it discards first.
    chains
        The number of chains, each from its own dispersed start. R-hat needs two.
    seed
        A whole number or a generator. The draws depend on it alone, not on `workers`: every chain
        has its own random numbers (`SeedSequence.spawn`) and runs on one BLAS thread.
    keep
        Which entries to keep every draw of: "all", or a list of ``(object, object)`` for the
        model's and ``(kernel, object, object)`` for a kernel's. "auto" keeps all if they take at
        most 128 MiB, and otherwise 200, evenly spread; then name the entries that you will examine
        with ArviZ or `posterior_entry`. Visible entries are constants and are not among them.
    quantile_draws
        If not all entries are kept in full: the most draws of all entries that are kept, over all
        chains and evenly spaced. Quantiles are computed from these draws. If they were
        independent, the quantile at p would have probability p with a standard error of
        sqrt(p (1 - p) / quantile_draws): 1.5 % at 5 % with 200.
    workers
        How many processes run chains at a time (more than one needs joblib).
    progress
        Whether to show a progress bar.

    Returns
    -------
    xarray.DataTree
        In ArviZ's schema: ``posterior`` (``model`` over ``model_entry``, ``hidden`` over
        ``hidden_entry``, and ``constant`` over those kernels whose constant is drawn),
        ``sample_stats`` (``lp``, the log-posterior of the precision, and of the square roots of
        the constants that are drawn, up to a constant: for the full structure the penalized
        log-likelihood of `fit`, less log(1 + c_k) for each of these), ``observed_data`` and
        ``constant_data``. In addition: ``sources`` (NaN for constants that are drawn),
        ``posterior_summary`` (mean, sd and quantiles of every entry of the model and of the
        completed kernels, and of every constant, and what the data say of each), ``start``
        (the dispersed starts), ``state`` (for `continue_posterior`) and, if not all entries are
        kept in full, ``thinned_posterior``.

    Raises
    ------
    KernelError, LabelError, IndefiniteKernelError
        If the stack or an argument cannot be used.
    MKMCError
        If `workers` is more than 1 and joblib is not installed, or a worker process dies.
    KeyboardInterrupt
        If Ctrl-C is pressed before there are 4 draws. Later it ends the run with a warning, and
        the draws so far are returned; a second one ends the diagnostics.

    Warns
    -----
    ConvergenceWarning
        If R-hat is above 1.01 or an effective sample size is below 400 (Vehtari et al. 2021,
        *Bayesian Analysis* 16, 667), for the log-posterior or for entries that are kept in full (at
        most 500 of the model's and 500 of the kernels', evenly spread); if the run was interrupted.
    IdentifiabilityWarning
        If the prior alone determines entries, or entries have no variance: use their quantiles.
    MKMCWarning
        With ``sources="identical"``, if the scales of the kernels differ by more than a factor of
        10.

    Notes
    -----
    With C chains of D draws, E sampled entries (l (l + 1) / 2 of the model and n m + m (m + 1) / 2
    of each kernel with n visible and m hidden objects), F of them kept in full, R =
    `quantile_draws` and K kernels, the result takes 8 bytes times

        C D (F + 1) + E (R + 2 C) + (6 K + 5 + 3 C) l^2,

    its second term only if not all entries are kept in full. To this come the labels of the F
    entries, and flags of (K + 1) l^2 entries, a byte or two each. The sampler of the full structure
    takes about (3 K + 12 + G) l^2, G being the number of different sharings, and a running chain
    another E (R / C + 6). The first term is held three times while the result is put together.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import stack_kernels
    >>> from mkmc_prob.posterior.sampling import sample_posterior
    >>> features = np.random.default_rng(0).standard_normal((2, 3, 30))
    >>> stack = stack_kernels(features @ features.transpose(0, 2, 1) / 30,
    ...                       visible=[[1, 1, 0], [1, 1, 1]], objects=["a", "b", "c"])
    >>> tree = sample_posterior(stack, degrees_of_freedom=30, strength=3.0, draws=700, seed=1)
    >>> tree["posterior"]["hidden"].sizes
    Frozen({'chain': 4, 'draw': 700, 'hidden_entry': 3})
    >>> tree["posterior"]["hidden_entry"].values.tolist()
    ['Q1, c, a', 'Q1, c, b', 'Q1, c, c']
    >>> sd = tree["posterior_summary"]["completed_sd"].sel(kernel="Q1", object="a")
    >>> bool(sd.sel(object_bis="b") == 0.0), bool(sd.sel(object_bis="c") > 0.1)
    (True, True)
    """
    if strength is None and prior is None:
        raise KernelError(
            "strength: none found. It is relative to the degrees of freedom: pass the strength "
            "that select_model chooses, times the mean of the degrees of freedom, or a prior."
        )
    prior = one_prior(DEFAULT_STRENGTH if strength is None else strength, prior)
    most = whole(least=chains)(quantile_draws, "quantile_draws")
    seeds = _spawned(seed, chains)
    problem = problem_of(
        stack,
        prior,
        degrees_of_freedom=degrees_of_freedom,
        sources=sources,
        sharing=sharing,
        structure=structure,
    )
    stack, sampler = problem.stack.array, sampler_of(EM.of(problem))
    entries = Entries(sampler.em)
    plan = _plan(entries, keep, draws, chains, most)
    if problem.sources.is_identical:
        warn_of_scales(stack)
    warn_of_entries(entries)
    states = [start_chain(sampler, np.random.Generator(np.random.PCG64(own))) for own in seeds]
    none = np.zeros(entries.size if plan.every else 0)
    standing = Chains(states, [Moments(0, none, none)] * chains, [])
    starts = [state.parameters for state in states]
    run = PosteriorRun(stack, sampler, entries, plan, most, starts, standing)
    return _finished(run, tune=tune, draws=draws, workers=workers, progress=progress)


@checked(draws=whole(least=1), workers=whole(least=1))
def continue_posterior(
    tree: xr.DataTree, *, draws: int, workers: int = 1, progress: bool = False
) -> xr.DataTree:
    """Return the posterior with more draws, those that a longer run would have had.

    Parameters
    ----------
    tree
        What `sample_posterior` or `load_posterior` returned.
    draws
        How many draws to add to each chain.
    workers, progress
        As in `sample_posterior`.

    Raises
    ------
    MKMCError
        If `tree` is not a posterior.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import stack_kernels
    >>> from mkmc_prob.posterior.sampling import continue_posterior, sample_posterior
    >>> stack = stack_kernels(np.stack([np.eye(2)] * 2), visible=[[1, 1], [1, 0]])
    >>> options = dict(degrees_of_freedom=9, strength=10.0, tune=100, seed=1)
    >>> tree = sample_posterior(stack, draws=300, **options)
    >>> longer = continue_posterior(tree, draws=100)
    >>> longer["posterior"].identical(sample_posterior(stack, draws=400, **options)["posterior"])
    True
    """
    run = PosteriorRun.from_datatree(tree)
    if run.plan.every:
        run.thin(run.chains.drawn + draws)
    return _finished(run, tune=0, draws=draws, workers=workers, progress=progress)


def save_posterior(tree: xr.DataTree, path: str | os.PathLike[str]) -> None:
    """Write what `sample_posterior` returned to a netCDF file (suffix .nc), without loss.

    An existing file is replaced once the new one is complete. `load_posterior` drops what was added
    to the tree. Every number has a checksum, so that a damaged file is refused.

    Raises
    ------
    MKMCError
        If the suffix is not ``.nc``, or `tree` is not a posterior.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from mkmc_prob import stack_kernels
    >>> from mkmc_prob.posterior.sampling import load_posterior, sample_posterior, save_posterior
    >>> stack = stack_kernels(np.stack([np.eye(2)] * 2), visible=[[1, 1], [1, 0]])
    >>> options = dict(degrees_of_freedom=9, strength=10.0, draws=300, tune=100, seed=1)
    >>> tree = sample_posterior(stack, **options)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_posterior(tree, f"{folder}/posterior.nc")
    ...     again = load_posterior(f"{folder}/posterior.nc")
    >>> again.identical(tree)
    True
    """
    PosteriorRun.from_datatree(tree)
    write_netcdf(tree, path, what="posterior", checksums=True)


def load_posterior(path: str | os.PathLike[str]) -> xr.DataTree:
    """Read a posterior that `save_posterior` wrote; see the example there.

    Raises
    ------
    MKMCError
        If the file does not hold a posterior.
    FileNotFoundError
        If there is no file.

    Examples
    --------
    >>> from mkmc_prob.posterior.sampling import load_posterior
    >>> load_posterior("nowhere.nc")
    Traceback (most recent call last):
        ...
    FileNotFoundError: nowhere.nc: there is no such file.
    """
    tree = open_tree(path)
    try:
        return PosteriorRun.from_datatree(tree).to_datatree()
    except MKMCError as error:
        raise type(error)(f"{path}: {error}") from error


def _spawned(seed: int | np.random.Generator, chains: int) -> list[np.random.SeedSequence]:
    """Return a seed for each chain."""
    try:
        sequence: Any = np.random.default_rng(seed).bit_generator.seed_seq
        return list(sequence.spawn(chains))
    except (AttributeError, TypeError) as error:
        raise KernelError(
            "seed: this generator has no SeedSequence to spawn from. Pass a whole number."
        ) from error


def _plan(entries: Entries, keep: Any, draws: int, chains: int, most: int) -> Plan:
    if isinstance(keep, str):
        choice("auto", "all")(keep, "keep")
        if keep == "all" or 8 * draws * chains * entries.size <= ALL_BYTES:
            return Plan(*entries.spread(entries.size), every=0)
        places = entries.spread(SPREAD)
    else:
        places = entries.find(keep)
    return Plan(*places, every=-(-draws // (most // chains)))


def _finished(
    run: PosteriorRun, *, tune: int, draws: int, workers: int, progress: bool
) -> xr.DataTree:
    """Run the chains, and return the tree of what was drawn; warn of what it lacks."""
    before = run.chains.drawn
    run.chains, run.interrupted = run_chains(
        run.sampler, run.chains, run.plan, tune, draws, workers=workers, progress=progress
    )
    if run.chains.drawn < 4:
        raise KeyboardInterrupt
    with interrupts_held() as struck:  # a second Ctrl-C must not discard what the first kept
        tree = run.to_datatree()
    if run.interrupted:
        warn(
            f"interrupted: {run.chains.drawn - before} of {draws} draws of each chain were drawn. "
            "Continue with continue_posterior(tree, draws=...).",
            ConvergenceWarning,
        )
    try:
        if struck:
            raise KeyboardInterrupt
        warn_of_chains(tree)
    except KeyboardInterrupt:
        warn("interrupted: whether the chains have mixed was not checked.", ConvergenceWarning)
    return tree
