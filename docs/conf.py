"""The site: what Sphinx is told. `make docs` builds it, without a network.

A page whose outputs are shown is executed when the site is built; it says so in its first lines:

    ---
    file_format: mystnb
    kernelspec:
      name: python3
    ---

and its cells are blocks that begin with {code-cell}. Blocks of plain ```python, and all pages
without these lines, are shown as they are. Outputs are kept between builds, until a file of the
package changes.
"""

import hashlib
import os
import re
import shutil
from importlib.metadata import files
from pathlib import Path

from numpy.typing import ArrayLike

import mkmc_prob

HERE = Path(__file__).parent
BUILD = HERE / "_build"
PACKAGE = Path(mkmc_prob.__file__).parent


def digest() -> str:
    """Return a name for the code as it is: what was executed with another is out of date."""
    total = hashlib.sha256()
    beside = [path for path in HERE.glob("*/*.py") if path.parent.name != "gallery"]
    for path in sorted([*PACKAGE.rglob("*.py"), *beside]):
        total.update(path.read_bytes())
    return total.hexdigest()[:16]


DIGEST = digest()
LAST = BUILD / "built-with"  # the digest of the last whole build

project = "mkmc_prob"
author = "the mkmc_prob developers"
copyright = author
version = release = mkmc_prob.__version__

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
# sphinx-gallery leaves these beside its pages.
exclude_patterns = ["_build", "gallery/index.rst", "gallery/*.ipynb", "**sg_execution_times.rst"]
# Primes are primes, not closing quotes.
smartquotes = False
# Indented blocks are formulas; code says that it is.
highlight_language = "none"
default_role = "py:obj"
# Equations of the derivation are numbered by page: (3.2).
numfig = True
numfig_secnum_depth = 1
# What is linked to must be there: warnings, and `make docs` makes them errors. But not what belongs
# to others, and not the package's names of types.
nitpicky = True
OTHERS = "numpy|np|xarray|xr|pandas|pd|matplotlib|scipy|tqdm|os|collections|typing|pathlib"
TYPES = "NDArray|DegreesOfFreedom|PerObject|Batches|Method|Labels|Matrix|Vector|Axes"
nitpick_ignore_regex = [("py:.*", rf"({OTHERS})\..*"), ("py:class", TYPES)]

# Links into the documentation of others need its index from the network: off, unless asked for.
if os.environ.get("MKMC_DOCS_INTERSPHINX"):
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "scipy": ("https://docs.scipy.org/doc/scipy", None),
        "pandas": ("https://pandas.pydata.org/docs", None),
        "xarray": ("https://docs.xarray.dev/en/stable", None),
        "matplotlib": ("https://matplotlib.org/stable", None),
        "arviz": ("https://python.arviz.org/en/stable", None),
    }

# The reference: a page a name, its parameters as numpydoc has them, types in the signature.
autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

# Markdown: formulas between dollars, links to headings as Git hosts name them.
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

nb_execution_mode = "cache"
nb_execution_cache_path = str(BUILD / "executed" / DIGEST)
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True

sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "backreferences_dir": "reference/backreferences",
    "doc_module": ("mkmc_prob",),
    "reference_url": {"mkmc_prob": None},
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_signature": False,
    "show_memory": False,
    "image_srcset": ["2x"],
    "capture_repr": ("_repr_html_",),
    "min_reported_time": 10_000,
    "run_stale_examples": not LAST.exists() or LAST.read_text() != DIGEST,
}

html_theme = "sphinx_book_theme"
html_title = f"mkmc_prob {version}"
html_static_path = ["_static", "_build/mathjax"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {
    "home_page_in_toc": True,
    "show_navbar_depth": 1,
    "navbar_persistent": [],  # the search is in the sidebar
}
copybutton_exclude = ".linenos, .gp, .go"

# MathJax comes with the site. The PyPI package is only the carrier: its files are those of the
# npm package mathjax 3.2.2, and what typesetting TeX and reading it aloud in English needs of them
# is copied.
mathjax_path = "mathjax/tex-chtml.js"
mathjax3_config = {"tex": {"tags": "none"}}
MATHJAX = [
    "tex-chtml.js",
    "input/tex/extensions",
    "output/chtml/fonts",
    "a11y",
    "sre/mathmaps/base.json",
    "sre/mathmaps/en.json",
]


def copy_mathjax(app, config) -> None:
    """Lay what is needed of MathJax where the site takes its static files from."""
    found = [path for path in files("sphinx-mathjax-offline") if path.name == "tex-chtml.js"]
    source, target = Path(found[0].locate()).parent, BUILD / "mathjax" / "mathjax"
    for name in MATHJAX:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name, dirs_exist_ok=True)
        else:
            shutil.copy2(source / name, target / name)


