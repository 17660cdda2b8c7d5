-- What export --cursor and --follow need: transaction numbers.  Run it as the
-- owner of the tables, with PostgreSQL 13 or later:
--     plant-store schema --feed | psql -v ON_ERROR_STOP=1 DATABASE
-- If you run it again, it renumbers all plants, as is needed after a restore
-- into another cluster; earlier cursors are then invalid.  ALTER TABLE briefly
-- blocks all inserts; if others use the table for longer than 2 s, it fails:
-- try again.
SET lock_timeout = '2s';
ALTER TABLE plants DROP COLUMN IF EXISTS tx,
    ADD COLUMN tx xid8 NOT NULL DEFAULT pg_current_xact_id();
SET lock_timeout = 0;
-- This adds an index to each insert, so drop another one: export --since then
-- reads all rows.
CREATE INDEX CONCURRENTLY plants_feed ON plants (tx, id);
DROP INDEX CONCURRENTLY IF EXISTS plants_stored_at;
ANALYZE plants;
