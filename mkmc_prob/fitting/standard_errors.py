"""Standard errors of entries of the model matrix, and of functions of it, from the curvature of L.

The observed information is applied to one direction at a time and the equations are solved by
conjugate gradients; over few objects it is a matrix, which is factored once.
"""

from collections.abc import Hashable, Iterable, Mapping

import numpy as np
import xarray as xr
from scipy.linalg import LinAlgError
from scipy.linalg import cholesky as factored
from scipy.sparse.linalg import LinearOperator, cg
from tqdm.auto import tqdm

from ..diagnostics.protocol import FitResult, as_result
from ..errors import ConvergenceWarning, KernelError, warn
from ..linalg.cholesky import half_solve
from ..linalg.symmetric import Matrix, Vector, symmetrize
from ..model.structures import need_full
from ..utils.arguments import checked, seed
from .information import EMDerivative
from .model_functions import ModelFunction, entries_of, functions_of
from .solve import problem_of_result, seen_problem

#: Up to this many objects the information is a matrix (27 MB), and all entries are the default.
FEW = 60
#: Conjugate gradients end when the residual is this share of the right-hand side. The error of the
#: squared standard error is second order in it: at most RESIDUAL^2 / (1 - r) of its value.
RESIDUAL = 1e-6
#: The most steps of conjugate gradients; the error shrinks by about 1 - 2 sqrt(1 - r) per step.
MOST_STEPS = 10_000


class ObservedInformation:
    """The curvature of -L at a maximum: w (I - DF), w = (lambda + N) / 2, in the frame of DF.

    L is the penalized log-likelihood. Its second derivative along M -> B (I + W) B' is
    -w <W, W - DF W> at a fixed point of EM (equation :eq:`eq-curvature` of the derivation), so a
    function of M whose derivative along W is <G, W> has the squared standard error
    <G, [w (I - DF)]^-1 G>.

    The eigenvalues of DF are between 0 and r, the rate of EM, and r < 1 at a maximum. So the value
    is at least <G, G> / w, of which a residual rho of the equations costs at most
    <rho, rho> / (w (1 - r)).

    Parameters
    ----------
    derivative
        The derivative DF of the EM map at the model.
    rng
        Draws a random function, which conjugate gradients are tried on first: they cannot converge
        without meeting the directions in which L rises, if there are any. The gradient of a single
        entry may have no part in them.
    """

    def __init__(self, derivative: EMDerivative, rng: np.random.Generator) -> None:
        self.derivative = derivative
        self.weight = derivative.curvature(0.0)
        self._size = derivative.size * (derivative.size + 1) // 2
        self._factor: Matrix | None = None
        if derivative.size > FEW:
            _, converged = self._variance(rng.standard_normal(self._size))
            if not converged:
                warn(
                    "whether the model matrix is a maximum is unknown: conjugate gradients did not "
                    f"converge in {MOST_STEPS} steps, because L is nearly flat in some direction. "
                    "Fit with a larger strength.",
                    ConvergenceWarning,
                )
            return
        moved = np.column_stack([derivative(column) for column in np.eye(self._size)])
        information = np.eye(self._size) - 0.5 * (moved + moved.T)
        try:
            self._factor = np.asfortranarray(factored(information, lower=True))
        except LinAlgError:
            raise _no_maximum() from None

    def variances(self, gradients: Iterable[Vector], names: Iterable[Hashable]) -> Vector:
        """Return the squared standard errors of functions with these gradients.

        Each gradient is a symmetric matrix G as a vector; see `Triangle`. Warn, with its name, of a
        function for which conjugate gradients did not converge.
        """
        if self._factor is not None:
            halves = half_solve(self._factor, np.column_stack(list(gradients)))
            every: Vector = np.einsum("ij,ij->j", halves, halves) / self.weight
            return every
        variances = []
        for gradient, name in zip(gradients, names, strict=True):
            variance, converged = self._variance(gradient)
            variances.append(variance)
            if not converged:
                warn(
                    f"the standard error of {name!r} is a lower bound: conjugate gradients did not "
                    f"converge in {MOST_STEPS} steps. Fit with a larger strength.",
                    ConvergenceWarning,
                )
        return np.array(variances)

    def _variance(self, gradient: Vector) -> tuple[float, bool]:
        """Return a squared standard error by conjugate gradients, and whether they converged.

        If x has the residual rho = G - (I - DF) x, then x'(G + rho) falls short of
        G' (I - DF)^-1 G by rho' (I - DF)^-1 rho only.
        """

        def apply(vector: Vector) -> Vector:
            applied = vector - self.derivative(vector)
            if not vector @ applied > 0.0:
                raise _no_maximum()
            return applied

        operator = LinearOperator((self._size, self._size), matvec=apply, dtype=np.float64)
        x, late = cg(operator, gradient, rtol=RESIDUAL, atol=0.0, maxiter=MOST_STEPS)
        residual = gradient - (x - self.derivative(x))
        return float(x @ (gradient + residual)) / self.weight, not late


