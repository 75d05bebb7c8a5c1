"""Held-out objects: which to hide, and how well a model predicts them."""

import math
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ..em.problem import Problem
from ..errors import IndefiniteKernelError, MonotonicityError
from ..evaluation.baselines import impute_means, impute_neighbors
from ..linalg.cholesky import cholesky, log_determinant, solve
from ..linalg.symmetric import Matrix, symmetrize
from ..model.conditional import LOG_2_PI, TOO_SINGULAR
from ..model.gaussian import GaussianModel
from ..model.prior import WishartPrior
from ..model.sources import Centered, Constant, Source, Sources
from ..model.structures import FULL, LowRank, Structure
from ..stacks.kernel_stack import KernelStack
from .low_rank_prior import with_low_rank_prior
from .solve import MOST_STEPS, loose, loose_ascent, seen_problem, starting_model

#: The share of a kernel's visible objects that a draw hides, and the fewest that it must show.
HELD_OUT, FEWEST = 0.25, 3
#: A residual below this share of the held-out block's variance is rounding.
SMALLEST_RESIDUAL = 1e-12
#: Baselines that are scored on the same held-out rows.
BASELINES = ("mean", "zero", "knn")

Mask = NDArray[np.bool_]


class Draw(NamedTuple):
    """One draw: the stack, and which of its visible objects are hidden from the fits."""

    problem: Problem
    hidden: Mask

    @property
    def training(self) -> KernelStack:
        """The stack without the held-out objects."""
        return self.problem.stack.hiding(self.hidden)


class Setting(NamedTuple):
    """A candidate: the strength of the prior, and the sharing of each kernel.

    `structure` is that of the model matrix, and `prior` that of the prior's scale, if it has one.
    """

    strength: float
    sharing: tuple[float, ...]
    structure: Structure = FULL
    prior: LowRank | None = None


class Outcome(NamedTuple):
    """How well a candidate predicts the objects that one draw holds out.

    Attributes
    ----------
    score : ndarray, shape (K,)
        The log density of the held-out blocks in nats, with its scale at its maximum; 0 where
        nothing is held out.
    error : ndarray, shape (K,)
        The mean relative error of the held-out rows; NaN where nothing is held out.
    model : GaussianModel or None
        The fitted model, from which other candidates may start; None if every sharing is 0.
    evaluations : int
    seconds : float
    """

    score: NDArray[np.float64]
    error: NDArray[np.float64]
    model: GaussianModel | None
    evaluations: int
    seconds: float


