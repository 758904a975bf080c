"""Which schemas a schema uses, in which order, and what is refused."""

from collections.abc import Mapping

import pytest

from kalda.schemas.errors import InvalidSchemaError
from kalda.schemas.references import REFERENCES_MAX, texts_of_references


def reference(name: str) -> dict[str, object]:
    return {"name": name, "subject": f"s-{name}", "version": 1}


def document(text: str, *names: str) -> dict[str, object]:
    return {"schema": text, "references": [reference(each) for each in names]}


def texts(documents: Mapping[str, Mapping[str, object]], *names: str) -> dict[str, str]:
    found = {f"s-{name}": each for name, each in documents.items()}
    return texts_of_references([reference(each) for each in names], lambda subject, _: found.get(subject))


def test_each_schema_comes_once_and_behind_those_that_it_uses() -> None:
    documents = {"a": document("A", "b", "c"), "b": document("B", "c"), "c": document("C")}

    assert [("c", "C"), ("b", "B"), ("a", "A")] == list(texts(documents, "a", "c").items())


@pytest.mark.parametrize(
    ("documents", "names", "message"),
    [
        ({"a": document("A", "b"), "b": document("B", "a")}, ["a"], "'a', which refers to itself"),
        ({}, ["a"], "'a', which the registry does not have"),
        (
            {str(n): document("x") for n in range(REFERENCES_MAX + 1)},
            [str(n) for n in range(REFERENCES_MAX + 1)],
            "more than 200 references",
        ),
        ({str(n): document("x", str(n + 1)) for n in range(1000)}, ["0"], "more than 200 references"),
    ],
)
def test_what_cannot_be_followed_is_refused(
    documents: Mapping[str, Mapping[str, object]], names: list[str], message: str
) -> None:
    with pytest.raises(InvalidSchemaError, match=message):
        texts(documents, *names)


@pytest.mark.parametrize("wrong", [[{}], [None], [{"name": "a", "subject": "b", "version": "x"}]])
def test_a_malformed_reference_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidSchemaError, match="a reference that is none"):
        texts_of_references(wrong, lambda _, __: None)


def test_no_list_is_no_reference() -> None:
    assert {} == texts_of_references("x", lambda _, __: None)
