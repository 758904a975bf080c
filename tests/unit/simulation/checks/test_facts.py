"""What is certain of things that clients change, in hand-made histories."""

from kalda.simulation.checks.facts import Facts


def test_an_acknowledged_value_is_certain() -> None:
    facts = Facts()
    facts.begin("a")
    assert facts.is_uncertain("a"), "as long as there is no answer"
    facts.acknowledge("a", 1)
    assert [("a", 1)] == list(facts.items())
    facts.begin("a")
    facts.acknowledge("a", 2)
    assert 2 == facts.get("a")


def test_a_refused_operation_leaves_the_value() -> None:
    facts = Facts()
    facts.begin("a")
    facts.acknowledge("a", 1)
    facts.begin("a")
    facts.refuse("a")
    assert 1 == facts.get("a")


def test_after_an_operation_without_an_answer_nothing_is_certain_any_more() -> None:
    """It may be done at any later time."""
    facts = Facts()
    facts.begin("a")
    facts.lose("a")
    facts.begin("a")
    facts.acknowledge("a", 2)
    assert facts.get("a") is None
    assert facts.is_uncertain("a")


def test_an_operation_whose_client_was_killed_has_no_answer() -> None:
    facts = Facts()
    facts.begin("a")
    facts.begin("a")
    facts.acknowledge("a", 2)
    assert [] == list(facts.items())


def test_what_is_forgotten_is_neither_known_nor_uncertain() -> None:
    facts = Facts()
    facts.begin("a")
    facts.acknowledge("a", 1)
    facts.forget("a")
    assert (None, False) == (facts.get("a"), facts.is_uncertain("a"))
