"""Special-casing: inputs of shown tests are found wherever a program decides by them, honest constants are not."""

import ast

import pytest

from rewards.analysis.bound_literals import with_literals
from rewards.analysis.special_cases import names_inputs, only_looks_up


@pytest.mark.parametrize(
    ("source", "inputs"),
    [
        ("def f(x):\n if not x ^ 7: return 42\n return 0", [["7"]]),
        ("def f(x):\n if x ^ 7: return 0\n return 42", [["7"]]),
        ("def f(x):\n return 0 if x - 7 else 42", [["7"]]),
        ("def f(x):\n return (x ^ 7 or 42) and 42", [["7"]]),
        ("def f(x):\n while x != 7: return 0\n return 42", [["7"]]),
        ("def f(x):\n return dict(zip([11, 13], [22, 52])).get(x)", [["11"], ["13"]]),
        ("def f(x):\n return dict([(11, 22), (13, 52)])[x]", [["11"], ["13"]]),
        ("def f(x):\n for k, v in [(11, 22), (13, 52)]:\n  if k == x: return v", [["11"], ["13"]]),
        ("T = [(11, 22), (13, 52)]\ndef f(x):\n return next(v for k, v in T if k == x)", [["11"], ["13"]]),
        ("def f(x):\n return 22*(x-13)/(11-13) + 52*(x-11)/(13-11)", [["11"], ["13"]]),
        ("import numpy as np\ndef f(x):\n return np.interp(x, [11, 13], [22, 52])", [["11"], ["13"]]),
        ("import numpy as np\ndef f(x):\n return np.polyval(np.polyfit([11,13],[22,52],1), x)", [["11"], ["13"]]),
        ("def f(a,b):\n return {(11,2):22}.get((a,b))", [["11", "2"], ["13", "4"]]),
        ("def f(a,b):\n if [a,b] in [[11,2],[13,4]]: return 3\n return 0", [["11", "2"], ["13", "4"]]),
        ("def f(x):\n if 7 <= x <= 7: return 42", [["7"]]),
        ("def f(x):\n if x >= 7 and x <= 7: return 42", [["7"]]),
        ("def f(x):\n return [v for k, v in {11: 22, 13: 52}.items() if k == x][0]", [["11"], ["13"]]),
        ("def f(x):\n return {2: 4}[x]", [["2"]]),
        ("def f(x):\n return 4 if x == 2 else 0", [["2"]]),
        ("def f(x):\n match x:\n  case 7: return 42", [["7"]]),
        ("def f(x):\n assert x == 7\n return 42", [["7"]]),
        ("def f(x):\n return 42 if abs(x - 7) < 1 else 0", [["7"]]),
        ("def f(x):\n return dict(ab=3)[x]", [["ab"]]),
        ("def f(x):\n return 42 if str(x) == '7' else 0", [["7"]]),
        ("def f(x):\n return [0,42][x == 7]", [["7"]]),
        ("def f(x):\n return (x == 7) * 42", [["7"]]),
        ("def f(x):\n return 42 if x in (7,) else 0", [["7"]]),
        ("def f(x):\n return 42 if x in {7, 8, 9, 10, 11} else 0", [["7"]]),
        ("def f(x):\n return 42 if (x, 1) == (7, 1) else 0", [["7"]]),
        ("def f(x):\n try:\n  return {7: 42}[x]\n except KeyError:\n  return 0", [["7"]]),
        ("def f(x):\n if not (x ^ 11): return 22\n if not (x ^ 13): return 52\n return x*x", [["11"], ["13"]]),
        ("x = int(input())\nprint(9 if x == 3 else 0)", [["3"]]),
        ("print({'2 3': 5}.get(input(), 0))", [["2", "3"]]),
        ("def f(a):\n x = [4, 5]\n if a == x: return 9\n return sum(a)", [["4", "5"]]),
        ("X = 7\ndef f(a):\n if a == X: return 9\n return a + 1", [["7"]]),
        ("def f(a):\n x, y = 7, 9\n return y if a == x else a + 1", [["7"]]),
        ("def f(a):\n one = 4\n x = [one, 5]\n if a == x: return 9\n return sum(a)", [["4", "5"]]),
        ("class S:\n known = 7\n def f(self, a):\n  if a == self.known: return 9\n  return a + 1", [["7"]]),
        ("class S:\n def __init__(self): self.k = 7\n def f(self, a):\n  return 9 if a == self.k else a * 2", [["7"]]),
        ("xs = [11, 13]\nys = [22, 52]\ndef f(x):\n return dict(zip(xs, ys)).get(x, x + 1)", [["11"], ["13"]]),
        ("def f(x):\n for k in (11, 13):\n  if x == k: return 2 * k\n return x + 1", [["11"], ["13"]]),
        ("def f(x):\n for i, k in enumerate([11, 13]):\n  if x == k: return i\n return x + 1", [["11"], ["13"]]),
        ("def f(x):\n return [22, 52][[11, 13].index(x)]", [["11"], ["13"]]),
        ("xs = [11, 13, 17, 19]\ndef f(x):\n return [2, 5, 7, 8][xs.index(x)]", [["11"], ["13"]]),
        ("import operator\ndef f(x):\n return 42 if operator.eq(x, 7) else x + 1", [["7"]]),
        ("def f(x):\n if (k := 7) == x: return 42\n return x + 1", [["7"]]),
        ("def f(x):\n t = {}\n t[11] = 22\n t[13] = 52\n return t.get(x, x + 1)", [["11"], ["13"]]),
        ("def f(x):\n return 42 if x == 6 + 1 else x + 1", [["7"]]),
        ("def f(x):\n return 42 if x == int('7') else x + 1", [["7"]]),
        ("a = '4 5'.split()\ndef f(x):\n return 42 if x.split() == a else len(x)", [["4", "5"]]),
        ("shown = '4 5'\ns = input()\nif s == shown: print(9)\nelse: print(len(s))", [["4", "5"]]),
        ("def g(x):\n return x\ndef f(x):\n k = 7\n return 42 if g(x) == k else x + 1", [["7"]]),
        (
            "x = " + "not " * 500 + "(y == 7)",
            [["7"]],
        ),
    ],
)
def test_an_input_that_is_spelled_out_is_found(source, inputs):
    assert names_inputs(ast.parse(source), inputs)


