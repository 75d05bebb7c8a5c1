"""The ascent: steps until the remaining gain is small, each one checked to have risen."""

import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from ..errors import ConvergenceWarning, MonotonicityError, warn
from ..model.gaussian import GaussianModel
from ..model.sources import Sources
from .expected import Expectation
from .state import EMSteps, Method, State

#: If rounding can change L by more nats than this, a fit has not converged.
VAGUE = 1.0


class Record(NamedTuple):
    """What the trace keeps of one model matrix."""

    log_likelihood: NDArray[np.float64]
    log_prior: float
    penalized_log_likelihood: float
    rounding_bound: float
    gain_of_constants: float
    gain_to_come: float
    entries_to_come: float
    evaluations: int
    seconds: float
    rise_of_q: float
    by_em: bool
    step_length: float
    gradient_norm: float


def check_rise(iteration: int, before: Record, after: Record) -> None:
    """Raise MonotonicityError if the likelihood fell by more than the rounding bounds allow."""
    fall = before.penalized_log_likelihood - after.penalized_log_likelihood
    allowed = before.rounding_bound + after.rounding_bound
    if np.isnan(fall):
        raise MonotonicityError(
            f"the penalized log-likelihood is not a number in iteration {iteration}: the model is "
            "too ill-conditioned for double precision. Raise the strength."
        )
    if not fall <= allowed:
        raise MonotonicityError(
            f"the penalized log-likelihood fell by {fall:.6g} nats in iteration {iteration} (from "
            f"{before.penalized_log_likelihood:.10g} to {after.penalized_log_likelihood:.10g}), "
            f"where rounding explains at most {allowed:.3g}. No step may do that: the model is too "
            "ill-conditioned for double precision (raise the strength, or use "
            'sources="adaptive" if the kernels have other scales than the prior), or this is a bug.'
        )


