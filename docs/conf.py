"""The Sphinx configuration of the documentation, which `make docs` builds offline.

A page that shows outputs is executed when the site is built. It begins with these lines:

    ---
    file_format: mystnb
    kernelspec:
      name: python3
    ---

and its cells are blocks that begin with {code-cell}. Blocks of plain ```python and pages without
these lines are not executed. Outputs are kept between builds until a file of the package changes.
"""

import hashlib
import os
import re
import shutil
import warnings
from importlib.metadata import files
from pathlib import Path

from numpy.typing import ArrayLike

import mkmc_prob

HERE = Path(__file__).parent
BUILD = HERE / "_build"
PACKAGE = Path(mkmc_prob.__file__).parent


def digest() -> str:
    """Return a digest of the code: outputs executed with another digest are out of date."""
    total = hashlib.sha256()
    helpers = [path for path in HERE.glob("*/*.py") if path.parent.name != "gallery"]
    for path in sorted([*PACKAGE.rglob("*.py"), *helpers]):
        total.update(path.read_bytes())
    return total.hexdigest()[:16]


DIGEST = digest()
LAST = BUILD / "built-with"  # the digest of the last complete build

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
# sphinx-gallery writes these in addition to its pages.
exclude_patterns = ["_build", "gallery/index.rst", "gallery/*.ipynb", "**sg_execution_times.rst"]
# Primes are not closing quotes.
smartquotes = False
# Indented blocks are formulas; code blocks name their language.
highlight_language = "none"
default_role = "py:obj"
# Equations of the derivation are numbered within pages: (3.2).
numfig = True
numfig_secnum_depth = 1
# Broken links are warnings, which `make docs` turns into errors, except links to other packages and
# to the names of types and protocols.
nitpicky = True
OTHERS = "numpy|np|xarray|xr|pandas|pd|matplotlib|scipy|tqdm|os|collections|typing|pathlib"
OTHERS += "|contextlib"
TYPES = "NDArray|ArrayLike|DegreesOfFreedom|DegreesOrAuto|PerObject|Batches|Method|Labels|Matrix"
TYPES += "|Vector|Axes"
PROTOCOLS = r"mkmc_prob\..*\.(FitResult|Selection|Chosen|Covered)"
# A literal with a comma in a union is read as two types.
UNIONS = r"mkmc_prob\..* \| .*Literal\[.*"
nitpick_ignore_regex = [
    ("py:.*", rf"({OTHERS})\..*"),
    ("py:class", f"{TYPES}|{PROTOCOLS}|{UNIONS}"),
]

# Links into the documentation of other packages need the network: off by default.
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

# The reference: one page per name, parameters as in numpydoc, types in the signature.
autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

# Markdown: formulas between dollars, links to headings as on Git hosts.
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

# MathJax is part of the site. The PyPI package holds the files of the npm package mathjax 3.2.2;
# those needed to typeset TeX and to read it aloud in English are copied.
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
    """Copy the required files of MathJax to the folder of static files."""
    found = [path for path in files("sphinx-mathjax-offline") if path.name == "tex-chtml.js"]
    source, target = Path(found[0].locate()).parent, BUILD / "mathjax" / "mathjax"
    for name in MATHJAX:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name, dirs_exist_ok=True)
        else:
            shutil.copy2(source / name, target / name)


def forget_stale(app, config) -> None:
    """Remove what earlier builds wrote for names and scripts that no longer exist."""
    names = set()
    for page in (HERE / "reference").glob("*.md"):
        for block in page.read_text().split("currentmodule:: ")[1:]:
            module, *lines = block.split("\n")
            names |= {f"{module}.{line.strip()}" for line in lines}
    for path in (HERE / "reference" / "generated").glob("*.rst"):
        if path.stem not in names:
            path.unlink()
    scripts = {path.stem for path in (HERE.parent / "examples" / "gallery").glob("*.py")}
    for path in (HERE / "gallery").glob("plot_*"):
        if path.name.partition(".")[0] not in scripts:
            path.unlink()


