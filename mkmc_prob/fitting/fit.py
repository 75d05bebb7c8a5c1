"""The whole job: from an incomplete stack to a result.

Enters: a stack and options. Leaves: an `MKMCResult`. The arguments are checked here, objects that
no kernel shows are set aside before the ascent and filled in after it.
"""

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike

from ..em.ascent import Climb
from ..em.em import EM
from ..em.methods import METHODS
from ..em.trace import trace_of
from ..errors import KernelError
from ..model.gaussian import GaussianModel
from ..model.prior import DEFAULT_STRENGTH, WishartPrior, one_prior
from ..stacks.degrees import DegreesOfFreedom, degrees_per_kernel
from ..stacks.pattern import warn_of_what_is_not_identified
from ..stacks.stack import check_stack, visible_objects, warn_of_scales
from ..utils.arguments import tolerance, whole_number
from .result import MKMCResult
from .unseen import Unseen


def fit(
    stack: xr.DataArray,
    *,
    strength: float = DEFAULT_STRENGTH,
    prior: WishartPrior | None = None,
    degrees_of_freedom: DegreesOfFreedom = 1.0,
    method: str = "geodesic",
    tol: float = 1e-3,
    max_iter: int = 10_000,
    initial: MKMCResult | GaussianModel | xr.DataArray | pd.DataFrame | ArrayLike | None = None,
    progress: bool = False,
) -> MKMCResult:
    """Complete the kernels of `stack` mutually: the paper's MKMC.

    Parameters
    ----------
    stack
        The incomplete kernels, from `stack_kernels`. Not changed.
    strength
        lambda > 0, the strength of the prior (scale: the identity), as a number of observations
        beside the kernels' degrees of freedom.
    prior
        The prior itself, where its scale is not the identity; instead of `strength`.
    degrees_of_freedom
        nu_k > 0, how many observations each kernel counts for: one number, one per kernel, or
        labelled by kernel. 1 in the paper.
    method
        How to climb; all climb the same likelihood, and every step rises. "geodesic": L-BFGS in
        the geometry in which an EM step is a gradient step. "em": the paper's Algorithm 1, which
        needs thousands of steps where the strength is small. "squarem": squared extrapolation, the
        classical accelerator of EM, as a yardstick; it can need more evaluations than EM does.
        Where there are several maxima (at strengths of 0.01 and less, say) they may end in
        different ones.
    tol
        The fit has converged when the estimated gain in log-likelihood still to come is at most
        `tol`, in nats. A shortfall of g nats displaces any one parameter by at most about
        sqrt(2 g) of its standard error: 1e-3 stands for 4 %. Where L is flat that error is large,
        and entries that little is known of can still move in the second digit: take 1e-5 for
        numbers to report. The estimate follows the rates seen so far; far from the maximum, at a
        small strength, and right after a warm start, it can be several times too small
        (`missing_information` has another). No fit is taken for converged before ten steps. With 0
        exactly `max_iter` steps are taken.
    max_iter
        The most steps, at least 1.
    initial
        Where to start: another fit's result, a model, or a labelled positive definite matrix over
        all objects. The paper's start, zeros in the missing entries, if left out.
    progress
        Whether to show a progress bar.

    Returns
    -------
    MKMCResult
        The completed kernels, the model matrix, and the trace of the likelihood. It ends with an
        EM step whatever the method: ``completed`` is its E-step, ``model`` its M-step.

    Raises
    ------
    KernelError, LabelError, IndefiniteKernelError
        Where the stack or an argument cannot be used; the message names the kernel, the object,
        the value and the remedy.
    MonotonicityError
        Where a step lowered the penalized log-likelihood by more than rounding.

    Warns
    -----
    ConvergenceWarning
        Not converged within `max_iter`, or interrupted (Ctrl-C returns what there is).
    IdentifiabilityWarning
        Objects missing in every kernel, kernels that show nothing, groups of objects that no
        kernel ties together.
    MKMCWarning
        Kernels whose scales differ by more than a factor of 10.

    Notes
    -----
    The likelihood of the visible part is the right one where missingness is ignorable: which
    objects a source misses does not depend on the missing similarities.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import fit, stack_kernels
    >>> kernels = np.array([[[2.0, 1.0], [1.0, 2.0]], [[1.0, 0.2], [0.2, 1.0]]])
    >>> stack = stack_kernels(kernels, visible=[[1, 1], [0, 1]])
    >>> result = fit(stack, strength=0.5, tol=1e-9)
    >>> result.converged
    True
    >>> result.completed.sel(kernel="Q2").values.round(2)
    array([[1.56, 0.4 ],
           [0.4 , 1.  ]])
    """
    prior = one_prior(strength, prior)
    if not isinstance(method, str) or method not in METHODS:
        known = " or ".join(map(repr, METHODS))
        raise KernelError(f"method: {method!r} found; {known} is needed.")
    tol = tolerance(tol, "tol")
    max_iter = whole_number(max_iter, "max_iter", least=1)
    stack = check_stack(stack)
    objects = stack["object"].values
    prior = prior.restricted(objects, objects)  # a scale without labels gets the stack's
    nu = degrees_per_kernel(degrees_of_freedom, stack["kernel"].values.tolist())
    visible = visible_objects(stack)
    warn_of_scales(stack)
    warn_of_what_is_not_identified(visible)
    aside = Unseen(prior, objects, ~np.any(visible.values, axis=0))
    em = EM.of(aside.restrict_stack(stack), aside.restrict_prior(), nu)
    if isinstance(initial, MKMCResult):
        initial = initial.model
    start = em.initial_model() if initial is None else aside.restrict_model(initial)
    climb = Climb(METHODS[method](em), start, tol=tol)
    try:
        climb.run(max_iter=max_iter, progress=progress)
        return _result(climb, aside, stack, method)
    except KeyboardInterrupt:  # what there is is kept: only a second Ctrl-C throws it away
        climb.interrupted = True
        return _result(climb, aside, stack, method)


def _result(climb: Climb, aside: Unseen, stack: xr.DataArray, method: str) -> MKMCResult:
    """Return the result of an ascent over the seen objects, for all objects."""
    climb.complete()
    completed, model = _extended(climb, aside, stack)
    result = MKMCResult(
        observed=stack,
        completed=completed,
        model=model,
        trace=trace_of(climb, constant=aside.log_prior),
        prior=aside.prior,
        degrees_of_freedom=xr.DataArray(
            climb.em.degrees_of_freedom,
            dims="kernel",
            coords={"kernel": stack["kernel"].values},
            name="degrees_of_freedom",
        ),
        method=method,
        tol=climb.tol,
        converged=climb.converged,
        interrupted=climb.interrupted,
    )
    climb.warn_if_unfinished()
    return result


def _extended(
    climb: Climb, aside: Unseen, stack: xr.DataArray
) -> tuple[xr.DataArray, GaussianModel]:
    """Return the completed kernels and the model over all objects, the unseen ones included."""
    seen = climb.completed
    completed = seen
    if len(aside.unseen):
        values = np.stack([aside.extend(matrix) for matrix in seen.values])
        completed = stack.copy(data=values).rename(seen.name)
        completed.attrs = dict(seen.attrs)
    return completed, GaussianModel.of(aside.extend(climb.model.matrix), stack["object"].values)
