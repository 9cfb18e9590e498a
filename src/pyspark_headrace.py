"""Autoload: when a format is unknown, Spark imports every module named `pyspark_*` and registers its
`DefaultSource`. Without pyspark there is none, which is not an error.
"""

try:
    from headrace.spark.source import HeadraceSource as DefaultSource
except ImportError:
    pass
else:
    __all__ = ["DefaultSource"]
