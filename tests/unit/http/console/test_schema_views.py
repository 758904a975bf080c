"""Versions of a schema side by side."""

from kalda.http.console.schema_views import LINES_MAX, DiffLine, compared, readable_text


def test_what_was_removed_stands_before_what_was_added() -> None:
    lines = compared("a\nb\nc", "a\nx\nc\nd")

    assert [
        DiffLine("same", "a"),
        DiffLine("removed", "b"),
        DiffLine("added", "x"),
        DiffLine("same", "c"),
        DiffLine("added", "d"),
    ] == lines


def test_json_is_compared_field_by_field() -> None:
    lines = compared(readable_text('{"a":1,"b":2}'), readable_text('{"a":1,"b":3}'))

    assert ["removed", "added"] == [line.kind for line in lines if line.kind != "same"]
    assert "syntax" in readable_text('syntax = "proto3";')


def test_long_texts_are_shown_as_they_are() -> None:
    text = "x\n" * LINES_MAX

    assert {"same"} == {line.kind for line in compared(text, text + "y")}
