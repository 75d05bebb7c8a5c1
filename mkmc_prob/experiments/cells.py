"""One cell of a study: a repetition, a ratio and a method.

Enters: a complete stack with classes, and which cell. Leaves: its scores, which depend on nothing
but the study's settings and the cell, whatever else is computed, where, and in which order.
"""

import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ..errors import KernelError, LabelError, MKMCError, MKMCWarning
from ..evaluation.missingness import remove_objects
from ..evaluation.scores import correlation_matrix_distance, relative_error
from ..stacks.labels import name_some
from ..stacks.stack import check_labels, check_stack, visible_objects
from .classification import FOLDS, draw_order, need_sklearn, roc_area
from .methods import Method, read_completion

Missingness = Callable[..., xr.DataArray]


class Cell(NamedTuple):
    """What is computed on its own, and once."""

    repetition: int
    ratio: float
    #: The method's name.
    completion: str

    def __str__(self) -> str:
        return f"repetition {self.repetition}, ratio {self.ratio:g}, method {self.completion!r}"


class Outcome(NamedTuple):
    """The scores of a cell.

    `roc` is by matrix (the kernels, then the model) and training size, the two distances are by
    kernel, NaN where it misses nothing. `seconds` is what the completion took.
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
    """What all cells share.

    Attributes
    ----------
    kernels
        The complete stack.
    codes
        The classes of its objects, numbered from 0.
    train_sizes, C, seed
        As `run_study` takes them; C a number or several.
    strength
        lambda of the model matrix of methods that have none of their own.
    missingness
        None for `remove_objects`.
    """

    kernels: xr.DataArray
    codes: NDArray[np.intp]
    train_sizes: tuple[int, ...]
    C: float | tuple[float, ...]
    seed: int
    strength: float
    missingness: Missingness | None

    def incomplete(self, repetition: int, ratio: float) -> xr.DataArray:
        """Return the stack that every method gets: of one seed for all ratios of a repetition.

        Raises
        ------
        KernelError, LabelError
            Where what `missingness` returned is more than the same kernels with rows and columns
            removed.
        MKMCError
            Where a kernel loses all objects; as `missingness` raises it.
        """
        if not ratio:
            return self.kernels.copy()
        seed = int(self._sequence(repetition, 0).generate_state(1, np.uint64)[0])
        if self.missingness is None:
            stack = remove_objects(self.kernels, ratio, seed=seed)
        else:
            stack = self._removed(self.missingness(self.kernels.copy(), ratio, seed=seed))
        seen = visible_objects(stack).values.any(axis=1)
        if not seen.all():
            raise MKMCError(
                f"kernel {name_some(stack['kernel'].values[~seen])} loses all its objects, and a "
                "zero matrix has no correlation with the true one. Pass a smaller ratio."
            )
        return stack

    def _removed(self, stack: xr.DataArray) -> xr.DataArray:
        """Return what a `missingness` of one's own returned, checked."""
        found, own = (check_labels(s, what="missingness") for s in (stack, self.kernels))
        if not all(map(np.array_equal, found, own)):
            raise LabelError(
                "missingness: the stack it returned has other kernels or objects than the one it "
                "got, or another order of them. Return the same labels."
            )
        stack = stack.transpose(*self.kernels.dims)
        try:
            check_stack(stack)  # whole rows and columns are missing, or none
        except KernelError as error:
            raise KernelError(f"missingness: {error}") from error
        missing = np.isnan(stack.values)
        changed = np.argwhere(~missing & (stack.values != self.kernels.values))
        if len(changed):
            k, i, j = changed[0].tolist()
            names, objects = (self.kernels[dim].values.tolist() for dim in ("kernel", "object"))
            raise KernelError(
                f"missingness: it changed kernel {names[k]!r} at objects {objects[i]!r} and "
                f"{objects[j]!r} from {self.kernels.values[k, i, j]!r} to "
                f"{stack.values[k, i, j]!r}. It only removes: set whole rows and columns to NaN."
            )
        return self.kernels.copy(data=np.where(missing, np.nan, self.kernels.values))

    def check_ratios(self, ratios: Iterable[float]) -> None:
        """Raise where rows cannot be removed in the first repetition, before hours have gone."""
        for ratio in ratios:
            try:
                self.incomplete(0, ratio)
            except MKMCError as error:
                raise type(error)(f"ratios: at {ratio:g} (repetition 0): {error}") from error
            except Exception as error:
                raise MKMCError(
                    f"ratios: at {ratio:g} (repetition 0): missingness: {type(error).__name__}: "
                    f"{error}"
                ) from error

    def order(self, repetition: int) -> NDArray[np.intp]:
        """Return the objects in the order in which they train, the rest test; see `draw_order`."""
        rng = np.random.default_rng(self._sequence(repetition, 1))
        least = FOLDS if isinstance(self.C, tuple) else 1
        return draw_order(self.codes, self.train_sizes, rng, least=least)

    def _sequence(self, repetition: int, use: int) -> np.random.SeedSequence:
        return np.random.SeedSequence(self.seed, spawn_key=(repetition, use))

    def run(self, cell: Cell, function: Method) -> Outcome:
        """Compute one cell, on one BLAS thread: the same bits whatever there are outside."""
        need_sklearn()  # loaded before threads are limited
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore", MKMCWarning)  # `converged` says it; the rest is known
            incomplete = self.incomplete(cell.repetition, cell.ratio)
            began = time.perf_counter()
            returned = function(incomplete.copy())  # what it does to its own copy is its business
            seconds = time.perf_counter() - began
            found = read_completion(returned, incomplete)
            del returned
            kernels, model = found.completed.values, found.model
            if model is None:  # equation (modelM) of the paper
                model = kernels.sum(axis=0) + self.strength * np.eye(kernels.shape[1])
                model /= self.strength + len(kernels)
            order = self.order(cell.repetition)
            roc = [
                [
                    roc_area(matrix, self.codes, order[:size], order[size:], C=self.C)
                    for size in self.train_sizes
                ]
                for matrix in (*kernels, model)
            ]
            misses = ~visible_objects(incomplete).values.all(axis=1)
            distance = correlation_matrix_distance(self.kernels, found.completed).values
            return Outcome(
                np.array(roc),
                np.where(misses, distance, np.nan),
                relative_error(self.kernels, found.completed, incomplete).values,
                found.strength,
                found.converged,
                found.evaluations,
                seconds,
            )
