"""
EM, step by step
================

`fit` calls the very methods that are called here one by one: the derivation made executable.
"""

# %%
# Two kernels over three objects. The first does not show the last object, the second not the first.

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
# The E-step takes expectations at a model, the M-step makes the best model of them. At the model at
# which the expectations were taken, Q-function plus entropy is the penalized log-likelihood: the
# identity behind EM.

model = em.initial_model()
for iteration in range(4):
    statistics = em.e_step(model)
    level = em.penalized_log_likelihood(model)
    assert np.isclose(em.q_function(model, statistics) + em.entropy(statistics), level)
    print(f"{iteration}: {level:.6f} nats")
    model = em.m_step(statistics)

# %%
# The E-step rests on the regression of what is hidden on what is visible, and on the conditional
# covariance that it leaves.

conditional = model.condition([True, True, False])
print("regression of object 2 on 0 and 1:", conditional.regression.ravel().round(3))
print("conditional covariance:", conditional.covariance.ravel().round(3))

# %%
# A step's gain has two parts, neither of which can be negative: what the M-step gains in the
# Q-function, and the divergence between what was expected of the hidden part before the step and
# after it.

fit(stack, strength=0.5, method="em", tol=1e-9).plot_gain_parts()
