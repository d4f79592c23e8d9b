"""Build the documentation: ``make docs``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# The tutorials run while the pages are built, without a display and on the same device for everybody.
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

import vastgp

project = "vastgp"
copyright = "the vastgp maintainers"
author = "the vastgp maintainers"
version = release = vastgp.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_gallery.gen_gallery",
    "mathml",  # docs/_ext
]
root_doc = "index"
templates_path = ["_templates"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = [
    "_build",
    "examples",
    "tutorials/sg_execution_times.rst",
    "sg_execution_times.rst",
]
nitpicky = False

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"  # numpydoc sections say it in words, with shapes and units
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "tutorials",
    "filename_pattern": r"/plot_",
    "abort_on_example_error": True,
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "capture_repr": (),
    "remove_config_comments": True,
    "show_memory": False,
    "min_reported_time": 1e9,
    "write_computation_times": False,
}

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["vastgp.css"]
html_title = f"vastgp {release}"
html_show_sourcelink = False
