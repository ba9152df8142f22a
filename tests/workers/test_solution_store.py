import json

from workers.solution_store import SolutionStore, StoredSolution


def solution(number: int) -> StoredSolution:
    return StoredSolution([number], [number, number], [1, 0])


def filled(capacity: int = 2) -> SolutionStore:
    store = SolutionStore(capacity)
    for number in range(3):
        store.add("sql", f"prompt{number}", solution(number))
    return store


def test_the_newest_of_the_last_prompts_are_kept():
    assert filled().of("sql") == [solution(1), solution(2)]
    assert filled().of("write") == []


def test_a_prompt_has_one_solution_the_newest():
    store = filled()
    store.add("sql", "prompt1", solution(7))
    assert store.of("sql") == [solution(2), solution(7)]


def test_the_state_survives_json_and_a_smaller_capacity_keeps_the_newest():
    state = json.loads(json.dumps(filled().state()))
    same, smaller = SolutionStore(2), SolutionStore(1)
    same.restore(state)
    smaller.restore(state)
    assert same.of("sql") == filled().of("sql")
    assert smaller.of("sql") == [solution(2)]
