"""Kernel matrices and stacks from files and into files; a module per kind of file."""

from .stacks import read_stack, write_stack
from .text import read_kernel

__all__ = ["read_kernel", "read_stack", "write_stack"]
