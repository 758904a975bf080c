"""The REST API of the schema registry: paths, parameters and bodies over `kalda.http.registry`."""
