"""
Choosing the model
==================

The strength of the prior and what each kernel shares with the others are chosen by held-out
objects.
"""

# %%
# `select_model` hides a quarter of each kernel's visible objects in each of five draws, fits
# without them, and scores the held-out block given the rest. The truth is not needed. One kernel
# of random features is unrelated to the others.

import numpy as np
import pandas as pd

from mkmc_prob import datasets, fit, remove_objects, select_model, stack_kernels

digits, _ = datasets.load_multiple_features(6, sources=["fac", "kar", "zer"])
x = np.random.default_rng(0).standard_normal((60, 20))
kernels = {name: digits.sel(kernel=name).to_pandas() for name in ("fac", "kar", "zer")}
kernels["unrelated"] = pd.DataFrame(x @ x.T, *[digits["object"].values] * 2)
incomplete = remove_objects(stack_kernels(kernels), 0.3, seed=0)
selection = select_model(incomplete)
print(selection)

# %%
# The relative errors of the held-out rows: the model, each kernel completed from itself alone, and
# simple imputation.

selection.plot()

# %%
# All candidates:

print(selection.table.iloc[:, :5].round(3).to_string())

# %%
# `fit` takes the choice.

print(fit(incomplete, **selection.best))
