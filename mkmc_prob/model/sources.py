"""How each kernel relates to the model matrix: its scale, its constant and its sharing.

With y ~ N(0, M), M common to all kernels, the vector of kernel k is

    x = sqrt(d) (sqrt(s) y + sqrt(1 - s) o + g 1),    o ~ N(0, T),  g ~ N(0, c),

so x_v ~ N(0, d B) with B = s M_vv + (1 - s) T_vv + c J, J a matrix of ones. The paper's model is
d = 1, s = 1, c = 0.
"""

import copy
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.linalg import blas

from ..errors import IndefiniteKernelError, KernelError
from ..linalg.operators import is_operator
from ..linalg.symmetric import Matrix, Vector
from ..stacks.degrees import degrees_per_kernel
from ..stacks.kernel_stack import KernelStack, VisibleKernel
from ..stacks.labels import Labels
from ..stacks.moments import Moments, block_moments
from ..utils.arguments import not_negative, real
from .conditional import TOO_SINGULAR, ConditionalGaussian, WithConstant
from .gaussian import GaussianModel
from .prior import WishartPrior

#: A sharing: the share of a kernel's variance that is common to all kernels.
sharing_number = real(lambda number: 0 <= number <= 1, "a number from 0 to 1")
#: A scale: products of entries stay in range.
positive_scale = real(lambda number: 1e-150 <= number <= 1e150, "a number > 0 (1e-150 to 1e150)")
#: The largest shared constant: with larger ones, products with M, whose entries are about b, lose
#: what the kernels say. Beyond it a kernel's constant is its own.
LARGEST_SHARED = 1e6


class Source(NamedTuple):
    """One kernel's relation to the model.

    Equation :eq:`eq-source` of the derivation.

    Attributes
    ----------
    scale : float
        d > 0, the unit of the kernel's entries.
    constant : float
        c >= 0, the variance of the constant that all its entries share, in units of the scale; NaN
        if it is to be estimated.
    sharing : float
        s in [0, 1], the share of its variance that is the model's.
    """

    scale: float
    constant: float
    sharing: float

    @property
    def is_plain(self) -> bool:
        """Whether the kernel is the paper's: N(0, M) without scale or constant."""
        return self == (1.0, 0.0, 1.0)

    def base(self, matrix: Matrix, scale: Matrix | None) -> Matrix:
        """Return G = s M + (1 - s) T; `scale` is T, None for the identity."""
        if self.sharing == 1.0:
            return matrix
        own = 1.0 - self.sharing
        if scale is None:
            base = self.sharing * matrix
            base.flat[:: len(base) + 1] += own
            return base
        return self.sharing * matrix + own * scale

    def covariance(self, matrix: Matrix, scale: Matrix | None) -> Matrix:
        """Return d (s M + (1 - s) T + c J), the covariance of the kernel's vector.

        Equation :eq:`eq-source-covariance` of the derivation.
        """
        if self.is_plain:
            return matrix
        return self.scale * (self.base(matrix, scale) + self.constant)

    def condition(
        self, model: GaussianModel, scale: Matrix | None, visible: NDArray[np.bool_]
    ) -> ConditionalGaussian:
        """Return the distribution of the kernel's hidden objects given its visible ones."""
        base = model
        if self.sharing < 1.0:
            base = GaussianModel.of(self.base(model.matrix, scale), model.objects)
        conditional = base.condition(visible)
        if self.is_plain:
            return conditional
        return WithConstant(conditional, self.scale, self.constant)


class Centered(NamedTuple):
    """A visible block in units of its scale, with its mean off-diagonal entry taken out.

    `moment` is S - z J with S = Q_vv / d. Sums with S itself would cancel if z is large.
    Equation :eq:`eq-shift` of the derivation.
    """

    moment: Matrix
    off_diagonal: float

    @classmethod
    def of(cls, block: Matrix, source: Source) -> "Centered":
        """Return the centered block of a kernel; the block itself if nothing is to be done."""
        if is_operator(block):
            z = block_moments(block).mean / source.scale if source.constant != 0.0 else 0.0
            return cls(block.in_units(source.scale, z), z)  # type: ignore[arg-type]
        if source.constant == 0.0:
            return cls(block if source.scale == 1.0 else block / source.scale, 0.0)
        moment = block / source.scale
        n = len(moment)
        z = float((moment.sum() - np.trace(moment)) / (n * (n - 1))) if n > 1 else 0.0
        moment -= z
        return cls(moment, z)

    @property
    def sizes(self) -> Vector:
        """The sums of the absolute values of the rows of `moment`; of an operator, bounds."""
        if is_operator(self.moment):
            return self.moment.sizes
        return np.array([np.abs(row).sum() for row in self.moment])


