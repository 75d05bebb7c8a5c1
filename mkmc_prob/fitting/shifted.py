"""A result whose hidden objects are shifted by a factor: its kernels, and the model of them."""

import math
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..diagnostics.protocol import FitResult
from ..em.em import EM
from ..em.problem import Problem
from ..errors import ConvergenceWarning, KernelError, warn
from ..linalg.symmetric import Matrix
from ..model.gaussian import GaussianModel
from ..model.shift import ShiftableKernel
from ..model.sources import Sources
from ..model.structures import need_full
from ..stacks.kernel_stack import KernelStack
from .solve import problem_of_result

#: A refit ends when the estimated remaining change of its model is below this share of it, or after
#: so many steps.
SMALLEST_CHANGE, MOST_STEPS = 1e-6, 5_000
#: It diverges if its model grows by this factor.
DIVERGED = 1e3


class Shifted(NamedTuple):
    """The kernels of a result whose hidden objects are shifted.

    A function that reads only `completed` and ``model.covariance`` takes an `MKMCResult`, too.

    Attributes
    ----------
    delta : float
        The factor.
    completed : DataArray
        The completed stack with the hidden objects shifted.
    get_model : callable
        Computes `model`, which is done only if it is asked for.
    """

    delta: float
    completed: xr.DataArray
    get_model: Callable[[], GaussianModel]

    @property
    def model(self) -> GaussianModel:
        """The model matrix of the objects as they are, shifted: the M-step of `completed`."""
        return self.get_model()


class Shifts:
    """What a factor does to the completed kernels of a result.

    Parameters
    ----------
    result
        A fit.
    direction
        "size" or "ties", see `ShiftableKernel`.
    places : ndarray of int
        Which kernels' hidden objects are shifted.
    """

    def __init__(self, result: FitResult, direction: str, places: NDArray[np.intp]) -> None:
        self.result, self.direction, self.places = result, direction, places
        self.problem = problem_of_result(result)
        self.names = self.problem.stack.names
        self._parts = self._split(result.completed)

    @property
    def centered(self) -> bool:
        """Whether kernels share a constant, so that the shift is about their center."""
        return not self.problem.sources.is_identical

    def _split(self, completed: xr.DataArray) -> dict[int, ShiftableKernel]:
        visible = self.problem.stack.visible
        return {
            k: ShiftableKernel(completed.values[k], visible[k], centered=self.centered)
            for k in self.places.tolist()
        }

    def check(self, largest: float) -> None:
        """Raise KernelError if the largest factor is more than "ties" admit."""
        self._check(self._parts, largest, "")

    def _check(self, parts: dict[int, ShiftableKernel], largest: float, when: str) -> None:
        if self.direction != "ties" or largest <= 1.0:
            return
        found = {k: part.largest_ties for k, part in parts.items()}
        k = min(found, key=lambda place: found[place])
        if largest > found[k]:
            raise KernelError(
                f"deltas: {largest:g} found{when}; at most {math.floor(1e4 * found[k]) / 1e4:g} is "
                f"admissible for the ties of kernel {self.names[k]!r}: beyond, the conditional "
                "covariance of its hidden objects would be indefinite. Pass smaller deltas."
            )

    def _apply(
        self, completed: xr.DataArray, parts: dict[int, ShiftableKernel], delta: float
    ) -> xr.DataArray:
        shifted = completed.copy()
        for k, part in parts.items():
            shifted.values[k] = part.shifted(self.direction, delta)
        return shifted

    def held(self, delta: float) -> Shifted:
        """Return the kernels shifted, with the fitted model held."""
        completed = self._apply(self.result.completed, self._parts, delta)
        return Shifted(delta, completed, lambda: self._model_of(completed))

    def _model_of(self, completed: xr.DataArray) -> GaussianModel:
        """Return the M-step of shifted kernels.

        It is computed as a change of the fitted model, the M-step of the kernels that are not
        shifted, and so equals it exactly at delta = 1.
        """
        need_full(self.result.structure, "quantity: the model of shifted kernels")
        model = self.result.model
        moved = m_step_of_complete(self.problem, self._sources, completed, model)
        return GaussianModel.of(model.matrix + (moved - self._unshifted), model.objects)

    @cached_property
    def _sources(self) -> Sources:
        """The sources with the constants of the result."""
        constants = self.result.sources["constant"].sel(kernel=self.names).values
        return self.problem.sources.with_constants(constants)

    @cached_property
    def _unshifted(self) -> Matrix:
        completed, model = self.result.completed, self.result.model
        return m_step_of_complete(self.problem, self._sources, completed, model)

    def refitted(self, delta: float) -> Shifted:
        """Return the fixed point of EM with shifted expectations; the result itself at 1.

        The remaining change is extrapolated from the ratio of the last two. For delta > 1 there
        may be no fixed point.
        """
        if delta == 1.0:
            return self.held(delta)
        em, model, change = EM.of(self.problem), self.result.model, math.inf
        for _ in range(MOST_STEPS):
            held = self.problem.sources.constant
            best = em.update_constants(model).constant if np.isnan(held).any() else held
            sources = em.sources.with_constants(np.where(np.isnan(held), best, held))
            completed = em.completed(self.problem, sources, model)
            parts = self._split(completed)
            self._check(parts, delta, " in the refit")
            completed = self._apply(completed, parts, delta)
            matrix = m_step_of_complete(self.problem, sources, completed, model)
            size, before = float(np.linalg.norm(matrix)), change
            change = float(np.linalg.norm(matrix - model.matrix))
            model = GaussianModel.of(matrix, model.objects)
            if size > DIVERGED * float(np.linalg.norm(self.result.model.matrix)):
                raise KernelError(
                    f"deltas: {delta:g} found with refit=True; the refit diverges, because what "
                    "most kernels hide grows at every step. Pass smaller deltas, or leave refit "
                    "out."
                )
            if change <= SMALLEST_CHANGE * size * (1.0 - min(change / before, 1.0)):
                break
        else:
            warn(
                f"delta {delta:g}: the refit did not converge in {MOST_STEPS} steps. Fit with a "
                "larger strength, or leave refit out.",
                ConvergenceWarning,
            )
        return Shifted(delta, completed, lambda: model)


def m_step_of_complete(
    problem: Problem, sources: Sources, completed: xr.DataArray, model: GaussianModel
) -> Matrix:
    """Return the matrix of the EM step from `model` that takes complete kernels for observed.

    After an E-step at `model`, the kernels it completed lead to the same M-step as the visible
    blocks, because the expectations of all kernels' vectors are taken given the visible ones.
    """
    own = problem._replace(stack=KernelStack(completed), sources=sources)
    kept = sources.sharing > 0.0
    em = EM.of(own.with_kernels(np.flatnonzero(kept)) if kept.any() else own)
    matrix: Matrix = em.m_step(em.e_step(model)).matrix
    return matrix
