"""Use the installed wheel as a person would, away from the repository.

What enters: what only an installation can break (the bundled data, the typing marker, the
licences). Everything else is in tests/.
"""

from importlib import metadata, resources
from pathlib import Path

import mkmc_prob

home = Path(mkmc_prob.__file__).parent
assert "site-packages" in home.parts, f"imported from {home}, not from the installed wheel"
assert metadata.version("mkmc-prob") == mkmc_prob.__version__
assert resources.files("mkmc_prob").joinpath("py.typed").is_file()
licences = [file.name for file in metadata.files("mkmc-prob") or [] if "licenses" in file.parts]
assert sorted(licences) == ["LICENSE", "LICENSE.md"], licences

complete = mkmc_prob.datasets.load_multiple_features(5).kernels
stack = mkmc_prob.remove_objects(complete, 0.3, seed=0)
result = mkmc_prob.fit(stack)
assert result.converged
assert not result.completed.isnull().any()
print(result.summary())
print(f"mkmc_prob {mkmc_prob.__version__}, from its wheel: OK")
