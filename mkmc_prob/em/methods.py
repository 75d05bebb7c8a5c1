"""The methods of ascent by name."""

from .geodesic import Geodesic
from .squarem import Squarem
from .state import EMSteps

METHODS: dict[str, type[EMSteps]] = {"em": EMSteps, "geodesic": Geodesic, "squarem": Squarem}
