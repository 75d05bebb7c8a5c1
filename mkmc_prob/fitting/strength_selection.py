"""The result of `select_strength`: scores, choices and calibration."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import xarray as xr

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
        block in nats; ``held_out`` (fold, kernel), its number of objects; ``predicted`` (fold,
        kernel), the number of them that another kernel still shows; ``mahalanobis`` (strength,
        fold, kernel), the expected squared Mahalanobis length of these per object; and
        ``squared_residual`` (strength, kernel, object), the expected squared residual of each
        visible object when it was held out, divided by its conditional variance; NaN if no other
        kernel shows the object, because then the prior alone predicts it. The last two are 1 on
        average for a calibrated model; larger values mean overconfidence, smaller ones caution.

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
        """A row per strength: the score in nats per held-out object, with its standard error.

        ``score`` is the mean over the folds, ``behind`` the mean shortfall relative to the best
        strength's score in the same fold; ``mahalanobis`` is the mean over the predicted objects, 1
        for a calibrated model (`calibration` has it by kernel). Standard errors are the standard
        deviation over the folds divided by the square root of their number.
        """
        per_fold = self.scores["log_density"].sum("kernel") / self.scores["held_out"].sum("kernel")
        behind = per_fold.isel(strength=per_fold.mean("fold").argmax("strength")) - per_fold
        predicted = self.scores["predicted"]
        lengths = (self.scores["mahalanobis"] * predicted).sum("kernel")
        table = {
            "score": per_fold.mean("fold"),
            "standard_error": _standard_error(per_fold),
            "behind": behind.mean("fold"),
            "behind_error": _standard_error(behind),
            "mahalanobis": lengths.sum("fold") / predicted.sum(),
            "mahalanobis_error": _standard_error(lengths / predicted.sum("kernel")),
        }
        return xr.Dataset(table).reset_coords(drop=True).to_dataframe()

    @property
    def calibration(self) -> pd.DataFrame:
        """A row per strength and kernel: whether the model is calibrated for that kernel.

        ``predicted`` counts the held-out objects that another kernel still shows; ``mahalanobis``
        is their expected squared Mahalanobis length per object given the kernel's others, with its
        standard error over the folds (NaN if only one fold has such objects). It is 1 on average if
        the kernel agrees with the model, larger if the kernel is larger or noisier, smaller if it
        is smaller. Deviations in both directions can cancel in `table`. ``.loc[strength]`` is a
        table by kernel.
        """
        predicted, lengths = self.scores["predicted"], self.scores["mahalanobis"]
        table = {
            "predicted": predicted.sum("fold"),
            "mahalanobis": (lengths * predicted).sum("fold") / predicted.sum("fold"),
            "standard_error": _standard_error(lengths),
        }
        return xr.Dataset(table).to_dataframe(dim_order=["strength", "kernel"])

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
        """The strengths whose shortfall is less than its standard error.

        The shortfall is computed fold by fold, so that variation common to both cancels.
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


def _standard_error(values: xr.DataArray) -> xr.DataArray:
    """Return the standard error of the mean over the folds; NaN with fewer than two values."""
    count = values.count("fold")
    return values.std("fold", ddof=1).where(count > 1) / np.sqrt(count)
