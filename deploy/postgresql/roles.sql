-- The least privileges that plant-store needs, for a role "plants".  Run it as
-- the owner of the tables, who must be allowed to create roles:
--     plant-store schema --roles | psql -v ON_ERROR_STOP=1 DATABASE
-- Set its password with \password plants, or choose another authentication
-- method in pg_hba.conf.
BEGIN;
CREATE ROLE plants LOGIN;
GRANT SELECT, INSERT ON plants TO plants;
-- CockroachDB has no column privileges: use UPDATE ON plants there.
GRANT UPDATE (lock) ON plants TO plants;
GRANT SELECT ON plants_schema, plants_list TO plants;
COMMIT;
