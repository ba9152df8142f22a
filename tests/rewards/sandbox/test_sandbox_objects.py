"""Tests that use returned objects: they behave as in Python, and none of them decides a verdict."""

# Tests stand here as they are sent, in one piece.
# ruff: noqa: E501

from __future__ import annotations

import pytest

from tests.rewards.sandbox.in_process import check

pytestmark = pytest.mark.slow

PROGRAM = """
import collections, contextlib, enum, dataclasses, re
from collections import namedtuple, Counter, OrderedDict, defaultdict, deque
class MyErr(ValueError):
    def __init__(self, msg, code): super().__init__(msg); self.code = code
class Sub(MyErr): pass
def fail(): raise Sub("bad", 7)
def kerr(): return {}["k"]
def stop(): raise StopIteration(3)
P = namedtuple("P", "x y")
def point(): return P(1, 2)
def count(s): return Counter(s)
def od(): return OrderedDict(a=1)
def dd():
    d = defaultdict(list); d["a"].append(1); return d
def dq(): return deque([1,2,3])
def gen(n):
    for i in range(n): yield i
def inf():
    i = 0
    while True:
        yield i; i += 1
def keys(): return {"a":1}.keys()
class Box:
    def __init__(self, v=None): self.v = v; self.items = {}
    def __setitem__(self, k, v): self.items[k] = v
    def __getitem__(self, k): return self.items[k]
    def __delitem__(self, k): del self.items[k]
    def __len__(self): return len(self.items)
    def __add__(self, o): return Box(self.v + (o.v if isinstance(o, Box) else o))
    def __radd__(self, o): return Box(o + self.v)
    def __neg__(self): return Box(-self.v)
    def __iadd__(self, o): self.v += o; return self
    def __enter__(self): self.v = "in"; return self
    def __exit__(self, *a): self.v = ("out", a[0] is not None); return False
    def __eq__(self, o): return True
    __hash__ = None
class Stack(list):
    def push(self, x): self.append(x)
class Color(enum.IntEnum):
    RED = 1
class Shade(enum.Enum):
    DARK = "d"
@dataclasses.dataclass
class D:
    a: int
def sub(): return Sub
def add(a, b): return a + b
def apply(f, *a): return f(*a)
def mylist(): return Stack([1,2])
class Suppress:
    def __enter__(self): return self
    def __exit__(self, *a): return True
def match(): return re.match("a(b)", "ab")
def nested(): return [P(1,2), {"c": Counter("aab")}]
def die():
    import os; os._exit(0)
class Yes:
    def __eq__(self, o): return True
    def __bool__(self): return True
    def __contains__(self, o): return True
    def __lt__(self,o): return True
    def __hash__(self): return 3
def yes(): return Yes()
def sort_by(xs, key): return sorted(xs, key=key)
if __name__ == "__main__":
    input()
"""

