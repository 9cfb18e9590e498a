"""Autoload of `format("headrace_lake")`, as pyspark_headrace does for `format("headrace")`.

Without pyspark or the extra `lake` there is none, which is not an error.
"""

try:
    from headrace.spark.lake_table import HeadraceLake as DefaultSource
except ImportError:
    pass
else:
    __all__ = ["DefaultSource"]
