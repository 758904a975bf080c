"""One process of the registry: answers from its state, changes it if it is the writer.

A change is decided under a lock, on a state that has all records of the topic, and counts only when its
records were read back and took effect. A process that was just elected first writes a record and reads up to
it: whatever an earlier writer sent before is in the state then.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

from kalda.clients.admin.admin_config import AdminConfig
from kalda.clients.metadata import Metadata
from kalda.clients.network_client import NetworkClient
from kalda.clients.shared_properties import settings_for
from kalda.http.background import Background
from kalda.http.registry.changes import (
    Decision,
    Registration,
    check_register,
    completed,
    decide_registration,
    with_defaults,
)
from kalda.http.registry.contents import Content, Json
from kalda.http.registry.election import Election
from kalda.http.registry.errors import store_failed, unknown_leader
from kalda.http.registry.evaluation import Job, ParsedSchemas, Stored, resolve, stored_of
from kalda.http.registry.identity import Identity
from kalda.http.registry.records import Change, encode_json
from kalda.http.registry.scope import LEVEL, config_in_scope, mode_in_scope
from kalda.http.registry.state import State, Version
from kalda.http.registry.subjects import DEFAULT_CONTEXT, Subject
from kalda.http.registry.topic_log import TopicLog
from kalda.http.settings import HttpSettings
from kalda.schemas.tags import Entity, TagChange

logger: Final = logging.getLogger(__name__)

REFUSED_MAX: Final = 5
"""Attempts of one registration whose record loses against another writer's."""

NEW_WRITER_SECONDS: Final = 10.0
"""How long a change waits for an election that is under way."""


class NotWriterError(Exception):
    """Another process writes; the request has to be sent there."""


