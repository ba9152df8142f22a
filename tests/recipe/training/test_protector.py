import pytest

from recipe.training.protector import Protector
from recipe.training.settings import SettingsError, read_settings
from tests.composing import composed

SKILLS = ["write", "repair", "trace", "sql"]


def settings(*overrides: str):
    return read_settings(composed("experiment=quickstart", *overrides))


def test_nothing_is_protected_without_projection():
    protector = Protector(settings())
    protector.see(dict.fromkeys(SKILLS, 0.5))
    assert protector.protection() == {}
    assert protector.metrics() == {}


def test_all_skills_are_protected_by_default_and_numbered_as_in_skills_names():
    protection = Protector(settings("projection=qp", "projection.protected=[sql,repair]")).protection()
    assert protection["skills"] == [3, 1]
    assert protection["names"] == ["sql", "repair"]
    assert (protection["method"], protection["epsilon"]) == ("qp", 0.0)
    assert Protector(settings("projection=qp")).protection()["names"] == SKILLS


def test_forgetting_protects_what_fell_below_its_peak_and_lets_it_go_when_it_is_back():
    protector = Protector(settings("projection=sequential_margin", "projection.when=forgetting"))
    assert protector.protection() == {}
    protector.see({"write": 0.9, "repair": 0.5, "trace": None, "sql": 0.4})
    protector.see({"write": 0.7, "repair": 0.46, "trace": None, "sql": 0.6})
    assert protector.active() == ["write"]
    assert protector.metrics()["projection/below_peak/write"] == pytest.approx(0.2)
    protector.see({"write": 0.88, "repair": 0.4})
    assert protector.active() == ["repair"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["projection.protected=[poetry]"], r"names \['poetry'\], which skills.names has not"),
        (["projection.protected=[]"], "between 1 and projection.max_protected=8"),
        (["projection.max_protected=2"], "has 4 skills; between 1 and projection.max_protected=2"),
        (["skills=any"], "needs skills.names"),
    ],
)
def test_what_cannot_be_protected_is_refused(overrides: list[str], message: str):
    with pytest.raises(SettingsError, match=message):
        settings("projection=qp", *overrides)
