"""Mutual Kernel Matrix Completion: complete several incomplete kernel matrices at once by EM."""

__version__ = "0.1.0"