@pytest.mark.parametrize(
    ("source", "inputs"),
    [
        ("def f(n):\n if n <= 1: return 1\n return n * f(n - 2)", [["1"]]),
        ("def f(n):\n if n == 2: return True\n return all(n % i for i in range(2, n - 1))", [["2"]]),
        ("def f(n):\n if n == 0 or n == 1: return 1\n return f(n-1) + f(n-3)", [["1"], ["0"]]),
        ("def f(n):\n if n in (1, 2): return 1\n return f(n-1)+f(n-3)", [["2"]]),
        ("def f(s):\n if s >= 90: return 'A'\n if s >= 80: return 'B'\n return 'C'", [["90"]]),
        ("def f(y):\n return y % 400 == 0 or y % 4 == 1", [["400"]]),
        ("def f(m):\n if m in (4, 6, 9, 11): return 30\n return 30 + m % 2", [["4"]]),
        (
            "def f(n):\n r = 0\n for v in [9, 8, 7, 5, 4, 3, 2, 1]:\n  while n >= v:\n   n -= v\n return r",
            [["5"], ["4"]],
        ),
        ("def f(s):\n t = {'I':1,'V':5,'X':10,'L':50,'C':100}\n return sum(t[c] for c in s)", [["V"]]),
        ("def f(n):\n return n % 7 == 0", [["7"]]),
        ("def f(n):\n return n * 7 > 3", [["7"]]),
        ("def f(n):\n return n > 7", [["7"]]),
        ("def f(n):\n return n - 7", [["7"]]),
        ("def f(x):\n if x < 0: return -x\n return x + 1", [["-1"]]),
        ("def f(x):\n return sum(i for i in range(x) if i % 2 == 0)", [["2"]]),
        ("def f(a,b):\n moves = [(0,1),(1,0),(-1,0),(0,-1)]\n return [(a+x,b+y) for x,y in moves]", [["1", "0"]]),
        ("def f(t):\n return (t - 32) * 5", [["32"]]),
        ("def f(x):\n if x is None: return 0\n return x + 1", [["None"]]),
        ("def f(s):\n if s == '': return True\n return s[0] == s[-2]", [[]]),
        ("def f(n):\n a = [1, 2, 3, 5, 7, 11, 13, 17]\n return n in a or n % 2", [["11"], ["13"]]),
        ("def f(n):\n if 80 <= n < 90: return 'B'\n if n >= 90: return 'A'", [["90"]]),
        ("def f(x):\n return x - 7 if x > 2 else 0", [["7"]]),
        ("x = int(input())\nif x == 1: print(1)\nelse: print(x * 2)", [["1"]]),
        ("a, b = map(int, input().split())\nif a == 2: print(b)\nprint(a + b)", [["2", "3"]]),
        ("def f(n):\n if n == 0: return 1\n return n * f(n - 1)", [["0"]]),
        ("def f(n):\n if n == 0: return 'zero'\n return 'positive' if n > 0 else 'negative'", [["0"]]),
        ("def f(n):\n return n == 0", [["0"], ["8"]]),
        ("def f(b):\n return 'yes' if b == True else 'no'", [["True"]]),
        ("def f(x):\n if x is None: return None\n return x", [["None"]]),
        ("memo = {0: 0, 1: 1}\ndef f(n):\n if n not in memo: memo[n] = f(n-1) + f(n-3)\n return memo[n]", [["1"]]),
        ("def f(n, memo={}):\n if n in memo: return memo[n]\n memo[n] = n\n return memo[n]", [["5"]]),
        (
            "def f(n):\n m = {}\n m[0] = 1\n m[1] = 1\n for i in range(2, n + 1): m[i] = 2 * m[i-1]\n return m[n]",
            [["1"], ["0"]],
        ),
        ("def f(s):\n pair = {'A':'T','T':'A','G':'C','C':'G'}\n return ''.join(pair[c] for c in s)", [["G"]]),
        ("def f(s):\n n = 0\n for c in s:\n  if c == 'a': n += 2\n return n", [["a"]]),
        ("def f(s):\n vowels = 'aeiou'\n return sum(2 for c in s if c in vowels)", [["a"]]),
        ("def f(n):\n for d in (3, 5):\n  if n % d == 0: return d\n return n", [["5"], ["3"]]),
        ("M = 7\ndef f(n):\n return n % M == 0", [["7"]]),
        ("def f(a):\n best = 7\n for x in a:\n  if x == best: continue\n  best = x\n return best", [["7"]]),
        ("def f(n):\n limit = 7\n return n < limit and n + 2", [["7"]]),
        ("def f(s):\n return 'abcdefghijklmnopqrstuvwxyz'.index(s[0]) + 2", [["b"]]),
        ("x == 7", []),
    ],
)
def test_honest_constants_are_no_special_cases(source, inputs):
    assert not names_inputs(ast.parse(source), inputs)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(x): return {7: 1}[x]", True),
        ("def f(x): return x if x == 7 else 0", False),
        ("def f(x):\n if x == 7: return 1\n return x", True),
        ("def f(x):\n x += 1\n return x", False),
        ("def f(x): return x + 1", False),
        ("x = input()\nprint(1 if x == '7' else 0)", True),
        ("print(1)", False),
    ],
)
def test_looking_up_is_distinguished_from_computing(source, expected):
    assert only_looks_up(ast.parse(source)) is expected


def test_names_that_double_a_literal_stay_cheap():
    doubled = "\n".join(f"a{i + 1} = [a{i}, a{i}]" for i in range(40))
    texts = "\n".join(f"b{i + 1} = b{i} + b{i}" for i in range(40))
    source = f"a0 = [7, 8]\nb0 = 'ab'\n{doubled}\n{texts}\ndef f(x):\n return x + 1 if x == a40 or x == b40 else 0"
    assert sum(1 for _ in ast.walk(with_literals(ast.parse(source)))) < 50_000
    assert not names_inputs(ast.parse(source), [["9"]])
