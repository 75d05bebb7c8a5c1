"""`select_model`: which strength, and what each kernel shares, by held-out objects."""

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from tqdm.auto import tqdm

from ..em.problem import DEFAULT_STRENGTH, Problem, one_prior, problem_of
from ..errors import ConvergenceWarning, KernelError, warn
from ..model.gaussian import GaussianModel
from ..model.prior import WishartPrior
from ..model.sources import sharing_number
from ..model.structures import FULL, PPCA, FactorAnalysis, Full, LowRank, Structure, structure_of
from ..stacks.degrees import DegreesOfFreedom
from ..stacks.labels import as_labels, match
from ..utils.arguments import checked, positive, seed, several, whole
from ..utils.processes import in_processes
from .calibration import is_auto
from .holdout import (
    BASELINES,
    Draw,
    Outcome,
    Setting,
    baseline_errors,
    compare_path,
    hidden_objects,
)
from .model_selection import ModelSelection, name_of

#: The strengths that are tried, and the sharings besides 1.
STRENGTHS = (0.3, 1.0, 3.0, 10.0, 30.0)
SHARINGS = (0.0, 0.25, 0.5, 0.75, 0.9)
#: A kernel shares something only if that gains more than this many nats per held-out object.
LEAST_GAIN = 0.002
#: The strengths that are tried with a prior of few factors.
PRIOR_STRENGTHS = (10.0, 3.0, 1.0)
#: A search of more than this many seconds says how long it will take.
LONG = 10.0
#: How often strengths and sharings are searched again after kernels were set apart.
ROUNDS = 2


def low_rank_or_none(value: Any, what: str) -> LowRank | None:
    """Return the structure of a prior's scale that the user named; None for none."""
    found = None if value is None else structure_of(value, what)
    if isinstance(found, Full):
        raise KernelError(f"{what}: 'full' found; None, PPCA(rank) or FactorAnalysis(rank) needed.")
    return found


