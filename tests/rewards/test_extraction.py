"""Extraction of the answer from a response."""

import pytest

from rewards.extraction import MAX_ANSWER_CHARACTERS, extract_block, extract_last_line

LONG = "a thought, " * 10_000
"""More than an answer may have: thinking may take any length."""


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("def f(a):\n return a", "def f(a):\n return a"),
        (" x = 1\n", " x = 1"),
        ("Here:\n```python\na = 1\n```\nbye", "a = 1"),
        ("```python\ndraft\n```\n```python\nfinal\n```", "final"),
        ("```\nplain\n```", "plain"),
        ("```Python\na\n```", "a"),
        ("```python\na\n```\nand\n```bash\nls\n```", "a"),
        ("```bash\nls\n```", None),
        ("```python\n```", None),
        ("```python\na\n```\nOr:\n```python\ncut", "a"),
        ("Sure:\n```python\ncut", "Sure:\n```python\ncut"),
        ("Sure:\r\n```python\r\na = 1\r\nb\r\n```\r\nBye", "a = 1\r\nb"),
        # `py3` is Python, and what follows without a tag is most often its output.
        ("Use `f`:\n```py3\nprogram\n```\nIt prints:\n```\n2\n```", "program"),
        ("```\n1\n```\n```python copy\na\n```\n```\nO(1)\n```", "a"),
        ("```\ndraft\n```\n```\nfinal\n```\n```text\n2\n```", "final"),
        ("```py\na\n```\n```python3\nb\n```", "b"),
        ("```pyrex\na\n```", None),
        ("1. So:\n   ```python\n   if a:\n       b\n   ```", "if a:\n    b"),
        ("", None),
        ("\n \t", None),
        ("x" * (MAX_ANSWER_CHARACTERS + 1), None),
        (f"<think>\n{LONG}</think>" + "x" * (MAX_ANSWER_CHARACTERS + 1), None),
        (f"<think>\n{LONG}</think>\n```python\na\n```", "a"),
        ("<think>\nFirst.\n</think>\na = 1", "a = 1"),
        (f"<think>\n```python\n{LONG}\n```\n</think>\na = 1", "a = 1"),  # no program of any length
        ("```" + " " * 60_000, "```" + " " * 60_000),  # once quadratic: 48 s
    ],
)
def test_the_last_block_in_the_language_or_the_whole_text(response, answer):
    assert extract_block(response, "python") == answer


@pytest.mark.parametrize("tag", ["sql", "SQLite", "postgresql", "mysql"])
def test_the_dialects_of_sql_are_sql_and_other_languages_are_none(tag):
    assert extract_block(f"```{tag}\nselect 1\n```\nResult:\n```\n2\n```", "sql") == "select 1"
    assert extract_block(f"```{tag}\nselect 1\n```", "python") is None


@pytest.mark.parametrize(
    ("response", "line"),
    [
        ("3", "3"),
        ("because\n 3 \n\n", "3"),
        ("\n", None),
        ("", None),
        (f"{LONG}</think>", None),
        (f"{LONG}</think>3", "3"),
    ],
)
def test_the_last_line(response, line):
    assert extract_last_line(response) == line
