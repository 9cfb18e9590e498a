"""Found by Spark on its own: every module whose name begins with `pyspark_` is imported when a format is
unknown, and its `DefaultSource` is registered. Without pyspark there is none, and that is no error.
"""

try:
    from headrace.spark.source import HeadraceSource as DefaultSource
except ImportError:
    pass
else:
    __all__ = ["DefaultSource"]