class SourceKernel(NamedTuple):
    """A kernel as an E-step takes it.

    Attributes
    ----------
    kernel : VisibleKernel
        Its `moment` is that of `Centered`.
    source : Source
    off_diagonal : float
        z of `Centered`.
    degrees : float
        nu, how many observations the kernel counts for.
    sizes : ndarray
        `Centered.sizes`.
    """

    kernel: VisibleKernel
    source: Source
    off_diagonal: float
    degrees: float
    sizes: Vector

    @classmethod
    def of(cls, kernel: VisibleKernel, source: Source, degrees: float) -> "SourceKernel":
        """Return the kernel with its visible block centered and in units of its scale."""
        centered = Centered.of(kernel.moment, source)
        own = kernel._replace(moment=centered.moment)
        return cls(own, source, centered.off_diagonal, degrees, centered.sizes)

    @property
    def centered(self) -> Centered:
        """The visible block."""
        return Centered(self.kernel.moment, self.off_diagonal)


class Constant(NamedTuple):
    r"""The constant g ~ N(0, c) of a kernel in an E-step, integrated out given x_v.

    With G = s M_vv + (1 - s) T_vv, q = G^-1 1, t = 1'q, S = S0 + z J and r = q' S0 q, the constant
    given x_v has mean e q' x_v and variance e = c / (1 + c t), and x_v without it has the second
    moment S0 + u 1' + 1 u'. Equation :eq:`eq-without-constant` of the derivation.

    Attributes
    ----------
    variance : float
        c.
    total, squared, off_diagonal : float
        t, r and z.
    shift : ndarray, shape (n,)
        u.
    """

    variance: float
    total: float
    squared: float
    off_diagonal: float
    shift: Vector

    @classmethod
    def of(cls, weights: Vector, centered: Centered, variance: float) -> "Constant":
        """Return the constant of this variance, or of the best one if it is NaN.

        `weights` is q. The best c maximizes the likelihood with M held: max(0, z + r/t^2 - 1/t).
        Equation :eq:`eq-constant` of the derivation.

        Raises
        ------
        IndefiniteKernelError
            If t, which is positive for every positive definite G, is not: M is then so close to
            singular that its inverse is rounding.
        """
        moment, z = centered
        moved = blas.dsymv(1.0, moment.T, weights, lower=1) if len(weights) else weights
        return cls.of_moved(weights, moved, z, variance)

    @classmethod
    def of_moved(cls, weights: Vector, moved: Vector, z: float, variance: float) -> "Constant":
        """Return the constant as `of` does, given ``moved``, S0 q."""
        t = float(weights.sum())
        if len(weights) and not t > 0.0:
            raise IndefiniteKernelError(
                "model matrix: not positive definite to working precision: the precision of a "
                f"kernel's constant is {t:.3g}. {TOO_SINGULAR}"
            )
        r = float(weights @ moved)
        c = best_variance(t, r, z) if np.isnan(variance) else variance
        e = c / (1.0 + c * t)
        shift = -e * moved + 0.5 * (e * (1.0 + e * r) + z / (1.0 + c * t) ** 2)
        return cls(c, t, r, z, shift)

    def without(self, centered: Centered, out: Matrix) -> Matrix:
        """Put the second moment of x_v without its constant into `out`; return it."""
        np.add(centered.moment, self.shift, out=out)
        out += self.shift[:, None]
        return out

    def cancelling(self, deviations: Vector, sizes: Vector) -> float:
        """Bound the terms that cancel in log det B and tr B^-1 S, for their rounding.

        If G is close to singular in a direction that the constant fills, tr G^-1 S0 and e r are far
        larger than their difference. Because e q q' is below G^-1, each is at most
        sum_ij p_i p_j abs(S0_ij) <= sum_i p_i^2 R_i. The rounding of q = G^-1 1 and of
        S0 + u 1' + 1 u' enters with sum_ij p_i p_j (abs(u_i) + abs(u_j)), and that of t in
        log(1 + c t) with e (sum_i p_i)^2.

        Parameters
        ----------
        deviations
            p, with p_i^2 at least the diagonal of G^-1.
        sizes
            R, the sums of the absolute values of the rows of S0.
        """
        c, t, r, z, shift = self
        e = c / (1.0 + c * t)
        common = 0.5 * (e * (1.0 + e * r) + z / (1.0 + c * t) ** 2)
        sizes_of_shift = np.abs(shift - common) + abs(common)
        total = float(deviations.sum())
        return float(
            3.0 * (deviations**2 @ sizes)
            + 2.0 * total * (deviations @ sizes_of_shift)
            + e * total**2
        )

    def divergence(self) -> float:
        """Return E KL(p(g | x_v) || N(0, c)) in nats; 0 if c is 0.

        Equation :eq:`eq-constant-kl` of the derivation.
        """
        c, t = self.variance, self.total
        grown = 1.0 + c * t
        excess = c * (self.squared - t * grown + self.off_diagonal * t**2) / grown**2
        return 0.5 * (excess + float(np.log1p(c * t)))

    def level(self, variance: float) -> float:
        """Return the part of the log-likelihood that depends on c, at c = `variance`.

        Equation :eq:`eq-constant-level` of the derivation.
        """
        t, grown = self.total, 1.0 + variance * self.total
        quadratic = (self.off_diagonal * t - variance * self.squared) / grown
        return -0.5 * (float(np.log1p(variance * t)) + quadratic)


