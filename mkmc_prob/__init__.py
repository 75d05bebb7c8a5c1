"""Mutual Kernel Matrix Completion: complete several incomplete kernel matrices at once by EM.

The way through the package: `stack_kernels` aligns kernels by label, `fit` completes them and
returns an `MKMCResult`. `WishartPrior`, `GaussianModel`, `ConditionalGaussian` and `EM` are the
same computation step by step.
"""

from . import datasets, diagnostics, experiments, io, plots
from .baselines import mean_impute, zero_impute
from .conditional import ConditionalGaussian
from .effective import effective_degrees_of_freedom, reduce_rank
from .em import EM
from .errors import (
    ConvergenceWarning,
    IdentifiabilityWarning,
    IndefiniteKernelError,
    KernelError,
    LabelError,
    MKMCError,
    MKMCWarning,
    MonotonicityError,
)
from .expected import ExpectedStatistics
from .fit import fit
from .gibbs import GibbsSampler
from .imputation import sample_completed
from .information import missing_information
from .kernels import stack_kernels, visible_objects
from .maxima import Maxima, explore_maxima
from .metrics import correlation_matrix_distance, kl_divergence, relative_error
from .missingness import remove_objects
from .model import GaussianModel
from .pooling import pool_estimates
from .posterior import continue_posterior, load_posterior, sample_posterior, save_posterior
from .posterior_tree import posterior_entry, posterior_models
from .preprocessing import center, describe, normalize, repair_spectrum
from .prior import WishartPrior
from .result import MKMCResult, load_result
from .selection import select_strength
from .strengths import StrengthSelection

__version__ = "0.1.0"

__all__ = [
    "EM",
    "ConditionalGaussian",
    "ConvergenceWarning",
    "ExpectedStatistics",
    "GaussianModel",
    "GibbsSampler",
    "IdentifiabilityWarning",
    "IndefiniteKernelError",
    "KernelError",
    "LabelError",
    "MKMCError",
    "MKMCResult",
    "MKMCWarning",
    "Maxima",
    "MonotonicityError",
    "StrengthSelection",
    "WishartPrior",
    "center",
    "continue_posterior",
    "correlation_matrix_distance",
    "datasets",
    "describe",
    "diagnostics",
    "effective_degrees_of_freedom",
    "experiments",
    "explore_maxima",
    "fit",
    "io",
    "kl_divergence",
    "load_posterior",
    "load_result",
    "mean_impute",
    "missing_information",
    "normalize",
    "plots",
    "pool_estimates",
    "posterior_entry",
    "posterior_models",
    "reduce_rank",
    "relative_error",
    "remove_objects",
    "repair_spectrum",
    "sample_completed",
    "sample_posterior",
    "save_posterior",
    "select_strength",
    "stack_kernels",
    "visible_objects",
    "zero_impute",
]
