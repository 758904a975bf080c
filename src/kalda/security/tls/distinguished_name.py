"""Writes the subject of a certificate as Java's ``X500Principal.getName()`` does (RFC 2253).

Kafka's mapping rules and ACLs are written against this form: the most specific part first, no space behind
the commas, and attributes without a keyword as object identifier and hexadecimal DER.
"""

from typing import Final

from kalda.security.tls.der import DerError, Element, elements, object_identifier

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_ENCODINGS: Final = {
    0x0C: "utf-8",  # UTF8String
    0x12: "ascii",  # NumericString
    0x13: "ascii",  # PrintableString
    0x14: "latin-1",  # TeletexString
    0x16: "ascii",  # IA5String
    0x1C: "utf-32-be",  # UniversalString
    0x1E: "utf-16-be",  # BMPString
}
_VERSION_TAG: Final = 0xA0
_SPECIAL: Final = frozenset(',+"\\<>;')


def subject_name(certificate: bytes) -> str:
    """Return the name of the subject of a certificate in DER.

    Raises:
        DerError: it is not a certificate.
    """
    try:
        (whole,) = elements(certificate)
        fields = list(elements(next(elements(whole.content)).content))
        if fields[0].tag == _VERSION_TAG:
            del fields[0]
        # serialNumber, signature, issuer, validity, subject
        return name_text(fields[4].content)
    except (ValueError, IndexError, StopIteration) as error:
        raise DerError(f"not an X.509 certificate: {error}") from error


def name_text(content: bytes) -> str:
    """Return the text of a name, given the content of its RDNSequence.

    Raises:
        DerError: it is malformed.
    """
    names = ["+".join(map(_attribute, elements(rdn.content))) for rdn in elements(content)]
    return ",".join(reversed(names))


def _attribute(attribute: Element) -> str:
    identifier, value = elements(attribute.content)
    name = object_identifier(identifier.content)
    keyword = _KEYWORDS.get(name)
    encoding = _ENCODINGS.get(value.tag)
    if keyword is None or encoding is None:
        return f"{keyword or name}=#{value.encoded.hex()}"
    try:
        return f"{keyword}={_escaped(value.content.decode(encoding))}"
    except UnicodeDecodeError as error:
        raise DerError(f"the attribute {keyword} is malformed: {error}") from error


def _escaped(text: str) -> str:
    escaped = "".join(f"\\{each}" if each in _SPECIAL else each for each in text)
    if escaped[:1] in ("#", " "):
        escaped = "\\" + escaped
    if escaped[-1:] == " " and escaped != "\\ ":
        escaped = escaped[:-1] + "\\ "
    return escaped
