"""What the missing objects cost: the rate of EM at a model, and the direction that is slowest.

Enters: a result. Leaves: the worst fraction of missing information, labelled, by Lanczos on exact
directional derivatives of the EM map; no matrix of l^2 x l^2 numbers is formed.
"""

import copy

import numpy as np
import xarray as xr
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from .acceleration import Triangle, Vector
from .checks import generator
from .em import EM
from .errors import ConvergenceWarning, warn
from .kernels import visible_objects
from .linalg import Matrix, half_solve, product
from .matrices import labelled
from .model import GaussianModel
from .result import MKMCResult
from .unseen import Unseen

#: The rate is found to this share of 1 - rate, as far as the residual of its eigenvector says.
ACCURACY = 0.005
#: Up to this many directions (objects in pairs) the derivative is written out.
SMALL = 60


class EMDerivative:
    """The derivative of the EM map at a model, exact, in the model's triangular frame.

    With M = B B' and a change M -> B (I + W) B', kernel k's expected second moment changes in the
    frame by

        Psi W Psi + Psi W R + R W Psi,

    Psi = I - Pi the projector on what the kernel hides, Pi = U' M_vv^-1 U with U the visible rows
    of B, and R = U' M_vv^-1 Q_vv M_vv^-1 U. The derivative DF is the sum over the kernels, weighted
    by nu_k / (lambda + N). It is symmetric, so the eigenvalues of DF are real; at a fixed point the
    curvature of L along W is -((lambda + N) / 2) <W, W - DF W>.

    Parameters
    ----------
    em
        The EM whose map it is.
    factor
        B, the Cholesky factor of M.
    """

    def __init__(self, em: EM, factor: Matrix) -> None:
        self.size = len(factor)
        self.triangle = Triangle(self.size)
        self.weight = em.prior.strength + em.total_degrees_of_freedom
        self._degrees = em.degrees_of_freedom
        self._strength = em.prior.strength
        self._terms: list[tuple[int, Matrix, Matrix]] = []
        for k, source in enumerate(em.sources):
            if source.visible.all():
                continue
            # U' = (orthonormal) (triangular): M_vv = U U' has the factor triangular'.
            basis, upper = np.linalg.qr(factor[source.v].T)
            lower = np.asfortranarray(upper.T)
            spread = half_solve(lower, half_solve(lower, source.moment).T)
            spread = basis @ spread @ basis.T
            hidden = np.eye(self.size) - basis @ basis.T
            self._terms.append((k, hidden, 0.5 * hidden + spread))

    @property
    def is_zero(self) -> bool:
        """Whether no kernel hides anything: EM is there in one step."""
        return not self._terms

    def without(self, kernel: int) -> "EMDerivative":
        """Return the derivative without one of the kernels, by its number, at the same model."""
        other = copy.copy(self)
        other._terms = [term for term in self._terms if term[0] != kernel]
        other.weight = self._strength + float(np.delete(self._degrees, kernel).sum())
        return other

    def __call__(self, vector: Vector) -> Vector:
        """Return DF W as a vector, for W given as one (see `Triangle`)."""
        half = self.triangle.matrix(vector)
        change = half + half.T
        total = np.zeros_like(change)
        first, second = np.empty_like(total), np.empty_like(total)
        for k, hidden, rest in self._terms:
            product(product(hidden, change, first), rest, second)
            second *= self._degrees[k] / self.weight
            total += second
        total += total.T
        return self.triangle.vector(np.asfortranarray(total))


