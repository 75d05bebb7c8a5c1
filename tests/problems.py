"""Problems that several test modules share: small stacks, the reference values, selections."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from strategies import random_covariance

from mkmc_prob import GaussianModel, StrengthSelection, fit, stack_kernels

REFERENCE = Path(__file__).parent / "reference"
#: Options of `fit`: the paper's model, at a strength for kernels of the prior's scale.
PAPER = {"sources": "identical", "strength": 0.1}
#: For what holds whatever the model: both are tried.
both_models = pytest.mark.parametrize("model", [{}, PAPER], ids=["adaptive", "identical"])


def small_stack(seed=0, size=6, kernels=3, missing=0.5):
    """A stack that fits quickly, every object visible somewhere."""
    rng = np.random.default_rng(seed)
    matrices = np.array([random_covariance(rng, size) for _ in range(kernels)])
    visible = rng.random((kernels, size)) > missing
    visible[rng.integers(kernels, size=size), np.arange(size)] = True
    visible[0, :3] = visible[1, 1:4] = visible[2, 3:] = True
    visible[0, 4:] = visible[1, 0] = visible[2, 0] = False
    return stack_kernels(matrices, visible=visible, objects=[f"p{i}" for i in range(size)])


def reference(name):
    return json.loads((REFERENCE / name).read_text())


def digits_kernels():
    """The six kernels of digits.json and its patterns of visible objects."""
    with np.load(REFERENCE / "digits_kernels.npz") as file:
        stored = dict(file)
    size = 200
    kernels = np.empty((6, size, size))
    rows, columns = np.triu_indices(size)
    kernels[:, rows, columns] = kernels[:, columns, rows] = stored.pop("upper")
    return kernels, stored


def selection_of(per_fold, *, held_out=None, lengths=None, strengths=(0.1, 1.0, 10.0, 100.0)):
    """A selection with these scores (strength, fold), of one kernel or as many as lengths has."""
    per_fold = np.asarray(per_fold, dtype=float)
    folds = per_fold.shape[1]
    held_out = np.full((folds, 1), 4) if held_out is None else np.asarray(held_out)
    kernels = held_out.shape[1]
    lengths = np.ones((len(strengths), folds, kernels)) if lengths is None else lengths
    # The sum over the kernels is per_fold times what the fold holds out.
    share = np.tile(held_out.sum(1)[:, None] / kernels, kernels)
    scores = xr.Dataset(
        {
            "log_density": (("strength", "fold", "kernel"), per_fold[:, :, None] * share),
            "held_out": (("fold", "kernel"), held_out),
            "predicted": (("fold", "kernel"), held_out),
            "mahalanobis": (("strength", "fold", "kernel"), np.asarray(lengths, dtype=float)),
        },
        coords={"strength": list(strengths), "kernel": [f"Q{k + 1}" for k in range(kernels)]},
    )
    return StrengthSelection(scores)


def beyond_double_precision():
    """A result whose model is singular over what its second kernel shows, as fits at 1e-50 are."""
    stack = stack_kernels(np.stack([np.eye(2)] * 2), visible=[[1, 0], [1, 1]])
    singular = GaussianModel.of(np.ones((2, 2)), np.arange(2))
    return dataclasses.replace(fit(stack, **PAPER, tol=0, max_iter=1), model=singular)


def norm2_problem():
    problem = reference("norm2.json")
    features = [np.array(own, dtype=float) for own in problem["features"]]
    visible = np.array([~np.isnan(own).any(axis=1) for own in features])
    kernels = np.array([np.nan_to_num(own) @ np.nan_to_num(own).T / 10 for own in features])
    return stack_kernels(kernels, visible=visible), problem
