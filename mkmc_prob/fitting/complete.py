"""`complete`: choose a model, fit it, and say whether it beats simple imputation."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from ..em.methods import check_method
from ..errors import KernelError
from ..model.prior import WishartPrior
from ..model.structures import FULL, PPCA, FactorAnalysis, Structure, structure_of
from ..stacks.definite import repair_spectrum
from ..stacks.degrees import DegreesOrAuto
from ..stacks.pairs import never_seen_together
from ..stacks.stack import check_stack
from ..utils.arguments import Check, several
from .calibration import is_auto
from .fit import fit
from .result import MKMCResult
from .selection import SHARINGS, STRENGTHS, select_model

#: Options that are passed on to `fit`.
OPTIONS = ("method", "tol", "tol_entries", "max_iter", "initial")
#: Up to so many objects the full structure is searched by default.
MOST_FOR_FULL = 1_000
#: What is searched beyond, and what the result says of it.
FOR_MANY = (PPCA(20), PPCA(50), PPCA(100), PPCA(5), FactorAnalysis(5), FactorAnalysis(20))
LEFT_OUT = 'structure "full", which takes long for so many objects (pass it in structures)'
#: The scales of the prior where pairs are never seen together, with more than so many objects.
PRIORS = (None, PPCA(3), PPCA(8))
MORE_THAN = 16
#: How `fit` checks them: before the search, which can take long.
FIT_CHECKS: dict[str, Check] = fit.checks  # type: ignore[attr-defined]


def complete(
    stack: xr.DataArray,
    *,
    strengths: Sequence[float] = STRENGTHS,
    sharing: Sequence[float] = SHARINGS,
    structures: Sequence[str | Structure] | None = None,
    priors: Sequence[PPCA | FactorAnalysis | None] | None = None,
    groups: ArrayLike | xr.DataArray | None = None,
    draws: int = 5,
    seed: int | np.random.Generator = 0,
    workers: int = 1,
    progress: bool = False,
    repair: bool = False,
    prior: WishartPrior | None = None,
    degrees_of_freedom: DegreesOrAuto = 1.0,
    **options: Any,
) -> MKMCResult:
    """Complete the kernels of `stack`, and say whether that is better than simple imputation.

    The strength and what each kernel shares with the others are chosen by held-out objects
    (`select_model`), and the chosen model is fitted to the whole stack (`fit`). ``print(result)``
    says which model was chosen, and how it compares with mean and nearest-neighbor imputation.

    Parameters
    ----------
    stack
        The incomplete kernels, from `stack_kernels`. Not changed.
    strengths, sharing, groups, draws, seed, workers, progress
        As in `select_model`.
    structures
        As in `select_model`. If left out, the full structure for up to 1,000 objects, and if
        `prior` has a scale; otherwise, as its search would take too long, several models of low
        rank, and the result says so.
    priors
        As in `select_model`. If left out, ``(None, PPCA(3), PPCA(8))`` where pairs of objects are
        never seen together, and none otherwise.
    repair
        Whether to make indefinite kernels positive semidefinite (`repair_spectrum`, which warns of
        each change); otherwise an indefinite kernel is an error.
    prior, degrees_of_freedom
        As in `fit`. With "auto" the model is chosen with equal weights for all kernels, and the
        verdict is about that choice; the weights come after it.
    **options
        Further options of `fit`: ``method``, ``tol``, ``tol_entries``, ``max_iter``, ``initial``.

    Returns
    -------
    MKMCResult
        With ``selection``, the `ModelSelection` behind it. ``completed`` is always the model's,
        also for kernels for which the verdict prefers mean or nearest-neighbor imputation. After
        Ctrl-C during the selection, the best model so far is fitted.

    Raises
    ------
    KernelError, LabelError, IndefiniteKernelError
        If the stack or an argument cannot be used.
    MKMCError
        If `workers` is more than 1 and joblib is not installed.

    Warns
    -----
    MKMCWarning
        As `fit` and `repair_spectrum` do.

    Examples
    --------
    >>> from mkmc_prob import complete, datasets, remove_objects
    >>> kernels, _ = datasets.load_multiple_features(3, sources=["fac", "fou", "kar"])
    >>> result = complete(remove_objects(kernels, 0.3, seed=0))
    >>> result.completed.isnull().any().item()
    False
    >>> bool((result.sources["sharing"] > 0.0).all())
    True
    """
    for name, value in options.items():
        if name in ("structure", "strength"):
            raise KernelError(f"{name}: complete chooses it. Pass what it may be in {name}s.")
        if name not in OPTIONS:
            raise KernelError(
                f"{name}: complete chooses it, or has no such option. Pass some of {OPTIONS}; for "
                "one model of your own call fit."
            )
        if name in FIT_CHECKS:
            options[name] = FIT_CHECKS[name](value, name)
    if repair:
        stack = repair_spectrum(stack)
    left_out = ""
    checked_stack = check_stack(stack)
    if structures is not None:
        structures = several(structure_of)(structures, "structures")
    else:
        structures = ("full",)
        has_scale = isinstance(prior, WishartPrior) and not prior.is_identity
        if checked_stack.sizes["object"] > MOST_FOR_FULL and not has_scale:
            structures, left_out = FOR_MANY, LEFT_OUT
    if "method" in options:
        for structure in map(structure_of, structures):
            check_method(options["method"], structure)
    if priors is None:
        full = prior is None and FULL in map(structure_of, structures)
        few = checked_stack.sizes["object"] <= MORE_THAN
        apart = full and not few and bool(never_seen_together(checked_stack).any())
        priors = PRIORS if apart else (None,)
    auto = is_auto(degrees_of_freedom)
    common: dict[str, Any] = {
        "prior": prior,
        "degrees_of_freedom": 1.0 if auto else degrees_of_freedom,
    }
    selection = select_model(
        stack,
        strengths=strengths,
        sharing=sharing,
        structures=structures,
        priors=priors,
        groups=groups,
        draws=draws,
        seed=seed,
        workers=workers,
        progress=progress,
        **common,
    )
    selection = dataclasses.replace(selection, left_out=left_out)
    if prior is not None:
        common["prior"] = prior.with_strength(selection.best["strength"])
    common["degrees_of_freedom"] = degrees_of_freedom
    result = fit(stack, **(common | selection.best), progress=progress, **options)
    selection = dataclasses.replace(selection, calibration=result.calibration)
    interrupted = result.interrupted or selection.interrupted
    return dataclasses.replace(result, selection=selection, interrupted=interrupted)
