"""What `import kalda` offers, and what it must not cost."""

import builtins
import inspect
import pickle
import re
import subprocess
import sys
import traceback
import typing
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any

import pandas
import pyarrow
import pytest

import kalda
import kalda.clients.legacy
import kalda.faults
import kalda.pipelines.tables
import kalda.serializers
from kalda.records.record import Header

INTERNAL = {
    "Cluster.server",  # says that what it returns is internal
    "AsyncConsumer.invoke",  # for the group only
    "ArrowFuture.__init__",  # made by the producer
    "RecordFuture.__init__",
    "KafkaCluster.server",  # as of Cluster
    # Batches and tables of pyarrow, which has no types of its own.
    "AsyncShareConsumer.acknowledge",
    "ShareConsumer.acknowledge",
    # Made by the fixtures.
    "Kafka.__init__",
    "AsyncView.__init__",
    "KafkaFactory.__init__",
}
REFERENCE = Path(__file__).parents[2] / "docs/reference"
PACKAGES = [
    kalda,
    kalda.serializers,
    kalda.testing,
    kalda.faults,
    kalda.clients.legacy,
    kalda.pipelines.tables,
]
NAMESPACE = {
    **{name: getattr(kalda, name) for name in kalda.__all__},
    "pa": pyarrow,
    "pd": pandas,
    "Header": Header,
}
"""What modules import for type checkers only."""


def test_every_public_name_can_be_had() -> None:
    for name in kalda.__all__:
        assert getattr(kalda, name) is not None, name
    assert set(kalda.__all__) <= set(dir(kalda))
    assert kalda.testing.Cluster is kalda.Cluster


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the data source needs PySpark; a star import must work without."""
    monkeypatch.setitem(sys.modules, "pyspark.sql.datasource", None)
    monkeypatch.delitem(sys.modules, "kalda.spark.datasource", raising=False)
    monkeypatch.delitem(vars(kalda), "KaldaDataSource", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"needs the package pyspark.*the extra \[spark\]"):
        kalda.KaldaDataSource  # noqa: B018
    assert "KaldaDataSource" not in kalda.__all__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'kalda' has no attribute 'Kluster'"):
        kalda.Kluster  # noqa: B018


def exported(package: ModuleType) -> Iterator[tuple[str, Any]]:
    """Return the classes and functions of a package's `__all__`."""
    for name in package.__all__:
        value = getattr(package, name)
        if isinstance(value, type | FunctionType):
            yield name, value


def test_examples_of_docstrings_are_markdown() -> None:
    """The site shows ``Example::`` as it is, and the code without colours."""
    docs = {}
    for name, value in (each for package in PACKAGES for each in exported(package)):
        docs[name] = value.__doc__ or ""
        for member, found in vars(value).items():
            if not member.startswith("_"):
                docs[f"{name}.{member}"] = getattr(found, "__doc__", "") or ""

    assert [] == sorted(name for name, text in docs.items() if re.search(r"::$", text, re.MULTILINE))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_public_things_name_the_package_that_exports_them(package: ModuleType) -> None:
    """Tracebacks, reprs and `help` show a name that can be imported and stays."""
    allowed = {package.__name__, "kalda"}
    wrong = {name: value.__module__ for name, value in exported(package) if value.__module__ not in allowed}
    assert {} == wrong


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_public_things_are_pickled_by_their_public_name(package: ModuleType) -> None:
    for name, value in exported(package):
        assert pickle.loads(pickle.dumps(value)) is value, name


def test_values_and_errors_can_be_pickled() -> None:
    """A process that has only imported `kalda` reads them."""
    code = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read()))"
    error = kalda.UnknownTopicOrPartitionError("topic t", "gone")
    values = [kalda.TopicPartition("t", 1), kalda.NewTopic("t", 3, 1), kalda.ClientConfigError("wrong")]
    done = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(values), capture_output=True, check=True
    )
    assert str(values) == done.stdout.decode().strip()
    assert "kalda.UnknownTopicOrPartitionError" in "".join(traceback.format_exception_only(error))


