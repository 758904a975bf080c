"""Declares how passwords among dynamic settings are encrypted in ZooKeeper."""

from kalda.common.config_def import at_least, between, one_of
from kalda.common.settings import LOW, Settings, integer, password, string
from kalda.security.password_encoder import DEFAULT_KEY_FACTORY, ITERATIONS_MAX, KEY_BITS, KEY_FACTORIES


class PasswordEncoderConfig(Settings):
    """The encryption of stored passwords."""

    password_encoder_cipher_algorithm = string(
        "AES/CBC/PKCS5Padding",
        "Cipher for passwords among the dynamic settings, under Java's name.",
        one_of(*KEY_BITS),
        importance=LOW,
    )
    password_encoder_iterations = integer(
        4096,
        "Key derivation rounds for passwords among the dynamic settings.",
        between(1024, ITERATIONS_MAX),
        importance=LOW,
    )
    password_encoder_key_length = integer(
        128,
        "Bits of the key for passwords among the dynamic settings; AES takes 128, 192 and 256.",
        at_least(8),
        importance=LOW,
    )
    password_encoder_keyfactory_algorithm = string(
        None,
        "Key derivation for passwords among the dynamic settings, under Java's name; unset, it is "
        f"{DEFAULT_KEY_FACTORY}.",
        one_of(*KEY_FACTORIES),
        importance=LOW,
    )
    password_encoder_old_secret = password(
        None,
        "The former `password.encoder.secret`: a broker that starts encrypts its stored passwords again with "
        "the new one.",
    )
    password_encoder_secret = password(
        None,
        "The secret with which passwords among the dynamic settings are encrypted in ZooKeeper; without it "
        "none can be set.",
    )
