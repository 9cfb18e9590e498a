-- Samples are numbered from 0 on. What is missing below the last number was lost.
CREATE MATERIALIZED VIEW losses AS
SELECT host, metric, sum(samples) AS arrived, max(last_number) + 1 - sum(samples) AS missing
FROM rollups_1m GROUP BY host, metric;
