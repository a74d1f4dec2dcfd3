"""Writes docs/findings/ anew: `make pages`."""

from pathlib import Path

from evertable.check.rules import all_pages

folder = Path(__file__).parent / "findings"
for page in folder.glob("*.md"):
    page.unlink()
for code, text in all_pages().items():
    (folder / f"{code}.md").write_text(text)
