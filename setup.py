"""The build's own step: the grammar's tables are made where the package is put together.

A build without Lark leaves them out; the first text that is read then has them made and kept.
"""

import sys
from pathlib import Path
from types import ModuleType

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent


class BuildWithTables(build_py):
    """Beside the copied sources, or in the tree itself where that is what gets installed."""

    def run(self) -> None:
        super().run()
        package = ModuleType("hlo")  # its own start needs more than a build has
        package.__path__ = [str(ROOT / "hlo")]
        sys.modules["hlo"] = package
        try:
            from hlo.parser import grammar  # from the tree, under the name above
        except ImportError as error:
            self.warn(f"no tables of the grammar: {error}")
            return
        place = ROOT if self.editable_mode else Path(self.build_lib)
        (place / "hlo" / "parser" / grammar.FILE).write_bytes(grammar.made(grammar.grammar_text()))


setup(cmdclass={"build_py": BuildWithTables})
