"""What diagnostics, plots and imputation read of a fit: its attributes, not its class."""

from typing import Any, Protocol, runtime_checkable

import xarray as xr

from ..errors import KernelError
from ..model.gaussian import GaussianModel
from ..model.prior import WishartPrior
from ..model.structures import Structure


@runtime_checkable
class FitResult(Protocol):
    """The attributes of `MKMCResult` that other modules read, as documented there."""

    @property
    def observed(self) -> xr.DataArray:
        """The incomplete stack."""

    @property
    def completed(self) -> xr.DataArray:
        """The completed stack."""

    @property
    def model(self) -> GaussianModel:
        """The model matrix."""

    @property
    def trace(self) -> xr.Dataset:
        """The trace of the ascent."""

    @property
    def prior(self) -> WishartPrior:
        """The prior of the model matrix."""

    @property
    def sources(self) -> xr.Dataset:
        """How each kernel relates to the model."""

    @property
    def degrees_of_freedom(self) -> xr.DataArray:
        """The degrees of freedom per kernel."""

    @property
    def structure(self) -> Structure:
        """The structure of the model matrix."""

    @property
    def method(self) -> str:
        """The method of ascent."""

    @property
    def tol(self) -> float:
        """The tolerance in nats."""

    @property
    def converged(self) -> bool:
        """Whether the estimated remaining gain fell to the tolerance."""


def as_result(given: Any, what: str = "result") -> FitResult:
    """Return `given` if it has the attributes of a fit; raise KernelError otherwise."""
    if not isinstance(given, FitResult):
        raise KernelError(
            f"{what}: {type(given).__name__} found; pass the MKMCResult that fit(stack) returns."
        )
    return given
