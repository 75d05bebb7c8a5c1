"""The rate of EM as pictures: by step, by kernel left out, by object.

Enters: what `missing_information` returns, and a trace. Leaves: the Matplotlib axes drawn on.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ..diagnostics.monotone import empirical_rate
from ..errors import MKMCError
from ..stacks.labels import name_some
from ..utils.arguments import whole_number
from .axes import COLOURS, STYLES, axes_or_new, legend, name_ticks, plain_log

if TYPE_CHECKING:  # Matplotlib is slow to import: only drawing does
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

#: Which dims the variables drawn have.
DIMS = {"rate": (), "rate_without": ("kernel",), "share": ("object",)}


def plot_rate(
    information: xr.Dataset | None = None,
    *,
    trace: xr.Dataset | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw the rate r of EM, as 1 - r on a log scale: the higher, the faster, the less is missing.

    With a trace, by iteration: the rate as successive gains of EM steps show it
    (`diagnostics.empirical_rate`), which sinks to the line of the rate at the model as the slower
    directions come to light. Without one, by kernel: the rate where it is left out.

    Parameters
    ----------
    information
        What `missing_information` returned; its ``rate_without`` is drawn where it is there.
    trace
        ``result.trace``, of a fit by ``method="em"``: other steps show no rate.
    ax
        Where to draw; new axes if left out.

    Returns
    -------
    Axes

    Raises
    ------
    MKMCError
        Where there is nothing to draw, or something is not what it should be.

    Notes
    -----
    A rate of 1 or more has no place on a log scale, and the title says so: the model is no maximum.
    There is no point for a kernel without which nothing is left to fit. A rate is a share of the
    data that are left: without a kernel that hides much it can fall. `missing_information` says
    what the rates tell, and what they do not.

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import fit, missing_information, plots, stack_kernels
    >>> stack = stack_kernels(np.stack([np.eye(3) + 1] * 2), visible=[[1, 1, 0], [1, 0, 1]])
    >>> result = fit(stack, method="em", tol=1e-6)
    >>> plots.plot_rate(missing_information(result), trace=result.trace).get_xlabel()
    'iteration'
    """
    if information is None and trace is None:
        raise MKMCError(
            "information, trace: there is nothing to draw. Pass what missing_information(result) "
            "returns, result.trace, or both."
        )
    rates: list[tuple[str, float]] = []
    if information is not None:
        information = _checked(information, "rate")
        rates.append(("at the model", float(information["rate"])))
        if "rate_without" in information:
            without = _checked(information, "rate_without")["rate_without"]
            names = without["kernel"].values.tolist()
            rates += [(str(k), float(r)) for k, r in zip(names, without.values, strict=True)]
    empirical = None if trace is None else empirical_rate(trace)
    given, ax = ax, axes_or_new(ax)
    if empirical is None:
        _by_kernel(ax, rates)
    elif entries := _by_iteration(ax, empirical, rates):
        legend(ax, entries, beside=given is None)
    if empirical is not None or any(rate < 1.0 for _, rate in rates):  # else nothing is drawn
        ax.set_yscale("log")
        plain_log(ax.yaxis)
    ax.set_ylabel("1 − rate of EM")
    too_large = [name for name, rate in rates if rate >= 1.0]
    if too_large:
        ax.set_title(
            f"{name_some(too_large)}: a rate ≥ 1, no maximum", fontsize="medium", parse_math=False
        )
    return ax


