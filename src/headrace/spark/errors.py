"""Errors of `format("headrace")`: wrong options, undecodable records, lost records, failed writes."""


class InvalidOption(ValueError):
    """An option, a combination of options or a DataFrame's schema is invalid."""


class Undecodable(ValueError):
    """A record does not have the format that keyFormat or valueFormat names."""


class DataLost(Exception):
    """Records that the query was to read no longer exist; the message says which ones, and why."""


class TopicRecreated(DataLost):
    """The topic was deleted and created again; offsets of the old topic are invalid in the new one."""


class SinkUnusable(Exception):
    """The sink cannot give the guarantee that the query needs."""