class Registry:
    """The registry of one process."""

    def __init__(self, settings: HttpSettings, background: Background) -> None:
        self.settings: Final = settings
        self.default_level: Final = settings.schema_compatibility_level.upper()
        self.cluster_id = ""
        self.election: Election | None = None
        self.parsed: Final = ParsedSchemas()
        self._background: Final = background
        self._log: Final = TopicLog(settings, settings.client)
        self._lock: Final = asyncio.Lock()
        self._prepared_term = 0
        self._is_uncertain = False
        """Whether a write ended without an answer, so that its records may still arrive."""
        self._client: NetworkClient | None = None

    # Lifecycle.

    async def start(self, port: int) -> None:
        """Read the topic and join the group; `port` is where the process listens.

        Raises:
            ConfigError: the topic is not fit for a registry.
            ClientError: the cluster cannot be reached, or refuses what the registry needs.
        """
        await self._log.start()
        settings = self.settings
        self._client = NetworkClient(
            AdminConfig.from_properties(
                {"client.id": "kalda-registry", **settings_for(AdminConfig, settings.client)}
            ),
            Metadata(),
        )
        self._client.start()
        metadata = await self._client.refresh_metadata(timeout_ms=settings.kafkastore_init_timeout_ms)
        self.cluster_id = metadata.cluster_id or ""
        identity = Identity(
            settings.advertised_host, port, settings.leader_eligibility, settings.listener.scheme
        )
        self.election = Election(self._client, settings, identity, self._wait_idle)
        self.election.start()

    async def close(self) -> None:
        """Finish the change under way, leave the group, and stop."""
        async with self._lock:
            if self.election is not None:
                await self.election.close()
        await self._log.close()
        if self._client is not None:
            await self._client.close()

    @property
    def state(self) -> State:
        """The state of the registry, as the records of its topic define it."""
        return self._log.state

    @property
    def is_writer(self) -> bool:
        """Whether this process may write at this moment."""
        return self.election is not None and self.election.is_writer

    async def writer(self) -> Identity:
        """Return where the process is that writes, after an election if one is under way.

        Raises:
            HttpError: none is known (50004).
        """
        election = self.election
        if election is None:
            raise unknown_leader()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(NEW_WRITER_SECONDS):
                await election.joined.wait()
        if election.writer is None or not election.joined.is_set():
            raise unknown_leader()
        return election.writer

    async def catch_up(self) -> None:
        """Return when the state has all that is in the topic now; raises as `TopicLog.catch_up`."""
        await self._log.catch_up()

    # Questions.

    def config(self, subject: str | None) -> Json:
        """Return the configuration that holds for a subject."""
        return config_in_scope(self.state, subject, self.default_level)

    def stored(self, version: Version) -> Stored:
        """Return a version with what it uses."""
        dependencies = resolve(self.state, version.subject, version.content)[1]
        return Stored(version.number, version.content, dependencies)

    async def formatted(self, version: Version, format_name: str) -> str:
        """Return the text of a version in a format of its type."""
        return await self._background.compute(self.parsed.formatted, self.stored(version), format_name)

    async def tagged_entities(self, version: Version) -> dict[Entity, list[str]]:
        """Return the tags inside the text of a version."""
        return await self._background.compute(self.parsed.tagged_entities, self.stored(version))

    async def with_tags(self, subject: str, content: Content, change: TagChange) -> Content:
        """Return a content with other tags inside its text.

        Raises:
            HttpError: it is no schema, or has no such record or field (42201).
        """
        content, dependencies = resolve(self.state, subject, content)
        return await self._background.compute(self.parsed.with_tags, content, dependencies, change)

    async def find(
        self,
        subject: str,
        content: Content,
        *,
        is_normalized: bool,
        with_deleted: bool = False,
        latest_only: bool = False,
    ) -> Version | None:
        """Return the version of a subject that holds a schema, with its text and its defaults or without.

        Raises:
            HttpError: it is no schema (42201).
        """
        found = await self._find(
            subject, content, is_normalized=is_normalized, with_deleted=with_deleted, latest_only=latest_only
        )
        if found is not None or latest_only:
            return found
        latest = self.state.latest(subject)
        if latest is None:
            return None
        completed_content = with_defaults(content, self.config(subject), latest.content, None)
        if completed_content == content:
            return None
        return await self._find(
            subject, completed_content, is_normalized=is_normalized, with_deleted=with_deleted
        )

    async def check(
        self, subject: str, content: Content, against: Sequence[Version], *, is_normalized: bool
    ) -> list[str]:
        """Return why a schema is not compatible with versions of a subject; empty if it is.

        Raises:
            HttpError: it is no schema (42201).
        """
        config = self.config(subject)
        content, dependencies = resolve(self.state, subject, content, with_deleted=False)
        job = Job(
            content=content,
            dependencies=dependencies,
            is_new=True,
            is_normalized=is_normalized,
            check_against=[self.stored(each) for each in against],
            level=str(config[LEVEL]),
            group=config.get("compatibilityGroup"),
            policy=config.get("compatibilityPolicy"),
            validates_fields=config.get("validateFields") is True,
        )
        return (await self._background.compute(self.parsed.evaluate, job)).messages

    # Changes.

    async def register(
        self, wanted: Registration | Callable[[], Awaitable[Registration]], *, is_normalized: bool
    ) -> tuple[Version, Content]:
        """Register a schema; return its version, an earlier one if it is there already.

        Args:
            wanted: What to register, or what makes it of the state, which nothing else changes meanwhile.
            is_normalized: Whether the normalized text is stored.

        Raises:
            NotWriterError: another process writes.
            HttpError: the schema is not valid or not compatible, the mode forbids it, or the topic fails.
        """
        async with self._writing():
            for _ in range(REFUSED_MAX):
                registration = wanted if isinstance(wanted, Registration) else await wanted()
                check_register(self.state, registration)
                full = completed(self.state, registration, self.default_level)
                if full.propagates_tags:
                    full = replace(full, content=await self._with_tags_before(full))
                job = self._registration_job(full, is_normalized=is_normalized)
                evaluation = await self._background.compute(self.parsed.evaluate, job)
                self._check_writer()
                decision = decide_registration(self.state, full, evaluation)
                assert decision.version is not None, "a registration has a version"
                assert decision.content is not None, "a registration has a content"
                await self._write(decision.changes)
                new = decision.version
                found = self.state.version(new.subject, new.number)
                if found is not None and found.id == new.id and found.content.text == new.content.text:
                    return found, decision.content
                logger.warning(
                    "another process wrote at the same time; version %d of %s is registered again",
                    new.number,
                    new.subject,
                )
                await self._clean_up()
            raise store_failed("another process writes the schema topic at the same time; try again")

    async def change(self, decide: Callable[[State], Decision]) -> Decision:
        """Decide on a change and write it.

        Raises:
            NotWriterError: another process writes.
            HttpError: the change is not allowed, or the topic fails.
        """
        async with self._writing():
            decision = decide(self.state)
            await self._write(decision.changes)
            return decision

    # Internals.

    async def _find(
        self,
        subject: str,
        content: Content,
        *,
        is_normalized: bool,
        with_deleted: bool = False,
        latest_only: bool = False,
    ) -> Version | None:
        if content.is_empty:
            return None
        state = self.state
        content, dependencies = resolve(state, subject, content)
        if latest_only:
            latest = state.latest(subject)
            among = [] if latest is None else [self.stored(latest)]
        else:
            among = stored_of(state, subject, with_deleted=with_deleted)[::-1]
        job = Job(
            content=content,
            dependencies=dependencies,
            is_new=False,
            is_normalized=is_normalized,
            find_among=among,
        )
        evaluation = await self._background.compute(self.parsed.evaluate, job)
        if not latest_only:
            same = self.state.version_of_content(subject, evaluation.content)
            if same is not None and (with_deleted or not same.is_deleted):
                return same
        for number in evaluation.same:
            version = self.state.version(subject, number, with_deleted=with_deleted)
            if version is not None:
                return version
        return None

    async def _with_tags_before(self, registration: Registration) -> Content:
        """Return the content with the tags of the version before, but for what it does not have any more."""
        subject = registration.subject
        previous = self.state.latest(subject)
        if previous is None or mode_in_scope(self.state, subject).is_import:
            return registration.content
        tags = await self.tagged_entities(previous)
        if not tags:
            return registration.content
        return await self.with_tags(subject, registration.content, TagChange(tags, {}, is_lenient=True))

    def _registration_job(self, registration: Registration, *, is_normalized: bool) -> Job:
        state, subject = self.state, registration.subject
        config = self.config(subject)
        is_new = registration.id < 0
        content, dependencies = resolve(state, subject, registration.content, with_deleted=not is_new)
        stored = stored_of(state, subject)
        is_checked = is_new and not registration.is_forced
        return Job(
            content=content,
            dependencies=dependencies,
            is_new=is_new,
            is_normalized=is_normalized and is_new,
            find_among=stored[::-1] if registration.version == 0 else (),
            check_against=stored if is_checked else (),
            validates_fields=is_checked and config.get("validateFields") is True,
            level=str(config[LEVEL]),
            group=config.get("compatibilityGroup"),
            policy=config.get("compatibilityPolicy"),
        )

    @contextlib.asynccontextmanager
    async def _writing(self) -> AsyncIterator[None]:
        """Hold the right to change the state, on a state that has all records."""
        await self.writer()
        async with self._lock:
            self._check_writer()
            election = self.election
            assert election is not None, "there is a writer"
            if self._prepared_term != election.term or self._is_uncertain:
                await self._log.catch_up(self.settings.kafkastore_init_timeout_ms)
                # Whatever was sent to the topic before is in front of this record.
                await self._write([self.state.max_ids_change()])
                self._prepared_term = election.term
                self._is_uncertain = False
                await self._clean_up()
            elif self.state.refused:
                await self._clean_up()
            yield

    def _check_writer(self) -> None:
        if not self.is_writer:
            raise NotWriterError

    async def _write(self, changes: Sequence[Change]) -> None:
        try:
            await self._log.write(changes)
        except BaseException:
            self._is_uncertain = True
            raise

    async def _clean_up(self) -> None:
        """Replace refused records in the topic by the valid value, or by a tombstone."""
        changes = []
        for key in self.state.refused:
            assert key.subject is not None, "versions have a subject"
            assert key.version is not None, "versions have a number"
            held = self.state.version(key.subject, key.version, with_deleted=True)
            changes.append(Change(key, None if held is None else held.value.encode()))
        await self._write(changes)

    async def _wait_idle(self) -> None:
        async with self._lock:
            pass


def encoded(fields: object) -> bytes:
    """Return the body of a response."""
    return encode_json(fields)  # type: ignore[arg-type]  # any JSON is encoded in the same way


def listed_contexts(state: State) -> list[str]:
    """Return the names of all contexts, the default one first."""
    return [DEFAULT_CONTEXT, *sorted(state.named_contexts)]


def in_other_contexts(state: State, subject: str) -> list[str]:
    """Return the same subject in every other context, where clients that name none are looked for."""
    named = Subject.parse(subject)
    if named.context != DEFAULT_CONTEXT:
        return []
    return [str(Subject(context, named.name)) for context in state.named_contexts]