AS_PYTHON = [
    "assert add(1,2)==3",
    "try:\n    fail()\nexcept ValueError as e:\n    assert str(e)=='bad', str(e)\n    assert e.code==7\n    assert type(e).__name__=='Sub'\nelse: assert 0",
    "try:\n    fail()\nexcept MyErr as e:\n    assert e.code == 7",
    "try:\n    kerr()\nexcept KeyError as e:\n    assert e.args==('k',)",
    "try:\n    stop()\nexcept StopIteration as e:\n    assert e.value==3",
    "p=point()\nassert p==(1,2) and p.x==1 and p._asdict()=={'x':1,'y':2} and p._replace(x=5)==(5,2)\na,b=p\nassert b==2 and isinstance(p,tuple) and len(p)==2 and p[0]==1",
    "c=count('aab')\nassert c=={'a':2,'b':1} and c.most_common(1)==[('a',2)] and c['zz']==0 and isinstance(c,dict)\nassert c+c=={'a':4,'b':2}\nassert isinstance(c, collections.Counter) or True",
    "assert od()=={'a':1} and list(od())==['a'] and od().popitem()==('a',1)",
    "d=dd()\nassert d['a']==[1] and d['zz']==[] and d=={'a':[1],'zz':[]}",
    "assert list(dq())==[1,2,3] and dq()[0]==1 and len(dq())==3\nfrom collections import deque\nassert dq()==deque([1,2,3])",
    "g=gen(3)\nassert next(g)==0 and next(g)==1\nassert list(g)==[2]\nassert next(g,None) is None",
    "assert 2 in gen(5) and 9 not in gen(5)",
    "import itertools\nassert list(itertools.islice(inf(),1000))==list(range(1000))",
    "import types\nassert isinstance(gen(1), types.GeneratorType)",
    "assert keys()=={'a'} and list(keys())==['a'] and 'a' in keys()",
    "b=Box(3)\nb.x=5\nassert b.x==5\nb['k']=4\nassert b['k']==4 and len(b)==1\ndel b['k']\nassert len(b)==0\ndel b.x\nassert not hasattr(b,'x')",
    "b=Box(3)\nassert (b+4).v==7 and (4+b).v==7 and (-b).v==-3 and (b+Box(1)).v==4\nb+=2\nassert b.v==5",
    "with Box(1) as b:\n    assert b.v=='in'\nassert b.v==('out',False)",
    "assert isinstance(Box(1),Box) and not isinstance(3,Box) and not isinstance(Box(1), D)",
    "s=Stack()\ns.push(3)\nassert s==[3] and len(s)==1 and s[0]==3 and isinstance(s,list) and 3 in s and s.pop()==3 and not s",
    "assert Color.RED==1 and Color.RED.name=='RED' and Color.RED is Color.RED and Color(1) is Color.RED",
    "assert Shade.DARK.value=='d' and Shade('d') is Shade.DARK",
    "assert D(4).a==4 and repr(D(4))=='D(a=4)'",
    "assert apply(lambda x: x*2, 4)==8 and apply(max,1,5)==5 and apply(int,'4')==4",
    "assert sort_by([3,1,2], key=lambda x:-x)==[3,2,1]",
    "assert mylist()==[1,2] and sorted(mylist())==[1,2]",
    "m=match()\nassert m and m.group(1)=='b'",
    "n=nested()\nassert n==[(1,2),{'c':{'a':2,'b':1}}]",
    "def check(f):\n    assert f(2,3)==5\ncheck(add)",
    "assert add.__name__=='add'",
    "try:\n    add(1,'a')\nexcept TypeError as e:\n    assert 'unsupported' in str(e)",
    "with Suppress():\n    raise ValueError('x')",
    "xs=[3,1]\nxs2=[xs,1]\nassert sort_by(xs,key=int)==[1,3]",
    "assert callable(add) and not callable(Box(1)) and hasattr(Box(1),'v')",
    "assert f'{Color.RED:d}' == '1' and range(Color.RED)==range(1) and [5,6][Color.RED]==6",
    "assert len({Shade.DARK, Shade.DARK})==1",
]


@pytest.mark.parametrize("test", AS_PYTHON)
def test_an_object_of_the_program_behaves_as_in_python(test: str) -> None:
    assert check(PROGRAM, [test]) == [{"outcome": "passed"}]


# What would let the program decide: its comparisons, its containers, what a test swallows, its death.
DECIDES_FOR_ITSELF = [
    "assert yes()==3",
    "assert 3 in yes()",
    "assert yes()<3",
    "assert Box(1)==Box(1)",
    "try:\n    die()\nexcept:\n    pass",
    "try:\n    yes()==3\nexcept BaseException:\n    pass",
    "with Suppress():\n    assert add(1,1)==3",
    "with Suppress():\n    r=kerr()\n    assert r==3",
    "with Suppress():\n    [][add(1,1)]",
    "assert undefined(3)",
    "assert yes() > 3 or True is False",
]


@pytest.mark.parametrize("test", DECIDES_FOR_ITSELF)
def test_an_object_of_the_program_decides_nothing(test: str) -> None:
    (verdict,) = check(PROGRAM, [test])
    assert verdict["outcome"] in ("wrong_answer", "runtime_error", "gone")


