CREATE MATERIALIZED VIEW states AS
SELECT `order`, CASE account WHEN 'sales' THEN 'paid' WHEN 'refunds due' THEN 'too late' ELSE 'placed' END AS state
FROM placed_orders LEFT JOIN (SELECT `order`, account FROM ledger WHERE account <> 'cash') USING (`order`);
