-- The least rights that plant-store needs, for a role "plants".  Run
-- it as the owner of the tables, who may create roles:
--     plant-store schema --roles | psql -v ON_ERROR_STOP=1 DATABASE
-- Give it a password with \password plants, or let pg_hba.conf name
-- another way.
BEGIN;
CREATE ROLE plants LOGIN;
GRANT SELECT, INSERT ON plants TO plants;
-- CockroachDB has no rights on columns: there it is UPDATE ON plants.
GRANT UPDATE (lock) ON plants TO plants;
GRANT SELECT ON plants_schema, plants_list TO plants;
COMMIT;
