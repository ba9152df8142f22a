"""Write the CPU platform as a folder that needs verl and nothing else of this project (docs/upstream.md).

python -m scripts.cpu_platform FOLDER
"""

import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = {
    "upstream/cpu_platform": "",
    "workers/__init__.py": "workers/__init__.py",
    "workers/cpu": "workers/cpu",
    "workers/digests": "workers/digests",
    "configs/platform/cpu.yaml": "platform/cpu.yaml",
}
"""Paths in the checkout, and where they lie in the folder."""


def write_folder(folder: Path) -> None:
    """Copy the parts into a new folder.

    Raises:
        FileExistsError: the folder exists.
    """
    folder.mkdir(parents=True)
    for source, place in PARTS.items():
        copied = ROOT / source
        if copied.is_dir():
            unwanted = shutil.ignore_patterns("__pycache__")
            shutil.copytree(copied, folder / place, ignore=unwanted, dirs_exist_ok=True)
        else:
            (folder / place).parent.mkdir(exist_ok=True)
            shutil.copyfile(copied, folder / place)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        write_folder(Path(sys.argv[1]))
    except FileExistsError:
        sys.exit(f"{sys.argv[1]} exists; name a new folder")
