CREATE MATERIALIZED VIEW manifests AS
SELECT clip, map_from_entries(collect_set(struct(rendition, sha256))) AS renditions
FROM renditions GROUP BY clip HAVING count(DISTINCT rendition) = 3;

-- A clip that failed, was repaired and went back to the queue is whole.
CREATE MATERIALIZED VIEW clips AS
SELECT clip, CASE WHEN clip IN (SELECT clip FROM manifests) THEN 'whole'
    WHEN clip IN (SELECT clip FROM failures) THEN 'failed' ELSE 'waiting' END AS state
FROM uploads;
