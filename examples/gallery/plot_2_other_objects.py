"""
Kernels over different objects
==============================

Three sources that cover different objects in different orders are aligned by label and completed.
"""

# %%
# Three sources measure four features of ten genes with noise. Each covers seven of the genes.

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
# `objects` sets the order of the objects; by default it is that of their first appearance.

stack = stack_kernels(kernels, objects=genes)
print(describe(stack).to_string())
plots.plot_kernels(stack)

# %%
# If no source covers two genes together, the kernels only bound their entry, and the prior chooses
# within the bounds. Such pairs are marked.

result = fit(stack)
print(result)
result.plot_kernels()

# %%
# The number of sources that cover each pair of genes:

result.plot_pair_counts()
