"""Names the subject that the schema of a record must be registered under, as Confluent's strategies do."""

from enum import StrEnum

from kalda.schemas.payloads.errors import BadPayloadError


class SubjectNameStrategy(StrEnum):
    """How the name of a subject follows from the topic and from the schema's record name."""

    TOPIC = "topic"
    """``<topic>-key`` or ``<topic>-value``."""
    RECORD = "record"
    """The full name of the record or message; the title of a JSON schema."""
    TOPIC_RECORD = "topic_record"
    """``<topic>-<record name>``."""

    def subject(self, topic: str, record_name: str | None, *, is_key: bool) -> str:
        """Return the name of the subject.

        Raises:
            BadPayloadError: The schema has no name, and the strategy needs one.
        """
        if self is SubjectNameStrategy.TOPIC:
            return f"{topic}-{'key' if is_key else 'value'}"
        if not record_name:
            raise BadPayloadError(f"its schema has no record name, which the strategy {self.value} needs")
        return record_name if self is SubjectNameStrategy.RECORD else f"{topic}-{record_name}"
