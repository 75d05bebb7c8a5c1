"""Operations of the forms of the E-step, for n visible and m hidden objects."""


def precision_form_cost(n: int, m: int) -> float:
    """Return the operations of an E-step in `PrecisionForm`, given the precision of M."""
    return m**3 + 3.0 * n * m**2 + 2.0 * n**2 * m


def covariance_form_cost(n: int, m: int) -> float:
    """Return the operations of an E-step in `CovarianceForm`, doubled: they run half as fast."""
    return 2.0 * (4 * n**3 / 3 + 4.0 * n**2 * m + n * m**2)
