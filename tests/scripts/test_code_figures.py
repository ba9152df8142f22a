"""The figures of a checkout's code: which files count, and what is counted."""

from pathlib import Path

import pytest

from scripts.code_figures import figures, main


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    files = {
        "src/__init__.py": "x = 1\n",
        "src/a.py": "def f(a: int, b):\n    return a\n\n\ndef g():\n    # why\n    return 1\n",
        "src/a_test.py": "y = 1\n" * 50,
        "src/deep/test_b.py": "y = 1\n" * 50,
        "other/c.py": "z = 1\n" * 9,
        "README.md": "one - two\n",
        "docs/page.md": "three\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_named_folders_count_without_what_is_left_out(checkout: Path):
    found = figures(checkout, ["src"], ["test_*", "*_test.py"])
    assert (found["modules"], found["lines"], found["longest function (lines)"]) == (1, 7, 3)
    assert (found["typed arguments (%)"], found["words of docs"]) == (50, 3)
    assert figures(checkout, ["src", "other"])["lines"] == 7 + 50 + 50 + 9


def test_a_folder_that_does_not_exist_is_refused(checkout: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main([str(checkout), "sources"])
    assert "has no folder sources" in capsys.readouterr().err