@checked(
    strengths=several(positive),
    sharing=several(sharing_number),
    structures=several(structure_of),
    priors=several(low_rank_or_none),
    draws=whole(least=2),
    seed=seed,
    workers=whole(least=1),
)
def select_model(
    stack: xr.DataArray,
    *,
    strengths: Sequence[float] = STRENGTHS,
    sharing: Sequence[float] = SHARINGS,
    structures: Sequence[str | Structure] = ("full",),
    priors: Sequence[PPCA | FactorAnalysis | None] = (None,),
    prior: WishartPrior | None = None,
    degrees_of_freedom: DegreesOfFreedom = 1.0,
    groups: ArrayLike | xr.DataArray | None = None,
    draws: int = 5,
    seed: int | np.random.Generator = 0,
    workers: int = 1,
    progress: bool = False,
) -> ModelSelection:
    """Choose the strength and what each kernel shares with the others, by held-out objects.

    Each draw hides a quarter of every kernel's visible objects. The candidates are fitted without
    them and scored by the density of the held-out objects given the kernel's other objects. In the
    same draws mean, zero and nearest-neighbor imputation complete the held-out rows, too, so that
    the choice comes with a verdict on whether the model beats them.

    Parameters
    ----------
    stack
        The incomplete kernels.
    strengths
        The candidates for the strength; see Notes.
    sharing
        The candidates for the sharing; 0 and 1 are always among them.
    structures
        The structures of the model matrix, the first one preferred: for example ``("full",
        PPCA(5), FactorAnalysis(5))``.
    priors
        The scales of the full structure's prior that are tried besides the default one, which None
        stands for: models of a few factors like ``PPCA(3)``, fitted in each draw (see `fit`,
        `prior`).
    prior
        A prior whose scale is used with each strength; fit the choice with
        ``prior.with_strength(...)``, as `complete` does.
    degrees_of_freedom
        As in `fit`.
    groups
        A label per object (a family, batch or patient), in the order of the stack or labeled by
        ``object``: the objects of a group are held out together.
    draws
        The number of draws, at least 2.
    seed
        The seed of the draws.
    workers
        The number of processes that take draws in parallel (needs joblib). The result does not
        depend on it.
    progress
        Whether to show a progress bar.

    Returns
    -------
    ModelSelection
        Its `best` is a mapping for ``fit(stack, **best)``. After Ctrl-C it holds what was compared
        so far, and is marked as interrupted.

    Raises
    ------
    KernelError, LabelError, IndefiniteKernelError
        If the stack or an argument cannot be used.
    MKMCError
        If `workers` is more than 1 and joblib is not installed.

    Warns
    -----
    ConvergenceWarning
        If Ctrl-C ended the search.

    Notes
    -----
    A difference between two candidates is clear if its mean over the draws, in nats per held-out
    object, exceeds both its standard error and 0.002. The search has three steps:

    1. All kernels share everything, and strengths are tried from the largest down until one is
       clearly worse than the best so far. The one with the largest total score is taken; of equal
       ones, that nearest to 1.
    2. At this strength the sharings are compared, the same for all kernels, and every kernel gets
       its best; but 0 if that is not clearly better than 0. A kernel none of whose objects can be
       tested gets sharing 0, and so does a kernel that would be the only one to share anything.
    3. The strength is chosen again at these sharings: it moves to the next larger or smaller
       candidate for as long as the score improves.

    If a kernel gets sharing 0 in step 2 and at least two kernels do not, it may have misled step 1.
    It is then held at 0, the strength of the others is chosen again as in step 3, and step 2 is
    repeated, at most twice.

    The first structure is searched like this. The others are tried at its sharings, moving from its
    strength as in step 3; one that is clearly better than the best so far takes its place, and the
    sharings are compared again under it. A rank is left out if one between it and that of the best,
    of the same kind, was tried and not taken. The priors are tried with the full structure, at
    strengths 1, 3 and 10, in the same way. It is never the likelihood that chooses: those of
    different structures and priors cannot be compared.

    The score of a held-out block is its conditional density with its scale at its maximum, because
    nearly singular kernels make the plain density overconfident. An object is not held out if it
    would then be visible in no kernel. The draws depend on the order of the kernels and objects, so
    another order can change a close choice, as another `seed` can. If sources miss objects in
    blocks, random held-out objects are easier to predict than missing ones; use `groups`.

    Examples
    --------
    >>> from mkmc_prob import datasets, remove_objects, select_model
    >>> kernels, _ = datasets.make_fusion_problem(30, 3)
    >>> selection = select_model(remove_objects(kernels, 0.3, seed=0))
    >>> sorted(selection.best)
    ['sharing', 'strength']
    """
    if is_auto(degrees_of_freedom):
        raise KernelError(
            'degrees_of_freedom: "auto" found. Choose the model with equal weights, then '
            'fit(stack, **selection.best, degrees_of_freedom="auto"), as complete does.'
        )
    problem = problem_of(
        stack, one_prior(DEFAULT_STRENGTH, prior), degrees_of_freedom=degrees_of_freedom
    )
    if prior is not None and any(priors):
        raise KernelError("priors: found with a prior of your own. Leave one of the two out.")
    if any(priors) and FULL not in map(structure_of, structures):
        raise KernelError('priors: they are for structure "full", which is not in structures.')
    named = [("structures", structure_of(one)) for one in structures]
    named += [("priors", one) for one in priors if one is not None]
    for what, structure in named:
        problem._replace(structure=structure).check_structure(what)
        if isinstance(structure, LowRank) and prior is not None and not prior.is_identity:
            raise KernelError(
                f"structures: {structure.name} found with a scale of the prior, with which it has "
                "sharing 1 only. Leave the scale out."
            )
    grouped = None if groups is None else _groups(groups, problem)
    rng = np.random.default_rng(seed)
    drawn = [Draw(problem, hidden_objects(problem.stack, rng, grouped)) for _ in range(draws)]
    search = Search(
        drawn,
        sorted(strengths, reverse=True),
        sharing,
        [structure_of(structure) for structure in structures],
        [one for one in priors if one is not None],
        workers,
        progress,
    )
    return search.run()


def _groups(given: Any, problem: Problem) -> NDArray[np.intp]:
    """Return the group of each object as a number."""
    objects = problem.stack.objects
    if isinstance(given, pd.Series):
        given = xr.DataArray(given.to_numpy(), dims="object", coords={"object": given.index})
    if isinstance(given, xr.DataArray):
        if given.dims != ("object",) or "object" not in given.indexes:
            raise KernelError(
                f"groups: dims {given.dims} found; one label per object is needed, with dims "
                "('object',) and its labels."
            )
        missing = "groups: none for object {}. Add it."
        known = as_labels(given.indexes["object"], "groups, objects")
        given = given.values[match(objects, known, missing)]
    try:
        labels = np.asarray(given, dtype=object)
    except ValueError as error:
        raise KernelError("groups: not one label per object. Pass one label each.") from error
    if labels.shape != (len(objects),):
        raise KernelError(
            f"groups: shape {labels.shape} found for {len(objects)} objects. Pass one label each."
        )
    masked = np.ma.getmaskarray(given) if isinstance(given, np.ma.MaskedArray) else False
    if (absent := pd.isna(labels) | masked).any():
        raise KernelError(
            f"groups: none for object {objects[absent][0].item()!r}. Give an object that belongs "
            "to no group a label of its own."
        )
    try:
        return np.asarray(pd.factorize(labels)[0], dtype=np.intp)
    except TypeError as error:
        raise KernelError(f"groups: {error}. Pass numbers or texts as labels.") from error