def test_importing_kalda_loads_nothing_else() -> None:
    """It has to stay under 30 ms, and Spark's workers import it for each task."""
    code = "import sys; import kalda; print(*(name for name in sys.modules if name.startswith('kalda')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "kalda" == done.stdout.strip()


def classes_in(hint: Any) -> Iterator[type]:
    """Return the classes that an annotation names."""
    if isinstance(hint, list | tuple):
        for each in hint:
            yield from classes_in(each)
    elif typing.get_origin(hint) is not None:
        yield from classes_in(typing.get_origin(hint))
        yield from classes_in(typing.get_args(hint))
    elif isinstance(hint, type):
        yield hint


def public_classes() -> dict[str, type]:
    values = {name: getattr(kalda, name) for name in kalda.__all__}
    for package in (kalda.testing, kalda.faults):
        values |= {name: getattr(package, name) for name in package.__all__}
    return {name: value for name, value in values.items() if isinstance(value, type)}


def annotations_of(owner: type) -> Iterator[tuple[str, Any]]:
    """Return the public methods, properties and fields of a class with what their annotations say."""
    for name, hint in typing.get_type_hints(owner, localns=NAMESPACE).items():
        if not name.startswith("_"):
            yield f"{owner.__name__}.{name}", hint
    for name, member in functions_of(owner):
        yield name, list(typing.get_type_hints(member, localns=NAMESPACE).values())


def functions_of(owner: type) -> Iterator[tuple[str, FunctionType | MethodType]]:
    for name, found in inspect.getmembers(owner):
        member = found.fget if isinstance(found, property) else found
        if isinstance(member, FunctionType | MethodType) and (name == "__init__" or not name.startswith("_")):
            yield f"{owner.__name__}.{name}", member


def test_what_public_methods_take_and_return_is_public() -> None:
    public = set(public_classes().values())
    hidden = {
        f"{where}: {each.__module__}.{each.__name__}"
        for owner in public
        for where, hint in annotations_of(owner)
        for each in classes_in(hint)
        if each.__module__.startswith("kalda") and each not in public and where not in INTERNAL
    }
    assert set() == hidden


def test_what_public_methods_raise_is_public() -> None:
    """A program can only catch what it can import."""
    public = public_classes()
    hidden = {
        f"{where}: {name}"
        for owner in public.values()
        for where, member in functions_of(owner)
        for section in re.findall(r"Raises:\n((?:    .*\n?|\n)+)", inspect.getdoc(member) or "")
        for names in re.findall(r"^    ([A-Z][\w, ]*):", section, re.MULTILINE)
        for name in re.findall(r"[A-Z]\w+", names)
        if name not in public and not hasattr(builtins, name)
    }
    assert set() == hidden


def test_every_error_of_a_client_is_public() -> None:
    def subclasses(error: type[Exception]) -> Iterator[type[Exception]]:
        for each in error.__subclasses__():
            yield each
            yield from subclasses(each)

    public = public_classes()
    errors: list[type] = [
        each
        for each in subclasses(kalda.ClientError)
        if each.__module__ == "kalda" or each.__module__.startswith("kalda.clients.")
    ]
    # The bases of these say all that a program can use.
    internal = {"PermanentCommitError", "UnknownPartitionsError"}
    shown = [each for each in errors if each.__name__ not in internal and "legacy" not in each.__module__]
    assert [] == [each for each in shown if public.get(each.__name__) is not each]


def test_the_reference_has_each_public_class_once_by_its_public_name() -> None:
    pages = [page.read_text() for page in REFERENCE.glob("python*.md")]
    shown = [name for page in pages for name in re.findall(r"^::: kalda\.([\w.]+)$", page, re.MULTILINE)]
    assert sorted(public_classes()) == sorted(
        plain
        for name in shown
        if (plain := name.removeprefix("testing.").removeprefix("faults.")) in public_classes()
    )