def hidden_objects(
    stack: KernelStack, rng: np.random.Generator, groups: NDArray[np.intp] | None = None
) -> Mask:
    """Return which visible objects one draw hides, of shape (K, l).

    From every kernel with at least 3 visible objects, a quarter of them (at least 1), kernels and
    objects in random order; an object that would then be visible in no kernel is skipped. With
    `groups` (a number per object), the other objects of a group are hidden together.
    """
    visible: Mask = stack.visible
    hidden: Mask = np.zeros_like(visible)
    groups = np.arange(visible.shape[1]) if groups is None else groups
    for k in rng.permutation(len(visible)):
        shown = int(visible[k].sum())
        if shown < FEWEST:
            continue
        wanted = max(1, int(shown * HELD_OUT))
        for group in rng.permutation(np.unique(groups[visible[k]])):
            elsewhere = (visible & ~hidden).sum(axis=0) > 1
            members = visible[k] & (groups == group) & elsewhere
            count = int(hidden[k].sum() + members.sum())
            if count <= max(wanted, shown // 2):
                hidden[k] |= members
            if hidden[k].sum() >= wanted:
                break
        rest = visible[k] & ~hidden[k]
        if not stack.array.values[k][np.ix_(rest, rest)].any():
            hidden[k] = False  # a block of zeros has no scale
    return hidden


def compare_path(draw: Draw, path: Sequence[Setting], start: GaussianModel | None) -> list[Outcome]:
    """Fit and score the candidates of a path, each fit from the model before it."""
    with threadpool_limits(1):  # the same bits whatever the number of threads outside
        training, outcomes = draw.training, []
        model = start
        for setting in path:
            began = time.perf_counter()
            try:
                problem = training_problem(draw, training, setting)
                reached, sources, evaluations = approach(problem, model)
                score, error = scores(draw, problem, reached, sources)
            except (MonotonicityError, IndefiniteKernelError):  # beyond double precision
                outcomes.append(impossible(draw, time.perf_counter() - began))
                continue
            model = reached if any(setting.sharing) else model
            seconds = time.perf_counter() - began
            kept = reached if any(setting.sharing) else None
            outcomes.append(Outcome(score, error, kept, evaluations, seconds))
    return outcomes


def impossible(draw: Draw, seconds: float) -> Outcome:
    """Return the outcome of a candidate that cannot be fitted: it is never chosen."""
    score = np.where(draw.hidden.any(axis=1), -np.inf, 0.0)
    return Outcome(score, np.full(len(score), np.nan), None, 0, seconds)


def training_problem(draw: Draw, training: KernelStack, setting: Setting) -> Problem:
    """Return the problem without the held-out objects: scales and constants are its own."""
    given = draw.problem
    sources = Sources.estimated(
        training,
        sharing=np.array(setting.sharing),
        degrees_of_freedom=given.sources.degrees_of_freedom,
    )
    if given.sources.shared_constant or given.prior.is_identity:
        prior = sources.prior(WishartPrior(setting.strength), training.objects)
    else:  # the user's scale
        sources = sources.without_shared_constant()
        prior = given.prior.with_strength(setting.strength)
    return with_factors(Problem(training, prior, sources, setting.structure), setting.prior)


def with_factors(problem: Problem, factors: LowRank | None) -> Problem:
    """Return the problem with a prior of this structure, fitted loosely, if there is one."""
    if factors is None or not problem.sources.sharing.any():
        return problem
    return with_low_rank_prior(
        problem, factors, tol=loose(problem), max_iter=MOST_STEPS, warns=False
    )


def approach(problem: Problem, start: GaussianModel | None) -> tuple[GaussianModel, Sources, int]:
    """Return the model near a maximum, the sources there, and the number of evaluations.

    The remaining gain is small relative to the differences between candidates.
    """
    em, aside = seen_problem(problem)
    initial = starting_model(em) if start is None else em.adapted(aside.restrict_model(start))
    ascent = loose_ascent(em, initial, loose(problem))
    model = ascent.model
    if len(aside.unseen):
        model = GaussianModel.of(aside.extend(model.matrix), problem.stack.objects)
    constants = dict(zip(ascent.sources.names, ascent.sources.constant, strict=True))
    held = problem.sources.constant
    found = [constants.get(name, c) for name, c in zip(problem.stack.names, held, strict=True)]
    return model, problem.sources.with_constants(np.array(found)), ascent.evaluations


def scores(
    draw: Draw, problem: Problem, model: GaussianModel, sources: Sources
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the score and the relative error of the held-out objects of each kernel."""
    score = np.zeros(len(draw.hidden))
    error = np.full(len(draw.hidden), np.nan)
    scale = None if problem.prior.is_identity else problem.prior.scale_matrix(model.objects)
    truth = draw.problem.stack
    for k, (hidden, source) in enumerate(zip(draw.hidden, sources, strict=True)):
        if not hidden.any():
            continue
        v = np.flatnonzero(truth.visible[k])
        places = np.ix_(v, v)
        base = source.base(model.matrix[places], None if scale is None else scale[places])
        part = HeldOut(truth.array.values[k][places], hidden[v], base, source)
        score[k], error[k] = part.score, part.error
    return score, error


class HeldOut:
    """The held-out objects h of a kernel given the rest r, under N(0, d (G + c J)).

    Parameters
    ----------
    block
        The visible block Q.
    hidden
        Which of its objects are held out.
    base
        G over the same objects.
    source
        The kernel's relation to the model; an estimated constant may still be NaN.

    Attributes
    ----------
    score : float
        -(h/2) [log det C / h + log(tr(C^-1 R) / h) + 1 + log(2 pi d)], C the conditional
        covariance and R the second moment of the residual about the regression, in units of d: the
        log density of the held-out block with its scale at its maximum.
    error : float
        The mean relative error of the held-out rows that are not zero.
    """

    def __init__(self, block: Matrix, hidden: Mask, base: Matrix, source: Source) -> None:
        rest = np.flatnonzero(~hidden)
        h = np.flatnonzero(hidden)
        factor = cholesky(base[np.ix_(rest, rest)], "model matrix", None, TOO_SINGULAR)
        weights = solve(factor, np.ones(len(rest)))
        total = float(weights.sum())
        moment = block / source.scale
        z = Centered.of(block[np.ix_(rest, rest)], source._replace(constant=math.nan)).off_diagonal
        moment -= z
        variance = source.constant
        if math.isnan(variance):
            centered = Centered(np.ascontiguousarray(moment[np.ix_(rest, rest)]), z)
            variance = Constant.of(weights, centered, math.nan).variance
        e, grown = variance / (1.0 + variance * total), 1.0 + variance * total
        regression = solve(factor, base[np.ix_(rest, h)])
        left = 1.0 - regression.sum(axis=0)
        covariance = base[np.ix_(h, h)] - symmetrize(base[np.ix_(h, rest)] @ regression)
        covariance += e * np.outer(left, left)
        regression += np.outer(e * weights, left)
        # The constant z J leaves the residual (1 - A' 1) = f / (1 + c t).
        predicted = moment[np.ix_(rest, rest)] @ regression
        crossed = regression.T @ moment[np.ix_(rest, h)]
        residual = moment[np.ix_(h, h)] - crossed - crossed.T + regression.T @ predicted
        residual += z * np.outer(left, left) / grown**2
        self.score = self._score(covariance, residual, source.scale)
        # What a completion says of the held-out rows, in units of d.
        expected = regression.T @ predicted + covariance
        offset = 1.0 - left / grown  # A' 1
        rows = np.concatenate([predicted.T, expected], axis=1)
        rows += z * np.outer(offset, np.concatenate([np.ones(len(rest)), offset]))
        truth = moment[np.ix_(h, np.concatenate([rest, h]))] + z
        self.error = mean_relative_error(rows, truth)

    @staticmethod
    def _score(covariance: Matrix, residual: Matrix, scale: float) -> float:
        count = len(covariance)
        factor = cholesky(covariance, "conditional covariance", None, TOO_SINGULAR)
        length = float(np.trace(solve(factor, residual))) / count
        length = max(length, SMALLEST_RESIDUAL)
        log_det = log_determinant(factor)
        return -0.5 * (log_det + count * (math.log(length) + 1.0 + LOG_2_PI + math.log(scale)))


def mean_relative_error(rows: Matrix, truth: Matrix) -> float:
    """Return the mean of |row - truth| / |truth| over the rows whose truth is not zero."""
    size = np.linalg.norm(truth, axis=1)
    some = size > 0.0
    if not some.any():
        return math.nan
    return float((np.linalg.norm(rows - truth, axis=1)[some] / size[some]).mean())


def baseline_errors(draw: Draw) -> NDArray[np.float64]:
    """Return the relative error of the held-out rows by baseline and kernel."""
    training = draw.training
    shown = np.flatnonzero(training.visible.any(axis=1))  # an empty kernel has no mean
    alike = training if len(shown) == len(draw.hidden) else training.with_kernels(shown)
    completed = {"mean": impute_means(alike).values, "knn": impute_neighbors(alike).values}
    errors = np.full((len(BASELINES), len(draw.hidden)), np.nan)
    for k, hidden in enumerate(draw.hidden):
        if not hidden.any():
            continue
        places = np.ix_(hidden, draw.problem.stack.visible[k])
        truth = draw.problem.stack.array.values[k][places]
        largest = float(np.abs(truth).max()) or 1.0
        for b, name in enumerate(BASELINES):
            rows = np.zeros_like(truth)
            if name in completed:
                rows = completed[name][np.searchsorted(shown, k)][places]
            errors[b, k] = mean_relative_error(rows / largest, truth / largest)
    return errors
