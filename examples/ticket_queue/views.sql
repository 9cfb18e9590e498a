-- Whoever asked first is first; a second click changes nothing.
CREATE MATERIALIZED VIEW admissions AS
SELECT show, fan, row_number() OVER (PARTITION BY show ORDER BY min(offset)) AS place
FROM requests GROUP BY show, fan;

CREATE MATERIALIZED VIEW waiting_times AS
SELECT show, date_trunc('MINUTE', answered_at) AS minute, count(*) AS answers,
    max(waited_ms) AS longest_ms, percentile_disc(0.5) WITHIN GROUP (ORDER BY waited_ms) AS median_ms
FROM tickets GROUP BY 1, 2;