def plot_slowest(information: xr.Dataset, *, most: int = 20, ax: "Axes | None" = None) -> "Axes":
    """Draw which objects take part in the direction that EM is slowest in, the most first.

    Parameters
    ----------
    information
        What `missing_information` returned.
    most
        How many objects to draw at most.
    ax
        Where to draw; new axes if left out.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import numpy as np
    >>> from mkmc_prob import fit, missing_information, plots, stack_kernels
    >>> stack = stack_kernels(np.stack([np.eye(3) + 1] * 2), visible=[[1, 1, 0], [1, 0, 1]])
    >>> plots.plot_slowest(missing_information(fit(stack, tol=1e-6))).get_ylabel()
    'object'
    """
    share = _checked(information, "rate", "share")["share"].to_series()
    most = whole_number(most, "most", least=1)
    ax = axes_or_new(ax)
    rate = float(information["rate"])
    share = share.sort_values(ascending=False, kind="stable")
    drawn = share.iloc[:most]
    ax.barh(np.arange(len(drawn)), 100.0 * drawn, color=COLOURS[0])
    ax.invert_yaxis()
    name_ticks(ax, drawn.index, axis="y")
    ax.set_xlabel("share in the slowest direction (%)")
    ax.set_ylabel("object")
    rest = len(share) - len(drawn)
    title = f"1 − rate = {1.0 - rate:.3g}"
    if rate <= 0.0:
        title = "nothing is missing: no direction is slow"
    elif rest:
        title += f"; the other {rest} objects: {100.0 * share.iloc[most:].sum():.0f} %"
    ax.set_title(title, fontsize="medium")
    return ax


def _by_iteration(
    ax: "Axes", empirical: xr.DataArray, rates: list[tuple[str, float]]
) -> list[tuple[str, "Artist"]]:
    """Draw the empirical rate and lines for the others; return what the legend says."""
    steps, rest = empirical["iteration"].values, 1.0 - empirical.values
    told = rest > 0.0  # False for NaN, too
    entries: list[tuple[str, Artist]] = []
    if told.any():
        (line,) = ax.plot(steps, np.where(told, rest, np.nan), ".-", color=COLOURS[0])
        entries.append(("by the gains of EM steps", line))
    else:
        ax.set_xlim(steps.min() - 0.5, steps.max() + 0.5)
        ax.text(
            0.5,
            0.7,
            "no two EM steps in a row\nwhose gains are clear of rounding",
            transform=ax.transAxes,
            ha="center",
            va="center",
        )
    for i, (name, rate) in enumerate(rates):
        if not rate < 1.0:
            continue
        colour = "black" if i == 0 else COLOURS[i % len(COLOURS)]
        width = 2.0 if i == 0 else 1.2
        line = ax.axhline(
            1.0 - rate, color=colour, linestyle=STYLES[i % len(STYLES)], linewidth=width
        )
        words = name if i == 0 else f"without {name}"
        entries.append((f"{words}: {1.0 - rate:.3g}", line))
    ax.set_xlabel("iteration")
    return entries


def _by_kernel(ax: "Axes", rates: list[tuple[str, float]]) -> None:
    """Draw a point for the rate at the model, and one for each kernel left out."""
    rest = np.array([1.0 - rate if rate < 1.0 else np.nan for _, rate in rates])
    ax.plot(rest[:1], "s", color="black")
    ax.plot(np.arange(1, len(rest)), rest[1:], "o", color=COLOURS[0])
    ax.axhline(rest[0], color="0.6", linewidth=1, zorder=0)
    ax.set_xlim(-0.5, len(rates) - 0.5)
    name_ticks(ax, ["none", *(name for name, _ in rates[1:])], axis="x")
    ax.set_xlabel("kernel left out")


def _checked(given: Any, *needed: str) -> xr.Dataset:
    """Return `given` if it has the variables needed, as `missing_information` makes them."""
    if not isinstance(given, xr.Dataset):
        raise MKMCError(
            f"information: {type(given).__name__} found; pass the xarray.Dataset that "
            "missing_information(result) returns."
        )
    for name in needed:
        if name not in given.data_vars:
            remedy = "a trace goes by trace=." if "gain_to_come" in given else "Pass it whole."
            raise MKMCError(
                f"information: it has no variable {name!r}, which missing_information(result) "
                f"returns. {remedy[0].upper()}{remedy[1:]}"
            )
        if given[name].dims != DIMS[name]:
            raise MKMCError(
                f"information: {name} has dims {given[name].dims}, {DIMS[name]} expected. Pass "
                "what missing_information(result) returns."
            )
    return given
