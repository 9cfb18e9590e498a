"""The error of a metadata log that cannot be replayed."""


class BadMetadata(Exception):
    """The metadata log has a record that contradicts the records before it."""
