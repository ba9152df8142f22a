"""Generated schemas of two tables, a parent and its children, and random contents for them."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

# Parent and child in the plural, as tables are named, and in the singular.
_FAMILIES = (
    (("customers", "customer"), ("orders", "order")),
    (("authors", "author"), ("books", "book")),
    (("teams", "team"), ("players", "player")),
    (("departments", "department"), ("employees", "employee")),
    (("cities", "city"), ("shops", "shop")),
    (("schools", "school"), ("pupils", "pupil")),
    (("farms", "farm"), ("animals", "animal")),
    (("harbours", "harbour"), ("ships", "ship")),
)
_NUMBERS = ("price", "age", "weight", "size", "score", "rank", "cost", "height", "distance", "rating", "speed", "stock")
_TEXTS = {
    "colour": ("red", "green", "blue", "white"),
    "status": ("new", "open", "closed", "late"),
    "country": ("France", "Japan", "Peru", "Kenya"),
    "grade": ("low", "middle", "high", "top"),
    "season": ("spring", "summer", "autumn", "winter"),
    "material": ("wood", "steel", "glass", "paper"),
}
_SYLLABLES = ("ba", "do", "ki", "lu", "me", "no", "pa", "ri", "so", "tu")
_PARENTS, _CHILDREN = 5, 9
_LARGEST = 30


@dataclass(frozen=True)
class Schema:
    """Two tables: parent(id, name, `kind`) and child(id, `key`, name, `group`, `first`, `second`).

    `kind` and `group` hold texts, `first` and `second` whole numbers; `key` is the id of a parent.
    """

    parent: str
    child: str
    one_parent: str
    kind: str
    group: str
    first: str
    second: str

    @property
    def key(self) -> str:
        """The child's column that names its parent."""
        return f"{self.one_parent}_id"

    def tables(self) -> str:
        """The script that makes the tables."""
        return (
            f"CREATE TABLE {self.parent}(id INTEGER PRIMARY KEY, name TEXT, {self.kind} TEXT);\n"
            f"CREATE TABLE {self.child}(id INTEGER PRIMARY KEY, {self.key} INTEGER REFERENCES {self.parent}(id), "
            f"name TEXT, {self.group} TEXT, {self.first} INTEGER, {self.second} INTEGER);"
        )

    def values(self, column: str) -> tuple[str, ...]:
        """What a text column may hold."""
        return _TEXTS[column]

    def setup(self, rng: random.Random) -> str:
        """The script of a database with random rows. Numbers of a column are distinct, so that orders are; one is NULL;
        some parent has no child.
        """
        names = rng.sample([a + b for a in _SYLLABLES for b in _SYLLABLES], _PARENTS + _CHILDREN)
        parents = [(index + 1, names[index], rng.choice(_TEXTS[self.kind])) for index in range(_PARENTS)]
        first, second = (rng.sample(range(1, _LARGEST), _CHILDREN) for _ in range(2))
        with_children = rng.sample(range(1, _PARENTS + 1), _PARENTS - 1)
        hole = rng.randrange(_CHILDREN)
        children = [
            (
                *(index + 1, rng.choice(with_children), names[_PARENTS + index], rng.choice(_TEXTS[self.group])),
                *("NULL" if index == hole else first[index], second[index]),
            )
            for index in range(_CHILDREN)
        ]
        return "\n".join([self.tables(), _insert(self.parent, parents), _insert(self.child, children)])


def _insert(table: str, rows: Sequence[tuple[int | str, ...]]) -> str:
    return f"INSERT INTO {table} VALUES " + ", ".join(f"({', '.join(map(_literal, row))})" for row in rows) + ";"


def _literal(cell: int | str) -> str:
    return str(cell) if isinstance(cell, int) or cell == "NULL" else f"'{cell}'"


def random_schema(rng: random.Random) -> Schema:
    """Names of a family of tables and of columns that are all different."""
    (parent, one_parent), (child, _) = rng.choice(_FAMILIES)
    first, second = rng.sample(_NUMBERS, 2)
    kind, group = rng.sample(sorted(_TEXTS), 2)
    return Schema(parent, child, one_parent, kind, group, first, second)