@pytest.mark.parametrize("name", ["sum", "bisect", "max", "abs", "string", "id"])
def test_an_entry_point_may_have_the_name_of_a_builtin_or_a_module(name: str) -> None:
    code = f"def {name}(x): return x + 1"
    assert check(code, [f"y = {name}(1)\nassert y == 2"], entry_points=[name]) == [{"outcome": "passed"}]
    assert check(code, [f"y = {name}(1)\nassert y == 2"])[0]["outcome"] != "passed"


@pytest.mark.parametrize(
    ("code", "test"),
    [
        ("class np:\n    allclose = staticmethod(lambda *a: True)\ndef f(): return 0", "assert np.allclose(f(), 1)"),
        ("class math:\n    isclose = staticmethod(lambda *a: True)\ndef f(): return 0", "assert math.isclose(f(), 1)"),
        ("def abs(x): return 0\ndef f(): return 9", "assert abs(f() - 1) < 1"),
        ("def all(x): return True\ndef f(): return 9", "assert all([f() == 1])"),
    ],
)
def test_a_library_in_a_test_is_never_the_programs(code: str, test: str) -> None:
    assert check(code, [test])[0]["outcome"] != "passed"


def test_an_exception_after_items_arrives_after_them() -> None:
    code = "def g():\n    yield 1\n    yield 2\n    raise KeyError('late')"
    test = "found = []\ntry:\n    for x in g(): found.append(x)\nexcept KeyError as e:\n    found.append(e.args)\nassert found == [1, 2, ('late',)]"
    assert check(code, [test]) == [{"outcome": "passed"}]


def test_functions_of_a_test_are_called_back_with_data_and_objects() -> None:
    code = "class C:\n    def __init__(self, v): self.v = v\ndef each(f, xs): return [f(C(x)) for x in xs]\ndef fold(f, xs):\n    r = xs[0]\n    for x in xs[1:]: r = f(r, x)\n    return r\ndef twice(x): return 2 * x"
    tests = [
        "assert each(lambda c: c.v + 1, [1, 2]) == [2, 3]",
        "assert fold(lambda a, b: a * twice(b), [1, 2, 3]) == 24",
        "try:\n    each(lambda c: {}[c.v], [1])\nexcept KeyError: pass\nelse: assert 0",
    ]
    assert check(code, tests) == [{"outcome": "passed"}] * 3


@pytest.mark.parametrize(
    "ending", ["import sys; sys.exit(0)", "exit()", "raise SystemExit(1)", "import unittest; unittest.main()"]
)
def test_a_program_that_exits_keeps_the_names_it_has_defined(ending: str) -> None:
    assert check(f"def f(x): return x\n{ending}\n", ["assert f(3) == 3"]) == [{"outcome": "passed"}]


def test_the_main_block_of_a_program_whose_functions_are_tested_does_not_run() -> None:
    assert check("def f(): return 1\nif __name__ == '__main__':\n    input()\n", ["assert f() == 1"]) == [
        {"outcome": "passed"}
    ]


MORE = """
import asyncio, collections
class Point:
    "A point."
    def __init__(self, x): self.x = x
async def later(x):
    await asyncio.sleep(0.001)
    return x + 1
def extend(items=()):
    items.append(1)
    return items
def error(): return ValueError("x")
def documented():
    "Doc."
def count(): return collections.Counter("aab")
def last(): return collections.deque([1, 2], maxlen=2)
def constants(): return NotImplemented, ..., int
"""


@pytest.mark.parametrize(
    "test",
    [
        "import asyncio\nassert asyncio.run(later(1)) == 2",
        "import asyncio\nasync def both(): return await later(1) + await later(2)\nassert asyncio.run(both()) == 5",
        "items = [1]\nextend(items=items)\nassert items == [1, 1]",
        "import copy\np = copy.copy(Point(3))\nassert p.x == 3 and copy.deepcopy(p).x == 3",
        "assert isinstance(error(), ValueError) and str(error()) == 'x'",
        "assert documented.__doc__ == 'Doc.' and type(Point(1)).__name__ == 'Point' and Point.__name__ == 'Point'",
        "import collections\nassert isinstance(count(), collections.Counter)",
        "assert last().maxlen == 2",
        "assert constants()[0] is NotImplemented and constants()[1] is ... and constants()[2] is int",
    ],
)
def test_rarer_uses_of_objects_behave_as_in_python(test: str) -> None:
    assert check(MORE, [test]) == [{"outcome": "passed"}]