def best_variance(t: float, r: float, z: float) -> float:
    """Return the c that maximizes the likelihood: max(0, z + r/t^2 - 1/t)."""
    return max(0.0, z + (r / t - 1.0) / t) if t else 0.0


class Sources:
    """How each kernel of a stack relates to the model, and how much it counts.

    Parameters
    ----------
    names
        The names of the kernels.
    scale, constant, sharing, degrees_of_freedom
        d_k, c_k (NaN if it is to be estimated), s_k and nu_k; one number per kernel.
    shared_constant
        b, the constant in the prior's scale T = I + b J.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import Sources, stack_kernels
    >>> kernels = 100 * np.array([[[3.0, 1.0], [1.0, 3.0]]])
    >>> sources = Sources.estimated(stack_kernels(kernels))
    >>> sources.scale, sources.shared_constant
    (array([200.]), 0.5)
    """

    def __init__(
        self,
        names: Sequence[Hashable],
        scale: NDArray[np.float64],
        constant: NDArray[np.float64],
        sharing: NDArray[np.float64],
        degrees_of_freedom: NDArray[np.float64],
        shared_constant: float = 0.0,
    ) -> None:
        self.names = list(names)
        self.scale, self.constant, self.sharing = scale, constant, sharing
        self.degrees_of_freedom, self.shared_constant = degrees_of_freedom, shared_constant

    @classmethod
    def identical(cls, names: Sequence[Hashable], degrees_of_freedom: Any = 1.0) -> "Sources":
        """Return the paper's: every kernel is N(0, M), in one unit and without a constant."""
        count = len(names)
        degrees = degrees_per_kernel(degrees_of_freedom, list(names))
        return cls(names, np.ones(count), np.zeros(count), np.ones(count), degrees)

    @classmethod
    def estimated(
        cls,
        stack: xr.DataArray | KernelStack,
        *,
        sharing: Any = 1.0,
        degrees_of_freedom: Any = 1.0,
    ) -> "Sources":
        """Return scales and the shared constant by moments, with constants to be estimated.

        The shared constant is the smallest mean off-diagonal entry, in units of the scale, but at
        least 0 and at most 1e6.

        Equations :eq:`eq-scale` and :eq:`eq-shared-constant` of the derivation.

        Parameters
        ----------
        stack
            The incomplete kernels.
        sharing
            s_k from 0 to 1: one number, one per kernel, or labeled by kernel.
        degrees_of_freedom
            nu_k > 0, in the same forms.

        Raises
        ------
        KernelError
            If a visible block is zero, so that its scale is unknown, or a scale or another number
            is out of range.
        LabelError
            If labels do not match.
        """
        checked = stack if isinstance(stack, KernelStack) else KernelStack.of(stack)
        names = checked.names
        shares = degrees_per_kernel(sharing, names, what="sharing", check=sharing_number)
        degrees = degrees_per_kernel(degrees_of_freedom, names)
        moments = []
        for kernel in checked.kernels():
            name, visible = kernel.name, kernel.visible
            found = block_moments(kernel.moment)
            if not visible.any():
                found = Moments(1.0, np.nan)  # it is completed in units of the model
            elif not found.scale > 0.0:
                raise KernelError(
                    f"kernel {name!r}: its visible block is zero, so its scale is unknown. Leave "
                    'the kernel out, or fit the paper\'s model: fit(stack, sources="identical").'
                )
            else:
                try:
                    positive_scale(found.scale, f"kernel {name!r}, scale")
                except KernelError as error:
                    raise KernelError(f"{error} Rescale the kernel.") from error
            moments.append(found if visible.sum() > 1 else found._replace(off_diagonal=np.nan))
        scale = np.array([found.scale for found in moments])
        shared = [found.off_diagonal for found in moments if not np.isnan(found.off_diagonal)]
        # A kernel without visible objects has no constant that could be estimated.
        constant = np.where(checked.visible.any(axis=1), np.nan, 0.0)
        common = min(max(0.0, min(shared, default=0.0)), LARGEST_SHARED)
        return cls(names, scale, constant, shares, degrees, common)

    @classmethod
    def of_dataset(
        cls, given: xr.Dataset, names: Sequence[Hashable], degrees_of_freedom: Any = 1.0
    ) -> "Sources":
        """Return the sources that a Dataset like `result.sources` holds, in the order of `names`.

        Raises
        ------
        KernelError, LabelError
            If a variable is missing or out of range, or the kernels are not those of the stack.
        """
        names = list(names)
        absent = [name for name in ("scale", "constant", "sharing") if name not in given.data_vars]
        if absent:
            raise KernelError(
                f"sources: it has no variable {absent[0]!r}. Pass a Dataset like result.sources."
            )

        def number_or_nan(value: Any, what: str) -> float:
            return float("nan") if value != value else not_negative(value, what)

        scale, constant, sharing = (
            degrees_per_kernel(given[name], names, what=f"sources, {name}", check=check)
            for name, check in (
                ("scale", positive_scale),
                ("constant", number_or_nan),
                ("sharing", sharing_number),
            )
        )
        for name in ("scale", "constant", "sharing"):
            if given[name].dims != ("kernel",):
                raise KernelError(
                    f"sources, {name}: dims {given[name].dims} found; one number per kernel is "
                    "needed."
                )
        if "shared_constant" not in given.attrs:
            raise KernelError(
                "sources: it has no attribute 'shared_constant', the b of the prior's scale "
                "T = I + b J. Set it, to 0 for the identity."
            )
        degrees = degrees_per_kernel(degrees_of_freedom, names)
        shared = not_negative(given.attrs["shared_constant"], "sources, shared_constant")
        return cls(names, scale, constant, sharing, degrees, shared)

    def __repr__(self) -> str:
        return (
            f"Sources of {len(self.names)} kernels, shared constant {self.shared_constant:g}\n"
            f"{self.dataset.to_dataframe()}"
        )

    def __iter__(self) -> Iterator[Source]:
        """Yield each kernel's relation to the model."""
        for values in zip(self.scale, self.constant, self.sharing, strict=True):
            yield Source(*map(float, values))

    def __getitem__(self, k: int) -> Source:
        return Source(float(self.scale[k]), float(self.constant[k]), float(self.sharing[k]))

    def __len__(self) -> int:
        return len(self.names)

    @property
    def is_identical(self) -> bool:
        """Whether all kernels are the paper's."""
        return not self.shared_constant and all(source.is_plain for source in self)

    @property
    def dataset(self) -> xr.Dataset:
        """``scale``, ``constant`` and ``sharing`` by kernel; attribute ``shared_constant``."""
        names = np.array(self.names)
        return xr.Dataset(
            {
                "scale": ("kernel", self.scale, {"long_name": "scale"}),
                "constant": (
                    "kernel",
                    self.constant,
                    {"long_name": "variance of the kernel's constant", "units": "scale"},
                ),
                "sharing": (
                    "kernel",
                    self.sharing,
                    {"long_name": "share of the variance common to all kernels"},
                ),
            },
            coords={"kernel": names},
            attrs={"shared_constant": self.shared_constant},
        )

    @property
    def is_estimated(self) -> NDArray[np.bool_]:
        """Which kernels' constants are to be estimated."""
        return np.isnan(self.constant)

    @property
    def total_degrees_of_freedom(self) -> float:
        """N, the sum of nu_k over the kernels that share anything with the others."""
        return float(self.degrees_of_freedom[self.sharing > 0.0].sum())

    def with_constants(self, constant: NDArray[np.float64]) -> "Sources":
        """Return the same sources with these constants."""
        return self._like(constant=constant)

    def with_degrees(self, degrees: NDArray[np.float64]) -> "Sources":
        """Return the same sources with these degrees of freedom."""
        return self._like(degrees_of_freedom=degrees)

    def without_shared_constant(self) -> "Sources":
        """Return the sources under a prior whose scale the user chose."""
        return self._like(shared_constant=0.0)

    def with_kernels(self, places: NDArray[np.intp]) -> "Sources":
        """Return the sources of the kernels at these positions."""
        return self._like(
            names=[self.names[place] for place in places],
            scale=self.scale[places],
            constant=self.constant[places],
            sharing=self.sharing[places],
            degrees_of_freedom=self.degrees_of_freedom[places],
        )

    def prior(self, prior: WishartPrior, objects: Labels) -> WishartPrior:
        """Return the prior with the scale T = I + b J, unless it has a scale of its own."""
        if not (prior.is_identity and self.shared_constant):
            return prior
        return WishartPrior.with_constant(prior.strength, self.shared_constant, objects)

    def _like(self, **changed: Any) -> "Sources":
        """Return a copy with some attributes changed."""
        other = copy.copy(self)
        vars(other).update(changed)
        return other
