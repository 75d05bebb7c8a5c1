"""What holding out says of the strengths: scores, the choices, calibration.

Enters: held-out scores by strength, fold and kernel, from `selection`. Leaves: tables and choices.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from .. import plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False, repr=False)
class StrengthSelection:
    """What `select_strength` found.

    Attributes
    ----------
    scores : Dataset
        ``log_density`` (strength, fold, kernel), the conditional log-likelihood of the held-out
        block in nats; ``held_out`` (fold, kernel), how many objects it had; ``predicted`` (fold,
        kernel), how many of them another kernel still showed; ``mahalanobis`` (strength, fold,
        kernel), the expected squared Mahalanobis length of these, per object; and
        ``squared_residual`` (strength, kernel, object), the expected squared residual of each
        visible object, held out once, over its conditional variance, NaN where no other kernel
        showed it and the prior alone spoke. The last two are 1 on average for a calibrated model:
        more says that it is too sure, less that it is too modest.

    Examples
    --------
    >>> from mkmc_prob import datasets, remove_objects, select_strength
    >>> kernels, _ = datasets.make_fusion_problem(30, 3)
    >>> incomplete = remove_objects(kernels, 0.3, seed=0)
    >>> found = select_strength(incomplete, strengths=[0.1, 1.0, 10.0])
    >>> found.best
    1.0
    """

    scores: xr.Dataset

    @property
    def table(self) -> pd.DataFrame:
        """A row per strength: the score in nats per held-out object, and how well it is known.

        ``score`` is the mean over the folds, ``behind`` the mean over the folds of what each falls
        short of the best strength's score; ``mahalanobis`` is the mean over the predicted objects,
        1 for a calibrated model (`calibration` has it by kernel). Each has its standard error: the
        standard deviation over the folds over the root of their number.
        """
        held_out = self.scores["held_out"]
        per_fold = self.scores["log_density"].sum("kernel") / held_out.sum("kernel")
        best = int(np.argmax(per_fold.mean("fold").values))
        behind = per_fold.isel(strength=best) - per_fold
        predicted = self.scores["predicted"]
        lengths = (self.scores["mahalanobis"] * predicted).sum("kernel")
        return pd.DataFrame(
            {
                "score": per_fold.mean("fold").values,
                "standard_error": _standard_error(per_fold),
                "behind": behind.mean("fold").values,
                "behind_error": _standard_error(behind),
                "mahalanobis": (lengths.sum("fold") / predicted.sum()).values,
                "mahalanobis_error": _standard_error(lengths / predicted.sum("kernel")),
            },
            index=pd.Index(self.scores["strength"].values, name="strength"),
        )

    @property
    def calibration(self) -> pd.DataFrame:
        """A row per strength and kernel: whether the model is calibrated about that kernel.

        ``predicted`` counts the objects held out that another kernel still showed; ``mahalanobis``
        is their expected squared Mahalanobis length per object given the kernel's others, with its
        standard error over the folds (NaN where only one fold has some). It is 1 on average where
        the kernel is what the model takes it for: more where it is larger or noisier, less where it
        is smaller. Kernels on both sides can cancel in `table`. ``.loc[strength]`` is a table by
        kernel.
        """
        predicted = self.scores["predicted"].transpose("fold", "kernel")
        lengths = self.scores["mahalanobis"].transpose("strength", "kernel", "fold")
        mean = (lengths * predicted).sum("fold") / predicted.sum("fold")
        index = pd.MultiIndex.from_product(
            [self.scores["strength"].values, self.scores["kernel"].values],
            names=["strength", "kernel"],
        )
        counts = np.tile(predicted.sum("fold").values, self.scores.sizes["strength"])
        return pd.DataFrame(
            {
                "predicted": counts,
                "mahalanobis": mean.transpose("strength", "kernel").values.ravel(),
                "standard_error": _standard_error(lengths).ravel(),
            },
            index=index,
        )

    @property
    def best(self) -> float:
        """The strength with the highest score."""
        score = self.table["score"].to_numpy()
        return float(self.scores["strength"].values[np.argmax(score)])

    @property
    def one_standard_error(self) -> float:
        """The largest strength whose score is within one standard error of the best."""
        score, error = (self.table[name].to_numpy() for name in ("score", "standard_error"))
        least = score.max() - error[np.argmax(score)]
        return float(self.scores["strength"].values[score >= least].max())

    @property
    def within_noise(self) -> list[float]:
        """The strengths that fall short of the best by less than the standard error of that.

        The difference is taken fold by fold, which what is common to both does not blur.
        """
        table = self.table.drop(index=self.best)
        return [float(s) for s in table.index[table["behind"] < table["behind_error"]]]

    @property
    def at_the_edge(self) -> bool:
        """Whether the best strength is the smallest or the largest of several that were tried."""
        tried = self.scores["strength"].values
        return len(tried) > 1 and self.best in (tried.min(), tried.max())

    def __repr__(self) -> str:
        lines = [
            f"StrengthSelection: best {self.best:g}, by one standard error "
            f"{self.one_standard_error:g}"
        ]
        if near := self.within_noise:
            lines.append(
                f"within noise of the best (by less than the standard error of the difference): "
                f"{', '.join(f'{strength:g}' for strength in near)}"
            )
        if self.at_the_edge:
            lines.append(self._about_the_edge())
        table = self.table.drop(columns="mahalanobis_error")  # the rest is 80 characters wide
        return "\n".join([*lines, table.to_string(float_format="{:.4g}".format)])

    def _about_the_edge(self) -> str:
        end = "largest" if self.best == self.scores["strength"].values.max() else "smallest"
        return (
            f"strengths: the best, {self.best:g}, is the {end} tried: the score may rise beyond "
            f"it. Add {'larger' if end == 'largest' else 'smaller'} ones."
        )

    def plot(self, *, ax: "Axes | None" = None) -> "Axes":
        """Draw the score by strength; see `plots.plot_strength`."""
        return plots.plot_strength(self, ax=ax)


def _standard_error(values: xr.DataArray) -> NDArray[np.float64]:
    """Return the standard error of the mean over the folds; NaN where fewer than two tell."""
    count = values.count("fold")
    error = values.std("fold", ddof=1).where(count > 1) / np.sqrt(count)
    return np.asarray(error.values, dtype=np.float64)
