"""Parses Protobuf schemas: the text of a .proto file, or a compiled descriptor in base64."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

from kalda.common.extras import missing_package
from kalda.common.overriding import override
from kalda.schemas.errors import InvalidSchemaError
from kalda.schemas.model import ParsedSchema, Schema
from kalda.schemas.protobuf.descriptor_classes import descriptor_class
from kalda.schemas.protobuf.elements import MessageElement, ProtoFile
from kalda.schemas.protobuf.from_descriptors import file_of_descriptor
from kalda.schemas.protobuf.known_files import known_files
from kalda.schemas.protobuf.reader import read_proto
from kalda.schemas.protobuf.resolution import Origin, Types
from kalda.schemas.protobuf.tags import change_tags, tagged_entities
from kalda.schemas.protobuf.to_descriptors import MAIN_FILE, descriptor_of
from kalda.schemas.protobuf.writer import normal_form, written
from kalda.schemas.tags import Entity, TagChange


class ProtobufSchema(ParsedSchema):
    """A parsed Protobuf schema.

    Attributes:
        file: What it declares.
        files: The files that it refers to, by the path of the import.
        types: What the names in it mean.
    """

    def __init__(self, schema: Schema, file: ProtoFile, files: Mapping[str, ProtoFile]) -> None:
        super().__init__(schema)
        self.file: Final = file
        self.files: Final = files
        origins: dict[str, Origin] = {each.name: (each.subject, each.version) for each in schema.references}
        self.types: Final = Types(file, files, origins)
        self._canonical: str | None = None

    @property
    @override
    def name(self) -> str | None:
        file = self._effective_file()
        messages = [each for each in file.types if isinstance(each, MessageElement)]
        for first in (*messages, *file.types):
            return f"{file.package}.{first.name}" if file.package else first.name
        return None

    @override
    def field_names(self) -> frozenset[str]:
        messages = [each for each in self._effective_file().types if isinstance(each, MessageElement)]
        names: set[str] = set()
        for holder in (*messages[:1], *(messages[0].oneofs if messages else ())):
            names.update(field.name for field in holder.fields)
            names.update(group.name for group in holder.groups)
        return frozenset(names)

    @override
    def canonical(self) -> str:
        if self._canonical is None:
            self._canonical = written(self.file)
        return self._canonical

    @override
    def normalized(self) -> str:
        return normal_form(self.file, self.types)

    @override
    def formatted(self, format_name: str) -> str:
        match format_name.lower():
            case "serialized":
                return base64.b64encode(self._descriptors()[-1].SerializeToString()).decode()
            case "ignore_extensions":
                return written(self.file, ignores_extensions=True)
        return self.canonical()

    @override
    def tagged_entities(self) -> dict[Entity, list[str]]:
        return tagged_entities(self.file)

    @override
    def with_tags(self, change: TagChange) -> str:
        file = read_proto(self.canonical())
        change_tags(file, change)
        return written(file)

    def descriptor_set(self) -> bytes:
        """Return a serialized ``FileDescriptorSet``, as protoc makes it, its own file last.

        Each file comes after those that it imports.

        Raises:
            InvalidSchemaError: It is not consistent, such as two fields with one number.
        """
        made: bytes = descriptor_class("FileDescriptorSet")(
            file=self._descriptors(is_in_text_order=True)
        ).SerializeToString()
        return made

    def check_consistency(self) -> None:
        """Check that the descriptors fit together: names and numbers are used once, enums have values.

        Raises:
            InvalidSchemaError: They do not.
        """
        self._descriptors()

    def _effective_file(self) -> ProtoFile:
        """Return the file itself, or the one it stands for if it has only one public import."""
        file = self.file
        if (
            not (file.types or file.imports or file.services or file.extends)
            and len(file.public_imports) == 1
        ):
            path = file.public_imports[0]
            found = self.files.get(path) or known_files().get(path)
            if found is not None and found.types:
                return found
        return file

    def _descriptors(self, *, is_in_text_order: bool = False) -> list[Any]:
        from google.protobuf import descriptor_pool

        known = known_files()
        available: dict[str, ProtoFile] = {**known, **self.files}
        made: dict[str, Any] = {}

        def add_known(paths: list[str]) -> None:
            for path in paths:
                if path in known and path not in self.files and path not in made:
                    file = descriptor_of(known[path], path, self.types, known)
                    add_known(list(file.dependency))
                    made[path] = file

        for path, file in (*self.files.items(), (MAIN_FILE, self.file)):
            descriptor = descriptor_of(file, path, self.types, available, is_in_text_order=is_in_text_order)
            add_known(list(descriptor.dependency))
            made[path] = descriptor
        pool = descriptor_pool.DescriptorPool()
        for path, descriptor in made.items():
            try:
                pool.AddSerializedFile(descriptor.SerializeToString())
                pool.FindFileByName(path)
            except (TypeError, ValueError, KeyError) as error:
                reason = str(error).removeprefix("Couldn't build proto file into descriptor pool: ")
                where = "the schema" if path == MAIN_FILE else f"the reference {path:.200}"
                raise InvalidSchemaError(f"{where} is not consistent: {reason}") from None
        return list(made.values())


def parse(schema: Schema, dependencies: Mapping[str, str], *, is_new: bool) -> ProtobufSchema:
    """Return a parsed schema; see `kalda.schemas.parsing.parse`.

    Raises:
        InvalidSchemaError: It is none.
        ModuleNotFoundError: The extra ``http`` is not installed.
    """
    try:
        files = {}
        for name, text in dependencies.items():
            try:
                files[name] = _file_of(text)
            except InvalidSchemaError as error:
                raise InvalidSchemaError(f"the reference {name:.200}: {error.reason}") from None
        made = ProtobufSchema(schema, _file_of(schema.text), files)
        made.canonical()  # has to be as short as what is stored
        made.normalized()  # resolves the names of all types
        if is_new:
            made.check_consistency()
    except ModuleNotFoundError as error:
        raise missing_package("a Protobuf schema", "http", error) from error
    return made


def _file_of(text: str) -> ProtoFile:
    try:
        return read_proto(text)
    except InvalidSchemaError:
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            data = b""
        if not data:
            raise
        try:
            file = file_of_descriptor(data)
            # A descriptor may have any text as a name. What is stored is text, and has to be readable.
            if written(read_proto(written(file))) != written(file):
                raise InvalidSchemaError("the FileDescriptorProto has names that no file can have")
        except InvalidSchemaError as error:
            raise InvalidSchemaError(f"Could not parse Protobuf - {error.reason}") from None
        return file
