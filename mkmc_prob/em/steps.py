"""Where an ascent stands, what it needs of a method of going on, and EM's own step.

Enters: an `EM` and a model. Leaves: the next model. The faster methods are in `acceleration`, the
loop (trace, monotone check, stopping, final EM step) in `ascent`.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from ..errors import IndefiniteKernelError
from ..model.gaussian import GaussianModel
from .em import EM
from .statistics import ExpectedStatistics
from .stopping import estimated_gain


class _At(NamedTuple):
    number: int
    model: GaussianModel
    statistics: ExpectedStatistics | None = None
    length: float = math.nan
    by_em: bool = False
    gradient_norm: float = math.nan


class Position:
    """The model that an ascent has reached, and the E-step there.

    It is replaced in one assignment, so that an interrupt finds it whole; what was at the model
    before is let go, so that only one step's matrices are held.

    Attributes
    ----------
    evaluations : int
        How many E-steps were taken so far.
    """

    def __init__(self, em: EM, start: GaussianModel) -> None:
        self.em = em
        self.evaluations = 0
        self._at = _At(0, start)

    @property
    def number(self) -> int:
        """How many steps led here."""
        return self._at.number

    @property
    def model(self) -> GaussianModel:
        """The model reached."""
        return self._at.model

    @property
    def statistics(self) -> ExpectedStatistics:
        """The E-step at the model, taken when first asked for."""
        if self._at.statistics is None:
            self._at = self._at._replace(statistics=self.evaluate(self._at.model))
        assert self._at.statistics is not None
        return self._at.statistics

    @property
    def level(self) -> float:
        """The penalized log-likelihood of the model."""
        return self.em.penalized_log_likelihood(self.model, self.statistics)

    def evaluate(self, model: GaussianModel) -> ExpectedStatistics:
        """Return the E-step at some model, and count it."""
        self.evaluations += 1
        return self.em.e_step(model)

    @property
    def length(self) -> float:
        """How long the last step was in the affine-invariant metric; NaN where nobody said."""
        return self._at.length

    @property
    def by_em(self) -> bool:
        """Whether the last step was an EM step."""
        return self._at.by_em

    @property
    def gradient_norm(self) -> float:
        """||G||_F at the model; NaN where nobody computed it."""
        return self._at.gradient_norm

    @gradient_norm.setter
    def gradient_norm(self, norm: float) -> None:
        self._at = self._at._replace(gradient_norm=norm)

    def move(
        self,
        model: GaussianModel,
        statistics: ExpectedStatistics | None = None,
        *,
        length: float = math.nan,
        by_em: bool = False,
    ) -> None:
        """Go to the next model, with the E-step there if it is at hand."""
        self._at = _At(self._at.number + 1, model, statistics, length, by_em)


class Method(Protocol):
    """What the loop needs of a method; `remedy` is for those with whom it does not converge."""

    em: EM
    remedy: str

    def step(self, position: Position) -> None:
        """Move on, once, to a model that is at least as likely."""

    def gain_to_come(self, trace: Sequence[float]) -> float:
        """Estimate how much the log-likelihoods in `trace` would still rise, in nats."""


class EMSteps:
    """The paper's algorithm: the E-step at the model, and the M-step that gives the next one."""

    remedy = (
        'Use method="geodesic", which needs fewer steps, raise max_iter, or continue with '
        "initial=result."
    )

    def __init__(self, em: EM) -> None:
        self.em = em

    def step(self, position: Position) -> None:
        """Take one EM step."""
        statistics = position.statistics
        position.model.forget_precision()
        position.move(self.em.m_step(statistics), by_em=True)

    def gain_to_come(self, trace: Sequence[float]) -> float:
        """Extrapolate the increments; see `estimated_gain`."""
        return estimated_gain(trace)


def evaluate_if_definite(
    position: Position, model: GaussianModel
) -> tuple[ExpectedStatistics | None, float]:
    """Return the E-step at `model` and its log-likelihood; None and -inf where M is singular.

    Near to singular B B' can lose what the factor B still has: tr M^-1 F(M), positive by what it
    is, shows that the two have parted.
    """
    try:
        statistics = position.evaluate(model)
    except IndefiniteKernelError:
        return None, -np.inf
    if not position.em.update_trace(statistics) > 0.0:
        return None, -np.inf
    return statistics, position.em.penalized_log_likelihood(model, statistics)
