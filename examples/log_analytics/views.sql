CREATE MATERIALIZED VIEW errors_per_minute AS
SELECT date_trunc('MINUTE', received_at) AS minute, service, count(*) AS errors
FROM logs WHERE level = 'ERROR' GROUP BY 1, 2;

CREATE MATERIALIZED VIEW response_times AS
SELECT service, count(*) AS lines, percentile_disc(0.99) WITHIN GROUP (ORDER BY took_ms) AS p99_ms
FROM logs GROUP BY service;

-- the exception is the first word of a stack trace's last line
CREATE MATERIALIZED VIEW causes AS
SELECT regexp_extract(element_at(split(stack, '\n'), -1), '^\\w+', 0) AS cause, count(*) AS errors
FROM logs WHERE stack IS NOT NULL GROUP BY 1;

CREATE MATERIALIZED VIEW clock_skews AS
SELECT service, median(unix_millis(logged_at) - unix_millis(received_at)) / 1000 AS ahead_s
FROM logs GROUP BY service;