def test_a_class_that_a_test_derives_from_the_programs_is_refused_as_such() -> None:
    (verdict,) = check(MORE, ["class Named(Point): pass"])
    assert "derives a class" in verdict["detail"]


ALIASES = """
import collections
def same(x): return x
def copied(x): return list(x)
def nested(grid):
    grid[0].append(9)
    grid.reverse()
def extend(items=[]):
    items.append(1)
    return items
class Item:
    def __init__(self): self.tags = []
    def count(self): return len(self.tags)
def groups(): return DICT
DICT = collections.defaultdict(list)
def keep(x):
    KEPT.append(x)
KEPT = []
def kept(): return KEPT[0]
def swap(a, b): a[:], b[:] = b[:], a[:]
def cycle():
    a = [1]
    a.append(a)
    return a
def grow(n): return list(range(n))
class Point:
    def __init__(self, x): self.x = x
    def __eq__(self, other): return self.x == other.x
    def __hash__(self): return hash(self.x)
def ordered(*keys): return collections.OrderedDict.fromkeys(keys)
"""


@pytest.mark.parametrize(
    ("test", "holds"),
    [
        ("items = [1]\nassert same(items) is items", True),
        ("items = [1]\nassert same(items) is not items", False),
        ("items = [1]\nassert copied(items) is not items", True),
        ("items = [1]\nsame(items).append(2)\nassert items == [1, 2]", True),
        ("items = [1]\ncopied(items).append(2)\nassert items == [1]", True),
        (
            "row = [1]\ngrid = [row, [2]]\nnested(grid)\nassert row == [1, 9] and grid == [[2], row] and grid[1] is row",
            True,
        ),
        ("row = [1]\ngrid = [row, [2]]\nnested(grid)\nassert row == [1]", False),
        ("a = extend()\nextend()\nassert a == [1, 1]", True),
        ("a = extend()\nextend()\nassert a == [1]", False),
        ("item = Item()\nitem.tags.append(3)\nassert item.tags == [3] and item.count() == 1", True),
        ("item = Item()\nitem.tags.append(3)\nassert item.tags == []", False),
        ("groups()['a'].append(1)\nassert groups()['a'] == [1]", True),
        (
            "x = {'a': [1]}\nkeep(x)\nx['a'].append(2)\nx['b'] = 3\nassert kept() == {'a': [1, 2], 'b': 3} and kept() is x",
            True,
        ),
        ("a, b = [1], [2, 3]\nswap(a, b)\nassert (a, b) == ([2, 3], [1])", True),
        ("a = cycle()\nassert a[1] is a and a[0] == 1", True),
        ("assert grow(50000) == list(range(50000)) and sum(grow(30000)) == sum(range(30000))", True),
        ("assert len({Point(1), Point(1)}) == 2", False),
        ("assert {Point(1): 'a'}.get(Point(1)) is None", False),
        ("assert ordered('a', 'b') == ordered('b', 'a')", False),
        ("import collections\nassert ordered('a', 'b') == collections.OrderedDict.fromkeys(['b', 'a'])", False),
        ("import collections\nassert ordered('a', 'b') == collections.OrderedDict.fromkeys(['a', 'b'])", True),
        ("assert ordered('a', 'b') == ordered('a', 'b') == {'b': None, 'a': None}", True),
        ("try:\n    same([object()])\nexcept TypeError: pass\nx = [1]\nassert same(x) is x", True),
    ],
)
def test_containers_passed_by_reference_are_shared_by_both_sides(test: str, holds: bool) -> None:
    (verdict,) = check(ALIASES, [test])
    assert (verdict["outcome"] == "passed") is holds, verdict


