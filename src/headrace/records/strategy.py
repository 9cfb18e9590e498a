"""How a producer finds a partition for a record that names none."""

from enum import IntEnum


class Strategy(IntEnum):
    BY_KEY = 0  # murmur2 of the key, as Java does; sticky without one
    STICKY = 1  # keys are ignored
    ROUND_ROBIN = 2
    CUSTOM = 3  # a function of the user's
