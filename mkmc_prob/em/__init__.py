"""The EM algorithm: statistics, steps, stopping rules, the ascent and its trace."""

from . import full, low_rank

__all__ = ["full", "low_rank"]
