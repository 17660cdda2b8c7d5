/*
 * schema: what `plant-store schema` prints.  It is all in what CockroachDB,
 * YugabyteDB and Citus document as well, but the grant of one column, and the
 * feed.
 */
#include "session.h"

const char schema_tables[] =
    "-- What plant-store needs in a database, once.  Run it as the role that\n"
    "-- shall own the tables, not as that of the service:\n"
    "--     plant-store schema | psql -v ON_ERROR_STOP=1 DATABASE\n"
    "BEGIN;\n"
    "\n"
    "-- plant is the canonical JSON, byte for byte: a plant is the same only\n"
    "-- if its text is.  lock is always NULL: a right to UPDATE it is what\n"
    "-- SELECT ... FOR KEY SHARE asks for.\n"
    "CREATE TABLE plants (\n"
    "    id bigint PRIMARY KEY,\n"
    "    plant text NOT NULL,\n"
    "    stored_by text NOT NULL,\n"
    "    stored_at timestamptz NOT NULL,\n"
    "    lock smallint\n"
    ");\n"
    "CREATE INDEX plants_stored_at ON plants (stored_at, id);\n"
    "\n"
    "-- Which of these files made them.\n"
    "CREATE TABLE plants_schema (version integer PRIMARY KEY);\n"
    "INSERT INTO plants_schema VALUES (" SCHEMA_VERSION ");\n"
    "\n"
    "-- For people.  No text of PostgreSQL can hold a U+0000: where a plant\n"
    "-- has one, its name and tag are NULL here.\n"
    "CREATE VIEW plants_list AS\n"
    "    SELECT id,\n"
    "        CASE WHEN has_nul THEN NULL ELSE plant::json->>'name' END AS "
    "name,\n"
    "        CASE WHEN has_nul THEN NULL ELSE plant::json->>'tag' END AS tag,\n"
    "        has_nul, stored_by, stored_at\n"
    "    FROM (SELECT *, plant ~ '(^|[^\\\\])(\\\\\\\\)*\\\\u0000' AS has_nul "
    "FROM plants)\n"
    "        AS checked;\n"
    "\n"
    "COMMIT;\n";

const char schema_roles[] =
    "-- The least rights that plant-store needs, for a role \"plants\".  Run\n"
    "-- it as the owner of the tables, who may create roles:\n"
    "--     plant-store schema --roles | psql -v ON_ERROR_STOP=1 DATABASE\n"
    "-- Give it a password with \\password plants, or let pg_hba.conf name\n"
    "-- another way.\n"
    "BEGIN;\n"
    "CREATE ROLE plants LOGIN;\n"
    "GRANT SELECT, INSERT ON plants TO plants;\n"
    "-- CockroachDB has no rights on columns: there it is UPDATE ON plants.\n"
    "GRANT UPDATE (lock) ON plants TO plants;\n"
    "GRANT SELECT ON plants_schema, plants_list TO plants;\n"
    "COMMIT;\n";

/* A stable default is evaluated once for all rows, and none is rewritten. */
const char schema_feed[] =
    "-- What export --cursor and --follow need: the numbers of transactions.\n"
    "-- For the owner of the tables, with PostgreSQL 13 or later:\n"
    "--     plant-store schema --feed | psql -v ON_ERROR_STOP=1 DATABASE\n"
    "-- Run again, it numbers all plants anew, as is needed after a restore\n"
    "-- into another cluster; then no cursor from before fits.  Nothing can "
    "be\n"
    "-- stored during ALTER TABLE, for a moment; if others use the table for\n"
    "-- longer than 2 s, it fails: try again.\n"
    "SET lock_timeout = '2s';\n"
    "ALTER TABLE plants DROP COLUMN IF EXISTS tx,\n"
    "    ADD COLUMN tx xid8 NOT NULL DEFAULT pg_current_xact_id();\n"
    "SET lock_timeout = 0;\n"
    "-- An insert has one index more to keep, so one goes: export --since\n"
    "-- reads all then.\n"
    "CREATE INDEX CONCURRENTLY plants_feed ON plants (tx, id);\n"
    "DROP INDEX CONCURRENTLY IF EXISTS plants_stored_at;\n"
    "ANALYZE plants;\n";
