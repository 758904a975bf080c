"""Declares and parses the settings that producer, consumer and admin client share; names are Kafka's."""
