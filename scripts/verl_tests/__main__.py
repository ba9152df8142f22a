"""Run verl's own tests of what we override, with our classes in place of verl's; exit status 1 if one fails by them.

    python -m scripts.verl_tests                       # verl's repository at the tag of our pin, cloned
    python -m scripts.verl_tests CHECKOUT              # a folder with verl's tests/
    python -m scripts.verl_tests URL --tag v0.9.1      # another repository, or another tag

Tests run against the installed verl. Those that fail are run again with verl's own classes: what fails with these, too,
is not of ours (a test of another version, a missing kernel). Covered files, and why others are not: chosen.py.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import distribution, version
from pathlib import Path

from scripts.verl_tests.chosen import NOT_RUN, RUN

REPOSITORY = "https://github.com/verl-project/verl"
PROJECT = Path(__file__).resolve().parents[2]
SECONDS = 300
"""Time limit of a test."""


@dataclass(frozen=True)
class VerlOutcome:
    """One test of verl's. kind: passed, failed or skipped. why: the first line of the reason."""

    file: str
    test: str
    kind: str
    why: str = ""


def tests_of(source: str, tag: str, folder: Path) -> Path:
    """A folder with a copy of verl's tests/, and with the installed verl, whose files some of them read.

    Raises:
        SystemExit: the source cannot be cloned, or has no tests.
    """
    checkout = Path(source)
    if not (checkout / "tests").is_dir():
        checkout = folder / "checkout"
        clone = ["git", "clone", "--quiet", "--depth", "1", "--branch", tag, source, str(checkout)]
        if subprocess.run(clone, check=False).returncode:
            raise SystemExit(
                f"{source} could not be cloned at {tag}: give a folder with verl's tests/, or another --tag"
            )
    alone = folder / "alone"
    shutil.copytree(checkout / "tests", alone / "tests")
    (alone / "verl").symlink_to(str(distribution("verl").locate_file("verl")))
    return alone


def run(tests: Sequence[str], folder: Path, ours: bool) -> list[VerlOutcome]:
    """Outcomes of these files or tests, in one process. ours: with our classes."""
    report, called = folder / "report.xml", folder / "called"
    environment = os.environ | {
        "VERL_PLATFORM": "cpu",
        "WG_BACKEND": "ray",
        "PYTHONPATH": str(PROJECT),
        "RAY_ADDRESS": "",
    }
    environment |= {"VERL_TESTS_CALLED": str(called)} if ours else {}
    options = ["-p", "scripts.verl_tests.ours", "-c", os.devnull, "--rootdir", ".", "-q", "--no-header", "--tb=short"]
    options += ["--continue-on-collection-errors", "--disable-warnings"]
    options += [f"--deselect={name}" for name in NOT_RUN if "::" in name]
    command = [str(Path(sys.executable).with_name("pytest")), *options, f"--timeout={SECONDS}", f"--junitxml={report}"]
    report.unlink(missing_ok=True)  # of an earlier run
    subprocess.run([*command, *tests], cwd=folder, env=environment, check=False)
    if not report.exists():
        raise SystemExit("pytest did not end: see its output above")
    return [_outcome(case) for case in ElementTree.parse(report).iter("testcase")]


def _outcome(case: ElementTree.Element) -> VerlOutcome:
    parts, name = case.get("classname", "").split("."), case.get("name", "")
    in_class = [part for part in parts if part[:1].isupper()]
    file = "/".join(parts[: len(parts) - len(in_class)]) + ".py"
    if not parts[0]:  # an error while the file is read
        file, name = name.replace(".", "/") + ".py", ""
    kinds = {"failure": "failed", "error": "failed", "skipped": "skipped"}
    for element in case:
        if element.tag in kinds:
            lines = (element.get("message") or element.text or "").strip().splitlines()
            return VerlOutcome(file, "::".join([*in_class, name]), kinds[element.tag], lines[0] if lines else "")
    return VerlOutcome(file, "::".join([*in_class, name]), "passed")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", default=REPOSITORY, help="a folder with verl's tests/, or a repository")
    parser.add_argument(
        "--tag", default=f"v{version('verl')}", help="of the repository; default: the installed version"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = tests_of(arguments.source, arguments.tag, Path(made))
        present = [file for file in RUN if (folder / file).exists()]
        if not present:
            raise SystemExit(f"{arguments.source} has none of the chosen files")
        outcomes = run(present, folder, ours=True)
        called = (folder / "called").read_text().splitlines()
        failed = [outcome for outcome in outcomes if outcome.kind == "failed"]
        again = run(sorted({outcome.file for outcome in failed}), folder, ours=False) if failed else []
    not_ours = {(each.file, each.test) for each in again if each.kind == "failed"}
    return report(outcomes, not_ours, called)


def report(outcomes: Sequence[VerlOutcome], not_ours: set[tuple[str, str]], called: Sequence[str]) -> int:
    """Print a line for each file, each test that did not pass, and what of ours ran; the command's exit status."""
    print("\npassed, failed, failed with verl's own classes too, skipped:")
    for file in RUN:
        own = [outcome for outcome in outcomes if outcome.file == file]
        lost = [outcome for outcome in own if outcome.kind == "failed"]
        too = [outcome for outcome in lost if (outcome.file, outcome.test) in not_ours]
        counts = [sum(each.kind == "passed" for each in own), len(lost) - len(too), len(too)]
        counts.append(sum(each.kind == "skipped" for each in own))
        print("{:5}{:5}{:5}{:5}  {}".format(*counts, file) if own else f"  not in this version   {file}")
        for each in own:
            if each.kind != "passed":
                kind = "fails without us too" if each in too else each.kind
                print(f"{'':22}{kind}: {each.test}: {each.why}")
    print("\nnot run:", *(f"{name}: {why}" for name, why in NOT_RUN.items()), sep="\n  ")
    print(f"\n{len(called)} functions of ours ran:", *called, sep="\n  ")
    failed = [each for each in outcomes if each.kind == "failed" and (each.file, each.test) not in not_ours]
    passed = sum(each.kind == "passed" for each in outcomes)
    print(f"\n{passed} of {len(outcomes)} tests passed; {len(failed)} failed with our classes alone")
    return 0 if passed and called and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
