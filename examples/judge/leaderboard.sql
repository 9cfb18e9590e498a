-- The penalty of a solved problem is the minute of its first right program, and 20 minutes for each program
-- before that. The contest begins at 1767225600000, 2026-01-01.
CREATE MATERIALIZED VIEW leaderboard AS
WITH solved AS (
    SELECT team, problem, min(sent_at_ms) AS at_ms FROM verdicts WHERE verdict = 'accepted' GROUP BY team, problem
), scored AS (
    SELECT team, problem, (at_ms - 1767225600000) DIV 60000 + 20 * (count(*) - 1) AS penalty
    FROM verdicts JOIN solved USING (team, problem)
    WHERE sent_at_ms <= at_ms
    GROUP BY team, problem, at_ms
)
SELECT team, count(*) AS solved, sum(penalty) AS penalty FROM scored GROUP BY team ORDER BY 2 DESC, 3, 1;