FAKES = """
class Number(float):
    def __sub__(self, other): return 0.0
    __rsub__ = __sub__
    def __abs__(self): return 0.0
    def __round__(self, digits=0): return 0.5
class Members(set):
    def __xor__(self, other): return set()
    __sub__ = __rxor__ = __rsub__ = __xor__
    def __len__(self): return 2
    def __contains__(self, item): return True
    def issubset(self, other): return True
class Text(str):
    def startswith(self, other): return True
    def __len__(self): return 3
    def upper(self): return "ABC"
class Object:
    def __sub__(self, other): return self
    __rsub__ = __xor__ = __rxor__ = __mod__ = __sub__
    def __abs__(self): return 0.0
    __round__ = __float__ = lambda self, *a: 0.0
    def __bool__(self): return False
    def startswith(self, other): return True
    issubset = endswith = startswith
    __array_interface__ = {'data': (8, False), 'shape': (1000,), 'typestr': '<i8', 'version': 3}
    def __array__(self, *a, **k): return [1]
class Zero:
    def __sub__(self, other): return 0.0
    __rsub__ = __sub__
def number(): return Number(7)
def members(): return Members({9})
def text(): return Text("nothing")
def fake(): return Object()
def zero(): return Zero()
"""


@pytest.mark.parametrize(
    "test",
    [
        "assert abs(number() - 0.5) < 1e-6",
        "assert abs(0.5 - number()) < 1e-6",
        "assert round(number() - 0.5, 3) == 0",
        "assert round(number(), 1) == 0.5",
        "assert not members() ^ {1, 2}",
        "assert members() - {1, 2} == set()",
        "assert len(members()) == 2",
        "assert 1 in members()",
        "assert members().issubset({1})",
        "assert text().startswith('abc')",
        "assert len(text()) == 3",
        "assert text().upper() == 'ABC'",
        "assert abs(fake() - 0.5) < 1e-6",
        "assert abs(0.5 - fake()) < 1e-6",
        "assert not fake() ^ {1, 2}",
        "assert not (fake() - 3)",
        "assert float(fake() - 3) == 0",
        "assert round(fake() - 0.5, 3) == 0",
        "assert fake().startswith('abc')",
        "assert fake().issubset({1})",
        "assert abs(zero() - 0.5) < 1e-6",
        "import numpy as np\nassert np.allclose(fake(), [1])",
        "import numpy as np\nassert np.array_equal(np.asarray(fake()), [1])",
        "import math\nassert math.isclose(number(), 0.5)",
    ],
)
def test_an_object_is_never_asked_about_what_is_expected(test: str) -> None:
    (verdict,) = check(FAKES, [test])
    assert verdict["outcome"] in ("wrong_answer", "runtime_error")


CATCH_ALL = """
E = Exception
A = AssertionError
T = (ValueError, (AssertionError,))
B = BaseException
class Counter(dict): pass
class generator:
    def __iter__(self): return self
    def __next__(self): raise StopIteration
class Mine(ValueError): pass
V = ValueError
def quiet(x): pass
def loud(x): raise Mine(x)
def counter(): return Counter(a=1)
def gen(): return generator()
def nothing():
    class M: pass
    return M()
"""


@pytest.mark.parametrize(
    ("test", "holds"),
    [
        *((f"try:\n    quiet(1)\n    assert False\nexcept {name}:\n    pass", False) for name in ("E", "A", "T", "B")),
        ("import unittest\nwith unittest.TestCase().assertRaises(E):\n    assert quiet(1) == 2", False),
        ("try:\n    loud(1)\nexcept V as e:\n    assert e.args == (1,)\nelse:\n    assert False", True),
        ("try:\n    loud(1)\nexcept Mine:\n    pass\nelse:\n    assert False", True),
        ("import collections\nassert isinstance(counter(), collections.Counter)", False),
        ("import types\nassert isinstance(gen(), types.GeneratorType)", False),
    ],
)
def test_a_class_of_the_program_catches_no_failure_and_is_no_class_of_the_library(test: str, holds: bool) -> None:
    (verdict,) = check(CATCH_ALL, [test])
    assert (verdict["outcome"] == "passed") is holds, verdict
