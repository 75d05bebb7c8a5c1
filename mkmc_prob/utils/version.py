"""The version of the package, as its files and its metadata state it."""

__version__ = "0.2.0"