class Ascent:
    """One ascent from a starting model by some method, and its record.

    Whatever the method, it ends with an EM step: `completion` is its E-step, `model` its M-step.

    Attributes
    ----------
    records : list of Record
        One per model matrix, the start included.
    completion : tuple of GaussianModel and Sources
        Where the completed kernels are expectations, after `complete` was called.
    converged, interrupted : bool
    limit : str
        What the ascent waited for last: "gain", "entries", or "" if it has not converged.

    Parameters
    ----------
    method
        The method, of an EM.
    start
        The first model.
    tol
        In nats, for the estimated remaining gain.
    tol_entries
        For the estimated remaining change of every entry of the model, relative to
        sqrt(M_ii M_jj); infinite if it does not matter.
    """

    def __init__(
        self, method: Method, start: GaussianModel, *, tol: float, tol_entries: float = math.inf
    ) -> None:
        self.em, self.method, self.tol, self.tol_entries = method.em, method, tol, tol_entries
        self.records: list[Record] = []
        self.limit = ""
        self.converged = self.interrupted = False
        self._began = time.perf_counter()
        self._levels: list[float] = []
        self._path = [0.0]  # by step, how far the entry that changed most has come
        self._state = State(0, start)
        self._completion: tuple[int, GaussianModel, Sources] | None = None
        self._kernels: Sequence[Expectation] | None = None  # of the last model
        self._before: Any = None

    @property
    def model(self) -> GaussianModel:
        """The last model."""
        return self._state.model

    @property
    def n_iter(self) -> int:
        """How many steps were taken."""
        return self._state.number

    @property
    def evaluations(self) -> int:
        """How many E-steps were taken."""
        return self._state.evaluations

    @property
    def completion(self) -> tuple[GaussianModel, Sources]:
        """The model and the sources of the last E-step, whose M-step the last model is."""
        if self._completion is None:
            raise RuntimeError("the ascent is not complete: call complete first")
        _, model, sources = self._completion
        return model, sources

    @property
    def sources(self) -> Sources:
        """The sources at the last model."""
        assert self._state.statistics is not None
        return self._state.statistics.sources

    def run(self, *, max_iter: int, progress: bool) -> None:
        """Take steps until the estimated remaining gain is at most `tol` nats.

        Takes at most `max_iter` - 1 steps (exactly that many if `tol` is 0), because `complete`
        takes the last one. A KeyboardInterrupt is passed on; `complete` finishes a step that was
        interrupted.

        Raises
        ------
        MonotonicityError
            If a step lowered the penalized log-likelihood by more than rounding.
        """
        total = None if self.tol else max_iter
        bar = tqdm(total=total, disable=not progress, desc="fit", unit=" steps")
        with bar, self.em.threads():
            self._record()  # the start
            while self.n_iter < max_iter - 1 and not self.converged:
                self.advance()
                last = self.records[-1]
                known = np.isfinite(last.gain_to_come)
                to_come = f", about {last.gain_to_come:.1e} nats to come" if known else ""
                level = f"log-likelihood {last.penalized_log_likelihood:.4f}"
                bar.set_postfix_str(level + to_come, refresh=False)
                bar.update(self.n_iter - bar.n)

    def advance(self) -> None:
        """Take one step of the method and record it."""
        self._step(self.method)

    def complete(self) -> None:
        """Take the last step, an EM step, and keep where its E-step was taken."""
        if self._completion is None or self._completion[0] == self.n_iter:
            self._record()
            self._completion = self.n_iter, self.model, self.sources
            self._step(EMSteps(self.em))
        self._record()
        self.converged = self.converged and bool(self.records[-1].rounding_bound <= VAGUE)

    def _step(self, method: Method) -> None:
        """Take a step and record it."""
        self._record()
        before = self.model if self.tol_entries < math.inf else None  # it takes memory
        self._state = self._state.without_precision()
        state = method.step(self._state)
        if before is not None:
            change = before.largest_change(state.model)
            self._path[state.number :] = [self._path[state.number - 1] + change]
        self._state = state
        self._record()

    def _entries_to_come(self) -> float:
        """Return the estimated remaining change of any entry; NaN if it does not matter.

        The largest changes of the steps are added up: no entry has come further.
        """
        if not self.tol_entries < math.inf:
            return math.nan
        return self.method.entries_to_come(self._path, self._levels)

    def _record(self) -> None:
        """Record the model that was reached, and check that the likelihood rose."""
        if len(self.records) > self._state.number:
            return
        self._state = state = self._state.evaluated(self.em)
        assert state.statistics is not None
        self._levels[state.number :] = [state.level]
        record = Record(
            state.statistics.log_likelihood,
            self.em.log_prior(state.model, state.statistics),
            state.level,
            self.em.rounding_bound(state.statistics),
            state.statistics.gain_of_constants(self._kernels),
            self.method.gain_to_come(self._levels),
            self._entries_to_come(),
            state.evaluations,
            time.perf_counter() - self._began,
            self.em.rise_of_q(self._before, state.model) if state.by_em else math.nan,
            state.by_em,
            state.length,
            state.gradient_norm,
        )
        if self.records:
            check_rise(state.number, self.records[-1], record)
        self.records.append(record)
        self._kernels = state.statistics.kernels
        self._before = self.em.level_of_q(state.statistics)
        # The final EM step cannot undo convergence.
        self.converged = self.converged or self._has_converged(record)

    def _has_converged(self, record: Record) -> bool:
        """Return whether the remaining gain and the remaining changes are small."""
        gain = 0 < self.tol >= record.gain_to_come
        # If rounding hides L, further steps mean nothing.
        vague = record.rounding_bound > VAGUE
        entries = vague or not record.entries_to_come > self.tol_entries
        if not (gain and entries):
            self.limit = "entries" if gain else "gain"
            return False
        return True

    def warn_if_unfinished(self) -> None:
        """Warn if the ascent was interrupted, or ended before its stopping rule was met."""
        to_come = self.records[-1].gain_to_come
        rest = "an unknown gain was" if to_come == math.inf else f"about {to_come:.3g} nats were"
        if self.interrupted:
            message = f"interrupted after {self.n_iter} iterations; {rest} still to come."
        elif self.tol and self.records[-1].rounding_bound > VAGUE:
            message = (
                f"the log-likelihood is only known to {self.records[-1].rounding_bound:.3g} nats, "
                "because the model is ill-conditioned: whether the fit converged is unknown. Raise "
                'the strength, or use sources="adaptive" if the kernels have other scales than the '
                "prior."
            )
        elif self.tol and not self.converged:
            more = f"more than tol={self.tol:g}"
            if self.limit == "entries":
                far = f"{self.records[-1].entries_to_come:.2g}"
                more = (
                    f"but an entry of the model is estimated to change by another {far}, relative "
                    f"to the diagonal, more than tol_entries={self.tol_entries:g}"
                )
            message = (
                f"not converged in {self.n_iter} iterations: {rest} still to come, {more}. "
                f"{self.method.remedy}"
            )
        else:
            return
        warn(message, ConvergenceWarning)
