"""Stacks of kernels that are not in memory: what `stack_kernels` makes of them, and refuses."""

import contextlib
import pickle
import re
import sys
from collections import Counter

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import xarray as xr
import zarr

import mkmc_prob as mp
from mkmc_prob import (
    EM,
    PPCA,
    IndefiniteKernelError,
    KernelError,
    LabelError,
    LazyStack,
    MKMCError,
    MKMCWarning,
    WishartPrior,
    diagnostics,
    io,
    kernels,
    plots,
    stack_kernels,
)
from mkmc_prob.linalg import tiles
from mkmc_prob.stacks import stack as stacks
from mkmc_prob.utils import memory

NAN, INF = np.nan, np.inf
SIZE, SIDE = 12, 5
LABELS = list("abcdefghijkl")


def features(seed=0):
    return np.random.default_rng(seed).standard_normal((SIZE, 4))


def matrix(seed=0):
    return features(seed) @ features(seed).T / 4


def hiding(values, *places):
    """Return a copy with the rows, and the columns of a square matrix, of `places` NaN."""
    values = values.copy()
    values[list(places)] = np.nan
    if values.shape == (SIZE, SIZE):
        values[:, list(places)] = np.nan
    return values


def in_tiles(values):
    return da.from_array(values, chunks=SIDE)


def memmap(values, folder):
    path = folder / f"{len([*folder.iterdir()])}.npy"
    np.save(path, values)
    return np.load(path, mmap_mode="r")


KINDS = {
    "dask": lambda seed, _: in_tiles(matrix(seed)),
    "zarr": lambda seed, _: zarr.array(matrix(seed), chunks=(SIDE, SIDE)),
    "memmap": lambda seed, folder: memmap(matrix(seed), folder),
    "DataArray": lambda seed, _: xr.DataArray(in_tiles(matrix(seed))),
    "sparse": lambda seed, _: scipy.sparse.csr_array(matrix(seed)),
    "sparse matrix": lambda seed, _: scipy.sparse.coo_matrix(matrix(seed)),
    "features": lambda seed, _: kernels.Features(features(seed)),
    "features, dask": lambda seed, _: kernels.Features(da.from_array(features(seed), chunks=SIDE)),
    "features, zarr": lambda seed, _: kernels.Features(zarr.array(features(seed), chunks=(5, 2))),
    "features, memmap": lambda seed, folder: kernels.Features(memmap(features(seed), folder)),
}


@pytest.fixture(autouse=True)
def _small_chunks_are_kept(monkeypatch):
    monkeypatch.setattr(tiles, "LEAST_TILE", 1)
    monkeypatch.setattr(tiles, "TILE", SIDE)


def assert_same(loaded, dense):
    """Equal to rounding, with the same labels, names and attributes."""
    np.testing.assert_allclose(loaded.values, dense.values, rtol=0, atol=1e-14)
    assert loaded.copy(data=dense.values).identical(dense)


@contextlib.contextmanager
def refused(error, *texts):
    """Expect exactly `error`, with every one of `texts` in its message, in this order."""
    with pytest.raises(error, match="(?s)" + ".*".join(map(re.escape, texts))) as raised:
        yield
    assert raised.type is error


# -- what they hold -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_loaded_it_is_the_stack_of_the_same_matrices_in_memory(kind, tmp_path):
    lazy = stack_kernels({"one": KINDS[kind](0, tmp_path), "two": KINDS[kind](1, tmp_path)})
    assert type(lazy) is LazyStack
    dense = stack_kernels({"one": matrix(0), "two": matrix(1)})
    assert_same(lazy.load(), dense)
    assert_same(lazy.load([7, 2]), dense.sel(object=[7, 2], object_bis=[7, 2]))
    assert_same(lazy.array.drop_vars("visible").compute(), dense)
    assert repr(lazy).startswith("LazyStack of 2 kernels over 12 objects\n  'one': 12 objects, ")


def test_kinds_mix(tmp_path):
    given = {kind: make(seed, tmp_path) for seed, (kind, make) in enumerate(KINDS.items())}
    given["in memory"] = matrix(77)
    lazy = stack_kernels(given, objects=LABELS)
    every = [matrix(seed) for seed in range(len(KINDS))]
    assert_same(lazy.load(), stack_kernels([*every, matrix(77)], names=given, objects=LABELS))
    some = lazy.with_kernels(np.array([3, 0]))
    assert some.names == ["DataArray", "dask"]
    assert np.array_equal(some.load().values, lazy.load().values[[3, 0]])
    again = pickle.loads(pickle.dumps(lazy))
    assert again.load().identical(lazy.load())


