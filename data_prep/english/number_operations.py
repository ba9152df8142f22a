"""Operations on a number and on a list of numbers."""

from data_prep.english.operation import Operation

_SMALL, _FACTORS, _BOUNDS, _COUNTS = range(2, 21), range(2, 7), range(3, 16), range(2, 5)

NUMBER = {
    "add": Operation(
        "{v} = {v} + {0}",
        ("add {0} to it", "increase it by {0}", "add {0}"),
        lambda v, c: v + c, (_SMALL,), ("subtract", "multiply"),
    ),
    "subtract": Operation(
        "{v} = {v} - {0}",
        ("subtract {0} from it", "decrease it by {0}", "subtract {0}"),
        lambda v, c: v - c, (_SMALL,), ("add", "multiply"),
    ),
    "multiply": Operation(
        "{v} = {v} * {0}",
        ("multiply it by {0}", "multiply the result by {0}", "make it {0} times as large"),
        lambda v, c: v * c, (_FACTORS,), ("add", "subtract"),
    ),
    "divide": Operation(
        "{v} = {v} // {0}",
        ("divide it by {0} and round down", "integer-divide it by {0}"),
        lambda v, c: v // c, (_FACTORS,), ("remainder", "multiply"),
    ),
    "remainder": Operation(
        "{v} = {v} % {0}",
        ("take the remainder when it is divided by {0}", "reduce it modulo {0}"),
        lambda v, c: v % c, (range(3, 11),), ("divide",),
    ),
    "square": Operation("{v} = {v} ** 2", ("square it", "multiply it by itself"), lambda v: v**2, (), ("twice",)),
    "twice": Operation("{v} = {v} * 2", ("double it",), lambda v: v * 2, (), ("square",)),
    "cap": Operation(
        "{v} = min({v}, {0})",
        ("limit it to at most {0}", "cap it at {0}"),
        lambda v, c: min(v, c), (range(8, 31),), ("floor",),
    ),
    "floor": Operation(
        "{v} = max({v}, {0})",
        ("raise it to at least {0}", "make sure it is at least {0}"),
        lambda v, c: max(v, c), (_BOUNDS,), ("cap",),
    ),
    "branch": Operation(
        "if {v} > {0}:\n    {v} = {v} - {1}\nelse:\n    {v} = {v} + {2}",
        ("if it is greater than {0}, subtract {1}, otherwise add {2}",
         "subtract {1} if it is greater than {0}, otherwise add {2}"),
        lambda v, c, a, b: v - a if v > c else v + b, (_BOUNDS, _SMALL, _SMALL), ("branch_below",),
    ),
    "branch_below": Operation(
        "if {v} < {0}:\n    {v} = {v} - {1}\nelse:\n    {v} = {v} + {2}",
        ("if it is less than {0}, subtract {1}, otherwise add {2}",
         "subtract {1} if it is less than {0}, otherwise add {2}"),
        lambda v, c, a, b: v - a if v < c else v + b, (_BOUNDS, _SMALL, _SMALL), ("branch",),
    ),
    "return": Operation("return {v}", ("return the result", "return it"), lambda v: v),
}  # fmt: skip

NUMBERS = {
    "above": Operation(
        "{v} = [n for n in {v} if n > {0}]",
        ("keep only the numbers greater than {0}", "drop every number that is {0} or less"),
        lambda v, c: [n for n in v if n > c], (_BOUNDS,), ("below",),
    ),
    "below": Operation(
        "{v} = [n for n in {v} if n < {0}]",
        ("keep only the numbers less than {0}", "drop every number that is {0} or more"),
        lambda v, c: [n for n in v if n < c], (_BOUNDS,), ("above",),
    ),
    "even": Operation(
        "{v} = [n for n in {v} if n % 2 == 0]",
        ("keep only the even numbers", "remove the odd numbers"),
        lambda v: [n for n in v if n % 2 == 0], (), ("odd",),
    ),
    "odd": Operation(
        "{v} = [n for n in {v} if n % 2 == 1]",
        ("keep only the odd numbers", "remove the even numbers"),
        lambda v: [n for n in v if n % 2 == 1], (), ("even",),
    ),
    "multiples": Operation(
        "{v} = [n for n in {v} if n % {0} == 0]",
        ("keep only the multiples of {0}", "keep the numbers that are divisible by {0}"),
        lambda v, c: [n for n in v if n % c == 0], (range(3, 8),), ("above", "even"),
    ),
    "add": Operation(
        "{v} = [n + {0} for n in {v}]",
        ("add {0} to each number", "increase every number by {0}"),
        lambda v, c: [n + c for n in v], (_SMALL,), ("subtract", "multiply"),
    ),
    "subtract": Operation(
        "{v} = [n - {0} for n in {v}]",
        ("subtract {0} from each number", "decrease every number by {0}"),
        lambda v, c: [n - c for n in v], (_SMALL,), ("add",),
    ),
    "multiply": Operation(
        "{v} = [n * {0} for n in {v}]",
        ("multiply each number by {0}", "multiply every number by {0}"),
        lambda v, c: [n * c for n in v], (_FACTORS,), ("add",),
    ),
    "first": Operation(
        "{v} = {v}[:{0}]",
        ("take the first {0} numbers", "keep only the first {0} numbers"),
        lambda v, c: v[:c], (_COUNTS,), ("last", "skip"),
    ),
    "last": Operation(
        "{v} = {v}[-{0}:]",
        ("take the last {0} numbers", "keep only the last {0} numbers"),
        lambda v, c: v[-c:], (_COUNTS,), ("first",),
    ),
    "skip": Operation(
        "{v} = {v}[{0}:]",
        ("skip the first {0} numbers", "leave out the first {0} numbers"),
        lambda v, c: v[c:], (_COUNTS,), ("first",),
    ),
    "sort": Operation(
        "{v} = sorted({v})",
        ("sort the numbers from smallest to largest", "sort them in ascending order"),
        lambda v: sorted(v), (), ("descend", "reverse"),
    ),
    "descend": Operation(
        "{v} = sorted({v}, reverse=True)",
        ("sort the numbers from largest to smallest", "sort them in descending order"),
        lambda v: sorted(v, reverse=True), (), ("sort", "reverse"),
    ),
    "reverse": Operation(
        "{v} = {v}[::-1]",
        ("reverse the list", "put the numbers in reverse order"),
        lambda v: v[::-1], (), ("sort",),
    ),
    "return": Operation("return {v}", ("return the list", "return the resulting list"), lambda v: v, (), ("sum",)),
    "sum": Operation("return sum({v})", ("return the sum", "return their sum"), lambda v: sum(v), (), ("count",)),
    "count": Operation(
        "return len({v})", ("return how many numbers are left", "return the number of values left"),
        lambda v: len(v), (), ("sum",),
    ),
    "largest": Operation(
        "return max({v})", ("return the largest number", "return the maximum"), lambda v: max(v), (), ("smallest",),
    ),
    "smallest": Operation(
        "return min({v})", ("return the smallest number", "return the minimum"), lambda v: min(v), (), ("largest",),
    ),
}  # fmt: skip
