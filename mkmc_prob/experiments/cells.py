"""One cell of a study: a repetition, a ratio and a method.

Its scores depend on the study's settings and on the cell only.
"""

import itertools
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ..errors import KernelError, LabelError, MKMCError, MKMCWarning
from ..evaluation.missingness import remove_objects
from ..evaluation.scores import matrix_distances, row_errors
from ..stacks.kernel_stack import KernelStack
from ..stacks.labels import name_some
from ..stacks.stack import check_stack
from .classification import FOLDS, draw_order, need_sklearn, roc_area
from .methods import Method, read_completion

Missingness = Callable[..., xr.DataArray]


class Cell(NamedTuple):
    """The unit of computation."""

    repetition: int
    ratio: float
    #: The method's name.
    completion: str

    def __str__(self) -> str:
        return f"repetition {self.repetition}, ratio {self.ratio:g}, method {self.completion!r}"


class Outcome(NamedTuple):
    """The scores of a cell.

    `roc` is by matrix (the kernels, then the model) and training size. The two distances are by
    kernel, NaN if none of its objects is hidden. `seconds` is the time of the completion.
    """

    roc: NDArray[np.float64]
    correlation_matrix_distance: NDArray[np.float64]
    relative_error: NDArray[np.float64]
    strength: float
    converged: bool
    evaluations: int
    seconds: float


@dataclass(frozen=True, eq=False)
class Study:
    """The settings that all cells share.

    Attributes
    ----------
    kernels
        The complete stack.
    codes
        The classes of its objects, numbered from 0.
    train_sizes, C, seed
        As in `run_study`.
    strength
        lambda of the model matrix of methods without one of their own.
    missingness
        None for `remove_objects`.
    """

    kernels: xr.DataArray
    codes: NDArray[np.intp]
    train_sizes: tuple[int, ...]
    C: float | Sequence[float]
    seed: int
    strength: float
    missingness: Missingness | None

    def incomplete(self, repetition: int, ratio: float) -> xr.DataArray:
        """Return the stack that every method gets. A repetition has one seed for all ratios.

        Raises
        ------
        KernelError, LabelError
            If `missingness` does anything but remove whole rows and columns.
        MKMCError
            If a kernel loses all objects, or `missingness` raises an error.
        """
        if not ratio:
            return self.kernels.copy()
        seed = int(self._sequence(repetition, 0).generate_state(1, np.uint64)[0])
        if self.missingness is None:
            stack = remove_objects(self.kernels, ratio, seed=seed)
        else:
            try:
                stack = self._removed(self.missingness(self.kernels.copy(), ratio, seed=seed))
            except MKMCError as error:
                raise type(error)(f"missingness: {error}") from error
            except Exception as error:
                raise MKMCError(f"missingness: {type(error).__name__}: {error}") from error
        kept = KernelStack(stack).visible.any(axis=1)
        if not kept.all():
            names = name_some(stack["kernel"].values[~kept])
            raise MKMCError(f"kernel {names} loses all its objects. Pass a smaller ratio.")
        return stack

    def _removed(self, stack: xr.DataArray) -> xr.DataArray:
        """Return what the user's `missingness` returned, checked."""
        stack = check_stack(stack, what="the stack it returned")
        for dim in stack.dims:
            if not stack.indexes[dim].equals(self.kernels.indexes[dim]):
                raise LabelError(f"its {dim}s, or their order, are not those of the stack it got.")
        missing = np.isnan(stack.values)
        changed = ~missing & (stack.values != self.kernels.values)
        if changed.any():
            k, i, j = np.argwhere(changed)[0]
            objects = stack["object"].values[[i, j]].tolist()
            raise KernelError(
                f"it changed kernel {stack['kernel'].values[k].item()!r} at objects {objects[0]!r} "
                f"and {objects[1]!r}. It may only set whole rows and columns to NaN."
            )
        return self.kernels.copy(data=np.where(missing, np.nan, self.kernels.values))

    def check(self, repetitions: int, ratios: Iterable[float]) -> None:
        """Raise now, not after hours, if objects cannot be divided or rows cannot be removed."""
        for repetition in range(repetitions):
            self.order(repetition)
        for ratio in ratios:  # in the first repetition
            try:
                self.incomplete(0, ratio)
            except MKMCError as error:
                raise type(error)(f"ratios: at {ratio:g} (repetition 0): {error}") from error

    def order(self, repetition: int) -> NDArray[np.intp]:
        """Return the order of the objects, of which the first train; see `draw_order`."""
        rng = np.random.default_rng(self._sequence(repetition, 1))
        least = 1 if isinstance(self.C, float) else FOLDS
        return draw_order(self.codes, self.train_sizes, rng, least=least)

    def _sequence(self, repetition: int, use: int) -> np.random.SeedSequence:
        return np.random.SeedSequence(self.seed, spawn_key=(repetition, use))

    def run(self, cell: Cell, function: Method) -> Outcome:
        """Compute one cell on one BLAS thread: the result does not depend on their number."""
        need_sklearn()  # loaded before threads are limited
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore", MKMCWarning)  # the study itself warns, once
            incomplete = self.incomplete(cell.repetition, cell.ratio)
            began = time.perf_counter()
            returned = function(incomplete.copy())
            seconds = time.perf_counter() - began
            found = read_completion(returned, incomplete)
            del returned
            kernels, model = found.completed.values, found.model
            if model is None:  # equation (modelM) of the paper
                model = kernels.sum(axis=0) + self.strength * np.eye(kernels.shape[1])
                model /= self.strength + len(kernels)
            order = self.order(cell.repetition)
            roc = [
                roc_area(matrix, self.codes, order[:size], order[size:], C=self.C)
                for matrix, size in itertools.product((*kernels, model), self.train_sizes)
            ]
            truth, kept = KernelStack(self.kernels), KernelStack(incomplete).visible
            distance = np.where(kept.all(axis=1), np.nan, matrix_distances(truth, kernels))
            return Outcome(
                np.reshape(roc, (-1, len(self.train_sizes))),
                distance,
                row_errors(truth, kernels, kept),
                *(found.strength, found.converged, found.evaluations, seconds),
            )
