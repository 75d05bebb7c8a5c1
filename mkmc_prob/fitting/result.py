"""What a fit returns: completed kernels, the model matrix and the trace, with tables and plots."""

import dataclasses
import os
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr

from .. import plots
from ..diagnostics.agreement import agreement_with_model, kernel_agreement, object_predictive
from ..diagnostics.bounds import unseen_pairs
from ..em.completion import FactorCompletion
from ..em.spread import standard_deviations
from ..errors import KernelError, MKMCError, warn
from ..model.gaussian import GaussianModel
from ..model.low_rank import LowRankModel
from ..model.prior import WishartPrior
from ..model.sources import Sources
from ..model.structures import Full, structure_of
from ..posterior.sampling import sample_posterior
from ..stacks.kernel_stack import KernelStack
from ..stacks.labels import as_labels, match, name_some, with_labels
from ..stacks.lazy_stack import LazyStack
from ..stacks.matrix import labelled
from ..stacks.pairs import (
    count_of_unseen_pairs,
    never_seen_together,
    number_of_pairs,
    pair_counts,
)
from ..stacks.pattern import named_groups, pairs_between, related, tied_groups
from ..stacks.stack import visible_objects
from ..utils.netcdf import open_tree, write_netcdf
from ..utils.version import __version__
from .calibration import Calibration
from .information import missing_information
from .model_selection import ModelSelection
from .solve import Solution, sources_dataset

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The version of the layout that `to_datatree` writes.
LAYOUT = 2
#: Arguments of `sample_posterior` that the fit determines.
OF_THE_FIT = {"degrees_of_freedom", "strength", "prior", "sources", "sharing", "structure"}
#: Results of version 0.1.0, whose kernels are all the paper's.
FIRST_LAYOUT = 1