def forget_stale(app, config) -> None:
    """Remove what earlier builds made of names and scripts that are gone."""
    names = set()
    for page in (HERE / "reference").glob("*.md"):
        for block in page.read_text().split("currentmodule:: ")[1:]:
            room, *lines = block.split("\n")
            names |= {f"{room}.{line.strip()}" for line in lines}
    for path in (HERE / "reference" / "generated").glob("*.rst"):
        if path.stem not in names:
            path.unlink()
    scripts = {path.stem for path in (HERE.parent / "examples" / "gallery").glob("*.py")}
    for path in (HERE / "gallery").glob("plot_*"):
        if path.name.partition(".")[0] not in scripts:
            path.unlink()


def find_short_name(app, env, node, content):
    """Link `fit` of a docstring to mkmc_prob.fit; what is no public name is a parameter, say."""
    from sphinx.util.nodes import make_refnode

    if node.get("reftype") != "obj":
        return None
    objects = env.get_domain("py").objects
    for room in ("", ".datasets", ".diagnostics", ".experiments", ".io", ".plots"):
        name = f"mkmc_prob{room}.{node['reftarget'].removeprefix('mkmc_prob.')}"
        if name in objects:
            where = objects[name]
            return make_refnode(
                app.builder, node["refdoc"], where.docname, where.node_id, content, name
            )
    return content


def name_types(app, what, name, item, options, signature, returned):
    """Write ArrayLike and NDArray[...] for what NumPy makes of them."""
    from sphinx.util.typing import stringify_annotation

    def named(text):
        if text is None:
            return None
        text = text.replace(stringify_annotation(ArrayLike, "smart"), "~numpy.typing.ArrayLike")
        return re.sub(
            r"~numpy\.ndarray\[tuple\[~typing\.Any, \.\.\.\], ~numpy\.dtype\[([^\[\]]+)\]\]",
            r"~numpy.typing.NDArray[\1]",
            text,
        )

    return named(signature), named(returned)


def skip_fields(app, what, name, item, skip, options):
    """Leave out a named tuple's fields: its docstring has said what they are."""
    return True if (item.__doc__ or "").startswith("Alias for field number") else None


def keep_bars(app, what, name, item, options, lines) -> None:
    """Let |x| be an absolute value in a docstring's prose, not a substitution."""
    examples = next((i for i, line in enumerate(lines) if "Examples" in line), len(lines))
    literal = None  # how far a line that ends in :: is indented; what is deeper stays as it is
    for number, line in enumerate(lines[:examples]):
        depth = len(line) - len(line.lstrip())
        if line.strip() and (literal is None or depth <= literal):
            literal = depth if line.endswith("::") else None
            if "``" not in line:
                lines[number] = line.replace("|", r"\|")


def add_anchors(app, doctree) -> None:
    """Let a page of source code find a name by the package or by its file: viewcode mixes them."""
    from sphinx.addnodes import desc_signature

    for signature in doctree.findall(desc_signature):
        name = signature.get("fullname")
        if not name:
            continue
        item = mkmc_prob
        for part in f"{signature['module']}.{name}".split(".")[1:]:
            item = getattr(item, part, None)
        for room in ("mkmc_prob", getattr(item, "__module__", None)):
            if room and f"{room}.{name}" not in signature["ids"]:
                signature["ids"].append(f"{room}.{name}")


def note_digest(app, error) -> None:
    """Note, after a whole build, what it was built with, and drop what others executed."""
    if error is None:
        for path in (BUILD / "executed").iterdir():
            if path.name != DIGEST:
                shutil.rmtree(path)
        LAST.write_text(DIGEST)


def setup(app) -> None:
    """Have every page read again after a change of the package."""
    # Agg, which the Makefile sets, would keep the pictures of executed pages from being shown.
    os.environ.pop("MPLBACKEND", None)
    os.environ["MATPLOTLIBRC"] = str(HERE / "matplotlibrc")
    # tqdm, at its import, misses the widgets that nobody could move here.
    os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"
    # A configuration of its own: not that of whoever builds.
    os.environ["IPYTHONDIR"] = str(BUILD / "ipython")
    profile = BUILD / "ipython" / "profile_default"
    profile.mkdir(parents=True, exist_ok=True)
    (profile / "ipython_kernel_config.py").write_text(
        'get_config().IPKernelApp.log_level = "ERROR"\n'
    )
    app.add_config_value("package_digest", DIGEST, "env")
    app.connect("config-inited", copy_mathjax, priority=1)  # before the folder is looked for
    app.connect("config-inited", forget_stale, priority=1)
    app.connect("autodoc-skip-member", skip_fields)
    app.connect("autodoc-process-signature", name_types)
    app.connect("autodoc-process-docstring", keep_bars, priority=900)  # after numpydoc
    app.connect("missing-reference", find_short_name)
    app.connect("doctree-read", add_anchors)
    app.connect("build-finished", note_digest)
