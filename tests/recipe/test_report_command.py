import re

import pytest

from data_prep.made_from import ROOT
from recipe import report


def test_one_help_names_every_subcommand_with_what_it_reports(capsys):
    with pytest.raises(SystemExit, match="0"):
        report.main(["--help"])
    printed = capsys.readouterr().out
    for name, module in report.SUBCOMMANDS.items():
        assert name in printed
        assert module.__doc__ is not None
        assert module.__doc__.split(":")[0].split(",")[0].split()[0] in printed


def test_the_table_of_commands_names_every_subcommand():
    page = (ROOT / "docs/reference/running.md").read_text()
    rows = re.findall(r"^\| `recipe\.report ([a-z\\|]+) ", page, re.MULTILINE)
    assert sorted("|".join(rows).replace("\\", "").split("|")) == sorted(report.SUBCOMMANDS)


@pytest.mark.parametrize("name", report.SUBCOMMANDS)
def test_a_subcommand_explains_its_own_options(name: str, capsys):
    with pytest.raises(SystemExit, match="0"):
        report.main([name, "--help"])
    assert f"usage: python -m recipe.report {name} " in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["summarize"], ["speed"]])
def test_an_unknown_or_incomplete_subcommand_is_refused(arguments: list[str], capsys):
    with pytest.raises(SystemExit, match="2"):
        report.main(arguments)
    assert "usage: python -m recipe.report" in capsys.readouterr().err


def test_a_refusal_names_the_subcommand(tmp_path, capsys):
    assert report.main(["speed", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"recipe.report speed: {tmp_path} holds no finished run\n"


def test_a_file_that_cannot_be_written_is_reported_in_one_line(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(report.SUBCOMMANDS["page"], "run", lambda options: options.out.write_text(""))
    assert report.main(["page", "RUN", "--out", str(tmp_path / "none" / "page.html")]) == 2
    assert capsys.readouterr().err.startswith("recipe.report page: [Errno 2] No such file or directory")
