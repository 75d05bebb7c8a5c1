"""The EM algorithm: statistics, steps, stopping rules, the ascent and its trace."""