def test_lists_and_arrays_of_kernels(tmp_path):
    whole = np.stack([matrix(0), matrix(1)])
    dense = stack_kernels(whole, names=["p", "q"], objects=LABELS)
    for given in (
        [in_tiles(matrix(0)), matrix(1)],
        [kernels.Features(features(0)), scipy.sparse.csr_array(matrix(1))],
        da.from_array(whole, chunks=(2, SIDE, SIDE)),
        zarr.array(whole, chunks=(1, SIDE, SIDE)),
        memmap(whole, tmp_path),
    ):
        lazy = stack_kernels(given, names=["p", "q"], objects=LABELS)
        assert type(lazy) is LazyStack
        assert_same(lazy.load(), dense)
    labeled = dense.copy(data=da.from_array(whole, chunks=(1, SIDE, SIDE)))
    lazy = stack_kernels(labeled)
    assert type(lazy) is LazyStack
    assert_same(lazy.load(), dense)


def labeled(values, labels):
    return xr.DataArray(in_tiles(values), coords=[("p", labels), ("q", labels)])


def test_kernels_are_aligned_by_their_labels():
    rng = np.random.default_rng(3)
    orders = [rng.permutation(SIZE)[:count] for count in (9, 7, 10, 11)]
    labels = [[LABELS[place] for place in order] for order in orders]
    blocks = [matrix(seed)[np.ix_(order, order)] for seed, order in enumerate(orders)]
    frames = [pd.DataFrame(*each, each[1]) for each in zip(blocks, labels, strict=True)]
    table = pd.DataFrame(features(2)[orders[2]], index=labels[2])
    array = xr.DataArray(features(3)[orders[3]], coords={"gene": labels[3]}, dims=("gene", "x"))
    given = [labeled(blocks[0], labels[0]), frames[1], kernels.Features(table)]
    given += [kernels.Features(array.chunk(gene=4))]
    names = ["array", "frame", "table", "chunked"]
    dense = dict(zip(names, frames, strict=True))
    lazy = stack_kernels(dict(zip(names, given, strict=True)))
    assert_same(lazy.load(), stack_kernels(dense))
    everyone = [*LABELS[::-1], "nowhere"]
    lazy = stack_kernels(dict(zip(names, given, strict=True)), objects=everyone)
    expected = stack_kernels(dense, objects=everyone)
    assert_same(lazy.load(), expected)
    shown = mp.visible_objects(expected)
    assert mp.visible_objects(lazy).identical(shown)
    # and by a table of what is visible
    mask = shown.to_pandas().astype(int)
    mask.loc["array", labels[0][0]] = mask.loc["table", labels[2][1]] = 0
    lazy = stack_kernels(dict(zip(names, given, strict=True)), visible=mask, objects=everyone)
    assert_same(lazy.load(), stack_kernels(dense, visible=mask, objects=everyone))


def test_objects_are_hidden_by_nan_or_by_a_mask():
    places = (0, 5, 6, 7, 8, 9)  # all of the second row of tiles
    nan = {
        "tiles": in_tiles(hiding(matrix(0), *places)),
        "features": kernels.Features(hiding(features(1), *places)),
        "tiles of features": kernels.Features(in_tiles(hiding(features(2), *places))),
        "nothing seen": in_tiles(np.full((SIZE, SIZE), np.nan)),
    }
    dense = [hiding(matrix(seed), *places) for seed in range(3)] + [np.full((SIZE, SIZE), np.nan)]
    expected = stack_kernels(dense, names=nan)
    assert_same(stack_kernels(nan).load(), expected)
    # By a mask, entries of hidden objects are ignored, whatever they are.
    spoilt = matrix(0)
    spoilt[5] = np.inf
    whole = {
        "tiles": in_tiles(spoilt),
        "features": kernels.Features(features(1)),
        "tiles of features": kernels.Features(in_tiles(features(2))),
        "nothing seen": scipy.sparse.csr_array(matrix(4)),
    }
    mask = mp.visible_objects(expected)
    assert_same(stack_kernels(whole, visible=mask.values.astype(int)).load(), expected)
    assert_same(stack_kernels(whole, visible=mask).load(), expected)


