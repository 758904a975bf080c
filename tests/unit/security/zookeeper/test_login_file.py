"""JAAS files: the forms that Java reads, and mistakes that are named without a password."""

import pytest

from kalda.security.zookeeper.login_file import (
    LoginFileError,
    client_login,
    load,
    parse_login_file,
    server_users,
)

FILE = """
// The users of ZooKeeper.
Server {
   org.apache.zookeeper.server.auth.DigestLoginModule required
       user_super="adm;in {}"   /* may do
                                   everything */
       user_bob='b"ob' user_carl=plain;
};
# Of the broker itself.
Client {
   org.apache.zookeeper.server.auth.DigestLoginModule REQUIRED username="bob" password="a\\"b";
};
KafkaServer { com.acme.One sufficient; com.acme.Two optional a=b; };
"""


def test_sections_are_read() -> None:
    assert {"super": "adm;in {}", "bob": 'b"ob', "carl": "plain"} == server_users(FILE, "Server")
    assert ("bob", 'a"b') == client_login(FILE, "Client")
    assert ["One", "Two"] == [each.name for each in parse_login_file(FILE)["KafkaServer"]]
    assert {} == parse_login_file(" // nothing")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Server {", "the end of the file lacks a login module"),
        ("Server { a.B required };", "line 1 lacks the name of an option"),
        ("Server { a.B needed; };", "required"),
        ("\nServer { a.B required x=; };", "line 2 lacks the value of x"),
        ("Server { a.B required x; };", "line 1 has no ="),
        ('Server { a.B required x="secret; };', "a quote or a comment without an end"),
        ("Server { } Server { };", "has no ;"),
        ("Server { }; Server { };", "twice"),
        ("Other { a.DigestLoginModule required; };", "no section Server"),
        ("Server { a.Krb5LoginModule required; };", "Krb5LoginModule; it takes one DigestLoginModule"),
        ("Server { a.DigestLoginModule required x=secret; };", "no user"),
    ],
)
def test_mistakes_are_named(text: str, message: str) -> None:
    with pytest.raises(LoginFileError, match=message) as caught:
        server_users(text, "Server")
    assert "secret" not in str(caught.value)


def test_files_that_cannot_be_used_are_named() -> None:
    def absent(path: str) -> bytes:
        raise FileNotFoundError(2, "No such file or directory")

    for read in (absent, lambda path: b"\xff", lambda path: b"Client {};"):
        with pytest.raises(LoginFileError, match="`=/jaas cannot be"):
            load("/jaas", read, lambda text: client_login(text, "Client"))


def test_modules_show_no_password() -> None:
    assert "adm" not in repr(parse_login_file(FILE))