@dataclass(frozen=True, eq=False)
class MKMCResult(Solution):
    """The result of `fit`.

    Attributes
    ----------
    observed : DataArray
        The incomplete stack, NaN where an object is missing.
    completed : DataArray
        The completed stack, without NaN: the E-step that gave `model`. Visible entries are those
        of `observed`, bit for bit. With a model of few factors, and if it takes more than 1 GiB and
        dask is installed (``pip install mkmc-prob[large]``), it is a dask array, whose entries are
        computed where they are asked for; so is ``model.covariance``.
    model : GaussianModel
        The model matrix, ``model.covariance``: the M-step of `completed`.
    trace : Dataset
        Over ``iteration``, one entry per model matrix, the initial one first and `model` last:
        ``penalized_log_likelihood``, ``log_likelihood`` (per kernel, nu_k times), ``log_prior``,
        ``gain_to_come`` (estimated), ``rounding_bound``; all in nats; ``entries_to_come``, the
        estimated largest change of an entry still to come, relative to the diagonal; and
        ``evaluations``. Attribute ``limit``: what the fit waited for last, "gain" or "entries".
    prior : WishartPrior
    sources : Dataset
        How each kernel relates to the model, by ``kernel``: ``scale``, ``constant`` and
        ``sharing``, and whether the constant was ``estimated``; attribute ``shared_constant``. The
        constants are those at `model`.
    degrees_of_freedom : DataArray
    structure : Full, PPCA or FactorAnalysis
        The structure of the model matrix.
    method : str
    tol : float
    converged : bool
        Whether the estimated remaining gain fell to `tol`.
    interrupted : bool
        Whether Ctrl-C ended the fit.
    completion : FactorCompletion or None
        For a model of few factors, what `completed` was computed from: ``completion.rows(kernel,
        objects)`` gives rows of it.
    selection : ModelSelection or None
        How `complete` chose the model, and its verdict.
    calibration : Calibration or None
        How ``degrees_of_freedom="auto"`` chose them, and how intervals cover held-out entries.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import fit, stack_kernels
    >>> kernels = np.array([[[2.0, 1.0], [1.0, 2.0]], [[1.0, 0.2], [0.2, 1.0]]])
    >>> result = fit(stack_kernels(kernels, visible=[[1, 1], [0, 1]]), strength=0.5, method="em")
    >>> result.summary()[["visible", "missing"]]
            visible  missing
    kernel
    Q1            2        0
    Q2            1        1
    >>> result.completed.isnull().any().item()
    False
    >>> bool((result.trace["penalized_log_likelihood"].diff("iteration") > 0).all())
    True
    """

    selection: ModelSelection | None = None
    calibration: Calibration | None = None

    @classmethod
    def of(cls, solution: Solution) -> "MKMCResult":
        """Return a solution as a result."""
        return cls(**vars(solution))

    def __repr__(self) -> str:
        sizes = self.observed.sizes
        first = float(self.trace["penalized_log_likelihood"][0])
        to_come = float(self.trace["gain_to_come"][-1])
        rest = f", about {to_come:.1g} to come" if np.isfinite(to_come) else ""
        how = "interrupted" if self.interrupted else "converged" if self.converged else "ended"
        return (
            f"MKMCResult: {sizes['kernel']} kernels over {sizes['object']} objects, "
            f"{self._about_the_model()}\n"
            f"{how} after {self.n_iter} {self.method} iterations "
            f"({int(self.trace['evaluations'][-1])} evaluations)\npenalized log-likelihood "
            f"{first:.4f} -> {self.penalized_log_likelihood:.4f} nats{rest}{self._about_pairs()}"
            f"{'' if self.selection is None else chr(10) + self.selection.verdict.sentence}"
        )

    def _about_the_model(self) -> str:
        """Return the prior of the paper's model, or the strength and what the kernels share."""
        sharing = self.sources["sharing"].to_series()
        structure = "" if isinstance(self.structure, Full) else f"{self.structure.name}, "
        if Sources.of_dataset(self.sources, sharing.index.tolist()).is_identical:
            return f"{structure}{self.prior!r}"
        groups = sharing.groupby(sharing, sort=True)
        if len(groups) == 1:
            shares = f"every kernel has sharing {sharing.iloc[0]:g}"
        else:
            listed = (f"{share:g}: {name_some(part.index.tolist())}" for share, part in groups)
            shares = "sharing " + "; ".join([*listed][::-1])
        prior = f", prior {self.prior.factors}" if self.prior.factors else ""
        return f"{structure}strength {self.prior.strength:g}{prior}\n{shares}"

    def _about_pairs(self) -> str:
        """Return lines about the pairs of objects that no kernel shows together, if any."""
        size, showing = self.observed.sizes["object"], self._related()
        total, never = number_of_pairs(size), count_of_unseen_pairs(showing)
        if not never:
            return ""
        groups = tied_groups(showing)
        alone = pairs_between(groups, size)
        how = "the kernels only bound their entries, and the prior chooses within the bounds"
        if not isinstance(self.structure, Full):
            how = "the kernels only bound their entries, and the factors choose within the bounds"
        elif alone == never:
            how = "their entries come from the prior alone"
        elif alone:
            how += f";\n  the entries of {alone} come from the prior alone"
        if len(groups) > 1:
            how += f":\n  no chain of kernels connects {named_groups(groups)}"
        verb = "is" if never == 1 else "are"
        return f"\n{never} of {total} pairs of objects {verb} never observed together:\n  {how}"

    def _related(self) -> xr.DataArray:
        """Return the visible objects of the kernels that share anything; of all if none does."""
        visible = visible_objects(self.observed).transpose("kernel", "object")
        sharing = self.sources["sharing"].sel(kernel=visible["kernel"].values)
        return related(visible, sharing.values)

    @cached_property
    def standard_deviation(self) -> xr.DataArray:
        """The standard deviation of every completed entry, given the model; 0 for visible entries.

        It has the dims of `completed`. If kernel k is the second moment of nu_k independent draws
        of its vector, a hidden entry has its completed value as the mean and this standard
        deviation, and is approximately normal if nu_k is large. It is proportional to 1/sqrt(nu_k),
        so it is meaningful only if `degrees_of_freedom` is: ``degrees_of_freedom="auto"`` chooses
        numbers with which intervals of held-out entries are calibrated. The model matrix is taken
        as known. For very many objects it is a dask array. Equation :eq:`eq-spread` of the
        derivation.

        Warns
        -----
        MKMCWarning
            If all degrees of freedom are 1, the default of `fit`: the numbers are then those of
            kernels of a single feature, far too large for most.

        Examples
        --------
        >>> import numpy as np
        >>> from mkmc_prob import fit, stack_kernels
        >>> kernels = np.stack([np.eye(2) + 1.0] * 2)
        >>> stack = stack_kernels(kernels, visible=[[1, 1], [1, 0]])
        >>> fit(stack, degrees_of_freedom=50).standard_deviation.sel(kernel="Q2").values.round(2)
        array([[0.  , 0.3 ],
               [0.3 , 0.47]])
        """
        if (self.degrees_of_freedom == 1.0).all():
            warn(
                "standard_deviation: all degrees of freedom are 1, as if every kernel had a single "
                'feature. Fit with degrees_of_freedom="auto" for calibrated numbers.'
            )
        if self.completion is not None:
            return self.completion.standard_deviation()
        stack = KernelStack(self.observed)
        degrees = self.degrees_of_freedom.sel(kernel=stack.names).values
        sources = Sources.of_dataset(self.sources, stack.names, degrees)
        prior, objects = self.prior, stack.objects
        scale = None if prior.is_identity else prior.scale_matrix(objects)
        return standard_deviations(stack, sources, scale, self.model)

    def pair_counts(self) -> xr.DataArray:
        """Count the kernels that show both objects of a pair; see `diagnostics.pair_counts`.

        Kernels with sharing 0 do not count, unless all have it: they do not bear on the model.
        """
        return pair_counts(self._related())

    def never_seen_together(self) -> xr.DataArray:
        """Return which pairs no kernel shows together; see `diagnostics.never_seen_together`.

        Kernels with sharing 0 do not count, unless all have it: they do not bear on the model.
        """
        return never_seen_together(self._related())

    def unseen_pairs(
        self, pairs: Iterable[tuple[Hashable, Hashable]] | None = None, *, most: int = 1000
    ) -> xr.Dataset:
        """Return the bounds on the entries of such pairs; see `diagnostics.unseen_pairs`.

        Unless all degrees of freedom are 1, the table also has ``kernel_standard_deviation``, which
        says how uncertain the entries of the completed kernels are; the bounds do not. It is 0 in a
        kernel of sharing 0 that shows the pair.
        """
        found = unseen_pairs(self, pairs, most=most)
        if "kernel_value" in found and (self.degrees_of_freedom != 1.0).any():
            spread = self.standard_deviation.sel(kernel=found["kernel"].values)
            places = {"object": found["object"], "object_bis": found["object_bis"]}
            chosen = spread.sel(places).transpose("pair", "kernel").drop_vars("rounding")
            found["kernel_standard_deviation"] = chosen
        return found

    def _repr_html_(self) -> str:
        lines = "<br>".join(repr(self).splitlines())
        return f"<div>{lines}</div>{self.summary().to_html()}"

    def identical(self, other: "MKMCResult") -> bool:
        """Return whether `other` is the same result: every number, label and attribute.

        Only the times may differ.
        """
        one, two = self.to_datatree(), other.to_datatree()
        for tree in (one, two):
            tree["sample_stats"] = tree["sample_stats"].to_dataset().drop_vars("seconds")
            if "selection" in tree:
                tree["selection"] = tree["selection"].to_dataset().drop_vars("seconds")
        return one.identical(two)

    def summary(self) -> pd.DataFrame:
        """Return one row per kernel: its objects, its log-likelihood and its agreement with M.

        Returns
        -------
        pandas.DataFrame
            ``visible`` and ``missing`` count objects. ``apart`` counts the pairs of objects that no
            kernel shows together (`unseen_pairs` gives their bounds); kernels with sharing 0 do not
            count, unless all have it. ``log_likelihood`` is
            nu_k E_q[log N(v_k | 0, M_vv)] in nats. ``mahalanobis`` is the expected squared
            Mahalanobis length per object, tr(M_vv^-1 Q_vv) / n_k: 1 if kernel and model agree, more
            if the kernel is larger than the model or has another direction. ``correlation`` is
            tr(Q_vv M_vv) / (||Q_vv|| ||M_vv||), 1 if they agree up to scale. The last two are NaN
            for a kernel without visible objects, ``correlation`` also for a zero kernel. Unless
            all kernels are the paper's, ``scale``, ``constant`` and ``sharing`` are those of
            `sources`, and M_vv stands for the kernel's own covariance,
            scale (sharing M_vv + (1 - sharing) T_vv + constant); the last two columns are NaN for a
            kernel that shares nothing with the model.

        Warns
        -----
        MKMCWarning
            If the model matrix of a kernel's objects is too close to singular for ``mahalanobis``,
            which is NaN then: at strengths like 1e-50, for example.
        """
        visible = visible_objects(self.observed).transpose("kernel", "object")
        table = pd.DataFrame(
            {"visible": visible.values.sum(axis=1), "missing": (~visible.values).sum(axis=1)},
            index=pd.Index(visible["kernel"].values, name="kernel"),
        )
        table["apart"] = count_of_unseen_pairs(self._related())
        last = self.trace["log_likelihood"].isel(iteration=-1)
        table["log_likelihood"] = last.sel(kernel=table.index.to_numpy()).values
        if not Sources.of_dataset(self.sources, table.index.tolist()).is_identical:
            table = table.join(self.sources.to_dataframe()[["scale", "constant", "sharing"]])
        return table.join(agreement_with_model(self))

    def to_datatree(self, *, diagnostics: bool = False) -> xr.DataTree:
        """Return everything as an `xarray.DataTree` in ArviZ's schema.

        Groups: ``observed_data`` (the incomplete kernels), ``constant_data`` (visibility, pairs of
        objects never observed together, degrees of freedom, the prior), ``sample_stats`` (the
        trace) and, in addition to the schema, ``point_estimate`` (completed kernels, model matrix)
        and ``sources``; after `complete` also ``selection``, and with ``degrees_of_freedom="auto"``
        ``calibration``. For a model of few factors, ``point_estimate`` holds its loadings and
        noise, ``completion`` those of the E-step, from which the completed kernels are computed
        again, and what has a row and a column per object is left out of ``constant_data``, but for
        a scale of the user's. Kernels that are not in memory are left out, too.
        With `diagnostics` also ``object_predictive`` (`diagnostics.object_predictive`, which are
        not terms of the log-likelihood), ``pair_counts`` and ``kernel_agreement``, from the
        functions of those names.
        """
        constants: dict[str, Any] = {
            "visible": visible_objects(self.observed),
            "degrees_of_freedom": self.degrees_of_freedom,
            "strength": self.prior.strength,
        }
        large = isinstance(self.structure, Full)  # otherwise l x l is much
        if large:
            constants["never_seen_together"] = self.never_seen_together()
        shared = self.sources.attrs["shared_constant"]  # with it, T is I + b J
        if self.prior.scale is not None and (large or not shared):
            constants["scale"] = labelled(
                self.prior.scale_matrix(self.observed["object"].values),
                self.observed["object"].values,
                "scale",
            )
        observed = xr.Dataset({"kernels": self.observed})
        if not self._in_memory():
            assert self.completion is not None
            norms = ("kernel", self.completion.kernels.norms)  # type: ignore[attr-defined]
            observed = xr.Dataset({"norm": norms}, coords=self.observed.coords)
        tree = xr.DataTree.from_dict(
            {
                "observed_data": observed,
                "constant_data": xr.Dataset(constants),
                "point_estimate": self._point_estimate(),
                "sample_stats": self.trace,
                "sources": self.sources,
            }
        )
        if self.completion is not None:
            tree["completion"] = xr.DataTree(self.completion.to_dataset())
        if diagnostics:
            predictive = object_predictive(self).rename("log_density")
            agreement = kernel_agreement(self).to_xarray()
            tree["object_predictive"] = xr.DataTree(predictive.to_dataset())
            tree["pair_counts"] = xr.DataTree(self.pair_counts().to_dataset())
            tree["kernel_agreement"] = xr.DataTree(agreement)
        if self.selection is not None:
            tree["selection"] = xr.DataTree(self.selection.to_dataset())
        if self.calibration is not None:
            tree["calibration"] = xr.DataTree(self.calibration.to_dataset())
        tree.attrs = {
            "inference_library": "mkmc_prob",
            "inference_library_version": __version__,
            "mkmc_prob_layout": LAYOUT,
            "method": self.method,
            "tol": self.tol,
            "converged": int(self.converged),
            "interrupted": int(self.interrupted),
        }
        if not isinstance(self.structure, Full):
            tree.attrs["structure"] = self.structure.name
        if self.prior.factors:
            tree.attrs["prior_factors"] = self.prior.factors
        return tree

    def _in_memory(self) -> bool:
        """Return whether the incomplete kernels are in memory."""
        return self.completion is None or self.completion.kernels.in_memory

    def _point_estimate(self) -> xr.Dataset:
        """Return completed kernels and the model; of a model of few factors only the factors."""
        if isinstance(self.model, LowRankModel):
            return self.model.to_dataset()
        return xr.Dataset({"completed": self.completed, "model": self.model.covariance})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the result to a netCDF file (suffix .nc), without loss; `load_result` reads it.

        Kernels that are not in memory are not written: `load_result` then takes their stack.
        The file is replaced only when the new one is complete; see
        `mkmc_prob.utils.netcdf.write_netcdf`.

        Raises
        ------
        MKMCError
            If the suffix is not ``.nc``, or netCDF cannot hold an attribute or a coordinate.
        OSError
            If the file cannot be written: for instance, the disk is full.
        """
        write_netcdf(self.to_datatree(), path, what="result")

    def rows(self, kernel: Hashable, objects: Iterable[Hashable]) -> xr.DataArray:
        """Return the rows of these objects in a completed kernel.

        With a model of few factors only these rows are computed.

        Raises
        ------
        LabelError
            If there is no such kernel or object.

        Examples
        --------
        >>> from mkmc_prob import datasets, fit, remove_objects
        >>> kernels, _ = datasets.make_fusion_problem(30, 3)
        >>> result = fit(remove_objects(kernels, 0.3, seed=0))
        >>> result.rows("rbf_1", ["object_03"]).shape
        (1, 30)
        """
        if self.completion is not None:
            return self.completion.rows(kernel, objects)
        names, labels = (self.completed[dim].values for dim in ("kernel", "object"))
        place = match(as_labels([kernel], "kernel"), names, "kernel: there is no kernel {}.")
        wanted = as_labels(objects, "objects")
        places = match(wanted, labels, "objects: there is no object {}.")
        found = self.completed.isel(kernel=int(place[0]), object=places).drop_vars("rounding")
        return found.drop_attrs()

    def sample_posterior(self, **options: Any) -> xr.DataTree:
        """Draw from the posterior of the same model; see `mkmc_prob.sample_posterior`.

        The kernels, prior, sources, structure and degrees of freedom are those of the fit. Scales
        and sharings are held at the fit's values, and the constants that it estimated are drawn.
        `options` are passed on: a ``seed``, which is needed, and ``draws``, for instance.

        Raises
        ------
        KernelError
            If the degrees of freedom are not those of a Wishart matrix, as the fit's default of 1
            for a kernel of many features, and as most numbers of ``degrees_of_freedom="auto"``.
            With whole numbers nu, for instance ``result.degrees_of_freedom.round().clip(1)``, fit
            ``reduce_rank(stack, nu)`` with ``degrees_of_freedom=nu``: the strength is relative to
            them. Or if `options` name what the fit
            determines.

        Examples
        --------
        >>> import numpy as np
        >>> from mkmc_prob import fit, stack_kernels
        >>> features = np.random.default_rng(0).standard_normal((2, 4, 30))
        >>> stack = stack_kernels(features @ features.transpose(0, 2, 1) / 30,
        ...                       visible=[[1, 1, 1, 0], [1, 1, 1, 1]])
        >>> result = fit(stack, strength=10.0, degrees_of_freedom=30)
        >>> posterior = result.sample_posterior(seed=1)
        >>> posterior["posterior"]["constant"].sizes
        Frozen({'chain': 4, 'draw': 1000, 'kernel': 2})
        """
        if held := sorted(options.keys() & OF_THE_FIT):
            raise KernelError(
                f"{held[0]}: {options[held[0]]!r} found, but the posterior is that of the fit. "
                "Leave it out, or call sample_posterior(stack, ...)."
            )
        sources = self.sources[["scale", "constant", "sharing"]]
        sources["constant"] = sources["constant"].where(~self.sources["estimated"])
        # The sources hold the constant of a scale I + b J.
        prior = WishartPrior(self.prior.strength) if self.prior.constant else self.prior
        return sample_posterior(
            self.observed,
            degrees_of_freedom=self.degrees_of_freedom,
            prior=prior,
            sources=sources,
            structure=self.structure,
            **options,
        )

    def plot_trace(self, *, ax: "Axes | None" = None) -> "Axes":
        """Draw the penalized log-likelihood by iteration; see `plots.plot_trace`."""
        return plots.plot_trace(self.trace, ax=ax)

    def plot_kernels(self, **options: Any) -> Any:
        """Draw the kernels before and after completion; see `plots.plot_kernels`."""
        if options.get("mark", True) is True:  # kernels that share nothing do not count
            options["mark"] = self.never_seen_together()
        return plots.plot_kernels(self.observed, self.completed, **options)

    def plot_increments(self, *, ax: "Axes | None" = None) -> "Axes":
        """See `plots.plot_increments`."""
        return plots.plot_increments(self.trace, ax=ax)

    def plot_rate(
        self, information: xr.Dataset | None = None, *, ax: "Axes | None" = None, **options: Any
    ) -> "Axes":
        """Draw the rate of EM, with the empirical rates of the steps if `method` is "em".

        See `plots.plot_rate`. `missing_information` is called with `options` unless its result is
        passed.
        """
        if information is None:
            information = missing_information(self, **options)
        trace = self.trace if self.method == "em" else None
        return plots.plot_rate(information, trace=trace, ax=ax)

    def plot_slowest(
        self, information: xr.Dataset | None = None, *, ax: "Axes | None" = None, **options: Any
    ) -> "Axes":
        """Draw which objects dominate EM's slowest direction; see `plots.plot_slowest`.

        `missing_information` is called with `options` unless its result is passed.
        """
        if information is None:
            information = missing_information(self, **options)
        return plots.plot_slowest(information, ax=ax)

    def plot_gain_parts(self, *, ax: "Axes | None" = None) -> "Axes":
        """See `plots.plot_gain_parts`."""
        return plots.plot_gain_parts(self.trace, ax=ax)

    def plot_pattern(self, *, ax: "Axes | None" = None) -> "Axes":
        """See `plots.plot_pattern`."""
        return plots.plot_pattern(self.observed, ax=ax)

    def plot_pair_counts(self, *, ax: "Axes | None" = None) -> "Axes":
        """See `plots.plot_pair_counts`."""
        return plots.plot_pair_counts(self._related(), ax=ax)

    def plot_unseen_pairs(self, *, most: int = 20, ax: "Axes | None" = None) -> "Axes":
        """See `plots.plot_unseen_pairs`."""
        return plots.plot_unseen_pairs(self, most=most, ax=ax)

    def plot_spectra(self, *, ax: "Axes | None" = None) -> "Axes":
        """See `plots.plot_spectra`."""
        return plots.plot_spectra(self, ax=ax)

    def plot_loadings(self, *, factors: int = 2, ax: "Axes | None" = None) -> "Axes":
        """See `plots.plot_loadings`, for models of few factors."""
        return plots.plot_loadings(self, factors=factors, ax=ax)

    def plot_disagreement(self, *, ax: "Axes | None" = None) -> "Axes":
        """See `plots.plot_disagreement`."""
        return plots.plot_disagreement(self, ax=ax)

    def plot_agreement(self, *, ax: "Axes | None" = None) -> "Axes":
        """See `plots.plot_agreement`."""
        return plots.plot_agreement(self, ax=ax)


def load_result(path: str | os.PathLike[str], *, stack: LazyStack | None = None) -> MKMCResult:
    """Read a result that `MKMCResult.save` wrote.

    Parameters
    ----------
    path
        The file.
    stack
        The incomplete kernels, if they were not in memory: the file does not hold them.

    Raises
    ------
    MKMCError
        If the file does not hold such a result, or its kernels, and no stack or another is given.
    FileNotFoundError
        If there is no file.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from mkmc_prob import fit, load_result, stack_kernels
    >>> result = fit(stack_kernels(np.eye(2)[None]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result.save(f"{folder}/result.nc")
    ...     again = load_result(f"{folder}/result.nc")
    >>> again.identical(result)
    True
    """
    tree = open_tree(path)
    if tree.attrs.get("mkmc_prob_layout") not in (FIRST_LAYOUT, LAYOUT):
        raise MKMCError(
            f"{path}: not a result of this version of mkmc_prob (layout {LAYOUT}). Pass a file "
            "that MKMCResult.save wrote; a stack is read by io.read_stack."
        )
    try:
        return _from_datatree(tree, stack)
    except KeyError as error:
        raise MKMCError(f"{path}: damaged: {error} is missing. Save the result again.") from error
    except MKMCError as error:
        raise type(error)(f"{path}: {error}") from error


def _kernels(given: xr.Dataset, stack: LazyStack | None) -> KernelStack:
    """Return the incomplete kernels of a file, or `stack` if it is theirs."""
    if "kernels" in given:
        if stack is not None:
            raise MKMCError("stack: the file holds the kernels. Leave it out.")
        return KernelStack(given["kernels"])
    if not isinstance(stack, LazyStack):
        raise MKMCError(
            "its kernels were not in memory and are not in the file. Pass their stack: "
            "load_result(path, stack=stack)."
        )
    visible = given["visible"].transpose("kernel", "object")
    same = np.array_equal(visible["object"].values, stack.objects)
    same = same and visible["kernel"].values.tolist() == stack.names
    same = same and np.array_equal(visible.values.astype(bool), stack.visible)
    if not (same and np.allclose(given["norm"].values, stack.norms, rtol=1e-6, atol=0.0)):
        raise MKMCError("stack: its kernels, visible objects or entries are not those of the fit.")
    return stack


def _from_datatree(tree: xr.DataTree, stack: LazyStack | None) -> MKMCResult:
    """Return the result that `MKMCResult.to_datatree` made `tree` of."""
    constants = with_labels(tree["constant_data"].to_dataset())
    estimate = with_labels(tree["point_estimate"].to_dataset())
    trace = with_labels(tree["sample_stats"].to_dataset())
    scale = constants.get("scale")
    for needed in ("penalized_log_likelihood", "log_likelihood", "gain_to_come"):
        trace[needed]
    if "entries_to_come" not in trace:  # an earlier version wrote it
        trace["entries_to_come"] = np.nan * trace["gain_to_come"]
    degrees = constants["degrees_of_freedom"]
    if tree.attrs["mkmc_prob_layout"] == FIRST_LAYOUT:
        names = degrees["kernel"].values
        paper = Sources.identical(names.tolist())
        sources = sources_dataset(paper, paper).assign_coords(kernel=names)
        missing = trace["gain_q_function"].isnull() if "gain_q_function" in trace else False
        trace["gain_constants"] = (0.0 * trace["penalized_log_likelihood"]).where(~missing)
    else:
        sources = with_labels(tree["sources"].to_dataset())
    kernels = _kernels(with_labels(tree["observed_data"].to_dataset()), stack)
    observed = kernels.array
    structure = structure_of(tree.attrs.get("structure", "full"))
    model: GaussianModel
    if isinstance(structure, Full):
        model, completed, completion = GaussianModel(estimate["model"]), estimate["completed"], None
    else:
        model = LowRankModel.of_dataset(estimate)
        found = with_labels(tree["completion"].to_dataset())
        completion = FactorCompletion.of_dataset(kernels, found, sources, degrees)
        completed = completion.stack()
    prior = WishartPrior(float(constants["strength"]), scale)
    prior.factors = str(tree.attrs.get("prior_factors", ""))
    if not isinstance(structure, Full):  # a scale I + b J is not saved
        found_sources = Sources.of_dataset(sources, degrees["kernel"].values.tolist(), degrees)
        prior = found_sources.prior(prior, observed["object"].values)
    selection = calibration = None
    if "calibration" in tree:
        calibration = Calibration.of_dataset(with_labels(tree["calibration"].to_dataset()))
    if "selection" in tree:
        selection = ModelSelection.of_dataset(with_labels(tree["selection"].to_dataset()))
        selection = dataclasses.replace(selection, calibration=calibration)
    return MKMCResult(
        observed=observed,
        completed=completed,
        model=model,
        trace=trace,
        prior=prior,
        sources=sources,
        degrees_of_freedom=degrees,
        structure=structure,
        method=str(tree.attrs["method"]),
        tol=float(tree.attrs["tol"]),
        converged=bool(tree.attrs["converged"]),
        interrupted=bool(tree.attrs["interrupted"]),
        completion=completion,
        selection=selection,
        calibration=calibration,
    )
