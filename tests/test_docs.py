"""The documentation names what there is, its links resolve, and it stays short."""

import re
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import configs
from scripts.code_figures import words_of_pages

ROOT = Path(__file__).parents[1]
FOLDER = Path(configs.__path__[0])
RUNNING = ROOT / "docs" / "reference" / "running.md"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
DOOR = [ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]  # these also name commands of earlier releases, and patterns
OFFERED = sorted((ROOT / "upstream").rglob("*.md"))  # to other repositories; its words count there
WORDS = 18_000
WIDTH = 120

each_page = pytest.mark.parametrize("page", [*PAGES, *OFFERED], ids=lambda page: str(page.relative_to(ROOT)))
each_page_and_door = pytest.mark.parametrize(
    "page", [*PAGES, *OFFERED, *DOOR], ids=lambda page: str(page.relative_to(ROOT))
)


def test_the_table_names_every_group_of_the_configuration_and_only_files_that_exist():
    named = {}
    for group, files in re.findall(r"^\| `(\w+)` \| (.*?) \|", RUNNING.read_text(), re.MULTILINE):
        named[group] = set(re.findall(r"`(\w+)`", files))
    for group, files in re.findall(r"`(sft_\w+)` \((.*?)\)", RUNNING.read_text()):
        named[group] = set(re.findall(r"`(\w+)`", files))
    folders = (path for path in FOLDER.iterdir() if path.is_dir() and path.name != "__pycache__")
    files = {path.name: {file.stem for file in path.glob("[!_]*.yaml")} for path in folders}
    assert named.keys() == files.keys()
    assert {group: named[group] - files[group] for group in named if named[group] - files[group]} == {}


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchor(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    shown = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", shown.lower()).strip().replace(" ", "-")


def anchors(page: Path) -> set[str]:
    return {anchor(heading) for heading in re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)}


def links(page: Path) -> Iterator[str]:
    """Targets of a page's relative links and pictures."""
    inline = re.findall(r"\]\(\s*([^)\s]+)[^)]*\)", prose(page))
    referenced = re.findall(r"^\[[^\]]+\]:\s*(\S+)", prose(page), re.MULTILINE)
    html = re.findall(r"<(?:img|a|source)\b[^>]*?(?:src|href|srcset)=\"([^\"]+)\"", prose(page))
    return (link for link in (*inline, *referenced, *html) if not re.match(r"[a-z]+:", link))


def broken(page: Path) -> list[str]:
    """The relative links of a page whose file or anchor does not exist."""
    found = []
    for link in links(page):
        name, _, heading = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (heading and (target.suffix != ".md" or heading not in anchors(target))):
            found.append(link)
    return found


def is_runnable(module: str) -> bool:
    """Whether ``python -m MODULE`` would find something to run."""
    try:
        found = find_spec(module)
        if found and found.submodule_search_locations is not None:
            found = find_spec(f"{module}.__main__")
    except ModuleNotFoundError:
        return False
    return found is not None and found.origin is not None


def missing_commands(text: str) -> list[str]:
    """Modules behind ``python -m`` and files behind ``bash``, ``sbatch`` or a path that do not exist."""
    modules = re.findall(r"-m ((?:recipe|data_prep|rewards|scripts|examples|workers|benchmarks)(?:\.\w+)*)", text)
    modules += re.findall(r"(?:ray_submit\.sh|--dry-run) (recipe(?:\.\w+)*)", text)
    names = re.findall(r"(?<![\w./-])((?:recipe|data_prep|rewards)(?:\.[a-z_]+)+) --", text)  # without python -m
    files = re.findall(r"(?<![\w./-])((?:scripts|benchmarks)/[\w/]+\.(?:sh|py|sbatch))\b", text)
    made = made_by(text)
    missing = {one for one in (*modules, *names) if not is_runnable(one) and f"{one.replace('.', '/')}.py" not in made}
    missing |= {file for file in files if not (ROOT / file).is_file() and file not in made}
    return sorted(missing)


def made_by(text: str) -> set[str]:
    """Files that the page's own commands write, or that it shows whole."""
    return set(re.findall(r">\s*(scripts/[\w/]+\.sh)", text)) | set(re.findall(r"^```\w+ (\S+)$", text, re.MULTILINE))


def long_lines(text: str) -> list[str]:
    """Lines over the width, except rows of tables and lines that a link alone makes long."""
    shown = (re.sub(r"\]\([^)]*\)", "]", line) for line in text.splitlines() if not line.lstrip().startswith("|"))
    return [line for line in shown if len(line) > WIDTH and not re.fullmatch(r"\S*https?://\S+", line.strip())]


@pytest.mark.slow
@each_page_and_door
def test_links_resolve(page: Path):
    assert broken(page) == []


@pytest.mark.slow
@each_page
def test_commands_exist(page: Path):
    assert missing_commands(page.read_text()) == []


@each_page_and_door
def test_lines_fit_the_width(page: Path):
    assert long_lines(page.read_text()) == []


@pytest.mark.slow
def test_lines_of_launchers_and_configurations_fit_the_width():
    command = ["git", "ls-files", "-z", "*.sh", "*.yaml", "*.yml"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    files = [ROOT / name for name in listed.stdout.split("\0") if (ROOT / name).is_file()]
    assert len(files) > 100
    lines = {(str(file.relative_to(ROOT)), line) for file in files for line in file.read_text().splitlines()}
    assert sorted(one for one in lines if len(one[1]) > WIDTH) == []


def test_the_documentation_is_short():
    words = words_of_pages(ROOT)
    assert sum(words.values()) <= WORDS, words


def test_every_page_is_in_its_room():
    """Tutorial, pretrained model, architecture, upstream stand beside the folders of how-to, reference and evidence."""
    beside = {page.name for page in PAGES if page.parent == ROOT / "docs"}
    rooms = {page.relative_to(ROOT / "docs").parts[0] for page in PAGES[1:]} - beside
    assert beside == {"tutorial.md", "pretrained.md", "architecture.md", "upstream.md"}
    assert rooms == {"how-to", "reference", "evidence"}


def test_a_broken_page_is_noticed(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b`: c\n\n[x](#a-b-c) [x](page.md#a-b-c) [x](#d) [x](no.md)\n![y](no.png)\n```\n[z](no.md)\n```\n"
    )
    assert broken(page) == ["#d", "no.md", "no.png"]
    text = "python -m recipe.train, python -m recipe.nothing, python -m rewards.none; recipe.gone --out"
    assert missing_commands(text) == ["recipe.gone", "recipe.nothing", "rewards.none"]
    assert missing_commands("bash scripts/setup.sh, bash scripts/none.sh MODEL") == ["scripts/none.sh"]
    assert missing_commands("python -m recipe.training") == ["recipe.training"]  # a package that cannot be run
    assert long_lines(f"| {'x' * 130} |\n{'y' * 121}\n[z]({'a' * 130})\n") == ["y" * 121]
