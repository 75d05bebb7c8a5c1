"""Fits and what is built on them: results, selection, maxima, missing information."""
