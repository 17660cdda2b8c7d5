/*
 * store_command: the arguments of init, verify, backup and schema, and what
 * they print.
 */
#include <inttypes.h>
#include <stdio.h>

#include "command.h"
#include "ground/clock.h"
#include "ground/file.h"

void
store_run_init(const struct call *call)
{
	const char *dir = call->store.dir;

	command_need(file_become_owner(dir, 0));
	command_need(store_init(dir));
	printf("%s: created a new store\n", dir);
}

void
store_run_verify(const struct call *call)
{
	const char *dir = call->store.dir;
	struct reader_report report;
	enum fault fault = verify_store(dir, call->store.watch, &report);

	command_unwatch();
	if (fault == FAULT_STOPPED)
		log_error("%s: stopped after %s, %" PRIu64
			  " bytes, valid so far",
		    dir, command_count(report.plants, "plant"), report.bytes);
	command_need(fault);
	printf("%s: store %s: %s, %" PRIu64 " bytes, all valid\n", dir,
	    report.store, command_count(report.plants, "plant"), report.bytes);
	if (report.index == INDEX_USABLE)
		printf("%s/index: holds the same plants\n", dir);
	else if (report.index != INDEX_ABSENT)
		printf("%s/index: %s%s\n", dir, index_words[report.index].text,
		    report.index > INDEX_BEHIND ? "; not compared" : "");
}

void
store_run_backup(const struct call *call)
{
	int64_t begun_ms = clock_ms(CLOCK_REALTIME);
	struct reader_report report;
	const char *dir = call->store.dir, *dest = call->operands[0];
	const bool whole = command_option("verify") != NULL;
	enum fault fault =
	    copy_backup(dir, dest, whole, call->store.watch, &report);

	if (fault == FAULT_STOPPED)
		log_error("stopped; %s is unchanged; run backup again", dest);
	command_need(fault);
	command_unwatch();
	printf("%s: store %s: %" PRIu64 " bytes, %" PRIu64 " of them new\n",
	    dest, report.store, report.bytes, report.added);
	if (whole) {
		struct call copy = *call;

		copy.store.dir = dest;
		command_watch("verify");
		store_run_verify(&copy);
	}
	/* The backup is good even if its time cannot be recorded. */
	if (file_become_owner(dir, 0) != FAULT_NONE)
		return;
	if (file_put_time(dir, STORE_BACKUP_NAME, begun_ms) < 0 ||
	    (whole && file_put_time(dir, STORE_VERIFIED_NAME, begun_ms) < 0))
		(void)fault_report(dir, "cannot record its backup");
}

/* The files in deploy/postgresql, as string literals. */
static const char tables[] =
#include "postgresql/tables.sql.h"
    ;
static const char roles[] =
#include "postgresql/roles.sql.h"
    ;
static const char feed[] =
#include "postgresql/feed.sql.h"
    ;

void
store_run_schema(const struct call *call)
{
	(void)call;
	fputs(command_option("roles") != NULL  ? roles
	      : command_option("feed") != NULL ? feed
					       : tables,
	    stdout);
}
