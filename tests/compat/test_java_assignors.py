"""Our assignors beside those of Apache Kafka's Java client, with the same input."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from benchmarks.apache_kafka import NotAvailableError, maven_jars
from tests.assignor_cases import ASSIGNORS, AssignorCase, random_generations, read_case, result_lines
from tests.golden.clients.test_assignor_vectors import VECTORS

JAVA_PROGRAM = Path(__file__).parent / "java" / "Assignments.java"
VERSIONS = ("3.9.0", "4.1.0", "4.4.0")


def java_results(version: str, cases: Sequence[AssignorCase]) -> list[list[str]]:
    """What Java's assignors of that version return."""
    try:
        jars = maven_jars(
            f"kafka-clients-{version}",
            (f"org.apache.kafka:kafka-clients:{version}", "org.slf4j:slf4j-nop:1.7.36"),
        )
    except NotAvailableError as error:
        pytest.skip(str(error))
    done = subprocess.run(
        ["java", "-cp", f"{jars}/*", str(JAVA_PROGRAM)],
        input="".join("\n".join([*case.lines(), "end"]) + "\n" for case in cases),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    return [block.splitlines() for block in done.stdout.split("\n\n")[:-1]]


def breaks_subscriptions(case: AssignorCase, lines: Sequence[str]) -> bool:
    """Whether a member gets a topic that it does not subscribe to: Java's sticky assignors sometimes do."""
    return any(
        partition.rpartition("-")[0] not in case.members[member_id.rstrip(":")].topics
        for member_id, *partitions in map(str.split, lines)
        for partition in partitions
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_random_groups_get_the_same_assignment_as_from_java(version: str) -> None:
    """A leader of either language may be elected at any time; that alone must move no partition."""
    seed = int(os.environ.get("KALDA_SEED", "1"))
    random = Random(seed)
    cases = [
        case
        for _ in range(1500)
        for case in random_generations(random, random.choice(list(ASSIGNORS)), racks=random.random() < 0.5)
    ]
    results = java_results(version, cases)
    assert len(cases) == len(results)
    compared = 0
    for case, lines in zip(cases, results, strict=True):
        if not breaks_subscriptions(case, lines):
            assert lines == result_lines(case.assign()), f"seed {seed}: {case.lines()}"
            compared += 1
    assert compared > 0.99 * len(cases)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_golden_vectors_are_what_java_assigns(version: str) -> None:
    """With KALDA_REWRITE_VECTORS=1 the vectors are written from Java's results."""
    blocks = [block.partition("\n----") for block in VECTORS.read_text().strip().split("\n\n")]
    cases = [read_case(line for line in block.splitlines() if line[0] != "#") for block, _, _ in blocks]
    results = java_results(version, cases)
    if os.environ.get("KALDA_REWRITE_VECTORS"):
        texts = (
            "\n".join([block, "----", *lines]) for (block, _, _), lines in zip(blocks, results, strict=True)
        )
        VECTORS.write_text("\n\n".join(texts) + "\n")
        return
    assert results == [result.strip().splitlines() for _, _, result in blocks]
