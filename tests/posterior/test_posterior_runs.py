"""Runs of the posterior: seeds, interruptions, files, bad input."""

import os
import re
import signal
import subprocess
import sys
import warnings

import numpy as np
import pytest
import xarray as xr
from strategies import random_covariance
from test_posterior import SHORT, entry, short, small_stack

from mkmc_prob import (
    ConvergenceWarning,
    IdentifiabilityWarning,
    IndefiniteKernelError,
    KernelError,
    LabelError,
    MKMCError,
    WishartPrior,
    fit,
    posterior_models,
    stack_kernels,
)
from mkmc_prob.posterior import run as posterior_run
from mkmc_prob.posterior import sampling
from mkmc_prob.posterior.sampling import (
    continue_posterior,
    load_posterior,
    sample_posterior,
    save_posterior,
)

# Seeds


@short
@pytest.mark.parametrize("keep", ["all", [("a", "b")]])
def test_the_draws_depend_on_the_seed_alone(keep):
    stack = small_stack()
    before = stack.copy(deep=True)
    options = {"degrees_of_freedom": 9, "strength": 1.0, "keep": keep, "draws": 60, "tune": 10}
    one, two = (sample_posterior(stack, seed=1, workers=w, **options) for w in (1, 2))
    assert one.identical(two)
    other = sample_posterior(stack, seed=2, **options)
    assert not np.array_equal(one["posterior"]["model"], other["posterior"]["model"])
    by_generator = sample_posterior(stack, seed=np.random.default_rng(1), **options)
    assert one.identical(by_generator)
    xr.testing.assert_identical(stack, before)
    starts = one["start"]["model"].values
    assert len(np.unique(starts[:, 0, 0])) == 4
    assert (np.linalg.eigvalsh(starts) > 0).all()


@short
@pytest.mark.parametrize("keep", ["all", [("a", "b"), ("Q2", "e", "e")]])
def test_a_run_is_saved_and_continued_as_if_it_had_not_ended(tmp_path, keep):
    kernels = np.array([random_covariance(np.random.default_rng(0), 5)] * 2)
    visible = [[1, 1, 1, 0, 0], [0, 1, 1, 0, 0]]  # one object is hidden in every kernel
    visible[1][3] = 1
    stack = stack_kernels(kernels, visible=visible, objects=list("abcde"))
    options = {
        "degrees_of_freedom": [9, 12],
        "tune": 10,
        "seed": 1,
        "keep": keep,
        "quantile_draws": 20,
    }
    options["prior"] = WishartPrior(1.0, random_covariance(np.random.default_rng(1), 5))
    with pytest.warns(IdentifiabilityWarning):
        whole = sample_posterior(stack, strength=1.0, draws=140, **options)
    with pytest.warns(IdentifiabilityWarning):
        part = sample_posterior(stack, strength=1.0, draws=35, **options)
    save_posterior(part, tmp_path / "part.nc")
    again = load_posterior(tmp_path / "part.nc")
    assert again.identical(part)
    longer = continue_posterior(again, draws=105)
    for group in ("posterior", "sample_stats", "start"):
        assert longer[group].identical(whole[group])
    for name, values in whole["posterior_summary"].data_vars.items():
        if "quantile" not in name or keep == "all":
            np.testing.assert_allclose(longer["posterior_summary"][name], values, rtol=1e-9)
    np.testing.assert_array_equal(longer["state"]["factor"], whole["state"]["factor"])
    if keep != "all":
        thinned = longer["thinned_posterior"]
        assert thinned.sizes["draw"] * 4 <= 20 * 2
        every = thinned["draw"].values[1]
        assert (np.diff(thinned["draw"]) == every).all()
        value = thinned["model"].values[:, :, 1]  # of b, a
        np.testing.assert_array_equal(value, entry(whole, "model", "b, a")[:, ::every])


# Ctrl-C


def interrupted_at(monkeypatch, at):
    from mkmc_prob.posterior.gibbs import GibbsSampler

    original = GibbsSampler.draw_completed

    def strike(self, model, rng, constants):
        strike.calls += 1
        if strike.calls == at:
            raise KeyboardInterrupt
        return original(self, model, rng, constants)

    strike.calls = 0
    monkeypatch.setattr(GibbsSampler, "draw_completed", strike)