def missing_information(
    result: MKMCResult, *, without_each_kernel: bool = False, seed: int | np.random.Generator = 0
) -> xr.Dataset:
    """Return the rate of EM at the fitted model: the worst fraction of missing information.

    Near a maximum EM's distance to it shrinks by the factor r at every step, r the largest
    eigenvalue of the derivative of the EM map (Dempster, Laird and Rubin 1977): the largest share
    of the information on any one direction of the model that is missing, the prior counted as
    observed. The same number says whether the model is a maximum: the curvature of L along the
    slowest direction is ((lambda + N) / 2) (1 - r) per squared length in the affine-invariant
    metric, and where r > 1 the model is a saddle.

    Parameters
    ----------
    result
        A fit. Converge it well first (tol of 1e-6, say): elsewhere than at a fixed point r is that
        of the derivative all the same, but neither rate nor curvature.
    without_each_kernel
        Whether to compute r without each kernel, too, at the same model (not fitted again, so not
        at a fixed point). lambda + N shrinks by nu_k, which alone enlarges r by their ratio and
        often hides the rest: to rank kernels, fit without each of them instead.
    seed
        Of Lanczos' first vector.

    Returns
    -------
    Dataset
        ``rate``; ``residual``, within which of the rate DF has an eigenvalue; ``curvature``;
        ``is_maximum``; ``direction`` (object, object_bis), the change of M that EM is slowest in,
        of length 1; ``share`` (object), how much each object takes part in it: the squares of its
        row, entries over the standard deviations, as shares of their sum; with
        `without_each_kernel` also ``rate_without`` (kernel). Objects that no kernel shows are left
        out: the prior alone governs them.

    Warns
    -----
    ConvergenceWarning
        Where Lanczos did not reach 1 - r to 0.5 %.

    Notes
    -----
    Each application of DF costs two products of l x l matrices per kernel, and two matrices per
    kernel are held.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import fit, missing_information, stack_kernels
    >>> kernels = np.stack([np.eye(2) + 1] * 2)
    >>> stack = stack_kernels(kernels, visible=[[1, 1], [1, 0]], objects=["a", "b"])
    >>> information = missing_information(fit(stack, strength=0.1, tol=1e-9))
    >>> bool(information["is_maximum"])
    True
    >>> information["share"].idxmax().item()
    'b'
    """
    em, model = _problem(result)
    factor = model.cholesky
    derivative = EMDerivative(em, factor)
    rate, vector, residual = largest_eigenvalue(derivative, generator(seed))
    half = derivative.triangle.matrix(vector)
    direction = factor @ (half + half.T) @ factor.T
    direction = 0.5 * (direction + direction.T)
    direction *= np.sign(direction.flat[np.argmax(np.abs(direction))])
    deviations = np.sqrt(np.diagonal(model.matrix))
    squares = ((direction / np.outer(deviations, deviations)) ** 2).sum(1)
    found = xr.Dataset(
        {
            "rate": ((), rate, {"long_name": "worst fraction of missing information"}),
            "residual": residual,
            "curvature": ((), 0.5 * derivative.weight * (1.0 - rate), {"units": "nats"}),
            "is_maximum": rate < 1.0,
            "direction": labelled(direction, em.objects, "direction"),
            "share": ("object", squares / squares.sum()),
        }
    )
    if without_each_kernel:
        rates = [
            largest_eigenvalue(derivative.without(k), generator(seed))[0]
            for k in range(len(em.names))
        ]
        found = found.assign_coords(kernel=em.names).assign(rate_without=("kernel", rates))
    return found


def largest_eigenvalue(
    derivative: EMDerivative, rng: np.random.Generator
) -> tuple[float, Vector, float]:
    """Return the largest eigenvalue of DF, its vector and its residual, by Lanczos.

    Within the residual ||DF v - r v|| of a symmetric operator there is an eigenvalue: it is brought
    below `ACCURACY` of |1 - r|.
    """
    size = derivative.size * (derivative.size + 1) // 2
    if derivative.is_zero:
        return 0.0, np.eye(1, size)[0], 0.0
    if size <= SMALL:
        dense = np.column_stack([derivative(column) for column in np.eye(size)])
        values, vectors = np.linalg.eigh(0.5 * (dense + dense.T))
        return float(values[-1]), vectors[:, -1], 0.0
    operator = LinearOperator((size, size), matvec=derivative, dtype=np.float64)
    vector = rng.standard_normal(size)
    for tolerance in (1e-3, 1e-5, 1e-7, 1e-9):
        try:
            values, vectors = eigsh(operator, k=1, which="LA", v0=vector, tol=tolerance)
        except ArpackNoConvergence:
            break
        rate, vector = float(values[0]), vectors[:, 0]
        residual = float(np.linalg.norm(derivative(vector) - rate * vector))
        if residual <= ACCURACY * abs(1.0 - rate):
            return rate, vector, residual
    vector /= np.linalg.norm(vector)
    moved = derivative(vector)
    rate = float(vector @ moved)
    residual = float(np.linalg.norm(moved - rate * vector))
    warn(
        f"the rate of EM is {rate:.6g} with a residual of {residual:.2g}, which is not small "
        "beside 1 - rate: take it for a lower bound.",
        ConvergenceWarning,
    )
    return rate, vector, residual


def _problem(result: MKMCResult) -> tuple[EM, GaussianModel]:
    """Return the EM that was climbed and the model that was reached, over the seen objects."""
    objects = result.observed["object"].values
    seen = np.any(visible_objects(result.observed).values, axis=0)
    aside = Unseen(result.prior, objects, ~seen)
    em = EM(
        aside.restrict_stack(result.observed),
        aside.restrict_prior(),
        result.degrees_of_freedom.values,
    )
    return em, aside.restrict_model(result.model)
