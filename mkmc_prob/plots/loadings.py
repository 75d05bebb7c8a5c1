"""Plot of the loadings of a model of few factors."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ..diagnostics.protocol import FitResult
from ..errors import MKMCError
from ..model.low_rank import LowRankModel
from ..utils.arguments import checked, whole
from .axes import COLORS, axes_or_new, name_ticks

if TYPE_CHECKING:  # Matplotlib is slow to import, so only when drawing
    from matplotlib.axes import Axes

#: Up to so many objects are labeled.
MOST_LABELS = 40


def low_rank_model(given: Any, what: str) -> LowRankModel:
    """Return `given`, or the model of a fit, if it is of few factors; raise MKMCError otherwise."""
    model = getattr(given, "model", given)
    if not isinstance(model, LowRankModel):
        raise MKMCError(
            f"{what}: {type(given).__name__} found without loadings; pass a fit with "
            "structure=PPCA(rank) or FactorAnalysis(rank), or its model."
        )
    return model


@checked(factors=whole(least=1))
def plot_loadings(
    model_or_result: LowRankModel | FitResult, *, factors: int = 2, ax: "Axes | None" = None
) -> "Axes":
    """Draw the objects by their loadings on the leading factors.

    Two factors are the axes of a scatter plot, on one scale: except for the noise, the covariance
    of two objects is the inner product of their loadings. Any other number of factors is a heat map
    of objects by factors, symmetric around zero. The loadings are canonical (`LowRankModel`), and
    the percentage is each factor's share of the total variance, tr M. Up to 40 objects are labeled.

    Parameters
    ----------
    model_or_result
        A fit with ``structure=PPCA(rank)`` or ``FactorAnalysis(rank)``, or its model.
    factors
        The number of factors to draw; all if the model has fewer.
    ax
        Axes to draw on; new ones if omitted.

    Returns
    -------
    Axes

    Raises
    ------
    MKMCError
        If the model is not of few factors.

    Examples
    --------
    >>> from mkmc_prob import PPCA, datasets, fit, plots, remove_objects
    >>> kernels, _ = datasets.make_fusion_problem(30, 3)
    >>> result = fit(remove_objects(kernels, 0.3, seed=0), structure=PPCA(3))
    >>> plots.plot_loadings(result, factors=3).get_xlabel()
    'factor'
    """
    model = low_rank_model(model_or_result, "model_or_result")
    loadings = model.loadings.values[:, :factors]
    variances = (loadings**2).sum(axis=0)
    shares = 100.0 * variances / ((model.factor_loadings**2).sum() + model.noise_variances.sum())
    ax = axes_or_new(ax)
    named = model.objects.tolist() if len(model.objects) <= MOST_LABELS else []
    if len(shares) == 2:
        ax.axhline(0.0, color="0.8", linewidth=1, zorder=0)
        ax.axvline(0.0, color="0.8", linewidth=1, zorder=0)
        ax.plot(*loadings.T, "o", color=COLORS[0], markersize=5, alpha=0.7)
        beside: dict[str, Any] = {"xytext": (4, 3), "textcoords": "offset points"}
        for name, place in zip(named, loadings, strict=False):
            ax.annotate(str(name), place, fontsize="small", parse_math=False, **beside)
        ax.set_aspect("equal", adjustable="datalim")
        labels = [
            f"factor {j} ({share:.0f} % of the variance)" for j, share in enumerate(shares, 1)
        ]
        ax.set(xlabel=labels[0], ylabel=labels[1])
        return ax
    most = float(np.abs(loadings).max()) or 1.0
    look: dict[str, Any] = {"aspect": "auto", "interpolation": "nearest"}
    image = ax.imshow(loadings, cmap="RdBu_r", vmin=-most, vmax=most, **look)
    ax.figure.colorbar(image, ax=ax, label="loading")
    name_ticks(ax, [f"{j}\n{share:.0f} %" for j, share in enumerate(shares, 1)], axis="x")
    ax.set_yticks([])
    if named:
        name_ticks(ax, named, axis="y")
    ax.set(xlabel="factor", ylabel="object" if named else f"object ({len(model.objects)})")
    return ax