def test_a_mask_hides_what_is_no_number_in_kernels_in_memory_too():
    spoilt = matrix(1)
    spoilt[3, 4], spoilt[5, 3] = NAN, INF
    mask = np.ones((2, SIZE))
    mask[1, 3] = 0
    lazy = stack_kernels({"a": in_tiles(matrix()), "b": spoilt}, visible=mask)
    assert_same(lazy.load(), stack_kernels({"a": matrix(), "b": spoilt}, visible=mask))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, bool])
def test_the_precision_is_that_of_the_entries(dtype):
    values = (10.0 * np.eye(SIZE)).astype(dtype)
    given = {"a": in_tiles(values), "b": scipy.sparse.csr_array(values.astype(np.float32))}
    lazy = stack_kernels(given).load()
    assert_same(lazy, stack_kernels({"a": values, "b": values.astype(np.float32)}))
    own = kernels.Features(features().astype(np.float32))
    assert float(stack_kernels({"a": own}).load()["rounding"][0]) == np.finfo(np.float32).eps


def test_the_arrays_are_never_changed(tmp_path):
    values, own = matrix(), features()
    before, before_own = values.copy(), own.copy()
    lazy = stack_kernels(
        {
            "tiles": in_tiles(values),
            "memmap": memmap(values, tmp_path),
            "sparse": scipy.sparse.csr_array(values),
            "features": kernels.Features(own),
        }
    )
    mp.fit(lazy, structure=PPCA(2), tol=0, max_iter=3)
    loaded = lazy.load()
    loaded[:] = 0.0
    assert np.array_equal(values, before)
    assert np.array_equal(own, before_own)
    assert lazy.load().values.any()


def test_loading_names_what_there_is_no_object_or_memory_for(monkeypatch):
    lazy = stack_kernels({"a": in_tiles(matrix())}, objects=LABELS)
    with refused(LabelError, "'z'"):
        lazy.load(["a", "z"])
    monkeypatch.setattr(memory, "free_memory", lambda: 100.0)
    with refused(MKMCError, "loading 12 objects", "1.15 kB", "100 bytes", "fewer objects"):
        lazy.load()
    assert lazy.load(["c"]).shape == (1, 1, 1)


# -- what is read ---------------------------------------------------------------------------------


