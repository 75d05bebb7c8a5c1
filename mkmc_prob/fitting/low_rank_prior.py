"""A scale of the prior from a few factors: T = W W' + D, fitted to the kernels themselves."""

from typing import Any

from ..em.ascent import Ascent
from ..em.methods import method_of
from ..em.problem import Problem
from ..errors import ConvergenceWarning, KernelError, warn
from ..model.prior import WishartPrior
from ..model.structures import Full, LowRank, Structure, structure_of
from .solve import seen_problem, starting_model

#: The strength of the prior of the factors.
STRENGTH = 1.0


def with_low_rank_prior(
    problem: Problem, factors: LowRank, *, tol: float, max_iter: int, warns: bool = True
) -> Problem:
    """Return the problem with the scale T* of its prior, a model of low rank of the same kernels.

    T* is fitted with strength 1 and the same sources, and held: the log-likelihoods of fits with
    different T* cannot be compared. The kernels' own parts have the covariance T*, too.
    """
    own = problem._replace(structure=factors, prior=problem.prior.with_strength(STRENGTH))
    own.check_structure("prior")
    em, _ = seen_problem(own)
    ascent = Ascent(method_of("geodesic", em), starting_model(em), tol=tol)
    ascent.run(max_iter=max_iter, progress=False)
    if tol and not ascent.converged and warns:
        warn(
            f"prior: the fit of {factors.name} did not converge in {max_iter} iterations. Raise "
            "max_iter.",
            ConvergenceWarning,
        )
    scale = ascent.model.matrix.copy()
    prior = WishartPrior.of(problem.prior.strength, scale, problem.stack.objects, factors.name)
    return problem._replace(prior=prior, sources=problem.sources.without_shared_constant())


def low_rank_prior(given: Any, structure: Structure) -> LowRank | None:
    """Return the structure of the prior's scale if the user named one, and None otherwise.

    Raises
    ------
    KernelError
        If the model matrix itself is to have few factors.
    """
    if isinstance(given, str):
        given = structure_of(given, "prior")
    if given is None or isinstance(given, WishartPrior):
        return None
    if not isinstance(given, Full | LowRank):
        raise KernelError(
            f"prior: {given!r} found; WishartPrior(strength, scale) or PPCA(rank) is needed."
        )
    if isinstance(given, Full):
        raise KernelError("prior: 'full' found; PPCA(rank) or WishartPrior(...) is needed.")
    if not isinstance(structure, Full):
        raise KernelError(
            f"prior: {given.name} found with structure {structure.name}. A prior of few factors "
            'is for structure="full"; leave one of the two out.'
        )
    return given
