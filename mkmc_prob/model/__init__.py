"""The statistical model: the prior, the Gaussian, its conditional distributions."""
