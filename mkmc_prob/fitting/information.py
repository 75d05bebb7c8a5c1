"""Missing information: the rate of EM at a model, its slowest direction, fits without a kernel.

The Lanczos method is applied to exact directional derivatives of the EM map; no matrix of
l^2 x l^2 numbers is formed.
"""

import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import xarray as xr
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh
from tqdm.auto import tqdm

from ..diagnostics.protocol import FitResult, as_result
from ..em.em import EM
from ..em.problem import Problem
from ..errors import ConvergenceWarning, MKMCWarning, warn
from ..linalg.cholesky import cholesky, half_solve
from ..linalg.cholesky import solve as solve_factored
from ..linalg.products import product
from ..linalg.symmetric import Matrix, Triangle, Vector, symmetrize
from ..model.conditional import TOO_SINGULAR
from ..model.sources import Constant
from ..model.structures import need_full
from ..stacks.labels import name_some
from ..stacks.matrix import labelled
from ..utils.arguments import checked, seed
from .solve import Solution, problem_of_result, seen_problem, solve

#: The accuracy of the rate, as a share of 1 - rate, by the residual of its eigenvector.
ACCURACY = 0.005


#: The vectors that Lanczos keeps: SciPy's 20 need twice the applications if these are thousands.
KEPT = 40


#: Up to this many directions (pairs of objects) the derivative is computed as a matrix.
SMALL = 60


class EMDerivative:
    """The derivative of the EM map at a model, exact, in the model's triangular frame.

    With M = B B' and a change M -> B (I + W) B', kernel k's expected second moment changes in the
    frame by

        Psi W Psi + Psi W Phi + Phi W Psi,

    Psi = I - B_v' M_vv^-1 B_v the projector on what the kernel hides, B_v the visible rows of B,
    and Phi = B_v' M_vv^-1 Q_vv M_vv^-1 B_v. The derivative DF is the sum over the kernels, weighted
    by nu_k / (lambda + N). For a kernel with sources, with C = s M_vv + (1 - s) T_vv + c J and S
    its visible block in units of its scale, Psi = I - s B_v' C^-1 B_v and
    Phi = s B_v' C^-1 S C^-1 B_v; if its constant is estimated and not 0, the constant follows M,
    which adds <E, W> E / (1' C^-1 1)^2 with p = sqrt(s) B_v' C^-1 1, f = sqrt(s) B_v' C^-1 S C^-1 1
    and E = p p' - p f' - f p'. DF is symmetric, so its eigenvalues are real; at a fixed point the
    curvature of L along W is -((lambda + N) / 2) <W, W - DF W>. Equations :eq:`eq-derivative`,
    :eq:`eq-curvature` and :eq:`eq-derivative-sources` of the derivation.

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
        self._terms: list[tuple[int, Matrix, Matrix]] = []
        self._constants: list[tuple[int, Matrix]] = []
        for k, (kernel, source) in enumerate(zip(em.kernels, em.sources, strict=True)):
            if source.sharing == 0.0:
                continue
            if not source.is_plain:
                self._add(em, k, factor)
                continue
            if kernel.visible.all():
                continue
            # B_v' = (orthonormal) (triangular): M_vv = B_v B_v' has the factor triangular'.
            basis, upper = np.linalg.qr(factor[kernel.v].T)
            lower = np.asfortranarray(upper.T)
            spread = half_solve(lower, half_solve(lower, kernel.moment).T)
            spread = basis @ spread @ basis.T
            hidden = np.eye(self.size) - basis @ basis.T
            self._terms.append((k, hidden, 0.5 * hidden + spread))

    def _add(self, em: EM, k: int, factor: Matrix) -> None:
        """Add the term of a kernel that is not the paper's."""
        part = em.source_kernels[k]
        kernel, source, z = part.kernel, part.source, part.off_diagonal
        n, size, root = len(kernel.v), self.size, float(np.sqrt(source.sharing))
        rows = factor[kernel.v]
        block = np.ix_(kernel.v, kernel.v)
        own = None if em.prior.is_identity else em.prior.scale_matrix(em.objects)[block]
        base = source.base(product(rows, rows.T, np.empty((n, n))), own)
        lower = cholesky(base, "model matrix", kernel.objects[kernel.v], TOO_SINGULAR)
        weights = solve_factored(lower, np.ones(n))
        constant = Constant.of(weights, part.centered, source.constant)
        c, t = constant.variance, constant.total
        # C^-1 = G^-1 - e q q' with q = G^-1 1, and C^-1 1 = q / (1 + c t).
        e, along = c / (1.0 + c * t), rows.T @ weights
        spread = root * (solve_factored(lower, rows) - np.outer(weights, e * along))
        explained = root * product(rows.T, spread, np.empty((size, size)))
        hidden = np.eye(size) - symmetrize(explained)
        seen = product(kernel.moment, spread, np.empty((n, size)))
        seen += z * root / (1.0 + c * t) * along
        fitted = symmetrize(product(spread.T, seen, np.empty((size, size))))
        if hidden.any():
            self._terms.append((k, hidden, 0.5 * hidden + fitted))
        if np.isnan(source.constant) and c > 0.0:
            p = root * along / (1.0 + c * t)
            f = seen.T @ weights / (1.0 + c * t)
            change = np.outer(p, p) - np.outer(p, f) - np.outer(f, p)
            self._constants.append((k, change * ((1.0 + c * t) / t)))

    @property
    def is_zero(self) -> bool:
        """Whether no kernel hides anything, so that EM converges in one step."""
        return not self._terms and not self._constants

    def curvature(self, rate: float) -> float:
        """Return -d^2 L / dt^2 along a W of length 1 with DF W = rate W, in nats."""
        return 0.5 * self.weight * (1.0 - rate)

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
        for k, direction in self._constants:
            weight = self._degrees[k] / self.weight
            total += (weight * float(np.vdot(direction, change))) * direction
        return self.triangle.vector(np.asfortranarray(total))


