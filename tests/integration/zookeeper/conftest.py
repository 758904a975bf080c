"""What tests of the coordination server's wire share."""

from tests.integration.real_zookeeper import real_zookeeper as real_zookeeper
