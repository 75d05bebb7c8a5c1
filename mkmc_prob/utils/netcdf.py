"""Reading and writing netCDF files."""

from typing import Any

import xarray as xr

from ..errors import MKMCError
from .files import a_path


def open_tree(path: Any) -> xr.DataTree:
    """Return the whole tree of a netCDF file; raise where there is none to be read."""
    path = a_path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file.")
    try:
        # Entries are taken as they stand: no attribute scales them.
        with xr.open_datatree(path, engine="h5netcdf", mask_and_scale=False) as opened:
            return opened.load()
    except Exception as error:  # decoders raise nearly anything
        raise MKMCError(f"{path}: not a netCDF file that can be read: {error}") from error
