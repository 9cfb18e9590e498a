"""Orders joined with payments, stream to stream: each payment becomes two entries of the ledger, once."""

from pyspark import pipelines as dp

from headrace.pipelines import deduplicate, parse

ORDER = "order STRING, cents BIGINT, ordered_at_ms BIGINT"
PAYMENT = "payment STRING, order STRING, cents BIGINT, paid_at_ms BIGINT"
LATEST = "3 hours"  # no payment comes later than that after its order
APART = "3 hours"  # partitions are read at most so far apart; state is kept for so much longer

# What came in, and what it is for: the goods, or a refund, if it came more than an hour after the order.
ENTRIES = """inline(array(
    struct('cash' AS account, cents AS cents),
    struct(IF(paid_at > ordered_at + INTERVAL 1 HOUR, 'refunds due', 'sales') AS account, -cents AS cents)
))"""


def read(topic, schema):
    records = spark.readStream.format("headrace").option("startingOffsets", "earliest").load(topic)
    return parse(records, schema)


def orders():
    return read("orders", ORDER).selectExpr("order", "timestamp_millis(ordered_at_ms) AS ordered_at")


@dp.table(format="headrace_lake")
def placed_orders():
    return orders()


@dp.table(format="headrace_lake")
def ledger():
    columns = "payment", "order AS paid_order", "cents", "timestamp_millis(paid_at_ms) AS paid_at"
    # the provider may report a payment twice
    paid = deduplicate(
        read("payments", PAYMENT).selectExpr(*columns), "payment", time="paid_at", within=APART
    )
    joined = (
        orders()
        .withWatermark("ordered_at", APART)
        .join(paid)
        .where(f"order = paid_order AND paid_at BETWEEN ordered_at AND ordered_at + INTERVAL {LATEST}")
    )
    return joined.selectExpr("payment", "order", "paid_at", ENTRIES)