@short
@pytest.mark.parametrize("at", [450, 500, 770])
def test_an_interrupt_returns_what_was_drawn_and_the_run_goes_on(monkeypatch, at):
    stack = small_stack()
    options = {"degrees_of_freedom": 9, "strength": 1.0, "draws": 200, "tune": 50, "seed": 3}
    interrupted_at(monkeypatch, at)
    with pytest.warns(ConvergenceWarning, match="interrupted: (50|100) of 200 draws"):
        tree = sample_posterior(stack, **options)
    monkeypatch.undo()
    assert tree.attrs["interrupted"] == 1
    drawn = tree["posterior"].sizes["draw"]
    whole = sample_posterior(stack, **options)
    assert tree["posterior"].identical(whole["posterior"].isel(draw=slice(drawn)))
    longer = continue_posterior(tree, draws=200 - drawn)
    assert longer["posterior"].identical(whole["posterior"])
    assert longer.attrs["interrupted"] == 0


def test_an_interrupt_before_anything_was_drawn_goes_through(monkeypatch):
    interrupted_at(monkeypatch, 30)
    with pytest.raises(KeyboardInterrupt):
        sample_posterior(small_stack(), degrees_of_freedom=9, strength=1.0, seed=3)


LONG_RUN = """
import signal, warnings
import numpy as np
from mkmc_prob import stack_kernels
from mkmc_prob import sample_posterior
signal.signal(signal.SIGINT, signal.default_int_handler)
if __name__ == "__main__":
    features = np.random.default_rng(0).standard_normal((2, 20, 30))
    visible = np.ones((2, 20), dtype=int)
    visible[0, :7] = visible[1, 14:] = 0
    stack = stack_kernels(features @ features.transpose(0, 2, 1) / 30, visible=visible)
    warnings.simplefilter("ignore")
    print("sampling", flush=True)
    tree = sample_posterior(
        stack, degrees_of_freedom=30, strength=0.1, draws=10**7, tune=0, seed=0,
        workers=WORKERS, keep=[], progress=True,
    )
    print(tree.attrs["interrupted"], tree["sample_stats"].sizes["draw"] > 0)
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_real_signal_ends_a_real_run(workers, tmp_path):
    """The signal goes to the whole process group, as from a terminal."""
    script = tmp_path / "run.py"
    script.write_text(LONG_RUN.replace("WORKERS", str(workers)))
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout.readline() == "sampling\n"
            told = ""  # the progress bar, until each of the four chains has at least 50 draws
            while not re.search(r"\| (4\d\d|[5-9]\d\d|\d{4,})/", told):
                told += process.stderr.read(1)
                assert process.poll() is None, told
            os.killpg(process.pid, signal.SIGINT)
            printed, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert printed == "1 True\n", errors


# Bad input


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"degrees_of_freedom": 2}, KernelError, "degrees_of_freedom of kernel 'Q1': 2 found"),
        ({"degrees_of_freedom": [9, 3.5]}, KernelError, "of kernel 'Q2': 3.5 found.*above 5"),
        ({"degrees_of_freedom": -1}, KernelError, "degrees_of_freedom of kernel 'Q1'"),
        ({"degrees_of_freedom": [9]}, KernelError, "1 numbers for 2 kernels"),
        ({"degrees_of_freedom": {"Q1": 9}}, LabelError, "none for kernel 'Q2'"),
        ({"draws": 3}, KernelError, "draws: 3"),
        ({"tune": -1}, KernelError, "tune: -1"),
        ({"chains": 0}, KernelError, "chains: 0"),
        ({"workers": 0}, KernelError, "workers: 0"),
        ({"quantile_draws": 3}, KernelError, "quantile_draws: 3"),
        ({"seed": "x"}, KernelError, "seed: 'x'"),
        ({"seed": None}, KernelError, "seed: None"),
        ({"seed": -1}, KernelError, "seed: -1"),
        ({"seed": True}, KernelError, "seed: True"),
        ({"seed": np.random.SeedSequence(1)}, KernelError, "seed: SeedSequence"),
        ({"seed": np.random.PCG64(1)}, KernelError, "seed: <.*PCG64"),
        ({"strength": 0}, KernelError, "strength"),
        ({"prior": WishartPrior(2.0), "strength": 3.0}, KernelError, "one of the two"),
        ({"sources": "paper"}, KernelError, r"sources: 'paper' found; 'adaptive', 'identical'"),
        ({"sources": None}, KernelError, "sources: NoneType found"),
        ({"sources": "identical", "sharing": 0.5}, KernelError, "identical sources share all"),
        ({"sharing": 2}, KernelError, "sharing of kernel 'Q1'"),
        ({"degrees_of_freedom": 9.5, "sharing": 0.5}, KernelError, "9.5 found.*above 10.*whole"),
        ({"keep": "some"}, KernelError, "keep: 'some'"),
        ({"keep": 3}, KernelError, "keep: 3"),
        ({"keep": ["ab"]}, KernelError, "keep: 'ab' found; an entry is"),
        ({"keep": [("a",)]}, KernelError, "an entry is"),
        ({"keep": [("a", "z")]}, LabelError, "there is no object 'z'"),
        ({"keep": [("Q9", "a", "b")]}, LabelError, "there is no kernel 'Q9'"),
        ({"keep": [(["a"], "b")]}, LabelError, "there is no object"),
    ],
)
def test_arguments_that_cannot_be_used(options, error, message):
    options = {"degrees_of_freedom": 9, "strength": 1.0} | SHORT | options
    with pytest.raises(error, match=message):
        sample_posterior(small_stack(), **options)


def test_a_generator_that_cannot_spawn_is_refused():
    class Fixed(np.random.bit_generator.ISeedSequence):
        def generate_state(self, n_words, dtype=np.uint32):
            return np.ones(n_words, dtype)

    rng = np.random.Generator(np.random.PCG64(Fixed()))
    options = {"degrees_of_freedom": 9, "strength": 1.0} | SHORT | {"seed": rng}
    with pytest.raises(KernelError, match="seed: this generator has no SeedSequence to spawn"):
        sample_posterior(small_stack(), **options)


def test_a_visible_entry_is_a_constant():
    stack = stack_kernels(np.eye(3)[None], visible=[[1, 1, 0]], objects=["a", "b", "c"])
    with pytest.raises(KernelError, match=r"kernel 'Q1' shows the entry \('a', 'b'\).*constant"):
        sample_posterior(
            stack, degrees_of_freedom=9, strength=1.0, keep=[("Q1", "a", "b")], **SHORT
        )


def test_degrees_of_freedom_have_no_default():
    with pytest.raises(TypeError, match="degrees_of_freedom"):
        sample_posterior(small_stack(), strength=1.0, seed=1)


def test_the_strength_has_none_either():
    with pytest.raises(KernelError, match=r"strength: none found.*select_model"):
        sample_posterior(small_stack(), degrees_of_freedom=9, seed=1)


def test_an_indefinite_kernel_is_refused():
    stack = stack_kernels(np.array([[[1.0, 2.0], [2.0, 1.0]]]))
    with pytest.raises(IndefiniteKernelError, match="kernel 'Q1'"):
        sample_posterior(stack, degrees_of_freedom=9, strength=1.0, seed=1)


def test_without_joblib_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "joblib", None)
    with pytest.raises(MKMCError, match=r"pip install mkmc-prob\[parallel\]"):
        sample_posterior(small_stack(), degrees_of_freedom=9, strength=1.0, seed=1, workers=2)


@short
def test_other_files_and_trees_are_refused(tmp_path):
    mixed = sample_posterior(small_stack(), degrees_of_freedom=9, strength=1.0, **SHORT)
    with pytest.raises(MKMCError, match=r"suffix is \.nc"):
        save_posterior(mixed, tmp_path / "posterior.txt")
    with pytest.raises(FileNotFoundError):
        load_posterior(tmp_path / "none.nc")
    fit(small_stack()).save(tmp_path / "fit.nc")
    with pytest.raises(MKMCError, match="not a posterior"):
        load_posterior(tmp_path / "fit.nc")
    (tmp_path / "text.nc").write_text("text")
    with pytest.raises(MKMCError, match="not readable as a netCDF file"):
        load_posterior(tmp_path / "text.nc")
    for other in (xr.DataTree(), None):
        with pytest.raises(MKMCError, match="not a posterior"):
            continue_posterior(other, draws=10)
    del (damaged := mixed.copy())["state"]
    with pytest.raises(MKMCError, match="damaged"):
        continue_posterior(damaged, draws=10)


@pytest.fixture(scope="module")
def whole():
    """Return a tree with moments and draws of named entries."""
    options = {"degrees_of_freedom": 9, "strength": 1.0} | SHORT
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return sample_posterior(small_stack(), keep=[("a", "b"), ("Q2", "a", "c")], **options)


def with_attrs(**attrs):
    return lambda tree: tree.attrs.update(attrs)


def with_values(group, name, change):
    def spoil(tree):
        values = tree[group][name]
        tree[group][name] = values.copy(data=change(values.values.copy()))

    return spoil


def first_nan(values):
    values.flat[0] = np.nan
    return values


@pytest.mark.parametrize(
    "spoil",
    [
        with_attrs(every="x"),
        with_attrs(every=None),
        with_attrs(every=3),
        with_attrs(every=0),
        with_attrs(quantile_draws=-1),
        with_attrs(quantile_draws=0),
        lambda tree: tree.attrs.pop("interrupted"),
        with_values("state", "factor", first_nan),
        with_values("state", "mean", first_nan),
        with_values("state", "squares", lambda values: values[:, :-1].repeat(2, 1)[:, :0]),
        with_values("sample_stats", "lp", first_nan),
        with_values("posterior", "hidden", first_nan),
        with_values("thinned_posterior", "model", first_nan),
        with_values("state", "random", lambda values: np.array(["{}"] * len(values))),
        with_values("state", "random", lambda values: np.array(["nothing"] * len(values))),
    ],
)
def test_what_was_changed_is_refused_whole(whole, spoil, tmp_path):
    tree = whole.copy(deep=True)
    try:
        spoil(tree)
    except ValueError:  # xarray does not take it
        return
    for use in (
        lambda: continue_posterior(tree, draws=4),
        lambda: save_posterior(tree, tmp_path / "tree.nc"),
        lambda: posterior_models(tree),
    ):
        with pytest.raises(MKMCError, match=r"damaged, or not whole"):
            use()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "part",
    [
        {"draw": slice(0, 20)},
        {"draw": slice(None, None, 10)},
        {"draw": slice(20, None)},
        {"chain": 0},
        {"chain": [0, 1]},
    ],
)
@pytest.mark.parametrize("keep", ["all", []])
def test_a_part_of_a_posterior_is_none(part, keep):
    options = {"degrees_of_freedom": 9, "strength": 1.0} | SHORT
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        tree = sample_posterior(small_stack(), keep=keep, **options)
    try:
        cut = tree.isel(part)
    except ValueError:
        return  # xarray has no such part
    if part == {"chain": [0, 1]}:  # whole chains are a posterior
        assert posterior_models(cut).sizes["chain"] == 2
        return
    with pytest.raises(MKMCError, match=r"damaged, or not whole"):
        posterior_models(cut)


def test_a_layout_that_is_no_number_is_refused(whole):
    tree = whole.copy()
    tree.attrs["mkmc_prob_posterior_layout"] = np.array([1, 1])
    with pytest.raises(MKMCError, match="not a posterior"):
        continue_posterior(tree, draws=4)


def test_a_flipped_bit_is_noticed(whole, tmp_path):
    """Numbers have HDF5's checksums: damaged ones are rejected."""
    save_posterior(whole, tmp_path / "whole.nc")
    data = (tmp_path / "whole.nc").read_bytes()
    mean = whole["state"]["mean"].values.tobytes()
    place = data.find(mean)
    assert place > 0
    damaged = bytearray(data)
    damaged[place + 11] ^= 1
    (tmp_path / "damaged.nc").write_bytes(bytes(damaged))
    with pytest.raises(MKMCError, match="not readable as a netCDF file"):
        load_posterior(tmp_path / "damaged.nc")


