"""Which names a piece of code reads."""

import pytest

from rewards.analysis.local_names import names_read


@pytest.mark.parametrize(
    ("piece", "expected"),
    [
        ("for i in range(n):", "range n"),
        ("for i in i:", "i"),
        ("    return total", "total"),
        ("else:", ""),
        ("total += i", "total i"),
        ("total = max(total, i)", "max total i"),
        ("x[k] += 1", "x k"),
        ("del q", "q"),
        ("a = 1\nb = a", ""),
        ("b = a\na = 1", "a"),
        ("g = lambda x, z=x: x + y", "x y"),
        ("[x for x in y]\nprint(x)", "y print x"),
        ("d = {k: k for k in k}", "k"),
        ("if (m := f(x)) and m:", "f x"),
        ("def f(n, k=n):", "n"),
        ("import a\na.b = c", "c"),
        ("+".join(["a"] * 5000), ""),
    ],
)
def test_what_a_piece_reads_before_it_binds_it(piece: str, expected: str):
    assert names_read(piece) == set(expected.split())
