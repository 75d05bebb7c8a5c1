"""The ascent: EM steps until the gain still to come is small, each one checked to have risen.

Enters: an `EM` and a starting model. Leaves: the last model, the one before it, and the record of
the likelihood. The loop knows nothing of labels, groups or files; `fit` is the door to it.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from .em import EM, ExpectedStatistics
from .errors import ConvergenceWarning, MonotonicityError, warn
from .model import GaussianModel

#: How far back the increments are compared with today's, as a share of the steps taken.
LOOK_BACK = (0.9, 0.5)
#: The most by which slower rates, not seen yet, may enlarge the gain still to come.
LARGEST_MIXTURE = 3.0


class Record(NamedTuple):
    """What the trace keeps of one model matrix."""

    log_likelihood: NDArray[np.float64]
    log_prior: float
    penalized_log_likelihood: float
    rounding_bound: float
    gain_to_come: float


class Ascent(NamedTuple):
    """Where the ascent stands: replaced whole after every step, so an interrupt finds it whole.

    `statistics` is the E-step at the last model; `previous` the model that it came from.
    """

    statistics: ExpectedStatistics
    previous: GaussianModel | None
    n_iter: int
    converged: bool = False


def estimated_gain(trace: Sequence[float]) -> float:
    """Estimate how much the log-likelihood would still rise, in nats, from its trace so far.

    Were there one rate, EM's increments would shrink by the same factor q every w steps, and of
    the rise D over the last w steps D q / (1 - q) would still be to come (Aitken). But they are a
    mixture of rates, whose slower parts show later: locally the increments shrink like t^-p in
    the number t of steps, and p / (p - 1) times as much is to come. q and p are read off the rise
    over a short window now and at 0.9 t and at 0.5 t; the larger estimate counts. The factor
    p / (p - 1) is held to 3: right after a warm start t says nothing.

    Returns
    -------
    float
        Infinite where there are too few steps to tell or the increments do not shrink; 0 where the
        trace no longer rises at all, which only rounding lets happen.

    Examples
    --------
    >>> from mkmc_prob.ascent import estimated_gain
    >>> round(estimated_gain([-(0.5**t) for t in range(31)]) * 2**30, 1)
    1.1
    """
    steps = len(trace) - 1
    window = max(1, steps // 20)
    if steps < 1:
        return math.inf
    recent = trace[-1] - trace[-1 - window]
    if recent <= 0:
        return 0.0
    estimates = []
    for share in LOOK_BACK:
        then = min(int(steps * share), steps - 1)
        earlier = trace[then] - trace[then - window] if then >= window else 0.0
        if not earlier > recent:
            return math.inf
        shrinkage = math.log(earlier / recent)
        factor = math.exp(-shrinkage * window / (steps - then))
        power = shrinkage / math.log((steps - window / 2) / (then - window / 2))
        mixture = min(power / (power - 1), LARGEST_MIXTURE) if power > 1 else LARGEST_MIXTURE
        estimates.append(mixture * recent * factor / (1 - factor))
    return max(estimates)


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
    """One ascent of an `EM` from a starting model, and its record.

    Attributes
    ----------
    records : list of Record
        One per model matrix, the start included.
    previous, model : GaussianModel
        The last two models: the E-step at `previous` gave `model`.
    n_iter : int
    converged, interrupted : bool
    """

    def __init__(self, em: EM, start: GaussianModel, *, tol: float) -> None:
        self.em = em
        self.tol = tol
        self.records: list[Record] = []
        self.interrupted = False
        self._levels: list[float] = []
        self._start = start
        self._state: Ascent | None = None

    def run(self, *, max_iter: int, progress: bool) -> None:
        """Take EM steps until the estimated gain to come is at most `tol` nats.

        With `tol` 0 exactly `max_iter` steps are taken. KeyboardInterrupt goes through; the state
        is then that after the last whole step, and `complete` makes it fit to be returned.

        Raises
        ------
        MonotonicityError
            Where a step lowered the penalized log-likelihood by more than rounding.
        """
        total = None if self.tol else max_iter
        with tqdm(total=total, disable=not progress, desc="EM", unit=" steps") as bar:
            while self._state is None or (self.n_iter < max_iter and not self.converged):
                self._advance()
                last = self.records[-1]
                known = np.isfinite(last.gain_to_come)
                to_come = f", about {last.gain_to_come:.1e} nats to come" if known else ""
                level = f"log-likelihood {last.penalized_log_likelihood:.4f}"
                bar.set_postfix_str(level + to_come, refresh=False)
                bar.update(self.n_iter - bar.n)

    def complete(self) -> None:
        """Take a first step where an interrupt came before it; drop what a broken step left."""
        while self._state is None or self._state.previous is None:
            self._advance()
        del self.records[self.n_iter + 1 :]

    def _advance(self) -> None:
        """Evaluate the start, or take one EM step; the state changes last, in one assignment."""
        state = self._state
        step = 0 if state is None else state.n_iter + 1
        del self.records[step:], self._levels[step:]  # what an interrupted step left behind
        model = self._start if state is None else self.em.m_step(state.statistics)
        statistics = self.em.e_step(model)
        level = self.em.penalized_log_likelihood(model, statistics)
        self._levels.append(level)
        record = Record(
            statistics.log_likelihood,
            self.em.prior.log_density(model),
            level,
            self.em.rounding_bound(statistics),
            estimated_gain(self._levels),
        )
        if step:
            check_rise(step, self.records[-1], record)
        self.records.append(record)
        self._state = Ascent(
            statistics,
            None if state is None else state.statistics.model,
            step,
            converged=bool(self.tol) and record.gain_to_come <= self.tol,
        )

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
                f"tol={self.tol:g}. Raise max_iter, or continue with initial=result.model."
            )
        else:
            return
        warn(message, ConvergenceWarning)
