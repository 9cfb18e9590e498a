"""What a query is told when it cannot be answered: wrong use, or records that are no longer there."""


class InvalidOption(ValueError):
    """An option, or a combination of options, that makes no sense."""


class Undecodable(ValueError):
    """A record is not what keyFormat or valueFormat says."""


class DataLost(Exception):
    """Records that the query was to read are gone: which, since when, and why."""


class TopicRecreated(DataLost):
    """The topic was deleted, and another one has its name; offsets of the old one mean nothing in it."""


class SinkUnusable(Exception):
    """Rows cannot be written as they have to be."""
