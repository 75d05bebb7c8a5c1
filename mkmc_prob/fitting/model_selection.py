"""The result of `select_model`: every candidate, the choice, and the verdict."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr

from .. import plots
from ..model.structures import FULL, LowRank, Structure, structure_of
from ..stacks.labels import name_some
from .calibration import Calibration
from .holdout import Setting

if TYPE_CHECKING:
    from matplotlib.axes import Axes


#: How messages call the baselines.
SAID = {"mean": "mean imputation", "knn": "nearest-neighbor imputation"}
#: With fewer held-out objects in all draws the verdict says how many there were.
FEW = 20


@dataclass(frozen=True, eq=False, repr=False)
class Verdict:
    """Whether the chosen model beats simple imputation on held-out rows.

    Attributes
    ----------
    sentence : str
    table : DataFrame
        A row per kernel; see `ModelSelection.verdict`.
    """

    sentence: str
    table: pd.DataFrame

    def __str__(self) -> str:
        return self.sentence

    def __repr__(self) -> str:
        return f"{self.sentence}\n{self.table.to_string(float_format='{:.3g}'.format)}"


@dataclass(frozen=True, eq=False, repr=False)
class ModelSelection:
    """What `select_model` found.

    Attributes
    ----------
    comparisons : Dataset
        By ``candidate``: ``strength``, ``sharing`` (per kernel), ``structure``, ``prior`` (the
        structure of its scale, "" without one), ``evaluations``, ``seconds``; by
        ``(candidate, draw, kernel)``: ``score``, the log density of the held-out objects in nats,
        and ``relative_error`` of their rows; ``held_out`` (draw, kernel), their number; and
        ``baseline_error`` (baseline, draw, kernel) of mean, zero and nearest-neighbor imputation.
    chosen : Setting
        The chosen strength, sharings, structure and prior.
    interrupted : bool
        Whether Ctrl-C ended the search.
    left_out : str
        What `complete` did not try, because it would take too long.
    calibration : Calibration or None
        That of the chosen model, after ``complete(stack, degrees_of_freedom="auto")``.

    Examples
    --------
    >>> from mkmc_prob import datasets, remove_objects, select_model
    >>> kernels, _ = datasets.make_fusion_problem(30, 3)
    >>> selection = select_model(remove_objects(kernels, 0.3, seed=0))
    >>> selection.verdict.table["use"].tolist()
    ['model', 'model', 'alone']
    """

    comparisons: xr.Dataset
    chosen: Setting
    interrupted: bool = False
    left_out: str = ""
    calibration: Calibration | None = None

    def to_dataset(self) -> xr.Dataset:
        """Return all but the calibration as one Dataset; `of_dataset` reads it back."""
        attrs = {
            "strength": self.chosen.strength,
            "structure": self.chosen.structure.name,
            "prior": name_of(self.chosen.prior),
            "interrupted": int(self.interrupted),
            "left_out": self.left_out,
        }
        chosen = self.comparisons.assign(chosen_sharing=("kernel", list(self.chosen.sharing)))
        return chosen.assign_attrs(attrs)

    @classmethod
    def of_dataset(cls, given: xr.Dataset) -> "ModelSelection":
        """Return the selection of which `to_dataset` made `given`."""
        sharing = tuple(given["chosen_sharing"].values.astype(float).tolist())
        chosen = Setting(
            float(given.attrs["strength"]),
            sharing,
            structure_of(given.attrs.get("structure", "full")),
            _prior_of(given.attrs.get("prior", "")),
        )
        interrupted = bool(given.attrs["interrupted"])
        comparisons = given.drop_vars("chosen_sharing").drop_attrs(deep=False)
        return cls(comparisons, chosen, interrupted, str(given.attrs.get("left_out", "")))

    @property
    def best(self) -> dict[str, Any]:
        """The chosen model, for ``fit(stack, **best)``.

        ``strength`` and ``sharing``; ``structure`` if it is not "full", and ``prior`` if its scale
        is one of a few factors.
        """
        return self._arguments(self.chosen)

    def _arguments(self, setting: Setting) -> dict[str, Any]:
        names = self.comparisons["kernel"].values.tolist()
        found: dict[str, Any] = {
            "strength": setting.strength,
            "sharing": dict(zip(names, setting.sharing, strict=True)),
        }
        if setting.structure != FULL:
            found["structure"] = setting.structure
        if setting.prior is not None:
            found["prior"] = setting.prior
        return found

    @property
    def table(self) -> pd.DataFrame:
        """A row per candidate, in the order in which they were tried.

        ``strength``; ``structure`` and ``prior`` if there are several; ``score``, nats per held-out
        object, with its ``standard_error`` over the draws; ``relative_error`` of the held-out rows,
        the mean over the kernels; ``seconds``; and for each kernel ``sharing[name]`` and
        ``score[name]``.
        """
        data = self.comparisons
        per_draw = data["score"].sum("kernel") / data["held_out"].sum("kernel")
        held_out = data["held_out"].sum()
        table = pd.DataFrame(
            {
                "strength": data["strength"].values,
                "score": (data["score"].sum(["draw", "kernel"]) / held_out).values,
                "standard_error": _standard_error(per_draw.values),
                "relative_error": data["relative_error"].mean("draw").mean("kernel").values,
                "seconds": data["seconds"].values,
            },
            index=pd.RangeIndex(data.sizes["candidate"], name="candidate"),
        )
        for place, name in enumerate(("structure", "prior")):
            if name in data and len(np.unique(data[name].values)) > 1:
                table.insert(1 + place, name, data[name].values)
        per_kernel = data["score"].sum("draw") / data["held_out"].sum("draw")
        for name in data["kernel"].values.tolist():
            table[f"sharing[{name}]"] = data["sharing"].sel(kernel=name).values
            table[f"score[{name}]"] = per_kernel.sel(kernel=name).values
        return table

    @property
    def one_standard_error(self) -> dict[str, Any]:
        """The most cautious model within one standard error of the best, for ``fit``.

        Of the candidates whose score is at most one standard error of the best one below it, the
        one that shares least, and of these the one with the largest strength.
        """
        at = self._index(self.chosen)
        if at is None:
            return self.best
        table = self.table
        least = table["score"][at] - np.nan_to_num(table["standard_error"][at])
        sharing = self.comparisons["sharing"].mean("kernel").values
        near = table.index[table["score"] >= least]
        order = [(sharing[i], -table["strength"][i], i) for i in near]
        _, _, i = min(order)
        return self._arguments(self._setting(i))

    @property
    def verdict(self) -> Verdict:
        """Whether the chosen model beats simple imputation: a sentence, and a table per kernel.

        The table has the relative error of the held-out rows of the ``model``, of the kernel
        ``alone`` (sharing 0), and of ``mean``, ``zero`` and ``knn`` imputation; the paired
        differences ``model-mean``, ``model-knn`` and ``model-alone``, each with its standard
        error; ``others_help``, whether the other kernels help to predict this one (the score is
        higher than with sharing 0, by more than its standard error); and ``use``, the best of
        model, mean and knn imputation there: the model unless another one is better by more than
        the standard error of the difference; "alone" instead of "model" if its sharing is 0, which
        gives all missing objects the same row (what that gains over mean imputation is the
        diagonal). Standard errors are over the draws, which hide some of the same objects. A kernel
        that cannot be tested has NaN.
        """
        at, alone = self._index(self.chosen), self._alone()
        data = self.comparisons
        names = data["kernel"].values
        table = pd.DataFrame(index=pd.Index(names, name="kernel"))
        table["sharing"] = list(self.chosen.sharing)
        table["held_out"] = data["held_out"].sum("draw").values
        compared = at is not None and alone is not None
        nothing = np.full(data["held_out"].shape, np.nan)
        errors = {
            "model": data["relative_error"].values[at] if compared else nothing,
            "alone": data["relative_error"].values[alone] if compared else nothing,
        } | {
            name: data["baseline_error"].sel(baseline=name).values
            for name in data["baseline"].values.tolist()
        }
        for name, values in errors.items():
            table[name] = _mean(values)
        for name in ("mean", "knn", "alone"):
            table[f"model-{name}"] = _mean(errors["model"] - errors[name])
            table[f"se({name})"] = _standard_error((errors["model"] - errors[name]).T)
        count = data["held_out"].values
        gain = nothing
        if compared:
            better = data["score"].values[at] - data["score"].values[alone]
            gain = np.where(count > 0, better / np.where(count, count, 1), np.nan)
        table["others_help"] = _mean(gain) > np.nan_to_num(_standard_error(gain.T), nan=np.inf)
        table["use"] = [_to_use(row) for _, row in table.iterrows()]
        sentence = self._sentence(table, errors) if compared else self._untested()
        return Verdict(sentence, table)

    def _sentence(self, table: pd.DataFrame, errors: dict[str, Any]) -> str:
        tested = table[table["held_out"] > 0]
        related = tested["sharing"] > 0.0
        some = tested[related] if related.any() else tested
        against = [self._against(name, some.index, errors) for name in ("mean", "knn")]
        whose = "" if len(some) == len(tested) else " of these kernels"
        parts = []
        for name in ("mean", "knn"):  # first, because it is advice
            better = tested.index[tested["use"] == name].tolist()
            if better:
                parts.append(
                    f"{SAID[name]} predicts the rows of {name_some(better)} better than the model"
                )
        parts.append(
            f"{_who_is_helped(tested)}; on held-out rows{whose} the relative error of the model is "
            + " and ".join(against)
        )
        if alone := tested.index[tested["use"] == "alone"].tolist():
            parts.append(
                f"{name_some(alone)} {'is' if len(alone) == 1 else 'are'} completed without the "
                "others: all missing objects get the same similarities"
            )
        if untested := table.index[table["held_out"] == 0].tolist():
            parts.append(f"{name_some(untested)} cannot be tested")
        count = int(tested["held_out"].sum())
        if count < FEW:
            parts.append(f"only {count} objects could be held out")
        held_out = self.comparisons["held_out"]
        if (held_out == held_out.isel(draw=0)).all() and not table["se(mean)"].any():
            parts.append("every draw held out the same objects, so the noise is unknown")
        if self.interrupted:
            parts.append("the search was interrupted")
        if self.left_out:
            parts.append(f"not tried: {self.left_out}")
        sentence = "; ".join(parts)
        return f"{sentence[0].upper()}{sentence[1:]}."

    def _against(self, name: str, kernels: pd.Index, errors: dict[str, Any]) -> str:
        """Return how the model's error compares with that of a baseline, over these kernels."""
        places = self.comparisons.indexes["kernel"].get_indexer(kernels)
        model, other = (_mean(errors[each][:, places].T) for each in ("model", name))  # per draw
        if not np.nanmean(other) > 0.0:
            return f"{np.nanmean(model):.2g}, while {SAID[name]} is exact,"
        ratio = float(np.nanmean(model) / np.nanmean(other))
        noise = float(np.nan_to_num(_standard_error(other - model)))
        side = "below" if ratio < 1.0 else "above"
        error = noise / float(np.nanmean(other))
        clear = "" if abs(float(np.nanmean(other - model))) > noise else ", within noise"
        return f"{abs(1.0 - ratio):.0%} (± {error:.0%}{clear}) {side} that of {SAID[name]}"

    def _untested(self) -> str:
        if self.interrupted:
            return "Interrupted before the model was compared with mean imputation."
        return (
            "The choice cannot be tested: no object can be held out, because every object is "
            "visible in one kernel only, kernels show fewer than three, or groups are too large "
            "to be held out. Every kernel is completed from itself alone (sharing 0, strength 1)."
        )

    def _setting(self, i: int) -> Setting:
        data = self.comparisons.isel(candidate=i)
        structure: Structure = FULL
        prior = None
        if "structure" in data:
            structure, prior = (
                structure_of(data["structure"].item()),
                _prior_of(data["prior"].item()),
            )
        sharing = tuple(data["sharing"].values.tolist())
        return Setting(float(data["strength"]), sharing, structure, prior)

    def _index(self, setting: Setting) -> int | None:
        """Return the candidate that has this setting; None if it was not compared."""
        found = (
            i for i in range(self.comparisons.sizes["candidate"]) if self._setting(i) == setting
        )
        return next(found, None)

    def _alone(self) -> int | None:
        """Return the candidate in which every sharing is 0."""
        none = ~self.comparisons["sharing"].values.any(axis=1)
        return int(np.argmax(none)) if none.any() else None

    def __repr__(self) -> str:
        sharing = ", ".join(f"{name} {share:g}" for name, share in self.best["sharing"].items())
        lines = [
            f"ModelSelection: {self._model()}strength {self.chosen.strength:g}; sharing {sharing}",
            self.verdict.sentence,
        ]
        table = self.verdict.table
        shown = [c for c in ("sharing", "model", "mean", "knn", "others_help", "use") if c in table]
        lines.append(table[shown].to_string(float_format="{:.3g}".format))
        lines.append(f"{self.comparisons.sizes['candidate']} candidates were compared: see .table")
        tried = np.unique(self.comparisons["strength"].values)
        if len(tried) > 2 and self.chosen.strength in tried[[0, -1]] and any(self.chosen.sharing):
            end = "smallest" if self.chosen.strength == tried[0] else "largest"
            lines.append(
                f"strength {self.chosen.strength:g} is the {end} tried: add others beyond it"
            )
        return "\n".join(lines)

    def _model(self) -> str:
        """Return the structure and the prior, if they are not the usual ones."""
        structure, prior = self.chosen.structure, self.chosen.prior
        named = "" if structure == FULL else f"{structure.name}, "
        return named + ("" if prior is None else f"prior {prior.name}, ")

    def plot(self, *, ax: "Axes | None" = None) -> "Axes":
        """Draw the relative errors by kernel; see `plots.plot_selection`."""
        return plots.plot_selection(self, ax=ax)