class Counted:
    """An array that counts how often each of its tiles is read."""

    def __init__(self, values):
        self.values, self.reads = values, Counter()
        self.shape, self.dtype, self.ndim = values.shape, values.dtype, values.ndim

    def __getitem__(self, where):
        tile = tuple(part.start // SIDE for part in where)
        if all(part.stop > part.start for part in where):  # dask asks for the type
            self.reads[tile] += 1
        return self.values[where]

    def array(self):
        return da.from_array(self, chunks=SIDE, asarray=False, name=False)


ALL = {(i, j) for i in range(3) for j in range(3)}
UPPER = {(i, j) for i, j in ALL if i <= j}


@pytest.mark.parametrize("by", ["nothing", "mask", "nan"])
def test_each_tile_is_read_once_in_the_check_and_in_a_product(by):
    mask = None
    counted = Counted(matrix())
    if by == "mask":
        mask = np.ones((1, SIZE))
        mask[0, 4] = 0
    elif by == "nan":
        counted = Counted(hiding(matrix(), 4))
    operator = stack_kernels({"a": counted.array()}, visible=mask).kernel(0).moment
    diagonal = {at: 2 if at[0] == at[1] else 1 for at in ALL}
    assert counted.reads == diagonal  # first the diagonal alone, which bounds the other entries
    counted.reads.clear()
    operator @ np.ones((len(operator), 2))
    assert counted.reads == dict.fromkeys(UPPER, 1)
    counted.reads.clear()
    operator.diagonal(), operator.sizes, operator.total, operator.norm
    assert not counted.reads


def test_tiles_without_visible_objects_are_not_read_in_products():
    counted = Counted(hiding(matrix(), *range(SIDE, 2 * SIDE)))
    operator = stack_kernels({"a": counted.array()}).kernel(0).moment
    counted.reads.clear()
    operator @ np.ones(7)
    assert counted.reads == dict.fromkeys([(0, 0), (0, 2), (2, 2)], 1)


def test_entries_are_read_from_their_tiles_only():
    counted = Counted(matrix())
    lazy = stack_kernels({"a": counted.array()})
    counted.reads.clear()
    lazy.load([0, 11])
    assert set(counted.reads) == {(0, 0), (0, 2), (2, 2)}


def test_progress_counts_rows_of_tiles(capsys):
    stack_kernels({"a": in_tiles(hiding(matrix(), *range(SIDE)))}, progress=True)
    assert "3/3" in capsys.readouterr().err
    mixed = {"a": in_tiles(matrix()), "b": matrix(), "c": kernels.Features(features())}
    stack_kernels(mixed, progress=True)
    assert "6/6" in capsys.readouterr().err


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_without_dask_it_is_said_what_to_install(kind, tmp_path, monkeypatch):
    if kind in ("features, zarr", "features, dask"):
        given = kernels.Features(features())
    else:
        given = KINDS[kind](0, tmp_path)
    monkeypatch.setitem(sys.modules, "dask.array", None)
    with refused(MKMCError, "kernel 'b'", "dask is needed", "pip install 'mkmc-prob[large]'"):
        stack_kernels({"a": matrix(), "b": given})
    with refused(MKMCError, "features: Array found", "pip install"):
        kernels.Features(zarr.array(features()))


def spoilt(value, *places, dtype=float, of=None):
    values = (matrix() if of is None else of).copy()
    for place in places:
        values[place] = value
    return values.astype(dtype)


def bad_features(value, dtype=float):
    return kernels.Features(spoilt(value, (3, 1), of=features(), dtype=dtype))


SEVEN_HIDDEN = hiding(matrix(), 7)
BAD = {
    "asymmetric tile": (
        in_tiles(spoilt(9.0, (1, 8))),
        ["symmetric", "'b'", "'i'", "9", "rows 1 and 8", "(Q + Q.T) / 2"],
    ),
    "asymmetric in a diagonal tile": (in_tiles(spoilt(9.0, (8, 6))), ["symmetric", "'g'", "'i'"]),
    "a triangle": (in_tiles(np.triu(matrix() + 1)), ["symmetric", "one triangle", "both"]),
    "nan": (
        in_tiles(spoilt(NAN, (1, 8), (8, 1), dtype=np.float32)),
        ["'b'", "'i'", "nan", "rows 1 and 8", "whole row and column", "chunk"],
    ),
    "nan below the diagonal": (in_tiles(spoilt(NAN, (8, 1))), ["'b'", "'i'", "nan"]),
    "infinite": (in_tiles(spoilt(INF, (1, 8), (8, 1))), ["'b'", "'i'", "inf", "hide the object"]),
    "infinite diagonal": (in_tiles(spoilt(-INF, (8, 8))), ["'i'", "'i'", "-inf"]),
    "too large": (in_tiles(spoilt(1e200, (1, 8), (8, 1))), ["'b'", "'i'", "1e+200", "Replace"]),
    "too small": (in_tiles(matrix() * 1e-200), ["largest entry", "e-200", "Rescale"]),
    "negative diagonal": (in_tiles(spoilt(-0.5, (8, 8))), ["diagonal", "'i'", "-0.5"]),
    "a number where hidden": (
        in_tiles(spoilt(3.0, (1, 7), of=SEVEN_HIDDEN)),
        ["'h' (row 7", "NaN on the diagonal", "whole row and column"],
    ),
    "a number below": (in_tiles(spoilt(3.0, (7, 1), of=SEVEN_HIDDEN)), ["'h' (row 7"]),
    "a number beside": (in_tiles(spoilt(3.0, (7, 11), of=SEVEN_HIDDEN)), ["'h' (row 7"]),
    "a lost tile on the diagonal": (
        in_tiles(spoilt(NAN, np.s_[5:10, 5:10])),
        ["'f' (row 5", "numbers elsewhere", "never written"],
    ),
    "complex": (in_tiles(matrix() + 0j), ["complex128", "real numbers"]),
    "text": (in_tiles(matrix().astype(str)), ["real numbers"]),
    "not square": (in_tiles(matrix()[:5]), ["(5, 12)", "not square", "X @ X.T"]),
    "no matrix": (in_tiles(matrix()[None]), ["(1, 12, 12)"]),
    "sparse: asymmetric": (
        scipy.sparse.csr_array(spoilt(9.0, (1, 8))),
        ["symmetric", "'b'", "'i'", "9", "(Q + Q.T) / 2"],
    ),
    "sparse: nan": (
        scipy.sparse.csr_array(spoilt(NAN, (1, 8), (8, 1))),
        ["'b'", "'i'", "nan", "visible="],
    ),
    "sparse: negative": (scipy.sparse.csr_array(spoilt(-0.5, (8, 8))), ["diagonal", "'i'", "-0.5"]),
    "sparse: complex": (scipy.sparse.csr_array(matrix() + 0j), ["complex128"]),
    "sparse: too small": (scipy.sparse.csr_array(matrix() * 1e-200), ["largest entry", "Rescale"]),
    "sparse: not square": (scipy.sparse.csr_array(matrix()[:5]), ["(5, 12)"]),
    "features: nan": (bad_features(NAN, np.float32), ["1 of 4 features", "'d'", "NaN", "hide"]),
    "features: nan in tiles": (
        kernels.Features(in_tiles(spoilt(NAN, (3, 1), of=features()))),
        ["1 of 4 features", "'d'"],
    ),
    "features: infinite": (bad_features(INF), ["'d'", "infinite", "Replace"]),
    "features: too large": (bad_features(1e200), ["'d'", "too large", "rescale"]),
    "features: too large in tiles": (
        kernels.Features(in_tiles(spoilt(-1e200, (3, 1), of=features()))),
        ["'d'", "too large"],
    ),
    "features: too small": (kernels.Features(features() * 1e-90), ["largest entry", "Rescale"]),
}


@pytest.mark.parametrize("case", BAD)
def test_a_fault_is_refused_by_kernel_object_place_and_remedy(case):
    given, texts = BAD[case]
    with refused(KernelError, "kernel 'bad'", *texts):
        stack_kernels({"good": in_tiles(matrix()), "bad": given}, objects=LABELS)


def test_without_labels_the_sizes_must_agree():
    with refused(LabelError, "kernel 'bad'", "12 labels for 5 objects"):
        stack_kernels({"bad": in_tiles(matrix()[:5, :5])}, objects=LABELS)
    with refused(KernelError, "kernel 'bad': 5 objects", "'good'", "12"):
        stack_kernels({"good": in_tiles(matrix()), "bad": matrix()[:5, :5]})


@pytest.mark.parametrize("place", [(0, 7), (6, 7), (11, 7), (7, 0), (7, 8), (7, 11)])
def test_a_number_of_a_hidden_object_is_found_wherever_it_is(place):
    for places in ([place], [place, place[::-1]]):
        with refused(KernelError, "'h' (row 7"):
            stack_kernels({"a": in_tiles(spoilt(1.0, *places, of=SEVEN_HIDDEN))}, objects=LABELS)
    with refused(KernelError, "'h'", "nan"):
        mask = np.ones((1, SIZE))
        stack_kernels({"a": in_tiles(SEVEN_HIDDEN)}, objects=LABELS, visible=mask)


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (np.ones(3), ["shape (3,)", "objects x features"]),
        (np.ones((3, 0)), ["shape (3, 0)"]),
        (np.ones((3, 2)) * 1j, ["complex128"]),
        (np.array([["x", "y"]]), ["real numbers"]),
        (scipy.sparse.csr_array(np.eye(3)), ["sparse", ".toarray()", "X @ X.T / p"]),
    ],
)
def test_what_is_no_table_of_features(values, texts):
    with refused(KernelError, "features", *texts):
        kernels.Features(values)


