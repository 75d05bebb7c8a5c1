"""Degrees of freedom for which the standard deviations of held-out entries are calibrated."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.stats
import xarray as xr
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from tqdm.auto import tqdm

from .. import plots
from ..em.completion import CompletedKernel
from ..em.problem import DEFAULT_STRENGTH, Problem, one_prior, problem_of
from ..em.spread import spread_across, spread_among
from ..errors import KernelError, warn
from ..linalg.symmetric import Matrix, Vector
from ..model.gaussian import GaussianModel
from ..model.low_rank import LowRankModel
from ..model.prior import WishartPrior
from ..model.sources import Sources
from ..model.structures import PPCA, FactorAnalysis, LowRank, Structure, structure_of
from ..stacks.degrees import DegreesOfFreedom
from ..stacks.effective import effective_number
from ..stacks.kernel_stack import KernelStack, VisibleKernel
from ..stacks.labels import name_some
from ..stacks.pattern import need_visible
from ..utils.arguments import checked, positive, seed, whole
from ..utils.processes import in_processes
from .holdout import (
    FEWEST,
    HELD_OUT,
    Draw,
    Mask,
    Setting,
    approach,
    hidden_objects,
    training_problem,
    with_factors,
)
from .low_rank_prior import low_rank_prior
from .solve import with_constants_of_left_out

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Intervals of this level are to cover as many held-out entries, counted over all draws.
LEVEL = 0.9
#: Levels at which coverage is reported.
LEVELS = (0.5, 0.8, 0.9, 0.95)
#: How often the model is fitted: with equal weights, and with those that were found.
ROUNDS = 2
#: Draws of held-out objects.
DRAWS = 5
#: No more held-out objects, and no more of the others, are compared in each draw and kernel.
MOST_HELD_OUT, MOST_OTHERS = 200, 2_000
#: Degrees of freedom are at most so many: a kernel that is predicted exactly has no largest.
LARGEST = 1e6
#: If 90 % intervals cover less of a kernel's held-out entries, they cannot be trusted.
LEAST_COVERAGE = 0.75


class Residuals(NamedTuple):
    """Absolute residuals of the held-out entries of one kernel, in standard deviations for nu = 1.

    Attributes
    ----------
    across, among, own : ndarray
        Of entries with one held-out object, with two different ones, and of diagonal entries.
    """

    across: Vector
    among: Vector
    own: Vector

    @classmethod
    def joined(cls, parts: "Sequence[Residuals]") -> "Residuals":
        """Return the residuals of several draws as one."""
        return cls(*(np.concatenate(part) for part in zip(*parts, strict=True)))


class DrawnResiduals(NamedTuple):
    """What one draw says of each kernel (None if it holds nothing out), and the model."""

    residuals: list[Residuals | None]
    model: GaussianModel


@dataclass(frozen=True, eq=False, repr=False)
class Calibration:
    """Degrees of freedom chosen by held-out entries, and how intervals with them cover.

    Attributes
    ----------
    degrees_of_freedom : DataArray
        nu_k by ``kernel``.
    coverage : DataArray
        By ``kernel`` and ``level``: the share of held-out entries within the interval of that
        level, completed value -+ z standard deviations. For each draw the degrees of freedom are
        those of the other draws, which can hold out some of the same objects. NaN if there are no
        other draws.
    held_out : DataArray
        How many different objects of each kernel were held out.
    tested : DataArray
        By ``kernel``: "others" if the held-out objects are visible in other kernels; "alone" if
        they are not, so that the accuracy of what the other kernels say was not tested;
        "spectrum" if nothing could be held out and nu_k is the effective number of
        `effective_degrees_of_freedom`.

    Examples
    --------
    >>> from mkmc_prob import calibrate, datasets, remove_objects
    >>> kernels, _ = datasets.make_fusion_problem(60, 3)
    >>> calibration = calibrate(remove_objects(kernels, 0.3, seed=0))
    >>> calibration.table.columns.tolist()
    ['degrees_of_freedom', 'held_out', 'tested', '50 %', '80 %', '90 %', '95 %']
    """

    degrees_of_freedom: xr.DataArray
    coverage: xr.DataArray
    held_out: xr.DataArray
    tested: xr.DataArray

    @property
    def table(self) -> pd.DataFrame:
        """A row per kernel: degrees of freedom, held-out objects, and coverage by level."""
        table = self.to_dataset()[["degrees_of_freedom", "held_out", "tested"]].to_dataframe()
        for level in self.coverage["level"].values.tolist():
            table[f"{100 * level:g} %"] = self.coverage.sel(level=level).values
        return table

    def __repr__(self) -> str:
        table = self.table.to_string(float_format="{:.3g}".format)
        return f"Calibration: degrees of freedom, and coverage of held-out entries\n{table}"

    def plot(self, *, ax: "Axes | None" = None) -> "Axes":
        """Draw coverage against the nominal level; see `plots.plot_coverage`."""
        return plots.plot_coverage(self, ax=ax)

    def to_dataset(self) -> xr.Dataset:
        """Return everything as one Dataset; `of_dataset` reads it back."""
        return xr.Dataset(
            {
                "degrees_of_freedom": self.degrees_of_freedom,
                "coverage": self.coverage,
                "held_out": self.held_out,
                "tested": self.tested,
            }
        )

    @classmethod
    def of_dataset(cls, given: xr.Dataset) -> "Calibration":
        """Return the calibration that `to_dataset` wrote."""
        names = ("degrees_of_freedom", "coverage", "held_out", "tested")
        return cls(*(given[name] for name in names))


@checked(strength=positive, draws=whole(least=1), seed=seed, workers=whole(least=1))
def calibrate(
    stack: xr.DataArray,
    *,
    strength: float = DEFAULT_STRENGTH,
    sources: str | xr.Dataset = "adaptive",
    sharing: DegreesOfFreedom = 1.0,
    structure: str | Structure = "full",
    prior: WishartPrior | PPCA | FactorAnalysis | str | None = None,
    draws: int = DRAWS,
    seed: int | np.random.Generator = 0,
    workers: int = 1,
    progress: bool = False,
) -> Calibration:
    """Choose the degrees of freedom of each kernel so that intervals are calibrated.

    This is what ``degrees_of_freedom="auto"`` does. Each draw hides a quarter of every kernel's
    visible objects, as in `select_model`. The model is fitted without them, and the residuals of
    their entries are divided by the standard deviations of `MKMCResult.standard_deviation` for one
    degree of freedom. nu_k makes 90 % of the entries of kernel k fall within -+ 1.645 standard
    deviations. That is done twice: first with the same weight for all kernels, then with the
    weights that were found.

    Parameters
    ----------
    stack
        The incomplete kernels.
    strength, sources, sharing, structure, prior
        As in `fit`, for kernels of equal weight.
    draws
        The number of draws.
    seed
        The seed of the draws.
    workers
        The number of processes that take draws in parallel (needs joblib). The result does not
        depend on it.
    progress
        Whether to show a progress bar.

    Returns
    -------
    Calibration

    Raises
    ------
    KernelError, LabelError, IndefiniteKernelError
        If the stack or an argument cannot be used.

    Warns
    -----
    MKMCWarning
        If no held-out object of a kernel is visible in another kernel, although its hidden objects
        are predicted from these; or if its 90 % intervals cover less than 75 % of its held-out
        entries: the residuals are then too far from normal ones, as those of a kernel of very few
        features can be.

    Notes
    -----
    With q the 90 % quantile of the absolute residuals of a kernel, in standard deviations for one
    degree of freedom, nu_k = (1.645 / (a q))^2. Entries of hidden with visible objects, of two
    hidden objects, and diagonal entries are weighted as they occur among the kernel's missing
    entries. Entries of one object depend on each other, so that the quantile is known only as well
    as n objects allow, n the number of different objects held out of the kernel: a is the ratio of
    the 95 % quantile of Student's t with n - 1 degrees of freedom (at least 1) to 1.645, as for a
    prediction with a standard deviation that is estimated from n objects.

    The rule concerns whole kernels at the 90 % level. Where entries have longer tails than normal
    ones, intervals of higher levels cover less; the ``coverage`` of the result shows by how much.
    An object that is visible in no other kernel is not held out. If that leaves a kernel untested,
    objects are held out all the same: they are then predicted by the prior, and nu_k describes the
    kernel alone (``tested`` is "alone").

    Examples
    --------
    >>> from mkmc_prob import calibrate, datasets, fit, remove_objects
    >>> kernels, _ = datasets.make_fusion_problem(60, 3)
    >>> stack = remove_objects(kernels, 0.3, seed=0)
    >>> calibration = calibrate(stack)
    >>> result = fit(stack, degrees_of_freedom="auto")
    >>> (result.degrees_of_freedom == calibration.degrees_of_freedom).all().item()
    True
    """
    named = structure_of(structure)
    factors = low_rank_prior(prior, named)
    given: Any = None if factors else prior
    problem = problem_of(
        stack, one_prior(strength, given), sources=sources, sharing=sharing, structure=named
    )
    estimated = isinstance(sources, str) and sources == "adaptive"
    return calibrated(
        problem,
        factors=factors,
        estimated=estimated,
        draws=draws,
        seed=seed,
        workers=workers,
        progress=progress,
    )


def calibrated(
    problem: Problem,
    *,
    factors: LowRank | None = None,
    estimated: bool = True,
    draws: int = DRAWS,
    seed: int | np.random.Generator = 0,
    workers: int = 1,
    progress: bool = False,
) -> Calibration:
    """Return the calibration of a checked problem, whose kernels have equal weights.

    `factors` is the structure of the prior's scale, and `estimated` says whether scales are
    estimated anew without the held-out objects.
    """
    problem.check_structure()
    stack = problem.stack
    need_visible(stack.shown)
    if not stack.in_memory:
        raise KernelError(
            'degrees_of_freedom: "auto" needs the kernels in memory. Pass numbers: those of '
            "calibrate(stack.load(objects), structure=...) for some of the objects."
        )
    rng = np.random.default_rng(seed)
    hidden = [hidden_objects(stack, rng) for _ in range(draws)]
    tested = np.any(hidden, axis=(0, 2))
    if not tested.all():
        hidden += [hidden_alone(stack, ~tested, rng) for _ in range(draws)]
    hidden = [mask for mask in hidden if mask.any()]
    held_out = np.any(hidden, axis=0).sum(axis=1) if hidden else np.zeros(len(tested), dtype=int)
    degrees = np.ones(len(tested))
    found: list[DrawnResiduals] = []
    kernels: list[KernelResiduals] = []
    bar = tqdm(total=ROUNDS * len(hidden), disable=not progress, desc="calibrate", unit=" fits")
    with bar:
        for _ in range(ROUNDS):
            weighted = with_degrees(problem, degrees)
            starts: list[GaussianModel | None] = [one.model for one in found]
            starts = starts or [None] * len(hidden)
            tasks = [
                (Draw(weighted, mask), start, factors, estimated)
                for mask, start in zip(hidden, starts, strict=True)
            ]
            found = []
            for one in in_processes(drawn_residuals, tasks, workers=workers):
                found.append(one)
                bar.update()
            kernels = [
                KernelResiduals.of(kernel, [one.residuals[k] for one in found], int(held_out[k]))
                for k, kernel in enumerate(stack.kernels())
            ]
            degrees = np.array([kernel.degrees_of_freedom for kernel in kernels])
    how = np.where(tested, "others", np.where(held_out > 0, "alone", "spectrum"))
    _warn_of_untested(stack, problem.sources.sharing, how)
    names = {"kernel": stack.array["kernel"].values}
    by_level = names | {"level": list(LEVELS)}
    coverage = np.array([kernel.coverage for kernel in kernels])
    _warn_of_low_coverage(stack, coverage[:, LEVELS.index(LEVEL)])
    return Calibration(
        xr.DataArray(degrees, names, ("kernel",), "degrees_of_freedom"),
        xr.DataArray(coverage, by_level, ("kernel", "level"), "coverage"),
        xr.DataArray(held_out, names, ("kernel",), "held_out"),
        xr.DataArray(how, names, ("kernel",), "tested"),
    )


def is_auto(degrees_of_freedom: Any) -> bool:
    """Return whether the degrees of freedom are to be calibrated.

    Raises
    ------
    KernelError
        If they are another string.
    """
    if not isinstance(degrees_of_freedom, str):
        return False
    if degrees_of_freedom != "auto":
        raise KernelError(
            f'degrees_of_freedom: {degrees_of_freedom!r} found; numbers or "auto" are needed.'
        )
    return True


def with_degrees(problem: Problem, degrees: NDArray[np.float64]) -> Problem:
    """Return the problem with these degrees of freedom, and the strength relative to their mean.

    The mean is over the kernels that share anything with the others, if any.
    """
    shares = problem.sources.sharing > 0.0
    mean = float(degrees[shares].mean() if shares.any() else degrees.mean())
    weighted = problem._replace(sources=problem.sources.with_degrees(degrees))
    return weighted.with_strength(mean * problem.prior.strength)


def hidden_alone(stack: KernelStack, kernels: Mask, rng: np.random.Generator) -> Mask:
    """Return a quarter of the visible objects of these kernels, whatever the others show."""
    hidden: Mask = np.zeros_like(stack.visible)
    for k in np.flatnonzero(kernels):
        shown = rng.permutation(np.flatnonzero(stack.visible[k]))
        if len(shown) >= FEWEST:
            hidden[k, shown[: max(1, int(len(shown) * HELD_OUT))]] = True
            rest = stack.visible[k] & ~hidden[k]
            if not stack.array.values[k][np.ix_(rest, rest)].any():
                hidden[k] = False  # a block of zeros has no scale
    return hidden


def drawn_residuals(
    draw: Draw, start: GaussianModel | None, factors: LowRank | None, estimated: bool
) -> DrawnResiduals:
    """Fit a draw without its held-out objects, and return the residuals of these."""
    with threadpool_limits(1):  # the same bits whatever the number of threads outside
        given, training = draw.problem, draw.training
        if estimated:
            sharing = tuple(given.sources.sharing.tolist())
            setting = Setting(given.prior.strength, sharing, given.structure, factors)
            problem = training_problem(draw, training, setting)
        else:
            problem = with_factors(given._replace(stack=training), factors)
        model, sources, _ = approach(problem, start)
        sources = with_constants_of_left_out(problem, sources)
        # T, which is l x l, is formed once for all kernels, and not at all for a few factors.
        plain = isinstance(model, LowRankModel) or problem.prior.is_identity
        scale = None if plain else problem.prior.scale_matrix(model.objects)
        found: list[Residuals | None] = [
            _residuals(draw, k, problem, sources, model, scale) if hidden.any() else None
            for k, hidden in enumerate(draw.hidden)
        ]
        return DrawnResiduals(found, model)


def _residuals(
    draw: Draw,
    k: int,
    problem: Problem,
    sources: Sources,
    model: GaussianModel,
    scale: Matrix | None,
) -> Residuals:
    """Return the residuals of the held-out objects of kernel k; `scale` is T."""
    truth, hidden, source = draw.problem.stack.kernel(k), draw.hidden[k], sources[k]
    h, v = np.flatnonzero(hidden), np.flatnonzero(truth.visible & ~hidden)
    some_h, some_v = evenly(len(h), MOST_HELD_OUT), evenly(len(v), MOST_OTHERS)
    if isinstance(model, LowRankModel):
        kernel = problem.stack.kernel(k)
        own = CompletedKernel.of(kernel, source, sources.shared_constant, model)
        h, v = h[some_h], v[some_v]
        across, among = own.block(v, h), own.block(h, h)
        of_across, of_among = own.spread(v, h), own.spread(h, h)
    else:
        places, mask = truth.v, ~hidden[truth.v]
        part = None if scale is None else scale[np.ix_(places, places)]
        restricted = model.restricted(places, model.objects[places])
        conditional = source.condition(restricted, part, mask)
        moment = np.ascontiguousarray(truth.moment[np.ix_(mask, mask)])
        across, among = conditional.expected_second_moments(moment)
        covariance = conditional.covariance
        of_across = spread_across(np.diagonal(moment), np.diagonal(covariance))
        of_among = spread_among(among - covariance, covariance)
        across, of_across = (each[np.ix_(some_v, some_h)] for each in (across, of_across))
        among, of_among = (each[np.ix_(some_h, some_h)] for each in (among, of_among))
        h, v = h[some_h], v[some_v]
    position = np.cumsum(truth.visible) - 1
    of_v, of_h = position[v], position[h]
    beside = _absolute(truth.moment[np.ix_(of_v, of_h)] - across, of_across)
    inside = _absolute(truth.moment[np.ix_(of_h, of_h)] - among, of_among)
    pairs = np.tri(len(h), k=-1, dtype=bool)
    return Residuals(beside.ravel(), inside[pairs], np.diagonal(inside).copy())


def _absolute(residuals: Matrix, spread: Matrix) -> Matrix:
    """Return residuals in units of their standard deviations.

    A standard deviation of 0 is that of an object whose row is zero: the residual is 0, too.
    """
    return np.abs(residuals) / np.where(spread > 0.0, spread, 1.0)


def evenly(count: int, most: int) -> NDArray[np.intp]:
    """Return at most `most` of `count` places, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.intp))