def name_of(prior: LowRank | None) -> str:
    """Return how datasets name the structure of the prior's scale."""
    return "" if prior is None else prior.name


def _prior_of(name: str) -> LowRank | None:
    found = structure_of(name) if name else None
    return found if isinstance(found, LowRank) else None


def _mean(values: np.ndarray) -> np.ndarray:
    """Return the mean over the draws, NaN where there is none."""
    count = np.isfinite(values).sum(axis=0)
    total = np.nansum(values, axis=0)
    return np.where(count > 0, total / np.where(count > 0, count, 1), np.nan)


def _standard_error(values: np.ndarray) -> np.ndarray:
    """Return the standard error of the mean over the last axis; NaN with fewer than two values."""
    count = np.isfinite(values).sum(axis=-1)
    mean = _mean(np.moveaxis(values, -1, 0))
    squares = np.nansum((values - mean[..., None]) ** 2, axis=-1)
    return np.where(
        count > 1, np.sqrt(squares / np.maximum(count - 1, 1) / np.maximum(count, 1)), np.nan
    )


def _who_is_helped(tested: pd.DataFrame) -> str:
    """Return for which kernels the other kernels improve the prediction."""
    helped = tested.index[tested["others_help"]].tolist()
    if not helped:
        return "judged by density, the other kernels help to predict none of the kernels"
    rest = [name for name in tested.index.tolist() if name not in helped]
    if not rest:
        return "judged by density, the other kernels help to predict every kernel"
    return (
        f"judged by density, the other kernels help to predict {name_some(helped)}, but not "
        f"{name_some(rest)}"
    )


def _to_use(row: pd.Series) -> str:
    """Return what to use for a kernel: the model unless another is better beyond noise."""
    if not row["held_out"] or np.isnan(row["model"]):
        return "untested"
    best, least = "model" if row["sharing"] else "alone", row["model"]
    for name in ("mean", "knn"):
        noise = np.nan_to_num(row[f"se({name})"], nan=np.inf)  # of a single draw
        if row[f"model-{name}"] > noise and row[name] < least:
            best, least = name, row[name]
    return best
