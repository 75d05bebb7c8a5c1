"""`complete`: choose a model, fit it, and say whether it beats simple imputation."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from ..errors import KernelError
from ..model.prior import WishartPrior
from ..stacks.definite import repair_spectrum
from ..stacks.degrees import DegreesOfFreedom
from ..utils.arguments import Check
from .fit import fit
from .result import MKMCResult
from .selection import SHARINGS, STRENGTHS, select_model

#: Options that are passed on to `fit`.
OPTIONS = ("method", "tol", "max_iter", "initial")
#: How `fit` checks them: before the search, which can take long.
FIT_CHECKS: dict[str, Check] = fit.checks  # type: ignore[attr-defined]


def complete(
    stack: xr.DataArray,
    *,
    strengths: Sequence[float] = STRENGTHS,
    sharing: Sequence[float] = SHARINGS,
    structures: Sequence[str] = ("full",),
    groups: ArrayLike | xr.DataArray | None = None,
    draws: int = 5,
    seed: int | np.random.Generator = 0,
    workers: int = 1,
    progress: bool = False,
    repair: bool = False,
    prior: WishartPrior | None = None,
    degrees_of_freedom: DegreesOfFreedom = 1.0,
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
    strengths, sharing, structures, groups, draws, seed, workers, progress
        As in `select_model`.
    repair
        Whether to make indefinite kernels positive semidefinite (`repair_spectrum`, which warns of
        each change); otherwise an indefinite kernel is an error.
    prior, degrees_of_freedom
        As in `fit`.
    **options
        Further options of `fit`: ``method``, ``tol``, ``max_iter``, ``initial``.

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
    >>> kernels, _ = datasets.load_multiple_features(n_per_class=3)
    >>> result = complete(remove_objects(kernels, 0.3, seed=0))
    >>> result.completed.isnull().any().item()
    False
    >>> bool((result.sources["sharing"] > 0.0).all())
    True
    """
    for name, value in options.items():
        if name not in OPTIONS:
            raise KernelError(
                f"{name}: complete chooses it, or has no such option. Pass some of {OPTIONS}; for "
                "one model of your own call fit."
            )
        if name in FIT_CHECKS:
            options[name] = FIT_CHECKS[name](value, name)
    if repair:
        stack = repair_spectrum(stack)
    common: dict[str, Any] = {"prior": prior, "degrees_of_freedom": degrees_of_freedom}
    selection = select_model(
        stack,
        strengths=strengths,
        sharing=sharing,
        structures=structures,
        groups=groups,
        draws=draws,
        seed=seed,
        workers=workers,
        progress=progress,
        **common,
    )
    if prior is not None:
        common["prior"] = prior.with_strength(selection.best["strength"])
    result = fit(stack, **selection.best, **common, progress=progress, **options)
    interrupted = result.interrupted or selection.interrupted
    return dataclasses.replace(result, selection=selection, interrupted=interrupted)
