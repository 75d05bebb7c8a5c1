"""Plots of the rate of EM: by iteration, by kernel left out, and by object."""

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ..diagnostics.monotone import empirical_rate
from ..errors import MKMCError
from ..stacks.labels import name_some
from ..utils.arguments import Check, checked, optional, whole
from .axes import COLORS, STYLES, axes_or_new, count_iterations, legend, name_ticks, plain_log

if TYPE_CHECKING:  # Matplotlib is slow to import, so only when drawing
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

#: The variables of `missing_information` that are drawn, with their dims.
DIMS = {"rate": (), "rate_without": ("kernel",), "share": ("object",)}


def information_with(*needed: str) -> Check:
    """Return a check for what `missing_information` returns, with the variables `needed`."""

    def check(value: Any, what: str) -> xr.Dataset:
        if not isinstance(value, xr.Dataset):
            raise MKMCError(
                f"{what}: {type(value).__name__} found; pass the xarray.Dataset that "
                "missing_information(result) returns."
            )
        for name, dims in DIMS.items():
            if name in needed and name not in value.data_vars:
                remedy = (
                    "A trace is passed as trace=." if "gain_to_come" in value else "Pass it whole."
                )
                raise MKMCError(
                    f"{what}: it has no variable {name!r}, which missing_information(result) "
                    f"returns. {remedy}"
                )
            if name in value.data_vars and value[name].dims != dims:
                raise MKMCError(
                    f"{what}: {name} has dims {value[name].dims}, {dims} expected. Pass what "
                    "missing_information(result) returns."
                )
        return value

    return check


@checked(information=optional(information_with("rate")))
def plot_rate(
    information: xr.Dataset | None = None,
    *,
    trace: xr.Dataset | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw the rate r of EM as 1 - r on a log scale: the higher, the faster EM converges.

    With a trace, the picture is by iteration: the rate estimated from successive gains of EM steps
    (`diagnostics.empirical_rate`) falls to the line of the rate at the model as the slower
    directions come to dominate. Without a trace it is by kernel: the rate with the kernel left
    out. The rate at the model is a line in both, and the title states it.

    Parameters
    ----------
    information
        What `missing_information` returned; its ``rate_without`` is drawn if present.
    trace
        ``result.trace`` of a fit by ``method="em"``; the steps of other methods show no rate.
    ax
        Axes to draw on; new ones if omitted.

    Returns
    -------
    Axes

    Raises
    ------
    MKMCError
        If there is nothing to draw, or an argument is not what it should be.

    Notes
    -----
    A rate of 1 or more cannot be drawn on a log scale; the title reports it: the model is not a
    maximum. There is no point for a kernel without which nothing is left to fit. The rate is
    relative to the remaining data, so leaving out a kernel that misses many objects can lower it.
    `missing_information` explains what the rates do and do not say.

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
    empirical = None if trace is None else empirical_rate(trace)
    rates: list[tuple[str, float]] = []
    if information is not None:
        rates.append(("at the model", float(information["rate"])))
        if "rate_without" in information:
            rates += [(str(name), r) for name, r in information["rate_without"].to_series().items()]
    given, ax = ax, axes_or_new(ax)
    if empirical is None:
        _by_kernel(ax, rates)
    elif entries := _by_iteration(ax, empirical, rates):
        legend(ax, entries, beside=given is None)
    too_large = [name for name, rate in rates if rate >= 1.0]
    title = []
    if rates:
        rate = max(rates[0][1], 0.0)
        title.append(f"rate at the model: {rate:.6g} (1 − rate: {1.0 - rate:.3g})")
    if too_large:
        title.append(f"{name_some(too_large)}: a rate ≥ 1, no maximum")
    ax.set_title("\n".join(title), fontsize="medium", parse_math=False)
    low, high = ax.dataLim.minposy, ax.dataLim.ymax
    if np.isfinite(low):
        ax.set_yscale("log")
        if high < 1.5 * low:  # limits around a single value would have no labeled ticks
            ax.set_ylim(low / 3.0, 3.0 * high)
        plain_log(ax.yaxis)
    else:
        ax.set_yticks([])
        if rates:
            ax.text(0.5, 0.4, "no rate below 1 to draw", transform=ax.transAxes, ha="center")
    ax.set_ylabel("1 − rate of EM")
    return ax


@checked(information=information_with("rate", "share"), most=whole(least=1))
def plot_slowest(information: xr.Dataset, *, most: int = 20, ax: "Axes | None" = None) -> "Axes":
    """Draw the objects that dominate the direction in which EM is slowest, largest share first.

    Parameters
    ----------
    information
        What `missing_information` returned.
    most
        The largest number of objects to draw.
    ax
        Axes to draw on; new ones if omitted.

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
    ax = axes_or_new(ax)
    rate = float(information["rate"])
    share = 100.0 * information["share"].to_series()
    share = share.sort_values(ascending=False, kind="stable")
    drawn, rest = share.iloc[:most], share.iloc[most:]
    ax.barh(np.arange(len(drawn)), drawn, color=COLORS[0])
    ax.invert_yaxis()
    name_ticks(ax, drawn.index, axis="y")
    ax.set_xlabel("share in the slowest direction (%)")
    ax.set_ylabel("object")
    title = f"1 − rate = {1.0 - rate:.3g}"
    if rate <= 0.0:
        title = "nothing is missing: no direction is slow"
    elif len(rest):
        title += f"; the other {len(rest)} objects: {rest.sum():.0f} %"
    ax.set_title(title, fontsize="medium")
    return ax


def _by_iteration(
    ax: "Axes", empirical: xr.DataArray, rates: list[tuple[str, float]]
) -> list[tuple[str, "Artist"]]:
    """Draw the empirical rate and a line for each other rate; return the legend's entries."""
    steps, rest = empirical["iteration"].values, 1.0 - empirical
    rest = rest.where(rest > 0.0)
    entries: list[tuple[str, Artist]] = []
    if rest.notnull().any():
        (line,) = ax.plot(steps, rest, ".-", color=COLORS[0])
        entries.append(("by the gains of EM steps", line))
    else:
        what = "no two EM steps in a row\nwhose gains are clear of rounding"
        if not rates:
            what += ":\npass missing_information(result)"
        ax.text(0.5, 0.7, what, transform=ax.transAxes, ha="center", va="center")
    if rest.notnull().sum() < 2:
        ax.set_xlim(steps.min() - 0.5, steps.max() + 0.5)
    for i, (name, rate) in enumerate(rates):
        if not rate < 1.0:
            continue
        color = "black" if i == 0 else COLORS[i % len(COLORS)]
        width, words = (2.0, name) if i == 0 else (1.2, f"without {name}")
        style = STYLES[i % len(STYLES)]
        line = ax.axhline(1.0 - rate, color=color, linestyle=style, linewidth=width)
        entries.append((f"{words}: {1.0 - rate:.3g}", line))
    count_iterations(ax)
    return entries


def _by_kernel(ax: "Axes", rates: list[tuple[str, float]]) -> None:
    """Draw a point for the rate at the model, and one for each kernel left out."""
    rest = np.array([1.0 - rate if rate < 1.0 else np.nan for _, rate in rates])
    ax.plot(rest[:1], "s", color="black")
    ax.plot(np.arange(1, len(rest)), rest[1:], "o", color=COLORS[0])
    ax.axhline(rest[0], color="0.6", linewidth=1, zorder=0)
    ax.set_xlim(-0.5, len(rates) - 0.5)
    name_ticks(ax, ["none", *(name for name, _ in rates[1:])], axis="x")
    ax.set_xlabel("kernel left out")
