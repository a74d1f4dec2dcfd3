"""Writes docs/findings/ anew: `make pages`."""

from pathlib import Path

from evertable.check.rules import all_pages
from evertable.plan.pages import all_pages as pages_of_changes

folder = Path(__file__).parent / "findings"
for page in folder.glob("*.md"):
    page.unlink()
for code, text in (all_pages() | pages_of_changes()).items():
    (folder / f"{code}.md").write_text(text)
