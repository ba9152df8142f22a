"""The console command ``skillcredit``: ``python -m recipe`` of this checkout, from any folder.

It stands beside the packages because TransferQueue installs a ``recipe/``, which an installed command would find first.
"""

import os
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent


def main() -> int:
    """Run the command line with this checkout's packages, in the processes that it starts too; the exit status."""
    sys.path.insert(0, str(CHECKOUT))
    others = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(CHECKOUT), *([others] if others else [])])

    from recipe.__main__ import main as run

    return run(sys.argv[1:])
