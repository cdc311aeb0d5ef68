# SPDX-License-Identifier: Apache-2.0
"""Hook of mkdocs: READMEs beside the code are pages of the site, and links that leave docs/ lead to these.

Pages are written for the repository, where all links are relative paths. A link to a file of the repository that is no page
ends the build, for it would lead nowhere on the site.
"""

import os
import re

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

# Path in the repository: page of the site.
PARTS = {
    "charts/splitfs/README.md": "parts/chart.md",
    "csi-driver/README.md": "parts/csi-driver.md",
    "hack/README.md": "parts/scripts.md",
    "kernel-patch/README.md": "parts/kernel-patch.md",
    "kernel-patch/ext4_relink.md": "parts/ext4-relink.md",
    "kernel-patch/ext4_changes.md": "parts/ext4-changes.md",
    "libsplit/bindings/go/README.md": "parts/go.md",
    "libsplit/bindings/java/README.md": "parts/java.md",
    "libsplit/bindings/python/README.md": "parts/python.md",
    "libsplit/bindings/rust/README.md": "parts/rust.md",
    "libsplit/examples/README.md": "parts/examples.md",
}
SOURCES = {page: path for path, page in PARTS.items()}
# The README of the repository says the same as the landing page.
PAGES = {**PARTS, "README.md": "index.md"}
LINK = re.compile(r"(\]\()([^)\s#]+\.[A-Za-z0-9]+)(#[^)\s]*)?(\))")
CODE = re.compile(r"(^ *```.*?^ *```|`[^`\n]*`)", re.MULTILINE | re.DOTALL)


def on_files(files, config):
    """Adds the READMEs."""
    root = os.path.dirname(config["docs_dir"])
    for path, page in PARTS.items():
        files.append(File.generated(config, page, abs_src_path=os.path.join(root, path)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Makes links between files of the repository links between pages."""
    here = page.file.src_uri
    source = SOURCES.get(here, "docs/" + here)

    def lead(match):
        target, anchor = match.group(2), match.group(3) or ""
        if "://" in target:
            return match.group(0)
        path = os.path.normpath(os.path.join(os.path.dirname(source), target))
        uri = PAGES.get(path) or (path[len("docs/"):] if path.startswith("docs/") else None)
        if uri is None:
            raise PluginError(f"{source}: {target} is no page of the site; link to a page, or name the file in code")
        return match.group(1) + os.path.relpath(uri, os.path.dirname(here) or ".") + anchor + match.group(4)

    pieces = CODE.split(markdown)
    pieces[::2] = [LINK.sub(lead, text) for text in pieces[::2]]
    return "".join(pieces)
