"""The statistical model: the prior, the Gaussian, its conditional distributions.

Other structures of the model matrix belong here, too; their M-step is called in `em`.
"""
