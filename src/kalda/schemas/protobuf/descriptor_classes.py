"""Classes of descriptor.proto's messages in a pool of their own.

The classes of `google.protobuf.descriptor_pb2` parse the options of every extension that the program has
loaded, such as Confluent's, and write the entries of their maps in any order. These keep the bytes of such
options.
"""

from functools import cache
from typing import Any


@cache
def descriptor_class(name: str) -> Any:
    """Return the class of a message, such as ``FileDescriptorProto``.

    Raises:
        ModuleNotFoundError: The package protobuf is not installed.
    """
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"google.protobuf.{name}"))


@cache
def _pool() -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(descriptor_pb2.DESCRIPTOR.serialized_pb)
    return pool