def _no_maximum() -> KernelError:
    return KernelError(
        "result: its model matrix is not a maximum of the penalized log-likelihood, which rises "
        "along some direction, so there are no standard errors. Fit with a smaller tol; if that "
        "does not help, it is a saddle: explore_maxima(stack) looks for maxima."
    )


@checked(result=as_result, seed=seed)
def standard_errors(
    result: FitResult,
    entries: Iterable[tuple[Hashable, Hashable]] | None = None,
    *,
    correlation: bool = False,
    functions: Mapping[str, ModelFunction] | None = None,
    seed: int | np.random.Generator = 0,
    progress: bool = False,
) -> xr.Dataset:
    """Return standard errors of entries of the fitted model matrix, or of functions of it.

    They come from the observed information, the curvature of the penalized log-likelihood L at its
    maximum, by Louis' (1982) formula: the information of the complete data less the missing
    information, the prior counted as observed. With M = B B', DF the derivative of the EM map in
    the frame B, and G the gradient of a function there, the squared standard error is

        <G, [((lambda + N) / 2) (I - DF)]^-1 G>

    (equation :eq:`eq-curvature` of the derivation, and the delta method). Nothing is sampled.

    Parameters
    ----------
    result
        A converged fit of the full structure.
    entries
        Pairs of objects, ``[("a", "b"), ("a", "a")]``. By default all pairs that some kernel
        shows together, each once, if there are at most 60 objects.
    correlation
        Whether to return the correlations M_ij / sqrt(M_ii M_jj) of the pairs in place of
        their entries.
    functions
        In place of entries, functions of M by name. A function is a DataArray of weights w,
        dims ``(object, object_bis)``, which stands for the sum of w_ij M_ij over its objects; or,
        for at most 200 objects, a callable that takes the model matrix as a labeled DataArray
        and returns a number. Callables are differentiated by central differences, with an error
        of about 1e-10 of the function's value; they should be smooth and not change their argument.
        For more objects pass the gradient at ``result.model.covariance`` as weights: the standard
        error is that of the function itself.
    seed
        The seed of a test that the model is a maximum, if there are more than 60 objects.
    progress
        Whether to show a progress bar.

    Returns
    -------
    Dataset
        Over ``entry``: ``value`` and ``standard_error``, in units of M (for ``sources="adaptive"``,
        of each kernel's scale). Coordinates: ``object`` and ``object_bis`` of each entry, or the
        name of each function as ``entry``. ``.to_dataframe()`` gives one row per entry.

    Raises
    ------
    KernelError
        If no kernel with a sharing above 0 shows the two objects of a pair together, or a function
        depends on such an entry; if the model has few factors or is not a maximum; or if an
        argument cannot be used.
    LabelError
        If there is no such object.

    Warns
    -----
    ConvergenceWarning
        If the fit did not converge, or conjugate gradients did not: a standard error is then a
        lower bound, and whether the model is a maximum may be unknown.

    Notes
    -----
    *What is held.* The scales of the kernels, their sharings and the prior, its scale included, are
    taken as known. Constants that the fit estimated are free, and their uncertainty is included,
    except for constants estimated as 0.

    *Degrees of freedom.* A kernel counts as nu_k observations and the prior as lambda. If all
    these are multiplied by a, M stays the same and the standard errors are divided by sqrt(a). With
    the default, each kernel is one observation, and standard errors are of the order of the
    entries: for complete kernels they are sqrt((M_ii M_jj + M_ij^2) / (lambda + N)). To read
    them as errors, fit with the number of independent features of each kernel
    (`effective_degrees_of_freedom`).

    *The prior.* L includes the prior, so these are the standard deviations of the normal
    approximation to the posterior at its mode. That posterior is the one of `sample_posterior`,
    except that the latter has a prior for the constants that it draws. They measure the spread of
    the estimate, not its bias toward the prior.

    *Pairs never observed together.* L does not bound their entries except through the prior and
    positive definiteness, so that a standard error would describe the prior. They are refused;
    ``result.unseen_pairs()`` gives the bounds.

    *Convergence.* A fit with at most `tol` nats to come is within sqrt(2 tol) standard errors of
    the maximum, in every entry: 0.045 at the default.

    *Accuracy and cost.* Up to 60 objects the information is factored once. Otherwise each entry
    takes one solution by conjugate gradients, of at most about 7 / sqrt(1 - r) products with DF, r
    being the rate of EM (`missing_information`), and its squared standard error is accurate to
    1e-12 / (1 - r) of its value.

    References
    ----------
    Louis, T. A. (1982). Finding the observed information matrix when using the EM algorithm.
    *Journal of the Royal Statistical Society B* 44, 226-233.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import fit, stack_kernels, standard_errors
    >>> kernels = np.array([[[2.0, 1.0], [1.0, 2.0]], [[2.0, 0.5], [0.5, 1.0]]])
    >>> stack = stack_kernels(kernels, visible=[[1, 1], [0, 1]], objects=["a", "b"])
    >>> result = fit(stack, degrees_of_freedom=50, sources="identical", tol=1e-8)
    >>> found = standard_errors(result)
    >>> found.to_dataframe().set_index(["object", "object_bis"]).round(2)
                       value  standard_error
    object object_bis
    a      a            1.86            0.35
    b      a            0.74            0.21
           b            1.50            0.21
    >>> difference = lambda model: model.sel(object="a", object_bis="a") - model[1, 1]
    >>> standard_errors(result, functions={"a - b": difference})["standard_error"].round(2).values
    array([0.38])
    """
    need_full(result.structure, "standard_errors")
    if functions is not None and (entries is not None or correlation):
        raise KernelError(
            "functions: entries or correlation=True found, too. Call standard_errors once for each."
        )
    problem = problem_of_result(result)
    shown = problem.stack.visible & (problem.sources.sharing > 0.0)[:, None]
    together = shown.astype(np.float64).T @ shown > 0.0
    if not together.any():
        raise KernelError(
            "result: no kernel with a sharing above 0 shows any object, so the prior alone "
            "determines the model matrix, and there are no standard errors. Fit with a larger "
            "sharing."
        )
    if not result.converged:
        warn(
            "the fit did not converge, and standard errors are those of a maximum only. Fit with "
            "tol > 0 and a larger max_iter.",
            ConvergenceWarning,
        )
    model = result.model.covariance
    if functions is None:
        asked = entries_of(model, entries, together, correlation=correlation, most=FEW)
    else:
        asked = functions_of(model, functions, together)
    em, aside = seen_problem(problem)
    factor = aside.restrict_model(result.model).cholesky
    information = ObservedInformation(EMDerivative(em, factor), np.random.default_rng(seed))
    block, triangle = np.ix_(aside.seen, aside.seen), information.derivative.triangle
    counted = tqdm(
        asked.gradients, total=len(asked.names), disable=not progress, desc="standard_errors"
    )
    in_frame = (symmetrize(factor.T @ gradient[block] @ factor) for gradient in counted)
    vectors = (triangle.vector(np.asfortranarray(gradient)) for gradient in in_frame)
    variances = information.variances(vectors, asked.names)
    return xr.Dataset(
        {"value": ("entry", asked.values), "standard_error": ("entry", np.sqrt(variances))},
        coords=asked.coords,
    )
