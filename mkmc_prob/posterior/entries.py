"""The entries that are sampled: those of the model matrix, and those that kernels hide.

Enters: the kernels' patterns, and the entries that a person names. Leaves: their places in the
vectors of a draw, their labels, the way back to matrices; and what the data say of each: whether
the prior alone does, and whether its posterior has a variance. Visible entries are constants and
not among them.
"""

from collections.abc import Hashable, Iterable
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..em.em import EM
from ..errors import KernelError, LabelError
from ..stacks.labels import Labels, as_labels, positions
from ..stacks.pattern import tied_groups

Places = NDArray[np.intp]


class Entries:
    """The sampled entries of an `EM`, each pair of objects once.

    The model's come row by row of its lower triangle, then kernel by kernel Q_hv row by row and the
    lower triangle of Q_hh row by row, as in `CompletedDraw.hidden`.

    Attributes
    ----------
    size_model, size_hidden : int
        How many there are of the model, l (l + 1) / 2, and of the kernels together, the sum of
        n m + m (m + 1) / 2.
    """

    def __init__(self, em: EM) -> None:
        self.em = em
        size = len(em.objects)
        self.size_model = size * (size + 1) // 2
        starts = [0]
        for source in em.kernels:
            n, m = len(source.v), len(source.h)
            starts.append(starts[-1] + n * m + m * (m + 1) // 2)
        self._starts = starts
        self.size_hidden = starts[-1]

    @property
    def size(self) -> int:
        """How many there are in all."""
        return self.size_model + self.size_hidden

    @cached_property
    def lower(self) -> NDArray[np.bool_]:
        """Which entries of a matrix belong to its lower triangle."""
        return np.tri(len(self.em.objects), dtype=bool)

    def find(self, named: Iterable[Any], what: str = "keep") -> tuple[Places, Places]:
        """Return the places of entries among the model's and among the hidden ones.

        `what` is the argument that they were named in.

        Raises
        ------
        KernelError
            Where a name has another form, or means a visible entry: a constant.
        LabelError
            Where there is no such kernel or object.
        """
        of_model, of_kernels = set(), set()
        form = "(object, object) for the model's, (kernel, object, object) for a kernel's"
        if isinstance(named, str) or not isinstance(named, Iterable):
            raise KernelError(
                f'{what}: {named!r} found; "auto", "all" or a list of entries: {form}.'
            )
        objects = {label: i for i, label in enumerate(self.em.objects.tolist())}
        names = {name: k for k, name in enumerate(self.em.names)}
        for entry in named:
            if not isinstance(entry, tuple | list) or len(entry) not in (2, 3):
                raise KernelError(f"{what}: {entry!r} found; an entry is {form}.")
            of = f"{what}: {entry!r}"
            i, j = (self._place(label, objects, of, "object") for label in entry[-2:])
            if len(entry) == 2:
                of_model.add(max(i, j) * (max(i, j) + 1) // 2 + min(i, j))
            else:
                k = self._place(entry[0], names, of, "kernel")
                of_kernels.add(self._of_kernel(k, i, j, what))
        return np.array(sorted(of_model), np.intp), np.array(sorted(of_kernels), np.intp)

    @staticmethod
    def _place(label: Hashable, places: dict[Hashable, int], of: str, kind: str) -> int:
        try:
            return places[label]
        except (KeyError, TypeError) as error:  # unhashable, for one
            raise LabelError(
                f"{of}: there is no {kind} {label!r}. Mend its name, or leave it out."
            ) from error

    def _of_kernel(self, k: int, i: int, j: int, what: str) -> int:
        source, start = self.em.kernels[k], self._starts[k]
        n = len(source.v)
        shown = source.visible[[i, j]]
        if shown.all():
            pair = tuple(self.em.objects[[i, j]].tolist())
            raise KernelError(
                f"{what}: kernel {source.name!r} shows the entry {pair!r}: it is a constant. "
                "Read it off the stack, and leave it out."
            )
        if shown.any():
            v, h = (i, j) if source.visible[i] else (j, i)
            return int(start + np.searchsorted(source.h, h) * n + np.searchsorted(source.v, v))
        i, j = sorted(np.searchsorted(source.h, [i, j]).tolist())
        return int(start + n * len(source.h) + j * (j + 1) // 2 + i)

    def spread(self, most: int) -> tuple[Places, Places]:
        """Return the places of at most so many entries, evenly spread over all of them."""
        count = min(most, self.size)
        places = np.unique(np.linspace(0, self.size - 1, count).astype(np.intp))
        after = places >= self.size_model
        return places[~after], places[after] - self.size_model

    def model_pairs(self, places: Places) -> tuple[Places, Places]:
        """Return the rows and columns of entries of the model."""
        rows, columns = np.tril_indices(len(self.em.objects))
        return rows[places], columns[places]

    def hidden_pairs(self, places: Places) -> tuple[Places, Places, Places]:
        """Return the kernels, hidden objects and other objects of hidden entries."""
        parts = []
        for k, source in enumerate(self.em.kernels):
            v, h = source.v, source.h
            i, j = np.tril_indices(len(h))
            rows = np.concatenate([np.repeat(h, len(v)), h[i]])
            columns = np.concatenate([np.tile(v, len(h)), h[j]])
            parts.append((np.full(len(rows), k), rows, columns))
        kernels, rows, columns = (np.concatenate(part) for part in zip(*parts, strict=True))
        return kernels[places], rows[places], columns[places]

    def labels(self, of_model: Places, of_kernels: Places) -> dict[str, xr.Dataset]:
        """Return what entries are called: ``model_entry``, ``hidden_entry``, and their parts."""
        objects, names = self.em.objects, np.array(self.em.names)
        rows, columns = (objects[place] for place in self.model_pairs(of_model))
        kernels, hidden, others = self.hidden_pairs(of_kernels)
        parts = {
            "model": {"object": rows, "object_bis": columns},
            "hidden": {
                "kernel": names[kernels],
                "object": objects[hidden],
                "object_bis": objects[others],
            },
        }
        return {
            group: xr.Dataset(
                {f"{group}_{part}": (f"{group}_entry", own) for part, own in named.items()},
                coords={f"{group}_entry": _texts(*named.values())},
            )
            for group, named in parts.items()
        }

    def model_matrix(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return symmetric matrices, shape (..., l, l), of values of all entries of the model."""
        size = len(self.em.objects)
        out = np.empty((*values.shape[:-1], size, size), dtype=values.dtype)
        out[..., self.lower] = values
        out.swapaxes(-1, -2)[..., self.lower] = values
        return out

    def kernel_matrices(self, values: NDArray[Any], shown: Any) -> NDArray[Any]:
        """Return matrices, shape (..., K, l, l), of values of all hidden entries.

        `shown`, K x l x l or one value, is what visible entries get.
        """
        size = len(self.em.objects)
        lead = values.shape[:-1]
        out = np.empty((*lead, len(self.em.kernels), size, size), dtype=values.dtype)
        out[...] = shown
        for k, source in enumerate(self.em.kernels):
            v, h = source.v, source.h
            n, m = len(v), len(h)
            part = values[..., self._starts[k] : self._starts[k + 1]]
            cross = part[..., : n * m].reshape(*lead, m, n)
            out[..., k, h[:, None], v] = cross
            out[..., k, v[:, None], h] = cross.swapaxes(-1, -2)
            i, j = np.tril_indices(m)
            out[..., k, h[i], h[j]] = part[..., n * m :]
            out[..., k, h[j], h[i]] = part[..., n * m :]
        return out

    @cached_property
    def prior_only(self) -> NDArray[np.bool_]:
        """Which pairs of objects the prior alone ties: no chain of kernels leads from i to j."""
        objects = self.em.objects
        seen = xr.DataArray(
            np.stack([source.visible for source in self.em.kernels]),
            dims=("kernel", "object"),
            coords={"kernel": self.em.names, "object": objects},
        )
        group = np.full(len(objects), -1)
        for number, members in enumerate(tied_groups(seen)):
            group[positions(as_labels(members, "objects"), objects)] = number
        alone: NDArray[np.bool_] = (group[:, None] != group) | (group < 0)
        return alone

    @cached_property
    def has_variance(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which entries of the model, and of each kernel, have a variance.

        M is large along a direction a with probability ~ s^-(1 + e / 2), s its size: with
        M = s a a' + ... the prior of P leaves s^-(1 + lambda / 2), each kernel whose visible part
        of a is not zero s^-(nu_k / 2), and each object at which a vanishes s^-(1 / 2), the volume
        of such directions. So an entry (i, j) of M has a variance where

            lambda + min over J of |union of v_k, k in J| + sum of nu_k, k not in J,

        J any set of kernels that show neither i nor j, is more than 2. Since lambda > 0, only
        unions of no and of one object matter. An entry of Q(k) that is hidden on both sides is
        large where M is and a vanishes on v_k: J contains k. One that is hidden on one side is of
        the order sqrt(s), and its variance exists as the mean of the others does: always.
        """
        strength, size = self.em.prior.strength, len(self.em.objects)
        degrees = self.em.degrees_of_freedom
        counts = np.array([len(source.v) for source in self.em.kernels])
        total = float(degrees[counts > 0].sum())
        alone = np.zeros(size)  # the degrees of freedom of kernels that show this object only
        for k in np.flatnonzero(counts == 1).tolist():
            alone[self.em.kernels[k].v[0]] += degrees[k]
        least = np.full((size, size), total)
        for x in np.flatnonzero(alone).tolist():
            elsewhere = np.arange(size) != x
            least[np.ix_(elsewhere, elsewhere)] = np.minimum(
                least[np.ix_(elsewhere, elsewhere)], 1.0 + total - alone[x]
            )
        of_model = strength + least > 2.0
        of_kernels = np.ones((len(counts), size, size), dtype=bool)
        for k, source in enumerate(self.em.kernels):
            inside = np.ix_(source.h, source.h)
            if counts[k] == 0:
                of_kernels[k][inside] = of_model[inside]
            elif counts[k] == 1:
                of_kernels[k][inside] = strength + 1.0 + total - alone[source.v[0]] > 2.0
        return of_model, of_kernels


def _texts(*parts: Labels) -> NDArray[np.str_]:
    """Return one text for each entry: "a, b"; with quotation marks where these are not unique."""
    listed = list(zip(*(part.tolist() for part in parts), strict=True))
    texts = [", ".join(map(str, entry)) for entry in listed]
    if len(set(texts)) < len(texts):
        texts = [", ".join(map(repr, entry)) for entry in listed]
    return np.array(texts, dtype=np.str_)