class Candidate(NamedTuple):
    """A setting, and what each draw says of it."""

    setting: Setting
    outcomes: list[Outcome]

    @property
    def score(self) -> NDArray[np.float64]:
        """The score by draw and kernel, in nats."""
        return np.array([outcome.score for outcome in self.outcomes])


class Search:
    """The search of `select_model`.

    Parameters
    ----------
    draws
        The draws, over one problem.
    strengths
        The candidates, the largest first.
    sharings
        The candidates besides 1.
    structures
        Of the model matrix.
    priors
        Structures of the scale of the full structure's prior.
    workers, progress
        As in `select_model`.
    """

    def __init__(
        self,
        draws: list[Draw],
        strengths: Sequence[float],
        sharings: Sequence[float],
        structures: Sequence[Structure],
        priors: Sequence[LowRank],
        workers: int,
        progress: bool,
    ) -> None:
        self.draws, self.strengths, self.workers = draws, list(strengths), workers
        self.sharings = sorted({*sharings} - {1.0}, reverse=True)
        self.structures, self.priors = structures, priors
        self.names = draws[0].problem.stack.names
        self.held_out = np.array([draw.hidden.sum(axis=1) for draw in draws])
        self.tested = self.held_out.any(axis=0)
        self.found: dict[Setting, Candidate] = {}
        self.baselines = np.full((len(BASELINES), *self.held_out.shape), np.nan)
        self._told = False
        self._bar = tqdm(disable=not progress, desc="select_model", unit=" fits")

    def run(self) -> ModelSelection:
        """Search, and return what was found."""
        best, interrupted = self._untested(), False
        try:
            with self._bar:
                if self.tested.any():
                    self._compare_baselines()
                    best = self._best_structure()
        except KeyboardInterrupt:
            interrupted, best = True, self._best_so_far()
            warn(
                f"interrupted: the choice is the best of the {len(self.found)} candidates that "
                "were compared in full.",
                ConvergenceWarning,
            )
        return ModelSelection(self._dataset(), best, interrupted)

    def _untested(self) -> Setting:
        """Return what is used if nothing can be tested: every kernel alone, at strength 1."""
        structure = FULL if FULL in self.structures else self.structures[0]
        return Setting(DEFAULT_STRENGTH, (0.0,) * len(self.names), structure)

    def _best_so_far(self) -> Setting:
        """Return the candidate with the largest score of those compared in full."""
        if not self.found:
            return Setting(DEFAULT_STRENGTH, (1.0,) * len(self.names), self.structures[0])
        return max(self.found, key=lambda setting: self._total(self.found[setting]))

    def _best_structure(self) -> Setting:
        """Return the best setting of the first structure, unless another is clearly better."""
        first, *others = self.structures
        best = self._search(first)
        if first == FULL and any(best.sharing):
            best = self._better_prior(best)
        tried = [first]
        for structure in others:
            if _beyond(structure, best.structure, tried):
                continue
            tried.append(structure)
            if not any(best.sharing):
                own = self._search(structure)
            else:
                near = best._replace(structure=structure, prior=None)
                own = self._better_strength(np.array(best.sharing), near)
            if structure == FULL and any(own.sharing):
                own = self._better_prior(own)
            if self._is_clearly_better(own, best):
                best = self._sharings_again(own)
        return best

    def _better_prior(self, best: Setting) -> Setting:
        """Return the setting with another scale of the prior, if that is clearly better."""
        without = best
        for prior in self.priors:
            path = [without._replace(prior=prior, strength=each) for each in PRIOR_STRENGTHS]
            self._compare(path, f"prior {prior.name}", without)
            own = max(path, key=lambda setting: self._total(self.found[setting]))
            if self._is_clearly_better(own, best):
                best = own
        return best if best == without else self._sharings_again(best)

    def _sharings_again(self, best: Setting) -> Setting:
        """Return the setting with other sharings, unless it is clearly better without."""
        chosen = self._choose_sharings(best)
        if not chosen.any():
            return best
        again = best._replace(sharing=tuple(chosen.tolist()))
        self._compare([again], "sharings", best)
        return best if self._is_clearly_better(best, again) else again

    def _search(self, structure: Structure) -> Setting:
        """Return the best strength and sharings with this structure."""
        sharing = np.ones(len(self.names))
        sharing[~self.tested] = 0.0
        if (sharing > 0.0).sum() < 2:
            sharing[:] = 0.0
        self._alone()
        if not sharing.any():
            return self._untested()
        near = self._first_strength(sharing, structure)
        chosen = self._choose_sharings(near)
        for _ in range(ROUNDS):
            apart = chosen == 0.0
            if (apart == (np.array(near.sharing) == 0.0)).all() or (~apart).sum() < 2:
                break
            near = self._better_strength(np.where(apart, 0.0, 1.0), near)
            chosen = self._choose_sharings(near)
        if not chosen.any():
            return self._untested()  # the strength has no effect
        return self._better_strength(chosen, near)

    def _first_strength(self, sharing: NDArray[np.float64], structure: Structure) -> Setting:
        """Return the best strength; from the largest down until one is clearly worse."""
        tried: list[Setting] = []
        for strength in self.strengths:
            setting = Setting(strength, tuple(sharing.tolist()), structure)
            self._compare([setting], "strengths", tried[-1] if tried else None)
            tried.append(setting)
            # Of equal ones that nearest to 1.
            order = sorted(tried, key=lambda setting: abs(np.log(setting.strength)))
            best = max(order, key=lambda setting: self._total(self.found[setting]))
            if self._is_clearly_better(best, setting):
                break
        self._keep_models(best)
        return best

    def _better_strength(self, sharing: NDArray[np.float64], near: Setting) -> Setting:
        """Move from the strength of `near` while the score at `sharing` improves."""
        at = self._nearest_strength(near.strength)
        best = near._replace(strength=self.strengths[at], sharing=tuple(sharing.tolist()))
        self._compare([best], "strengths", near if near in self.found else None)
        for step in (-1, 1):
            before = best
            while 0 <= at + step < len(self.strengths):
                setting = best._replace(strength=self.strengths[at + step])
                start = best if self._has_models(best) or near not in self.found else near
                self._compare([setting], "strengths", start)
                if not self._total(self.found[setting]) > self._total(self.found[best]):
                    break
                best, at = setting, at + step
            if best != before:
                break
        self._keep_models(best)
        return best

    def _nearest_strength(self, strength: float) -> int:
        """Return the place of the candidate that is nearest to a strength."""
        return int(np.argmin(np.abs(np.log(np.array(self.strengths) / strength))))

    def _choose_sharings(self, near: Setting) -> NDArray[np.float64]:
        """Return the best sharing of each kernel at the strength of `near`."""
        apart = np.array(near.sharing) == 0.0

        def setting(share: float) -> Setting:
            return near._replace(sharing=tuple(np.where(apart, 0.0, share).tolist()))

        shares = [1.0, *self.sharings, *([] if 0.0 in self.sharings else [0.0])]
        path = [setting(share) for share in shares if share > 0.0]
        self._compare(path, "sharings", near)
        self._keep_models(near)
        self._alone()
        candidates = {
            share: self.found[setting(share)] if share else self._alone() for share in shares
        }
        per_object = {
            share: one.score / np.maximum(self.held_out, 1) for share, one in candidates.items()
        }
        chosen = np.zeros(len(self.names))
        for k in np.flatnonzero(self.tested & ~apart):
            drawn = self.held_out[:, k] > 0
            by_share = {share: values[drawn, k] for share, values in per_object.items()}
            best = max(by_share, key=lambda share: by_share[share].mean())
            chosen[k] = best if is_clear(by_share[best] - by_share[0.0]) else 0.0
        if (chosen > 0.0).sum() == 1:
            chosen[:] = 0.0  # there is none to share with
        return chosen

    def _has_models(self, setting: Setting) -> bool:
        """Return whether other candidates may start from the models of this one."""
        return all(outcome.model is not None for outcome in self.found[setting].outcomes)

    def _keep_models(self, kept: Setting) -> None:
        """Free the memory of all models but those of one candidate, from which others start."""
        for setting, candidate in self.found.items():
            if setting != kept:
                bare = [outcome._replace(model=None) for outcome in candidate.outcomes]
                self.found[setting] = candidate._replace(outcomes=bare)

    def _alone(self) -> Candidate:
        """Return every kernel alone, which does not depend on the strength."""
        setting = self._untested()
        if setting not in self.found:
            self._compare([setting], "every kernel alone")
        return self.found[setting]

    def _compare(self, path: list[Setting], what: str, start: Setting | None = None) -> None:
        """Fit and score the candidates of a path in every draw, each from the one before it."""
        path = [setting for setting in path if setting not in self.found]
        if not path:
            return
        self._bar.set_description(f"select_model: {what}")
        models: list[GaussianModel | None] = [None] * len(self.draws)
        if start is not None:
            models = [outcome.model for outcome in self.found[start].outcomes]
        tasks = [(draw, path, model) for draw, model in zip(self.draws, models, strict=True)]
        by_draw = []
        for outcomes in in_processes(compare_path, tasks, workers=self.workers):
            by_draw.append(outcomes)
            if any(path[0].sharing):  # kernels that share nothing are completed at once
                self._say_how_long(outcomes)
            self._bar.update(len(path))
        for i, setting in enumerate(path):
            self.found[setting] = Candidate(setting, [outcomes[i] for outcomes in by_draw])

    def _say_how_long(self, first: list[Outcome]) -> None:
        """After the first draw, say how long the search will take if that is more than seconds."""
        if self._told:
            return
        self._told = True
        others = len(self.structures) - 1 + len(self.priors)  # about three fits each
        fits = len(self.draws) * (len(self.strengths) + len(self.sharings) + 3 + 3 * others)
        each = sum(outcome.seconds for outcome in first) / len(first)
        seconds = each * fits / min(self.workers, len(self.draws))
        if seconds > LONG:
            about = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
            more = "" if not self._bar.disable else "; progress=True shows a progress bar"
            tqdm.write(
                f"select_model: about {about} for {fits} fits, up to twice as many if kernels are "
                f"set apart{more}",
                file=sys.stderr,
            )

    def _compare_baselines(self) -> None:
        self._bar.set_description("select_model: mean, zero and neighbors")
        tasks = [(draw,) for draw in self.draws]
        errors = list(in_processes(baseline_errors, tasks, workers=self.workers))
        self.baselines = np.stack(errors, axis=1)

    def _is_clearly_better(self, one: Setting, other: Setting) -> bool:
        """Return whether `one` has the better scores, paired by draw, beyond noise."""
        better, worse = (self.found[setting].score.sum(axis=1) for setting in (one, other))
        if not (np.isfinite(better).all() and np.isfinite(worse).all()):  # beyond double precision
            return self._total(self.found[one]) > self._total(self.found[other])
        return is_clear((better - worse) / np.maximum(self.held_out.sum(axis=1), 1))

    def _total(self, candidate: Candidate) -> float:
        """Return the score per held-out object, over all draws and kernels."""
        return float(candidate.score.sum() / self.held_out.sum())

    def _dataset(self) -> xr.Dataset:
        """Return everything that was compared."""
        found = list(self.found.values())
        shape = (len(found), *self.held_out.shape)
        by = ("candidate", "draw", "kernel")
        outcomes = [one.outcomes for one in found]
        score = np.array([[each.score for each in one] for one in outcomes]).reshape(shape)
        error = np.array([[each.error for each in one] for one in outcomes]).reshape(shape)
        return xr.Dataset(
            {
                "strength": ("candidate", np.array([one.setting.strength for one in found])),
                "structure": ("candidate", [one.setting.structure.name for one in found]),
                "prior": ("candidate", [name_of(one.setting.prior) for one in found]),
                "sharing": (
                    ("candidate", "kernel"),
                    np.array([one.setting.sharing for one in found]).reshape(shape[::2]),
                ),
                "score": (by, score, {"long_name": "held-out log density", "units": "nats"}),
                "relative_error": (by, error),
                "held_out": (by[1:], self.held_out),
                "baseline_error": (("baseline", *by[1:]), self.baselines),
                "evaluations": (
                    "candidate",
                    np.array([sum(e.evaluations for e in one) for one in outcomes], dtype=int),
                ),
                "seconds": (
                    "candidate",
                    np.array([sum(e.seconds for e in one) for one in outcomes], dtype=float),
                ),
            },
            coords={
                "kernel": self.draws[0].problem.stack.array["kernel"].values,
                "baseline": list(BASELINES),
                "draw": np.arange(len(self.draws)),
            },
        )


def _beyond(structure: Structure, best: Structure, tried: Sequence[Structure]) -> bool:
    """Return whether a rank between those of `structure` and of the best was tried already."""
    if not (isinstance(structure, LowRank) and type(structure) is type(best)):
        return False
    assert isinstance(best, LowRank)
    low, high = sorted((structure.rank, best.rank))
    between = (one.rank for one in tried if type(one) is type(best) and isinstance(one, LowRank))
    return any(low < rank < high for rank in between)


def is_clear(gain: NDArray[np.float64]) -> bool:
    """Return whether a gain by draw exceeds its standard error and 0.002 nats per object."""
    error = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else np.inf
    return bool(gain.mean() > max(error, LEAST_GAIN))