def test_labels_are_refused_by_name():
    table = pd.DataFrame(features(), index=LABELS)
    own = kernels.Features(table)
    with refused(KernelError, "objects", "labels already"):
        kernels.Features(table, objects=LABELS)
    with refused(KernelError, "objects", "labels already"):
        kernels.Features(xr.DataArray(table), objects=LABELS)
    with refused(LabelError, "'a' is labeled and 'b' is not", "kernels.Labeled", "objects="):
        stack_kernels({"a": own, "b": in_tiles(matrix())})
    with refused(LabelError, "kernel 'a'", "'q'"):
        stack_kernels(
            {"a": xr.DataArray(in_tiles(matrix()), coords={"p": LABELS}, dims=("p", "q"))}
        )
    with refused(LabelError, "kernel 'a'", "differ", "same labels"):
        given = xr.DataArray(in_tiles(matrix()), coords=[("p", LABELS), ("q", LABELS[::-1])])
        stack_kernels({"a": given})
    with refused(LabelError, "kernel 'a'", "'b'", "more than once"):
        stack_kernels({"a": labeled(matrix(), ["b", *LABELS[1:]])})
    with refused(LabelError, "kernel 'a'", "11 labels for 12 objects"):
        stack_kernels({"a": kernels.Features(features(), objects=LABELS[1:])})
    with refused(LabelError, "text in kernel 'a' ('a')", "integers in kernel 'b' (0)"):
        stack_kernels({"a": own, "b": labeled(matrix(), range(SIZE))})
    with refused(LabelError, "'l'", "kernel 'a'", "not among them"):
        stack_kernels({"a": own}, objects=LABELS[:-1])
    with refused(LabelError, "names", "named already"):
        stack_kernels({"a": own}, names=["b"])
    with refused(LabelError, "visible", "must say which objects"):
        stack_kernels({"a": own}, visible=np.ones((1, SIZE)))
    with refused(KernelError, "visible, kernel 'a'", "2.0 found"):
        stack_kernels({"a": in_tiles(matrix())}, visible=np.full((1, SIZE), 2.0))
    alike = {x: kernels.Features(np.eye(2), objects=[x, "z"]) for x in ("a1", "A 1")}
    with pytest.warns(MKMCWarning, match="'a1' and 'A 1' differ only"):
        stack_kernels(alike)