@checked(seed=seed)
def missing_information(
    result: FitResult,
    *,
    without_each_kernel: bool = False,
    seed: int | np.random.Generator = 0,
    progress: bool = False,
) -> xr.Dataset:
    """Return the rate of EM at the fitted model: the worst fraction of missing information.

    Near a maximum EM's distance to it shrinks by the factor r at every step, r the largest
    eigenvalue of the derivative of the EM map (Dempster, Laird and Rubin 1977): the largest share
    of the information on any one direction of the model that is missing, the prior counted as
    observed. The same number shows whether the model is a maximum: the curvature of L along the
    slowest direction is ((lambda + N) / 2) (1 - r) per squared length in the affine-invariant
    metric, and if r > 1 the model is a saddle. Equations :eq:`eq-rate`, :eq:`eq-curvature` and
    :eq:`eq-gain-to-come` of the derivation.

    Parameters
    ----------
    result
        A well converged fit (tol=1e-6, for example, so that ``gain_to_come`` is small): away from a
        fixed point r is still an eigenvalue of the derivative, but neither a rate nor a
        curvature.
    without_each_kernel
        Whether to refit without each kernel in turn, from the fitted model, with the result's
        prior, method and tol, and to report the missing information at that fit's fixed point.
    seed
        The seed of Lanczos' first vector.
    progress
        Whether to show a progress bar, which counts applications of DF.

    Returns
    -------
    Dataset
        ``rate``; ``residual``: DF has an eigenvalue at most this far from the rate;
        ``curvature``; ``is_maximum``; ``gain_to_come``, the most by which L can still rise, to
        second order: ((lambda + N) / 4) ||G||_F^2 / (1 - r) nats with G the gradient before the
        last EM step, infinite if r >= 1; ``direction`` (object, object_bis), the change of M of
        length 1 in which EM is slowest; ``share`` (object), which objects dominate it: the squares
        of each row, entries divided by the standard deviations, as shares of their sum. Objects
        that no kernel shows are left out: only the prior determines them.

        With `without_each_kernel` also, by ``kernel``: ``rate_without`` and ``curvature_without``
        of the fit without it; ``change_without``, the change of the model,
        ||M without - M||_F / ||M||_F over the objects that some other kernel shows;
        ``unseen_without``, the number of objects that no other kernel shows. If no other kernel
        shows any object there is nothing to fit, and the first three are NaN.

    Raises
    ------
    KernelError
        If an argument cannot be used.

    Warns
    -----
    ConvergenceWarning
        If Lanczos did not determine 1 - r to 0.5 %, or a fit without a kernel did not converge.

    Notes
    -----
    Each application of DF costs two products of l x l matrices per kernel; two matrices per kernel
    and 20 for Lanczos' vectors are held. Lanczos can be slow if the problem is ill-conditioned:
    with kernels over 100 objects, 40 % missing, it took 124 applications at a strength of 0.1,
    where 1 - r is 0.004, and 6,000 at 0.0001, where it is 2e-6.

    ``gain_to_come`` assumes that L is a parabola up to the maximum; far from it, at a small
    strength, the remaining gain can be larger.

    Without a kernel both its visible and its hidden part are gone, and the prior has more weight. r
    is a share of the complete data of the remaining kernels: leaving out a kernel that hides much
    can lower it. ``curvature_without`` is the observed information on the worst direction in units
    of the model's own scale: it falls without a kernel that is informative there, but can rise
    without one that disagrees with the others. Both concern one direction, which can be a different
    one without the kernel. ``change_without`` concerns the whole model: it is large for an
    informative kernel and for one unlike the others, so it does not measure quality. If L has
    several maxima, a fit without a kernel may end near another one.

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
    result = as_result(result)
    need_full(result.structure, "missing_information")
    problem = problem_of_result(result)
    rng = np.random.default_rng(seed)
    bar = tqdm(disable=not progress, desc="missing_information", unit=" applications")
    with bar:
        found = information_at(problem, result, rng, bar.update)
        if without_each_kernel:
            found = found.merge(_without_each(problem, result, np.random.default_rng(seed), bar))
    return found


def largest_eigenvalue(
    derivative: EMDerivative,
    rng: np.random.Generator,
    *,
    what: str = "the rate of EM",
    count: Callable[[], Any] = lambda: None,
) -> tuple[float, Vector, float]:
    """Return the largest eigenvalue of DF, its vector and its residual, by Lanczos.

    Two starts must agree, because Lanczos can converge to an eigenvalue that is not the largest. A
    symmetric operator has an eigenvalue within the residual ||DF v - r v||, which is brought below
    `ACCURACY` of |1 - r|. `count` is called at every application.
    """
    size = derivative.size * (derivative.size + 1) // 2
    if derivative.is_zero:
        return 0.0, np.eye(1, size)[0], 0.0

    def apply(vector: Vector) -> Vector:
        count()
        return derivative(vector)

    if size <= SMALL:
        dense = np.column_stack([apply(column) for column in np.eye(size)])
        values, vectors = np.linalg.eigh(0.5 * (dense + dense.T))
        return float(values[-1]), vectors[:, -1], 0.0
    operator = LinearOperator((size, size), matvec=apply, dtype=np.float64)

    def lanczos(start: Vector, tolerance: float) -> tuple[float, Vector, float]:
        values, vectors = eigsh(operator, k=1, which="LA", v0=start, tol=tolerance, ncv=KEPT)
        rate, vector = float(values[0]), vectors[:, 0]
        return rate, vector, float(np.linalg.norm(apply(vector) - rate * vector))

    vector = rng.standard_normal(size)
    for tolerance in (1e-3, 1e-5, 1e-7, 1e-9):
        try:
            found = [lanczos(vector, tolerance)]
            if found[0][2] <= ACCURACY * abs(1.0 - found[0][0]):
                # A small residual proves an eigenvalue, not the largest one: start once more.
                found.append(lanczos(rng.standard_normal(size), tolerance))
        except ArpackNoConvergence:
            break
        rate, vector, residual = max(found, key=lambda one: one[0])
        apart = np.ptp([one[0] for one in found])
        if len(found) == 2 and max(residual, apart) <= ACCURACY * abs(1.0 - rate):
            return rate, vector, residual
    vector /= np.linalg.norm(vector)
    moved = apply(vector)
    rate = float(vector @ moved)
    residual = float(np.linalg.norm(moved - rate * vector))
    warn(
        f"{what} is {rate:.6g} with a residual of {residual:.2g}, which is not small relative to "
        "1 - rate: it is a lower bound.",
        ConvergenceWarning,
    )
    return rate, vector, residual


def information_at(
    problem: Problem,
    result: FitResult,
    rng: np.random.Generator,
    count: Callable[[], Any] = lambda: None,
) -> xr.Dataset:
    """Return the missing information at the fitted model."""
    em, aside = seen_problem(problem)
    model = aside.restrict_model(result.model)
    factor = model.cholesky
    derivative = EMDerivative(em, factor)
    rate, vector, residual = largest_eigenvalue(derivative, rng, count=count)
    half = derivative.triangle.matrix(vector)
    direction = factor @ (half + half.T) @ factor.T
    direction = 0.5 * (direction + direction.T)
    direction *= np.sign(direction.flat[np.argmax(np.abs(direction))])
    deviations = np.sqrt(np.diagonal(model.matrix))
    squares = ((direction / np.outer(deviations, deviations)) ** 2).sum(1)
    # Every fit ends with an EM step, whose Q-function rises by ((lambda + N) / 4) ||G||^2.
    rise = max(float(result.trace["gain_q_function"][-1]), 0.0)
    to_come = rise / (1.0 - rate) if rate < 1.0 else np.inf
    return xr.Dataset(
        {
            "rate": ((), rate, {"long_name": "worst fraction of missing information"}),
            "residual": residual,
            "curvature": ((), derivative.curvature(rate), {"units": "nats"}),
            "is_maximum": rate < 1.0,
            "gain_to_come": ((), to_come, {"units": "nats"}),
            "direction": labelled(direction, em.objects, "direction"),
            "share": ("object", squares / squares.sum()),
        }
    )


def _without_each(
    problem: Problem, result: FitResult, rng: np.random.Generator, bar: "tqdm[NoReturn]"
) -> xr.Dataset:
    """Return the missing information of the fits without each kernel, and their changes."""
    names, sharing = problem.stack.names, problem.sources.sharing
    visible = problem.stack.visible & (sharing > 0.0)[:, None]
    rates, curvatures, changes = (np.full(len(names), np.nan) for _ in range(3))
    unseen = np.zeros(len(names), dtype=int)
    late = []
    for k, name in enumerate(names):
        seen = np.delete(visible, k, axis=0).any(axis=0)
        unseen[k] = int((visible[k] & ~seen).sum())
        if not seen.any():
            continue
        bar.set_description(f"without {name!r}")
        rest = np.delete(np.arange(len(names)), k)
        fewer = problem.with_kernels(rest)
        other = _refit(fewer, result)
        if other.tol and not other.converged:
            late.append(name)
        em, aside = seen_problem(fewer)
        derivative = EMDerivative(em, aside.restrict_model(other.model).cholesky)
        what = f"without kernel {name!r} the rate of EM"
        rates[k], _, _ = largest_eigenvalue(derivative, rng, what=what, count=bar.update)
        curvatures[k] = derivative.curvature(rates[k])
        block = np.ix_(seen, seen)
        before = result.model.matrix[block]
        moved = np.linalg.norm(other.model.matrix[block] - before)
        changes[k] = moved / np.linalg.norm(before)
    if late:
        warn(
            f"the fit without kernel {name_some(late)} did not converge: its rate is not that of "
            "a maximum. Fit with a larger strength or tol.",
            ConvergenceWarning,
        )
    return xr.Dataset(
        {
            "rate_without": ("kernel", rates),
            "curvature_without": ("kernel", curvatures, {"units": "nats"}),
            "change_without": ("kernel", changes, {"long_name": "relative change of the model"}),
            "unseen_without": ("kernel", unseen),
        },
        coords={"kernel": result.observed["kernel"].values},
    )


def _refit(problem: Problem, result: FitResult) -> Solution:
    """Return the fit of a problem of fewer kernels, from the fitted model."""
    steps: dict[str, Any] = {} if result.tol else {"max_iter": result.trace.sizes["iteration"] - 1}
    options = {"method": result.method, "tol": result.tol, "initial": result.model, **steps}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MKMCWarning)  # what is not identified is reported
        other = solve(problem, **options)
    if other.interrupted:
        raise KeyboardInterrupt
    return other