@short
@pytest.mark.parametrize("where", ["tree", "diagnostics"])
def test_a_late_interrupt_throws_nothing_away(monkeypatch, where):
    """Ctrl-C while the result is put together, and during the diagnostics."""
    if where == "tree":
        original = posterior_run.visible_objects

        def strike(stack):
            signal.raise_signal(signal.SIGINT)
            return original(stack)

        monkeypatch.setattr(posterior_run, "visible_objects", strike)
    else:

        def interrupt(tree):
            raise KeyboardInterrupt

        monkeypatch.setattr(sampling, "warn_of_chains", interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        options = {"degrees_of_freedom": 9, "strength": 1.0} | SHORT
        with pytest.warns(ConvergenceWarning, match="whether the chains have mixed was not"):
            tree = sample_posterior(small_stack(), **options)
    finally:
        assert signal.signal(signal.SIGINT, before) is signal.default_int_handler
    assert tree["posterior"].sizes["draw"] == SHORT["draws"]


@pytest.mark.parametrize("path", [None, 5])
def test_a_path_is_one(path, whole):
    for use in (lambda: load_posterior(path), lambda: save_posterior(whole, path)):
        with pytest.raises(MKMCError, match=r"path: .* the name of a file is needed"):
            use()


def test_degrees_of_freedom_of_other_dims_are_refused():
    options = {"strength": 1.0} | SHORT
    for wrong, error, message in (
        (xr.DataArray(np.full((2, 2), 9.0)), KernelError, "2 dims found"),
        (np.full((2, 2), 9.0), KernelError, "2 dims found"),
        (
            xr.DataArray([9.0, 9.0], dims="object", coords={"object": ["Q1", "Q2"]}),
            LabelError,
            "labeled by 'object'",
        ),
    ):
        with pytest.raises(error, match=message):
            sample_posterior(small_stack(), degrees_of_freedom=wrong, **options)


# Sources and structures


MODELS = {
    "constants": {},
    "sharing": {"sharing": [1.0, 0.5]},
    "PPCA": {"structure": "PPCA(2)"},
    "FactorAnalysis": {"structure": "FactorAnalysis(1)", "sharing": [0.4, 1.0]},
}


@short
@pytest.mark.parametrize(
    ("model", "keep"),
    [*zip(MODELS, ["all", [("a", "b")], [("a", "b")], "all"], strict=True)],
)
def test_a_run_with_sources_is_saved_and_continued(model, keep, tmp_path):
    stack = 3.0 * small_stack() + 2.0
    options = {"degrees_of_freedom": 12, "strength": 2.0, "tune": 5, "seed": 2, "keep": keep}
    options |= MODELS[model]
    whole, part = (sample_posterior(stack, draws=draws, **options) for draws in (30, 12))
    save_posterior(part, tmp_path / "part.nc")
    again = load_posterior(tmp_path / "part.nc")
    assert again.identical(part)
    longer = continue_posterior(again, draws=18)
    for group in ("posterior", "sample_stats", "start", "sources"):
        assert longer[group].identical(whole[group])
    for name, values in whole["state"].data_vars.items():
        if name not in ("mean", "squares"):
            np.testing.assert_array_equal(longer["state"][name], values)


@short
def test_draws_with_sources_do_not_depend_on_the_workers():
    stack = 3.0 * small_stack() + 2.0
    options = {"degrees_of_freedom": 12, "strength": 2.0, "draws": 20, "tune": 5, "seed": 2}
    options |= MODELS["sharing"]
    one, two = (sample_posterior(stack, workers=w, **options) for w in (1, 2))
    assert one.identical(two)


@short
def test_a_tree_of_the_first_layout_is_the_papers_posterior():
    options = {"degrees_of_freedom": 9, "strength": 1.0} | SHORT
    tree = sample_posterior(small_stack(), sources="identical", **options)
    first = tree.copy()
    del first["sources"]
    del first.attrs["structure"]
    first.attrs["mkmc_prob_posterior_layout"] = 1
    longer = continue_posterior(first, draws=5)
    assert longer.identical(continue_posterior(tree, draws=5))


def test_the_papers_posterior_has_the_draws_it_had():
    """As version 0.1.0 drew them, to rounding."""
    options = {"degrees_of_freedom": 9, "strength": 1.0, "draws": 80, "tune": 20, "seed": 3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        tree = sample_posterior(small_stack(), sources="identical", **options)
    levels = [-103.89211091, -100.64521518, -100.35141359, -104.87603264]
    entries = [-0.0603742704, -0.3317699375, -0.0891649005, -0.0407312984]
    np.testing.assert_allclose(tree["sample_stats"]["lp"].values[:, -1], levels, rtol=1e-6)
    np.testing.assert_allclose(tree["posterior"]["model"].values[:, -1, 1], entries, rtol=1e-6)