def test_there_must_be_kernels_and_objects():
    with refused(KernelError, "no kernels"):
        stack_kernels({})
    for nothing in (
        da.zeros((0, 0)),
        kernels.Features(np.ones((0, 2))),
        scipy.sparse.csr_array((0, 0)),
    ):
        with refused(KernelError, "no objects"):
            stack_kernels({"a": nothing})
    with refused(KernelError, "kernels[0]", "{name: Q}"):
        stack_kernels(in_tiles(matrix()))
    with refused(KernelError, "kernels[0]", "{name: Q}"):
        stack_kernels(kernels.Features(features()))


def test_the_thorough_check_refuses_what_is_clearly_indefinite():
    rng = np.random.default_rng(0)
    vectors, _ = np.linalg.qr(rng.standard_normal((60, 60)))
    for least in (-0.5, 0.0):
        values = (vectors * np.linspace(least, 3.0, 60)) @ vectors.T
        given = {
            "a": scipy.sparse.eye_array(60),
            "b": da.from_array(0.5 * (values + values.T), chunks=40),
        }
        stack_kernels(given)
        if least:
            with refused(IndefiniteKernelError, "kernel 'b'", "at most -0.", "repair it"):
                stack_kernels(given, check="thorough")
        else:
            stack_kernels(given, check="thorough")
    own = kernels.Features(rng.standard_normal((60, 3)).astype(np.float32))
    stack_kernels({"a": own}, check="thorough")


# -- the other functions --------------------------------------------------------------------------

