"""
Kernels over different objects
==============================

Three sources, each of which knows other objects, in another order: aligned by label and completed.
"""

# %%
# Three sources measure four features of ten genes, with noise; each covers seven of the genes.

import numpy as np
import pandas as pd

from mkmc_prob import describe, fit, plots, stack_kernels

rng = np.random.default_rng(3)
genes = [f"gene_{number}" for number in range(10)]
shared = rng.normal(size=(10, 4))
kernels = {}
for source in ("expression", "sequence", "interactions"):
    features = pd.DataFrame(shared + 0.5 * rng.normal(size=(10, 4)), index=genes)
    known = rng.permutation(genes)[:7]
    kernels[source] = features.loc[known] @ features.loc[known].T / 4
    print(f"{source:12}", *known)

# %%
# `objects` gives the order; without it, objects come in the order of their first appearance.

stack = stack_kernels(kernels, objects=genes)
print(describe(stack).to_string())
plots.plot_kernels(stack)

# %%
# A pair of genes that no source knows together is completed through other genes, and marked.

result = fit(stack, strength=1.0)
print(result)
result.plot_kernels()

# %%
# How many sources see each pair together:

result.plot_pair_counts()
