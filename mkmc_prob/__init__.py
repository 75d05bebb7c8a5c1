"""Mutual Kernel Matrix Completion: complete several incomplete kernel matrices at once by EM.

`stack_kernels` aligns kernels by label, and `fit` completes them and returns an `MKMCResult`.
`WishartPrior`, `GaussianModel`, `ConditionalGaussian` and `EM` are the same computation step by
step.
"""

from typing import Any

from . import datasets, diagnostics, io, kernels, plots
from .em.em import EM
from .em.expected import ExpectedStatistics
from .errors import (
    ClusterError,
    ConvergenceWarning,
    IdentifiabilityWarning,
    IndefiniteKernelError,
    KernelError,
    LabelError,
    MKMCError,
    MKMCWarning,
    MonotonicityError,
)
from .evaluation.baselines import knn_impute, mean_impute, zero_impute
from .evaluation.missingness import remove_objects
from .evaluation.scores import correlation_matrix_distance, kl_divergence, relative_error
from .fitting.calibration import Calibration, calibrate
from .fitting.complete import complete
from .fitting.fit import fit
from .fitting.information import missing_information
from .fitting.maxima import Maxima, explore_maxima
from .fitting.model_selection import ModelSelection
from .fitting.result import MKMCResult, load_result
from .fitting.selection import select_model
from .fitting.sensitivity import sensitivity
from .fitting.standard_errors import standard_errors
from .fitting.strength_selection import StrengthSelection
from .fitting.strengths import select_strength
from .model.conditional import ConditionalGaussian
from .model.gaussian import GaussianModel
from .model.low_rank import LowRankModel
from .model.prior import WishartPrior
from .model.sources import Sources
from .model.structures import PPCA, FactorAnalysis
from .posterior.factor_gibbs import FactorGibbsSampler
from .posterior.gibbs import GibbsSampler
from .posterior.imputation import sample_completed
from .posterior.pooling import pool_estimates
from .posterior.sampling import continue_posterior, load_posterior, sample_posterior, save_posterior
from .posterior.tree import posterior_entry, posterior_models
from .stacks.build import stack_kernels
from .stacks.definite import repair_spectrum
from .stacks.effective import effective_degrees_of_freedom, reduce_rank
from .stacks.lazy_stack import LazyStack
from .stacks.preprocessing import center, describe, normalize
from .stacks.stack import visible_objects
from .utils.version import __version__ as __version__

__all__ = [
    "EM",
    "PPCA",
    "Calibration",
    "ClusterError",
    "ConditionalGaussian",
    "ConvergenceWarning",
    "ExpectedStatistics",
    "FactorAnalysis",
    "FactorGibbsSampler",
    "GaussianModel",
    "GibbsSampler",
    "IdentifiabilityWarning",
    "IndefiniteKernelError",
    "KernelError",
    "LabelError",
    "LazyStack",
    "LowRankModel",
    "MKMCError",
    "MKMCResult",
    "MKMCWarning",
    "Maxima",
    "ModelSelection",
    "MonotonicityError",
    "Sources",
    "StrengthSelection",
    "WishartPrior",
    "calibrate",
    "center",
    "complete",
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
    "kernels",
    "kl_divergence",
    "knn_impute",
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
    "select_model",
    "select_strength",
    "sensitivity",
    "stack_kernels",
    "standard_errors",
    "visible_objects",
    "zero_impute",
]


def __getattr__(name: str) -> Any:
    """Import the study only if it is used: it takes time that a fit does not need."""
    if name == "experiments":
        from importlib import import_module

        return import_module(f"{__name__}.experiments")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