NOT_IN_MEMORY = {
    "fit": mp.fit,
    "fit, a prior of factors": lambda lazy: mp.fit(lazy, prior=PPCA(2)),
    "complete": mp.complete,
    "select_model": mp.select_model,
    "explore_maxima": mp.explore_maxima,
    "EM": lambda lazy: EM(lazy, WishartPrior(1.0)),
    "Sources, then EM": lambda lazy: EM(
        lazy, WishartPrior(1.0), sources=mp.Sources.estimated(lazy)
    ),
    "sample_posterior": lambda lazy: mp.sample_posterior(
        lazy, degrees_of_freedom=30.0, strength=1.0, seed=0
    ),
    "normalize": mp.normalize,
    "center": mp.center,
    "describe": mp.describe,
    "repair_spectrum": mp.repair_spectrum,
    "effective_degrees_of_freedom": mp.effective_degrees_of_freedom,
    "reduce_rank": lambda lazy: mp.reduce_rank(lazy, 2),
    "mean_impute": mp.mean_impute,
    "zero_impute": mp.zero_impute,
    "knn_impute": mp.knn_impute,
    "remove_objects": lambda lazy: mp.remove_objects(lazy, 0.3, seed=0),
    "relative_error, truth": lambda lazy: mp.relative_error(lazy, lazy.load(), lazy.load()),
    "relative_error, estimate": lambda lazy: mp.relative_error(lazy.load(), lazy, lazy.load()),
    "relative_error, incomplete": lambda lazy: mp.relative_error(lazy.load(), lazy.load(), lazy),
    "correlation_matrix_distance": lambda lazy: mp.correlation_matrix_distance(lazy, lazy.load()),
    "plot_kernels": plots.plot_kernels,
    "plot_kernels, after": lambda lazy: plots.plot_kernels(lazy.load(), lazy),
    "check_stack": stacks.check_stack,
}
#: What takes something else: a result, a file, one matrix.
OTHERWISE_REFUSED = {
    "kl_divergence": lambda lazy: mp.kl_divergence(lazy, lazy),
    "missing_information": mp.missing_information,
    "standard_errors": mp.standard_errors,
    "sample_completed": lambda lazy: mp.sample_completed(lazy, draws=2, seed=0),
    "GibbsSampler": mp.GibbsSampler,
    "GaussianModel": mp.GaussianModel,
    "WishartPrior": lambda lazy: WishartPrior(1.0, scale=lazy),
    "write_stack": lambda lazy: io.write_stack(lazy, "stack.nc"),
    "stack_kernels": stack_kernels,
    "stack_kernels, a mapping": lambda lazy: stack_kernels({"a": lazy}),
    "disagreement": diagnostics.disagreement,
    "kernel_agreement": diagnostics.kernel_agreement,
    "plot_spectra": plots.plot_spectra,
    "plot_trace": plots.plot_trace,
    "plot_agreement": plots.plot_agreement,
}


@pytest.fixture
def lazy_and_reads():
    counted = Counted(matrix() + np.eye(SIZE))
    lazy = stack_kernels({"a": counted.array(), "b": kernels.Features(features(1))})
    counted.reads.clear()
    return lazy, counted.reads


@pytest.mark.parametrize("name", NOT_IN_MEMORY)
def test_what_needs_the_kernels_in_memory_says_so(name, lazy_and_reads):
    lazy, reads = lazy_and_reads
    loaded = lazy.load()
    reads.clear()
    lazy.load = lambda: loaded
    with pytest.raises(KernelError, match=r"not in memory, which this needs. Pass stack.load\("):
        NOT_IN_MEMORY[name](lazy)
    assert not reads


def test_a_selection_of_strength_says_so(lazy_and_reads):
    with (
        pytest.warns(DeprecationWarning, match="select_model"),
        pytest.raises(KernelError, match="not in memory"),
    ):
        mp.select_strength(lazy_and_reads[0])
    assert not lazy_and_reads[1]


@pytest.mark.parametrize("name", OTHERWISE_REFUSED)
def test_what_takes_something_else_refuses_a_lazy_stack(name, lazy_and_reads):
    lazy, reads = lazy_and_reads
    with pytest.raises(MKMCError):
        OTHERWISE_REFUSED[name](lazy)
    assert not reads


def test_what_needs_only_the_visible_objects_takes_it(lazy_and_reads):
    lazy, reads = lazy_and_reads
    loaded = lazy.load()
    reads.clear()
    assert diagnostics.pair_counts(lazy).identical(diagnostics.pair_counts(loaded))
    never = diagnostics.never_seen_together(lazy)
    assert never.identical(diagnostics.never_seen_together(loaded))
    plots.plot_pattern(lazy)
    plots.plot_pair_counts(lazy)
    assert not reads


def test_sources_by_moments_are_those_of_the_loaded_stack(tmp_path):
    given = {kind: make(seed, tmp_path) for seed, (kind, make) in enumerate(KINDS.items())}
    lazy = stack_kernels(given)
    found, expected = (mp.Sources.estimated(each).dataset for each in (lazy, lazy.load()))
    xr.testing.assert_allclose(found, expected, rtol=1e-12)
