-- What export --cursor and --follow need: the numbers of transactions.
-- For the owner of the tables, with PostgreSQL 13 or later:
--     plant-store schema --feed | psql -v ON_ERROR_STOP=1 DATABASE
-- Run again, it numbers all plants anew, as is needed after a restore
-- into another cluster; then no cursor from before fits.  Nothing can be
-- stored during ALTER TABLE, for a moment; if others use the table for
-- longer than 2 s, it fails: try again.
SET lock_timeout = '2s';
ALTER TABLE plants DROP COLUMN IF EXISTS tx,
    ADD COLUMN tx xid8 NOT NULL DEFAULT pg_current_xact_id();
SET lock_timeout = 0;
-- An insert has one index more to keep, so one goes: export --since
-- reads all then.
CREATE INDEX CONCURRENTLY plants_feed ON plants (tx, id);
DROP INDEX CONCURRENTLY IF EXISTS plants_stored_at;
ANALYZE plants;
