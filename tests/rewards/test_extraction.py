"""Extraction of the answer from a response."""

import pytest

from rewards.extraction import MAX_ANSWER_CHARACTERS, extract_block, extract_last_line


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
        ("Use `f`:\n```py3\nold\n```\n```\nnew\n```", "new"),
        ("", None),
        ("\n \t", None),
        ("x" * (MAX_ANSWER_CHARACTERS + 1), None),
        ("```" + " " * 60_000, "```" + " " * 60_000),  # once quadratic: 48 s
    ],
)
def test_the_last_block_in_the_language_or_the_whole_text(response, answer):
    assert extract_block(response, "python") == answer


@pytest.mark.parametrize(("response", "line"), [("3", "3"), ("because\n 3 \n\n", "3"), ("\n", None), ("", None)])
def test_the_last_line(response, line):
    assert extract_last_line(response) == line
