"""The ascent: steps until the gain still to come is small, each one checked to have risen.

Enters: an `EM`, a starting model and a method of going on. Leaves: the last model, the one whose EM
step gave it, and the record of the likelihood. The loop knows nothing of labels, groups or files;
`fit` is the door to it.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from .acceleration import EMSteps, Method, Step
from .em import ExpectedStatistics
from .errors import ConvergenceWarning, MonotonicityError, warn
from .model import GaussianModel


class Record(NamedTuple):
    """What the trace keeps of one model matrix."""

    log_likelihood: NDArray[np.float64]
    log_prior: float
    penalized_log_likelihood: float
    rounding_bound: float
    gain_to_come: float
    evaluations: int


class Ascent(NamedTuple):
    """Where the ascent stands: replaced whole after every step, so an interrupt finds it whole.

    `statistics` is the E-step at the last model; `previous` the model whose EM step gave it, None
    where it is not the outcome of an EM step.
    """

    statistics: ExpectedStatistics
    previous: GaussianModel | None
    n_iter: int
    converged: bool = False


def check_rise(iteration: int, before: Record, after: Record) -> None:
    """Raise MonotonicityError where the likelihood fell by more than the rounding bounds allow."""
    fall = before.penalized_log_likelihood - after.penalized_log_likelihood
    allowed = before.rounding_bound + after.rounding_bound
    if not fall <= allowed:
        raise MonotonicityError(
            f"the penalized log-likelihood fell by {fall:.6g} nats in iteration {iteration} (from "
            f"{before.penalized_log_likelihood:.10g} to {after.penalized_log_likelihood:.10g}), "
            f"where rounding explains at most {allowed:.3g}. An EM step cannot do that: the model "
            "is too ill-conditioned for double precision (raise the strength), or this is a bug."
        )


class Climb:
    """One ascent of an `EM` from a starting model by some method, and its record.

    Whatever the method, it ends with an EM step.

    Attributes
    ----------
    records : list of Record
        One per model matrix, the start included.
    state : Ascent
        Where it stands; `state.previous` and `state.statistics.model` are the last two models.
    n_iter : int
    converged, interrupted : bool
    """

    def __init__(self, method: Method, start: GaussianModel, *, tol: float) -> None:
        self.em = method.em
        self.method = method
        self.tol = tol
        self.records: list[Record] = []
        self.interrupted = False
        self._levels: list[float] = []
        self._start = start
        self._state: Ascent | None = None

    def run(self, *, max_iter: int, progress: bool) -> None:
        """Take steps until the estimated gain to come is at most `tol` nats.

        With `tol` 0 exactly `max_iter` steps are taken. KeyboardInterrupt goes through; the state
        is then that after the last whole step, and `complete` makes it fit to be returned.

        Raises
        ------
        MonotonicityError
            Where a step lowered the penalized log-likelihood by more than rounding.
        """
        total = None if self.tol else max_iter
        with tqdm(total=total, disable=not progress, desc="fit", unit=" steps") as bar:
            while self._state is None or (self.n_iter < max_iter and not self.converged):
                at_last = self._state is not None and self.n_iter == max_iter - 1
                self._advance(EMSteps(self.em) if at_last else self.method)
                last = self.records[-1]
                known = np.isfinite(last.gain_to_come)
                to_come = f", about {last.gain_to_come:.1e} nats to come" if known else ""
                level = f"log-likelihood {last.penalized_log_likelihood:.4f}"
                bar.set_postfix_str(level + to_come, refresh=False)
                bar.update(self.n_iter - bar.n)

    def complete(self) -> None:
        """Take a last EM step where the last one was none; drop what a broken step left."""
        while self._state is None or self._state.previous is None:
            self._advance(EMSteps(self.em))
        del self.records[self.n_iter + 1 :]

    def _advance(self, method: Method) -> None:
        """Evaluate the start, or take one step; the state changes last, in one assignment."""
        state = self._state
        number = 0 if state is None else state.n_iter + 1
        del self.records[number:], self._levels[number:]  # what an interrupted step left behind
        if state is None:
            step = Step(self.em.e_step(self._start), 1, None)
        else:
            step = method.step(state.statistics)
        statistics, model = step.statistics, step.statistics.model
        level = self.em.penalized_log_likelihood(model, statistics)
        self._levels.append(level)
        record = Record(
            statistics.log_likelihood,
            self.em.prior.log_density(model),
            level,
            self.em.rounding_bound(statistics),
            self.method.gain_to_come(self._levels),
            step.evaluations + (self.records[-1].evaluations if number else 0),
        )
        if number:
            check_rise(number, self.records[-1], record)
        self.records.append(record)
        converged = bool(self.tol) and record.gain_to_come <= self.tol
        # Once converged, the final EM step changes nothing of that.
        converged = converged or (state is not None and state.converged)
        self._state = Ascent(statistics, step.previous, number, converged)

    @property
    def state(self) -> Ascent:
        """The last complete state."""
        if self._state is None:
            raise RuntimeError("the ascent has not begun: call run first")
        return self._state

    @property
    def n_iter(self) -> int:
        """How many steps were taken."""
        return self.state.n_iter

    @property
    def converged(self) -> bool:
        """Whether the estimated gain to come fell to `tol`."""
        return self.state.converged

    def warn_if_unfinished(self) -> None:
        """Warn where the ascent was interrupted, or ended before its stopping rule was met."""
        to_come = self.records[-1].gain_to_come
        rest = "an unknown gain was" if to_come == math.inf else f"about {to_come:.3g} nats were"
        if self.interrupted:
            message = f"interrupted after {self.n_iter} iterations; {rest} still to come."
        elif self.tol and not self.converged:
            message = (
                f"not converged in {self.n_iter} iterations: {rest} still to come, more than "
                f"tol={self.tol:g}. Raise max_iter, continue with initial=result.model, or use "
                'method="geodesic", which needs fewer steps.'
            )
        else:
            return
        warn(message, ConvergenceWarning)
