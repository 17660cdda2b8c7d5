-- What plant-store needs in a database.  Run it once, as the role that is to
-- own the tables, not as the service's role:
--     plant-store schema | psql -v ON_ERROR_STOP=1 DATABASE
BEGIN;

-- plant is the canonical JSON, byte for byte: plants are the same only
-- if their texts are.  lock is always NULL: SELECT ... FOR KEY SHARE
-- requires the privilege to UPDATE it.
CREATE TABLE plants (
    id bigint PRIMARY KEY,
    plant text NOT NULL,
    stored_by text NOT NULL,
    stored_at timestamptz NOT NULL,
    lock smallint
);
CREATE INDEX plants_stored_at ON plants (stored_at, id);

-- The version of the file that created the tables.
CREATE TABLE plants_schema (version integer PRIMARY KEY);
INSERT INTO plants_schema VALUES (1);

-- For people.  PostgreSQL text cannot contain U+0000: if a plant has one, its
-- name and tag are NULL here.
CREATE VIEW plants_list AS
    SELECT id,
        CASE WHEN has_nul THEN NULL ELSE plant::json->>'name' END AS name,
        CASE WHEN has_nul THEN NULL ELSE plant::json->>'tag' END AS tag,
        has_nul, stored_by, stored_at
    FROM (SELECT *, plant ~ '(^|[^\\])(\\\\)*\\u0000' AS has_nul FROM plants)
        AS checked;

COMMIT;