def find_short_name(app, env, node, content):
    """Link `fit` in a docstring to mkmc_prob.fit; names that are not public are left as text."""
    from sphinx.util.nodes import make_refnode

    if node.get("reftype") != "obj":
        return None
    objects = env.get_domain("py").objects
    for module in ("", ".datasets", ".diagnostics", ".experiments", ".io", ".plots"):
        name = f"mkmc_prob{module}.{node['reftarget'].removeprefix('mkmc_prob.')}"
        if name in objects:
            where = objects[name]
            return make_refnode(
                app.builder, node["refdoc"], where.docname, where.node_id, content, name
            )
    return content


def name_types(app, what, name, item, options, signature, returned):
    """Write ArrayLike and NDArray[...] instead of their expansions."""
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
    """Omit the fields of a named tuple, which its docstring describes."""
    return True if (item.__doc__ or "").startswith("Alias for field number") else None


def keep_bars(app, what, name, item, options, lines) -> None:
    """Read |x| in the text of a docstring as an absolute value, not as a substitution."""
    examples = next((i for i, line in enumerate(lines) if "Examples" in line), len(lines))
    literal = None  # the indentation of a line that ends in ::; deeper lines stay unchanged
    for number, line in enumerate(lines[:examples]):
        depth = len(line) - len(line.lstrip())
        if line.strip() and (literal is None or depth <= literal):
            literal = depth if line.endswith("::") else None
            if "``" not in line:
                lines[number] = line.replace("|", r"\|")


def add_anchors(app, doctree) -> None:
    """Add anchors by package and by module to names, since viewcode links to both."""
    from sphinx.addnodes import desc_signature

    for signature in doctree.findall(desc_signature):
        name = signature.get("fullname")
        if not name:
            continue
        item = mkmc_prob
        for part in f"{signature['module']}.{name}".split(".")[1:]:
            item = getattr(item, part, None)
        for module in ("mkmc_prob", getattr(item, "__module__", None)):
            if module and f"{module}.{name}" not in signature["ids"]:
                signature["ids"].append(f"{module}.{name}")


def note_digest(app, error) -> None:
    """After a complete build, record its digest and delete the outputs of other builds."""
    if error is None:
        for path in (BUILD / "executed").iterdir():
            if path.name != DIGEST:
                shutil.rmtree(path)
        LAST.write_text(DIGEST)


def setup(app) -> None:
    """Connect the functions above; every page is read again after a change of the package."""
    # With Agg, which the Makefile sets, executed pages would not show their figures.
    os.environ.pop("MPLBACKEND", None)
    os.environ["MATPLOTLIBRC"] = str(HERE / "matplotlibrc")
    # tqdm warns at import that widgets are not available, which are of no use here.
    os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"
    # Do not use the IPython configuration of the user who builds the site.
    os.environ["IPYTHONDIR"] = str(BUILD / "ipython")
    profile = BUILD / "ipython" / "profile_default"
    profile.mkdir(parents=True, exist_ok=True)
    (profile / "ipython_kernel_config.py").write_text(
        'get_config().IPKernelApp.log_level = "ERROR"\n'
    )
    # Most examples have such pairs; the page on first steps says that fit warns of them. The
    # gallery runs in this process.
    message = r"\d+ of \d+ pairs of objects (is|are) never observed together"
    warnings.filterwarnings("ignore", message)
    (profile / "startup").mkdir(exist_ok=True)
    (profile / "startup" / "filters.py").write_text(
        f'import warnings\nwarnings.filterwarnings("ignore", r"{message}")\n'
    )
    app.add_config_value("package_digest", DIGEST, "env")
    app.connect("config-inited", copy_mathjax, priority=1)  # before Sphinx looks for the folder
    app.connect("config-inited", forget_stale, priority=1)
    app.connect("autodoc-skip-member", skip_fields)
    app.connect("autodoc-process-signature", name_types)
    app.connect("autodoc-process-docstring", keep_bars, priority=900)  # after numpydoc
    app.connect("missing-reference", find_short_name)
    app.connect("doctree-read", add_anchors)
    app.connect("build-finished", note_digest)
