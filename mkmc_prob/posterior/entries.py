"""The sampled entries: those of the model matrix and the hidden ones of each kernel.

`Entries` orders them as a draw does, names them, puts them back into matrices, and says which ones
the prior alone determines and which have a variance. Visible entries are constants, not sampled.
"""

from collections.abc import Hashable, Iterable
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from ..em.em import EM
from ..errors import KernelError, LabelError
from ..model.structures import PPCA, LowRank

Places = NDArray[np.intp]
FORM = "(object, object) for the model's, (kernel, object, object) for a kernel's"


class Entries:
    """The sampled entries of an `EM`, each pair of objects once.

    The model's entries come first, row by row of its lower triangle. The hidden entries follow
    kernel by kernel: Q_hv row by row, then the lower triangle of Q_hh row by row, as in
    `CompletedDraw.hidden`.

    Attributes
    ----------
    size_model, size_hidden, size : int
        The number of entries of the model, l (l + 1) / 2, of all kernels together, the sum of
        n m + m (m + 1) / 2, and in all.
    """

    def __init__(self, em: EM) -> None:
        self.em = em
        size = len(em.objects)
        hides = [(len(kernel.v), len(kernel.h)) for kernel in em.kernels]
        self.size_model = size * (size + 1) // 2
        self.size_hidden = sum(n * m + m * (m + 1) // 2 for n, m in hides)
        self.size = self.size_model + self.size_hidden
        self.lower = np.tri(size, dtype=bool)

    def model_pairs(self) -> tuple[Places, Places]:
        """Return the row and the column of each entry of the model."""
        rows, columns = np.nonzero(self.lower)
        return rows, columns

    def hidden_pairs(self) -> tuple[Places, Places, Places]:
        """Return the kernel, the hidden object and the other object of each hidden entry."""
        pairs = []
        for kernel in self.em.kernels:
            hidden = ~kernel.visible
            cross = np.argwhere(np.outer(hidden, kernel.visible))
            pairs.append(np.concatenate([cross, np.argwhere(np.tril(np.outer(hidden, hidden)))]))
        kernels = np.repeat(np.arange(len(pairs)), [len(own) for own in pairs])
        rows, columns = np.concatenate(pairs).T
        return kernels, rows, columns

    def model_matrix(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return symmetric matrices, shape (..., l, l), from values of all entries of the model."""
        out = np.empty((*values.shape[:-1], *self.lower.shape), dtype=values.dtype)
        out[..., self.lower] = values
        out.swapaxes(-1, -2)[..., self.lower] = values
        return out

    def kernel_matrices(self, values: NDArray[Any], visible: Any) -> NDArray[Any]:
        """Return matrices, shape (..., K, l, l), from values of all hidden entries.

        Visible entries are taken from `visible`, of shape (K, l, l) or a single value.
        """
        shape = (*values.shape[:-1], len(self.em.kernels), *self.lower.shape)
        out = np.empty(shape, dtype=values.dtype)
        out[...] = visible
        k, i, j = self.hidden_pairs()
        out[..., k, i, j] = values
        out[..., k, j, i] = values
        return out

    def find(self, named: Iterable[Any], what: str = "keep") -> tuple[Places, Places]:
        """Return the places of named entries, those of the model and the hidden ones, sorted.

        `what` is the argument in which they were named.

        Raises
        ------
        KernelError
            If a name has another form, or names a visible entry, which is a constant.
        LabelError
            If there is no such kernel or object.
        """
        if isinstance(named, str) or not isinstance(named, Iterable):
            raise KernelError(f"{what}: {named!r} found; a list of entries is needed: {FORM}.")
        objects = {label: i for i, label in enumerate(self.em.objects.tolist())}
        kernels = {name: k for k, name in enumerate(self.em.names)}
        model = self.model_matrix(np.arange(self.size_model))
        hidden = self.kernel_matrices(np.arange(self.size_hidden), -1)
        found: tuple[set[int], set[int]] = set(), set()
        for entry in named:
            if not isinstance(entry, tuple | list) or len(entry) not in (2, 3):
                raise KernelError(f"{what}: {entry!r} found; an entry is {FORM}.")
            of = f"{what}: {entry!r}"
            i, j = (_place(label, objects, of, "object") for label in entry[-2:])
            if len(entry) == 2:
                found[0].add(int(model[i, j]))
                continue
            k = _place(entry[0], kernels, of, "kernel")
            place = int(hidden[k, i, j])
            if place < 0:
                pair = tuple(self.em.objects[[i, j]].tolist())
                raise KernelError(
                    f"{what}: kernel {self.em.names[k]!r} shows the entry {pair!r}: it is a "
                    "constant. Read it from the stack, and remove it from the list."
                )
            found[1].add(place)
        return np.array(sorted(found[0]), np.intp), np.array(sorted(found[1]), np.intp)

    def spread(self, most: int) -> tuple[Places, Places]:
        """Return the places of at most `most` entries, evenly spread over all of them."""
        count = min(most, self.size)
        places = np.unique(np.linspace(0, self.size - 1, count).astype(np.intp))
        after = places >= self.size_model
        return places[~after], places[after] - self.size_model

    def labels(self, model: Places, hidden: Places) -> xr.Dataset:
        """Return the labels of entries, ``model_entry`` and ``hidden_entry``, and their parts."""
        objects, names = self.em.objects, np.array(self.em.names)
        rows, columns = (objects[part[model]] for part in self.model_pairs())
        k, i, j = (part[hidden] for part in self.hidden_pairs())
        labels = xr.Dataset()
        for group, parts in (
            ("model", {"object": rows, "object_bis": columns}),
            ("hidden", {"kernel": names[k], "object": objects[i], "object_bis": objects[j]}),
        ):
            dim = f"{group}_entry"
            labels[dim] = _texts(*parts.values())
            labels = labels.assign({f"{group}_{part}": (dim, own) for part, own in parts.items()})
        return labels

    @cached_property
    def prior_only(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which pairs of objects the prior alone ties, in the model and in each kernel.

        No chain of kernels leads from i to j. Only kernels that share something with the others
        count; one that shares nothing is completed from the prior and its own constant.
        """
        shares = self.em.sources.sharing > 0.0
        visible = np.stack([kernel.visible for kernel in self.em.kernels]) & shares[:, None]
        _, group = connected_components(visible.T.astype(float) @ visible, directed=False)
        alone: NDArray[np.bool_] = group[:, None] != group
        alone |= np.diag(~visible.any(axis=0))
        return alone, alone | ~shares[:, None, None]

    @cached_property
    def has_variance(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which entries of the model, and of each kernel, have a variance.

        M is of size s along a direction a with probability ~ s^-(1 + e / 2): with M = s a a' + ...
        the prior of P contributes s^-(1 + lambda / 2), each kernel in which the visible part of a
        is not zero s^-(nu_k / 2), and each object at which a is zero s^-(1 / 2), the volume of such
        directions. So an entry (i, j) of M has a variance if

            lambda + min over J of |union of v_k, k in J| + sum of nu_k, k not in J,

        is more than 2, J being any set of kernels that show neither i nor j. Since lambda > 0, only
        unions of no and of one object matter. An entry of Q(k) that is hidden on both sides is
        large if M is and a is zero on v_k: J contains k. An entry that is hidden on one side only
        is of the order sqrt(s), and always has a variance, as the other entries have a mean.

        A kernel that shares nothing does not count, and its own entries have a variance. A constant
        changes nothing: given visible objects, its variance is bounded.

        In a model of few factors the same holds for the loadings, because their prior falls along
        a direction like that of P. The noise d_i adds the condition lambda + a + N_i > 2, with N_i
        the sum of nu_k over the kernels that show object i: it falls like an inverse gamma variable
        of shape (lambda + a + N_i) / 2 + 1, and so always has a mean. PPCA has one such variable,
        in which lambda + a + N_i is summed over the objects.
        """
        of_model, of_kernels = self._variance_by_directions()
        if isinstance(structure := self.em.structure, LowRank):
            enough = self._noise_has_variance(structure)
            each = np.arange(len(enough))
            of_model[each, each] &= enough
            shares = self.em.sources.sharing > 0.0
            visible = np.stack([kernel.visible for kernel in self.em.kernels])
            of_kernels[:, each, each] &= enough | visible | ~shares[:, None]
        return of_model, of_kernels

    def _variance_by_directions(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which entries have a variance as far as directions of M are concerned."""
        strength, size = self.em.prior.strength, len(self.em.objects)
        shares = self.em.sources.sharing > 0.0
        degrees = np.where(shares, self.em.degrees_of_freedom, 0.0)
        counts = np.array([len(kernel.v) for kernel in self.em.kernels])
        total = float(degrees[counts > 0].sum())
        alone = np.zeros(size)  # the degrees of freedom of kernels that show this object only
        for k in np.flatnonzero((counts == 1) & shares).tolist():
            alone[self.em.kernels[k].v[0]] += degrees[k]
        least = np.full((size, size), total)
        for x in np.flatnonzero(alone).tolist():
            others = np.ix_(np.arange(size) != x, np.arange(size) != x)
            least[others] = np.minimum(least[others], 1.0 + total - alone[x])
        of_model = strength + least > 2.0
        of_kernels = np.ones((len(counts), size, size), dtype=bool)
        for k, kernel in enumerate(self.em.kernels):
            inside = np.ix_(kernel.h, kernel.h)
            if not shares[k]:
                continue
            if counts[k] == 0:
                of_kernels[k][inside] = of_model[inside]
            elif counts[k] == 1:
                of_kernels[k][inside] = strength + 1.0 + total - alone[kernel.v[0]] > 2.0
        return of_model, of_kernels

    def _noise_has_variance(self, structure: LowRank) -> NDArray[np.bool_]:
        """Return for each object whether the variance of its noise has a variance."""
        shares = self.em.sources.sharing > 0.0
        visible = np.stack([kernel.visible for kernel in self.em.kernels])
        counted = np.where(shares, self.em.degrees_of_freedom, 0.0) @ visible
        counted += self.em.prior.strength + structure.noise_strength
        if isinstance(structure, PPCA):
            counted[:] = counted.sum()
        enough: NDArray[np.bool_] = counted > 2.0
        return enough


def _place(label: Hashable, places: dict[Hashable, int], of: str, kind: str) -> int:
    try:
        return places[label]
    except (KeyError, TypeError) as error:  # TypeError: not hashable
        raise LabelError(
            f"{of}: there is no {kind} {label!r}. Correct the label, or remove the entry."
        ) from error


def _texts(*parts: NDArray[Any]) -> NDArray[np.str_]:
    """Return a text per entry, "a, b", with quotation marks if texts would not be unique."""
    listed = list(zip(*(part.tolist() for part in parts), strict=True))
    texts = [", ".join(map(str, entry)) for entry in listed]
    if len(set(texts)) < len(texts):
        texts = [", ".join(map(repr, entry)) for entry in listed]
    return np.array(texts, dtype=np.str_)
