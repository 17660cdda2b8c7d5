-- What plant-store needs in a database, once.  Run it as the role that
-- shall own the tables, not as that of the service:
--     plant-store schema | psql -v ON_ERROR_STOP=1 DATABASE
BEGIN;

-- plant is the canonical JSON, byte for byte: a plant is the same only
-- if its text is.  lock is always NULL: a right to UPDATE it is what
-- SELECT ... FOR KEY SHARE asks for.
CREATE TABLE plants (
    id bigint PRIMARY KEY,
    plant text NOT NULL,
    stored_by text NOT NULL,
    stored_at timestamptz NOT NULL,
    lock smallint
);
CREATE INDEX plants_stored_at ON plants (stored_at, id);

-- Which of these files made them.
CREATE TABLE plants_schema (version integer PRIMARY KEY);
INSERT INTO plants_schema VALUES (1);

-- For people.  No text of PostgreSQL can hold a U+0000: where a plant
-- has one, its name and tag are NULL here.
CREATE VIEW plants_list AS
    SELECT id,
        CASE WHEN has_nul THEN NULL ELSE plant::json->>'name' END AS name,
        CASE WHEN has_nul THEN NULL ELSE plant::json->>'tag' END AS tag,
        has_nul, stored_by, stored_at
    FROM (SELECT *, plant ~ '(^|[^\\])(\\\\)*\\u0000' AS has_nul FROM plants)
        AS checked;

COMMIT;
