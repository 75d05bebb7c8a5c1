"""The structures of the model matrix: any positive definite M, or M = W W' + D of low rank."""

import re
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..errors import KernelError
from ..utils.arguments import not_negative, positive, whole

#: A name like ``PPCA(5)``, or with ``noise_strength=`` and ``noise_scale=``.
NAMED = re.compile(
    r"(?P<kind>\w+)\((?P<rank>\d{1,9})(?P<noise>(, noise_(strength|scale)=[\d.e+-]+){0,2})\)"
)
#: a and tau of the noise's prior, if the user names none.
NOISE_STRENGTH, NOISE_SCALE = 0.1, 1.0


@dataclass(frozen=True)
class Full:
    """Any positive definite matrix."""

    @property
    def name(self) -> str:
        """How results name it."""
        return "full"


@dataclass(frozen=True, repr=False)
class LowRank:
    """M = W W' + D with W of shape (l, rank) and D diagonal; see `PPCA` and `FactorAnalysis`."""

    rank: int
    noise_strength: float = NOISE_STRENGTH
    noise_scale: float = NOISE_SCALE

    def __post_init__(self) -> None:
        what = type(self).__name__
        set_ = object.__setattr__
        set_(self, "rank", whole(least=1)(self.rank, f"{what}, rank"))
        set_(self, "noise_strength", not_negative(self.noise_strength, f"{what}, noise_strength"))
        set_(self, "noise_scale", positive(self.noise_scale, f"{what}, noise_scale"))

    def __repr__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        """How results and files name it; `structure_of` reads it back."""
        noise = [
            f", {field}={value!r}"
            for field, value, usual in (
                ("noise_strength", self.noise_strength, NOISE_STRENGTH),
                ("noise_scale", self.noise_scale, NOISE_SCALE),
            )
            if value != usual
        ]
        return f"{type(self).__name__}({self.rank}{''.join(noise)})"


@dataclass(frozen=True, repr=False)
class PPCA(LowRank):
    """M = W W' + sigma^2 I: a few factors, and the same noise for every object.

    The kernels are then completed by probabilistic principal components (PCA-MKMC). A step costs
    one product of each kernel with `rank` columns, instead of several with l.
    Equation :eq:`eq-low-rank` of the derivation.

    Parameters
    ----------
    rank
        q, the number of factors, below the number of objects.
    noise_strength, noise_scale
        a >= 0 and tau > 0 of the noise's prior, -(a/2) sum_i (log d_i + tau / d_i): as if a
        further observations of each object's noise had had the variance tau. Without it (a = 0) the
        noise of an object can go to zero in `FactorAnalysis`, where the likelihood has no maximum
        (a Heywood case). tau is in units of the kernels' scales; with ``sources="identical"`` in
        those of the kernels.

    Examples
    --------
    >>> from mkmc_prob import PPCA, datasets, fit, remove_objects
    >>> kernels, _ = datasets.make_fusion_problem(30, 3)
    >>> result = fit(remove_objects(kernels, 0.3, seed=0), structure=PPCA(2))
    >>> result.converged
    True
    """


@dataclass(frozen=True, repr=False)
class FactorAnalysis(LowRank):
    """M = W W' + diag(d): a few factors, and for every object noise of its own (FA-MKMC).

    Equation :eq:`eq-low-rank` of the derivation.

    Parameters
    ----------
    rank, noise_strength, noise_scale
        As in `PPCA`.

    Examples
    --------
    >>> from mkmc_prob import FactorAnalysis
    >>> FactorAnalysis(3).name
    'FactorAnalysis(3)'
    """


Structure: TypeAlias = Full | LowRank
FULL = Full()


def need_full(structure: Structure, what: str) -> None:
    """Raise KernelError unless the structure is the full one."""
    if not isinstance(structure, Full):
        raise KernelError(
            f"{what}: structure {structure.name} found; it knows only the full structure. Fit "
            'with structure="full".'
        )


def structure_of(value: Any, what: str = "structure") -> Structure:
    """Return the structure that the user named: an instance, or its `name`.

    Examples
    --------
    >>> from mkmc_prob.model.structures import structure_of
    >>> structure_of("PPCA(5)")
    PPCA(5)
    """
    if type(value) in (Full, PPCA, FactorAnalysis):
        return value  # type: ignore[no-any-return]
    if isinstance(value, str) and value == FULL.name:
        return FULL
    kinds = {kind.__name__: kind for kind in (PPCA, FactorAnalysis)}
    if isinstance(value, str) and (found := NAMED.fullmatch(value)) and found["kind"] in kinds:
        fields = [field.split("=") for field in found["noise"].split(", ")[1:]]
        try:
            noise = {field: float(number) for field, number in fields}
        except ValueError as error:
            raise KernelError(f"{what}: {value!r} found; {error}.") from error
        return kinds[found["kind"]](int(found["rank"]), **noise)
    raise KernelError(
        f"{what}: {value!r} found; 'full', PPCA(rank) or FactorAnalysis(rank) is needed."
    )
