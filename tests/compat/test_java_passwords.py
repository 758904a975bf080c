"""Stored passwords beside Apache Kafka's own PasswordEncoder and its kafka-configs, in both directions."""

import base64
import json
from pathlib import Path

import pytest

from benchmarks.apache_kafka import NotAvailableError
from kalda.security.password_encoder import KEY_BITS, KEY_FACTORIES, Encoding, PasswordEncoder
from kalda.testing.process_cluster import BrokerProcess, ZooKeeperProcess
from tests.compat.java_releases import JavaRelease
from tests.integration.tools.commands import Commands

PROGRAM = Path(__file__).parent / "java" / "EncodePasswords.java"
SECRET = "encoder-sécret"
PASSWORDS = ("", "hunter2", "sixteen bytes it", "schön 𝄞", "-----BEGIN PRIVATE KEY-----\nabc\n" * 60)
ENCODINGS = [
    *(Encoding(cipher=cipher, key_length=bits) for cipher, lengths in KEY_BITS.items() for bits in lengths),
    *(Encoding(key_factory=key_factory, iterations=1024) for key_factory in KEY_FACTORIES),
]


@pytest.fixture(scope="module")
def release() -> JavaRelease:
    try:
        return JavaRelease("3.9.1")
    except NotAvailableError as error:
        pytest.skip(str(error))


def coded(password: str) -> str:
    return base64.b64encode(password.encode()).decode()


def test_apache_kafka_reads_what_we_encode_and_we_what_it_encodes(release: JavaRelease) -> None:
    lines, expected = [], []
    for encoding in ENCODINGS:
        for password in PASSWORDS:
            text = PasswordEncoder(SECRET, encoding).encode(password)
            lines.append(f"decode {SECRET} {encoding.cipher} {text}")
            lines.append(
                f"encode {SECRET} {encoding.key_factory} {encoding.cipher} {encoding.key_length} "
                f"{encoding.iterations} {coded(password)}"
            )
            expected.append(password)
    answers = release.run(str(PROGRAM), text="\n".join(lines) + "\n").splitlines()
    assert [coded(password) for password in expected] == answers[::2]
    ours = PasswordEncoder(SECRET, Encoding())
    assert expected == [ours.decode(text) for text in answers[1::2]]
    defaults = release.run(str(PROGRAM), text=f"encode {SECRET} - AES/CBC/PKCS5Padding 128 4096 eA==\n")
    assert {field.split(":")[0] for field in PasswordEncoder(SECRET, Encoding()).encode("x").split(",")} == {
        field.split(":")[0] for field in defaults.strip().split(",")
    }


def test_brokers_read_what_kafka_configs_has_stored(release: JavaRelease, tmp_path: Path) -> None:
    """Before the first start, as Kafka documents it; and its tool alters what is stored by ours."""
    name = "listener.name.plaintext.ssl.key.password"
    other = "listener.name.plaintext.ssl.truststore.password"
    with ZooKeeperProcess(tmp_path / "zookeeper") as zookeeper:
        alter = (
            "--zookeeper",
            zookeeper.zookeeper,
            "--entity-type",
            "brokers",
            "--entity-name",
            "0",
            "--alter",
        )
        kalda = Commands("")
        kalda(
            *("configs", "alter", "--zookeeper", zookeeper.zookeeper, "--broker", "0"),
            *("--add-config", f"{name}=ours,password.encoder.secret=one"),
        )
        release.run(
            "kafka.admin.ConfigCommand",
            *alter,
            "--add-config",
            f"{other}=theirs,password.encoder.secret=one,password.encoder.iterations=2000",
        )
        stored = json.loads(
            kalda("zk", "get", "/config/brokers/0", "--zookeeper", zookeeper.zookeeper).stdout
        )["config"]
        ours = PasswordEncoder("one", Encoding())
        assert {name: "ours", other: "theirs"} == {key: ours.decode(text) for key, text in stored.items()}
        settings = {"password.encoder.secret": "one"}
        with BrokerProcess(0, tmp_path / "data", zookeeper.zookeeper, settings=settings) as broker:
            described = release.run(
                "kafka.admin.ConfigCommand",
                *("--bootstrap-server", broker.bootstrap, "--entity-type", "brokers", "--entity-name", "0"),
                "--describe",
            )
            for each in (name, other):
                assert f"{each}=null sensitive=true" in described
            release.run(
                "kafka.admin.ConfigCommand",
                *("--bootstrap-server", broker.bootstrap, "--entity-type", "brokers", "--entity-name", "0"),
                *("--alter", "--add-config", f"{name}=new,{other}=theirs"),
            )
            stored = json.loads(
                kalda("zk", "get", "/config/brokers/0", "--zookeeper", zookeeper.zookeeper).stdout
            )["config"]
            assert {name: "new", other: "theirs"} == {key: ours.decode(text) for key, text in stored.items()}
        assert "cannot be decrypted" not in broker.log_file.read_text()