class KernelResiduals(NamedTuple):
    """One kernel, with the residuals of each draw that holds out some of its objects.

    Attributes
    ----------
    kernel : VisibleKernel
    draws : list of Residuals
    held_out : int
        How many different objects were held out.
    """

    kernel: VisibleKernel
    draws: list[Residuals]
    held_out: int

    @classmethod
    def of(
        cls, kernel: VisibleKernel, residuals: Sequence[Residuals | None], held_out: int
    ) -> "KernelResiduals":
        """Return the kernel with the draws that hold out some of its objects."""
        return cls(kernel, [one for one in residuals if one is not None], held_out)

    @property
    def degrees_of_freedom(self) -> float:
        """nu: by the residuals, or by the spectrum if there are none."""
        if self.draws:
            return self._of(self.draws)
        block = self.kernel.moment
        return effective_number(block) if len(block) and block.any() else 1.0

    @property
    def coverage(self) -> list[float]:
        """The share of entries within the interval of each level, by nu of the other draws."""
        if len(self.draws) < 2:
            return [np.nan] * len(LEVELS)
        shares = []
        for i, own in enumerate(self.draws):
            nu = self._of([*self.draws[:i], *self.draws[i + 1 :]])
            values, weights = self._weighted([own])
            inside = values <= scipy.stats.norm.ppf(0.5 + 0.5 * np.array(LEVELS))[:, None] / nu**0.5
            shares.append((inside @ weights) / weights.sum())
        found: list[float] = np.mean(shares, axis=0).tolist()
        return found

    def _of(self, draws: Sequence[Residuals]) -> float:
        """Return nu by the residuals of these draws."""
        values, weights = self._weighted(draws)
        order = np.argsort(values)
        cumulated = np.cumsum(weights[order])
        quantile = values[order][np.searchsorted(cumulated, LEVEL * cumulated[-1])]
        # As for a prediction with a standard deviation that as many objects tell.
        wanted = scipy.stats.norm.ppf(0.5 + 0.5 * LEVEL)
        wider = scipy.stats.t.ppf(0.5 + 0.5 * LEVEL, max(self.held_out - 1, 1)) / wanted
        least = wanted / (wider * np.sqrt(LARGEST))
        return float((wanted / (wider * max(quantile, least))) ** 2)

    def _weighted(self, draws: Sequence[Residuals]) -> tuple[Vector, Vector]:
        """Return residuals, each kind weighted by its share of the kernel's missing entries."""
        n, m = len(self.kernel.v), max(len(self.kernel.h), 1)
        shares = (n * m, m * (m - 1) / 2, m)
        parts = Residuals.joined(draws)
        weights = [
            np.full(len(part), share / max(len(part), 1))
            for part, share in zip(parts, shares, strict=True)
        ]
        return np.concatenate(parts), np.concatenate(weights)


