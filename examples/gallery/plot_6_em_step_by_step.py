"""
EM, step by step
================

The steps of the derivation for the paper's model, called one by one. `fit` calls the same methods.
"""

# %%
# Two kernels over three objects. The last object is missing from the first kernel, and the first
# object from the second kernel.

import numpy as np

from mkmc_prob import EM, WishartPrior, fit, stack_kernels

kernels = np.array(
    [
        [[2.0, 1.0, 0.5], [1.0, 2.0, 1.0], [0.5, 1.0, 2.0]],
        [[1.0, 0.2, 0.1], [0.2, 1.0, 0.3], [0.1, 0.3, 1.0]],
    ]
)
stack = stack_kernels(kernels, visible=[[1, 1, 0], [0, 1, 1]])
em = EM(stack, WishartPrior(0.5))

# %%
# The E-step computes expectations at a model, and the M-step computes the model that maximizes the
# Q-function given these expectations. At the model of the E-step, the Q-function plus the entropy
# equals the penalized log-likelihood. EM rests on this identity.

model = em.initial_model()
for iteration in range(4):
    statistics = em.e_step(model)
    level = em.penalized_log_likelihood(model)
    assert np.isclose(em.q_function(model, statistics) + em.entropy(statistics), level)
    print(f"{iteration}: {level:.6f} nats")
    model = em.m_step(statistics)

# %%
# The E-step uses the regression of hidden on visible objects, and the conditional covariance of
# the hidden objects.

conditional = model.condition([True, True, False])
print("regression of object 2 on 0 and 1:", conditional.regression.ravel().round(3))
print("conditional covariance:", conditional.covariance.ravel().round(3))

# %%
# The gain of a step has two parts, neither of which can be negative: the rise of the Q-function in
# the M-step, and the divergence between the distributions of the hidden part before and after the
# step.

fit(stack, strength=0.5, sources="identical", method="em", tol=1e-9).plot_gain_parts()