def _warn_of_low_coverage(stack: KernelStack, coverage: NDArray[np.float64]) -> None:
    """Warn of kernels whose 90 % intervals cover far less of their held-out entries."""
    for name, share in zip(stack.names, coverage, strict=True):
        if share < LEAST_COVERAGE:  # not if it is NaN
            warn(
                f"degrees_of_freedom: the {LEVEL:.0%} intervals of kernel {name!r} cover only "
                f"{share:.0%} of its held-out entries, so its standard deviations cannot be "
                "trusted. Normal errors do not describe a kernel of so few objects or features."
            )


def _warn_of_untested(
    stack: KernelStack, sharing: NDArray[np.float64], how: NDArray[np.str_]
) -> None:
    """Warn of kernels whose degrees of freedom were not tested as they are used."""
    names = np.array(stack.names, dtype=object)
    if len(alone := names[(how == "alone") & (sharing > 0.0)]):
        warn(
            f"degrees_of_freedom: no object of {name_some(alone.tolist())} could be held out that "
            "another kernel shows. Whether the other kernels predict its objects was not tested: "
            "the standard deviations are those of each kernel alone. Use sharing 0 there, as "
            "complete does."
        )
    if len(spectrum := names[how == "spectrum"]):
        warn(
            f"degrees_of_freedom: too few objects are visible in {name_some(spectrum.tolist())} to "
            f"hold any out (at least {FEWEST} are needed). The standard deviations are not "
            "calibrated there; the degrees of freedom are those of the spectrum."
        )
